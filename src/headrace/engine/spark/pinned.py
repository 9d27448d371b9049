"""Tasks that come back to the same process, epoch after epoch: where state of bins can stay in memory.

A bin has a home, an executor, which Spark is told to prefer; and there a Python worker of its own. Spark keeps workers
apart by the environment they were started with: a variable that names the bin makes one that no other task uses, with
as many of them as bins, and no state has to leave a process for another. Nothing depends on it: a task that finds
itself elsewhere, because its executor is lost or busy or the worker has been ended, finds no state and reads it again.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.engine.spark.jobs import ordered
from headrace.kernels.orders import obey

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
        # By how many bins there are: joins may have others than keyed state.
        self._unions: dict[int, tuple[tuple[tuple[str, str], ...], RDD[Any]]] = {}

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
        self._homes |= kept
        self._rdds = {place: rdd for place, rdd in self._rdds.items() if place[1] in tasks}
        return [kept[bin_] for bin_ in range(bins)]

    def run(self, order: Callable[[Iterable[int]], Iterable[Any]], bins: int) -> list[Any]:
        """What the tasks report, in no particular order; never rows."""
        context, homes = self._context, tuple(self.homes(bins))
        if bins not in self._unions or self._unions[bins][0] != homes:
            self._unions[bins] = homes, context.union([self._rdd(bin_, home) for bin_, home in enumerate(homes)])
        with ordered(context, order):
            return list(self._unions[bins][1].collect())

    def over(self, brought: Any, numbers: Sequence[int], bins: int) -> RDD[bytes]:
        """What tasks make, in the processes of some bins, of bytes that are brought to them; a partition for each.

        `brought` is an RDD of the JVM's. The order is given around the job that this RDD is used in.
        """
        from pyspark.serializers import NoOpSerializer

        jvm: Any = self._context._jvm
        homes, raw = self.homes(bins), NoOpSerializer()
        made = []
        for position, bin_ in enumerate(numbers):
            # What is in a Scala set is a function of what is asked for: here of the number of a partition.
            wanted = jvm.java.util.HashSet()
            wanted.add(position)
            wanted = jvm.scala.jdk.javaapi.CollectionConverters.asScala(wanted)
            part = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(brought, wanted).toJavaRDD()
            # Pairs of the bin and each value: the pair is where the bin is at home.
            rdd = self._own(self._placed(bin_, homes[bin_]).cartesian(part).values(), bin_, raw, raw)
            made.append(rdd)
        return self._context.union(made)

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
            from pyspark.serializers import CPickleSerializer

            self._rdds[bin_, home] = self._own(self._placed(bin_, home), bin_, CPickleSerializer())
        return self._rdds[bin_, home]

    def _placed(self, bin_: int, home: tuple[str, str]) -> Any:
        """The JVM's RDD of one partition with the number of the bin, at home in an executor."""
        from pyspark.serializers import CPickleSerializer

        jvm: Any = self._context._jvm
        serializer: Any = CPickleSerializer()
        # The form in which Spark's scheduler names a single executor.
        place = jvm.java.util.ArrayList()
        place.add(f"executor_{home[1]}_{home[0]}")
        seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        items = jvm.java.util.ArrayList()
        items.add(jvm.scala.Tuple2(bytearray(serializer.dumps(bin_)), seq(place)))
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        return self._context._jsc.sc().makeRDD(seq(items), tag).toJavaRDD()

    def _own(self, values: Any, bin_: int, serializer: Any, made: Any = None) -> RDD[Any]:
        """What the order of a job makes of values of the JVM's in the bin's own worker; `made` is how it is encoded."""
        from pyspark import RDD

        context = self._context
        rdd: RDD[Any] = RDD(values, context, serializer).mapPartitions(obey)
        if made is not None:
            rdd._jrdd_deserializer = made
        before = dict(context.environment)
        context.environment[_VARIABLE] = f"{bin_} of {self._owner}"
        try:
            _ = rdd._jrdd  # made now, while the environment names the bin
        finally:
            context.environment.clear()
            context.environment.update(before)
        return rdd
