"""Work in Spark that is stopped when it takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from headrace.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Deadline", "TookTooLong"]

T = TypeVar("T")
# How often is looked whether tasks have ended.
_LOOK_S = 0.1
# For so many limits stopped tasks may go on before the run gives up.
_PATIENT = 20
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_FEW_ROWS = "100"


class TookTooLong(Exception):
    """Work was stopped after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"stopped after {seconds:.0f} s")
        self.seconds = seconds


class Deadline:
    """Stops Spark's jobs; tasks and their Python workers are interrupted."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._context = spark, spark.sparkContext

    def timed(self, job: Callable[[], T]) -> tuple[T, float]:
        """What a job gives, and the seconds that it took."""
        began = time.monotonic()
        return job(), time.monotonic() - began

    def within(self, limit_s: float, job: Callable[[], T]) -> T:
        """What a job gives; TookTooLong if it did not within the limit, once its tasks have given way."""
        context, tag = self._context, f"headrace-{uuid4().hex}"
        fired = threading.Event()

        def stop() -> None:
            fired.set()
            while not over.wait(_LOOK_S):
                # Again and again: between two jobs there is nothing to cancel.
                context.cancelJobsWithTag(tag)

        over, timer = threading.Event(), threading.Timer(limit_s, stop)
        timer.daemon = True
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        timer.start()
        try:
            return job()
        except Exception as failure:
            if not fired.is_set():
                raise
            late: Exception = TookTooLong(limit_s)
            late.__cause__ = failure
        finally:
            over.set()
            timer.cancel()
            context.removeJobTag(tag)
        self._await_room(limit_s)
        raise late

    @contextmanager
    def in_small_batches(self) -> Iterator[None]:
        """Work within it hears that it is stopped after few rows: Spark's tasks listen when they hand rows over."""
        conf = self._spark.conf
        before = conf.get(_BATCH)
        conf.set(_BATCH, _FEW_ROWS)
        try:
            yield
        finally:
            conf.set(_BATCH, str(before))

    def _free(self) -> int:
        """Cores that no task holds."""
        jvm = self._context._jsc
        assert jvm is not None
        held = sum(int(info.numRunningTasks()) for info in jvm.sc().statusTracker().getExecutorInfos())
        return int(self._context.defaultParallelism) - held

    def _await_room(self, limit_s: float) -> None:
        """Waits for a core that no stopped task holds: one that is busy within a batch of rows does not hear of it."""
        until = time.monotonic() + _PATIENT * limit_s
        while self._free() <= 0:
            if time.monotonic() > until:
                raise EngineError(
                    f"tasks that were stopped after {limit_s:.0f} s hold all cores and cannot be interrupted: some "
                    "query has an expression that does not end on some row; run the queries apart to find it, "
                    "or give Spark more cores"
                )
            time.sleep(_LOOK_S)
