"""Epochs one after the other: between two of them queries change, streams are flushed, and a run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.epoch import Epoch
from headrace.engine.sinks.choose import Sink
from headrace.engine.state.checkpoint import Manifest
from headrace.errors import EngineError
from headrace.model import Flush, Intake
from headrace.planning import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Epochs"]

# What a change of queries makes of a workload and of what the last epoch left: both, and the sinks.
Change = Callable[[Workload, Manifest], tuple[Workload, Manifest, Mapping[str, Sink]]]


class Epochs:
    """Runs epochs one after the other; between two of them nothing is under way."""

    def __init__(self, epoch: Epoch, intake: Intake | None = None) -> None:
        self._epoch, self.intake = epoch, intake
        self._busy, self._stopping, self._replaced = threading.Lock(), False, False
        self._thread: int | None = None  # the one that runs an epoch
        self.failure: Exception | None = None  # what the last epoch raised

    @property
    def state(self) -> tuple[Manifest, Workload]:
        """What the last epoch left and the workload it was committed with, or a later one."""
        standing = self._epoch.standing
        return standing.manifest, standing.workload

    @property
    def manifest(self) -> Manifest:
        """What the last committed epoch left."""
        return self._epoch.standing.manifest

    @property
    def leaves(self) -> bool:
        """Whether no other batch will run here."""
        return self._stopping or self._replaced

    @property
    def calls(self) -> bool:
        """Whether the caller was itself called by an epoch under way: a hook, a sink."""
        return self._thread == threading.get_ident()

    def run(self, batch: DataFrame, number: int) -> None:
        """Runs the micro-batch `number` as the next epoch, unless it is committed already."""
        while not self._busy.acquire(timeout=0.1):
            if self._replaced:
                raise EngineError("another query takes over from here")
        try:
            if self._stopping:
                raise EngineError("the run is stopping")
            if number > self.manifest.batch:
                self._run(batch, number, None)
        finally:
            self._busy.release()

    def change(self, plan: Change, between: Callable[[], None]) -> None:
        """Replaces the workload between two epochs: `plan` makes the new one. If anything fails, nothing changes.

        `between` runs while no epoch is under way; it may stop the caller of `run` and start another.
        """
        with self._busy:
            before = self._epoch.standing
            workload, manifest, sinks = plan(before.workload, before.manifest)
            self._epoch.standing = replace(before, workload=workload, manifest=manifest, sinks=dict(sinks))
            self._replaced = True
            try:
                between()
            except BaseException:
                self._epoch.standing = before
                raise
            finally:
                self._replaced = False

    def flush(self, flush: Flush) -> None:
        """Runs epochs without rows until every window that holds rows is answered."""
        while self.flush_once(flush):
            pass

    def flush_once(self, flush: Flush) -> bool:
        """Runs one epoch without rows; whether another is needed."""
        with self._busy:
            self._run(None, self.manifest.batch, flush)
            return self._epoch.unfinished

    def quiesce(self) -> None:
        """Waits for the epoch under way to be committed and lets no other begin."""
        self._stopping = True
        with self._busy:
            pass

    def _run(self, batch: DataFrame | None, number: int, flush: Flush | None) -> None:
        self._thread, self.failure = threading.get_ident(), None
        try:
            self._epoch.run(batch, number, flush, self.intake)
        except Exception as failure:
            self.failure = failure
            raise
        finally:
            self._thread = None
