"""Tasks that come back to the same process, epoch after epoch: where state of bins can stay in memory.

A bin has a home, an executor, which Spark is told to prefer; and there a Python worker of its own. Spark keeps workers
apart by the environment they were started with: a variable that names the bin makes one that no other task uses, with
as many of them as bins, and no state has to leave a process for another. Nothing depends on it: a task that finds
itself elsewhere, because its executor is lost or busy or the worker has been ended, finds no state and reads it again.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.kernels.border import Bordered
from headrace.kernels.orders import ORDER, obey_by_bin, written

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["PinnedJobs"]

_VARIABLE = "HEADRACE_BIN"


class PinnedJobs:
    """Runs a callable once per bin, each time in the same worker of the same executor as long as it lives.

    `owner` keeps the bins of several runs in one Spark application apart.
    """

    def __init__(self, context: SparkContext, owner: str) -> None:
        self._context, self._owner = context, f"{zlib.crc32(owner.encode()):08x}"
        self._homes: dict[int, tuple[str, str]] = {}
        self._rdds: dict[tuple[int, tuple[str, str]], RDD[Any]] = {}
        self._union: tuple[tuple[tuple[str, str], ...], RDD[Any]] | None = None

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return max(1, int(self._context.defaultParallelism))

    def homes(self, bins: int) -> list[tuple[str, str]]:
        """The executor `(id, host)` of each bin: the one it had, unless that has more than its share.

        An executor's share of the bins is its share of the tasks that run at the same time.
        """
        tasks = self._executors()
        most = {home: math.ceil(bins * n / sum(tasks.values())) for home, n in tasks.items()}
        kept: dict[int, tuple[str, str]] = {}
        for bin_, home in sorted(self._homes.items()):
            if bin_ < bins and home in tasks and list(kept.values()).count(home) < most[home]:
                kept[bin_] = home
        counts = {home: list(kept.values()).count(home) for home in tasks}
        for bin_ in range(bins):
            if bin_ not in kept:
                kept[bin_] = min(tasks, key=lambda home: ((counts[home] + 1) / tasks[home], list(tasks).index(home)))
                counts[kept[bin_]] += 1
        self._homes = kept
        self._rdds = {place: rdd for place, rdd in self._rdds.items() if place[1] in tasks}
        return [kept[bin_] for bin_ in range(bins)]

    def run(self, order: Callable[[int], Iterable[Any]], bins: int) -> list[Any]:
        """What the tasks report, in no particular order; never rows."""
        context, homes = self._context, tuple(self.homes(bins))
        if self._union is None or self._union[0] != homes:
            self._union = homes, context.union([self._rdd(bin_, home) for bin_, home in enumerate(homes)])
        rdd = self._union[1]
        context.setLocalProperty(ORDER, written(Bordered(order)))
        try:
            return list(rdd.collect())
        finally:
            context.setLocalProperty(ORDER, None)  # type: ignore[arg-type]

    def _executors(self) -> dict[tuple[str, str], int]:
        """The executors that are alive and how many tasks each runs at a time; in a local session the driver itself."""
        jvm: Any = self._context._jvm
        listed = self._context._jsc.sc().statusStore().executorList(True)
        listed = jvm.scala.jdk.javaapi.CollectionConverters.asJava(listed)
        found = {
            (str(each.id()), str(each.hostPort()).rpartition(":")[0]): max(1, int(each.maxTasks())) for each in listed
        }
        executors = {home: tasks for home, tasks in found.items() if home[0] != "driver"} or found
        return dict(sorted(executors.items(), key=lambda item: (len(item[0][0]), item[0])))

    def _rdd(self, bin_: int, home: tuple[str, str]) -> RDD[Any]:
        """One partition with the number of the bin, at home in an executor, to be worked on in the bin's own worker."""
        if (bin_, home) not in self._rdds:
            self._rdds[bin_, home] = self._made(bin_, home)
        return self._rdds[bin_, home]

    def _made(self, bin_: int, home: tuple[str, str]) -> RDD[Any]:
        from pyspark import RDD
        from pyspark.serializers import CPickleSerializer

        context = self._context
        jvm: Any = context._jvm
        serializer: Any = CPickleSerializer()
        # The form in which Spark's scheduler names a single executor.
        place = jvm.java.util.ArrayList()
        place.add(f"executor_{home[1]}_{home[0]}")
        seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        items = jvm.java.util.ArrayList()
        items.add(jvm.scala.Tuple2(bytearray(serializer.dumps(bin_)), seq(place)))
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        placed = context._jsc.sc().makeRDD(seq(items), tag).toJavaRDD()
        rdd: RDD[Any] = RDD(placed, context, serializer).mapPartitions(obey_by_bin)
        before = dict(context.environment)
        context.environment[_VARIABLE] = f"{bin_} of {self._owner}"
        try:
            _ = rdd._jrdd  # made now, while the environment names the bin
        finally:
            context.environment.clear()
            context.environment.update(before)
        return rdd
