"""Follows how fast rows go, and has the sources' intake changed when it no longer fits the time of an epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.engine.checkpoint import Manifest
from headrace.engine.sources import has_intake, read_stream
from headrace.model import Intake, Stream
from headrace.policies import Taken, plan_intake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IntakeControl", "read_with_intake", "streams_with_intake"]

# What epochs are to take when one follows the other without a pause: long enough that fixed costs do not matter.
UNPACED_S = 1.0
# An epoch that took so much of its share took all it was allowed: Kafka counts offsets, of which some have no message
# (marks of transactions, what was compacted), and rounds by partition.
FULL = 0.4


def streams_with_intake(streams: Sequence[Stream], brought: Sequence[str]) -> tuple[Stream, ...]:
    """The streams whose intake the engine sets; those the caller brought are as they are."""
    return tuple(stream for stream in streams if stream.name not in brought and has_intake(stream))


def read_with_intake(spark: SparkSession, streams: Sequence[Stream], intake: Intake) -> dict[str, DataFrame]:
    """Streams that share an intake evenly."""
    return {stream.name: read_stream(spark, stream, _share(intake, len(streams)))[0] for stream in streams}


def _share(intake: Intake, streams: int) -> int:
    return max(1, intake.rows // streams)


class IntakeControl:
    """Takes note of every epoch; `apply` is called on a thread of its own when another intake is planned."""

    def __init__(self, streams: Sequence[Stream], intake: Intake, trigger_s: float) -> None:
        self._names = tuple(stream.name for stream in streams)
        self.intake = intake
        self._target_s = trigger_s or UNPACED_S
        self._epochs: list[Taken] = []
        self._applying = threading.Lock()
        self.apply: Callable[[Intake], bool] | None = None

    def committed(self, manifest: Manifest) -> None:
        """To be called after each commit."""
        if self.apply is None or not self._applying.acquire(blocking=False):
            return
        rows = [manifest.observed["rows"].get(name, 0) for name in self._names]
        full = any(count >= FULL * _share(self.intake, len(self._names)) for count in rows)
        self._epochs = [*self._epochs[-5:], Taken(sum(rows), manifest.observed["seconds"], full)]
        planned = plan_intake(self.intake, self._epochs, self._target_s)
        if planned is self.intake:
            self._applying.release()
        else:
            threading.Thread(target=self._change, args=(planned,), name="headrace-intake", daemon=True).start()

    def _change(self, planned: Intake) -> None:
        assert self.apply is not None
        try:
            if self.apply(planned):
                self.intake, self._epochs = planned, []
        finally:
            self._applying.release()
