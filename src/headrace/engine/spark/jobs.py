"""Small jobs of one stage: a task per number, a value or two back from each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.kernels.border import Bordered
from headrace.kernels.orders import ORDER, obey, written

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Jobs", "jobs_started", "ordered"]


class Jobs:
    """Runs callables on `range(n)`, one number per task.

    What to do travels as a property of the job, so that the RDD, with all that Spark and Python prepare for one, is
    made once per `n` and not once per job: about 15 ms less for each.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._rdds: dict[int, RDD[Any]] = {}

    def run(self, order: Callable[[Iterable[int]], Iterable[Any]], n: int) -> list[Any]:
        """What the tasks report, in no particular order; never rows."""
        if n not in self._rdds:
            self._rdds[n] = self._context.parallelize(range(n), n).mapPartitions(obey)
        with ordered(self._context, order):
            return self._rdds[n].collect()


@contextmanager
def ordered(context: SparkContext, order: Callable[[Any], Iterable[Any]]) -> Iterator[None]:
    """Jobs that start inside the `with` have this order, which their tasks `obey`."""
    context.setLocalProperty(ORDER, written(Bordered(order)))
    try:
        yield
    finally:
        context.setLocalProperty(ORDER, None)  # type: ignore[arg-type]


def jobs_started(spark: SparkSession) -> int:
    """Spark jobs started so far in this application."""
    return int(spark._jsc.sc().dagScheduler().nextJobId())
