"""How tasks get at state, chosen once when a run starts: by themselves, or with Spark as their carrier.

`ArrowIo`   tasks open files through Arrow: fastest, for paths that Arrow reaches on every executor
`SparkIo`   Spark's JVMs read and write the files (`spark_io`): any path Spark reaches

Both leave the same files behind, so a checkpoint can be continued with the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.engine.spark.arrow_rows import arrow_schema, run_on_batches
from headrace.engine.spark.jobs import Jobs
from headrace.engine.spark.pinned import PinnedJobs
from headrace.engine.spark.ship import is_local
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.reach import tasks_reach
from headrace.engine.state.storage import Storage, is_remote, place_of
from headrace.kernels.absorb import Absorbed, AbsorbTask
from headrace.kernels.border import Bordered
from headrace.kernels.chunks import Chunk
from headrace.kernels.compact import CompactTask, VerifyTask
from headrace.kernels.deliver import AnswerTask, CombineTask, DeliverTask, Delivery
from headrace.kernels.join import Counted, JoinTask, PairsTask
from headrace.kernels.slots import SlotsDelivery, SlotsTask
from headrace.model import Spent

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowIo", "StateIo"]


class StateIo(Protocol):
    """The jobs of an epoch that touch state."""

    def delivers_to(self, sink: Storage) -> bool:
        """Whether `deliver` can put files there."""

    def absorb(self, rows: DataFrame, schema: pa.Schema, task: AbsorbTask) -> list[Absorbed]:
        """Runs the task on every partition of an epoch's rows."""

    def deliver(self, combine: CombineTask) -> list[Delivery | Spent]:
        """Answers directly finished queries and leaves their files in the sinks' staging folders."""

    def finish(self, task: SlotsTask) -> list[Delivery | Spent]:
        """Answers queries that Spark SQL finishes, all of them together, and leaves their files likewise."""

    def answers(self, task: AnswerTask, ddl: str) -> DataFrame:
        """One query's answers, for Spark SQL to finish."""

    def hosts(self) -> int:
        """Over how many tasks a join is spread."""

    def join(self, task: JoinTask, hosts: int) -> list[Delivery | Counted]:
        """Makes the pairs of joins, a task per host, and leaves their files in the sinks' staging folders."""

    def pairs(self, task: PairsTask, hosts: int, ddl: str) -> DataFrame:
        """The pairs of one join, for Spark SQL to finish."""

    def compact(self, task: CompactTask) -> list[Chunk]:
        """Merges chunks, a task per bin."""

    def verify(self, chunks: Sequence[Chunk]) -> list[str]:
        """What is wrong with the chunks."""


class ArrowIo:
    """Tasks open state files, and results that they finish themselves, through Arrow's file systems."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._jobs = Jobs(spark.sparkContext)
        self._pinned = None if is_local(spark.sparkContext) else PinnedJobs(spark.sparkContext, checkpoint.storage.root)
        self._reached: dict[str, bool] = {}

    def delivers_to(self, sink: Storage) -> bool:
        if not is_remote(sink.root):
            return True
        place = place_of(sink.root)
        if place not in self._reached:
            state = self._checkpoint.storage
            self._reached[place] = place == place_of(state.root) or not tasks_reach(sink, "_staging", self._jobs, 1)
        return self._reached[place]

    def absorb(self, rows: DataFrame, schema: pa.Schema, task: AbsorbTask) -> list[Absorbed]:
        return run_on_batches(rows, schema, task)

    def deliver(self, combine: CombineTask) -> list[Delivery | Spent]:
        context, works = self._spark.sparkContext, combine.works
        tasks = min(len(combine.units), context.defaultParallelism)
        combine = combine.shared_by(tasks)
        if self._checkpoint.bins == 1:
            return self._jobs.run(DeliverTask(works, combine), tasks)
        combined = context.parallelize(range(tasks), tasks).mapPartitions(Bordered(combine))
        by_query = combined.partitionBy(min(tasks, len(works)))
        return by_query.mapPartitions(Bordered(DeliverTask(works))).collect()

    def finish(self, task: SlotsTask) -> list[Delivery | Spent]:
        combine, slots = task.combine, task.slots
        tasks = min(len(combine.units), self._spark.sparkContext.defaultParallelism)
        shared = SlotsTask(combine.shared_by(tasks), slots)
        answers = self._spark.range(0, tasks, 1, tasks).mapInArrow(Bordered(shared.on_batches), slots.ddl)
        rows = answers.selectExpr(*slots.select)
        if self._checkpoint.bins > 1:
            rows = rows.repartition(min(tasks, len(combine.works)), "_q")
        return run_on_batches(rows, arrow_schema(rows), SlotsDelivery(combine.works, slots))

    def answers(self, task: AnswerTask, ddl: str) -> DataFrame:
        bins = self._checkpoint.bins
        return self._spark.range(0, bins, 1, bins).mapInArrow(Bordered(task), ddl)

    def hosts(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def join(self, task: JoinTask, hosts: int) -> list[Delivery | Counted]:
        # In a cluster a host is one executor, epoch after epoch: windows stay decoded where they were used last.
        return self._jobs.run(task, hosts) if self._pinned is None else self._pinned.run(task.on, hosts)

    def pairs(self, task: PairsTask, hosts: int, ddl: str) -> DataFrame:
        return self._spark.range(0, hosts, 1, hosts).mapInArrow(Bordered(task), ddl)

    def compact(self, task: CompactTask) -> list[Chunk]:
        return self._jobs.run(task, self._checkpoint.bins)

    def verify(self, chunks: Sequence[Chunk]) -> list[str]:
        return self._jobs.run(VerifyTask(self._checkpoint.state_folder, tuple(chunks)), len(chunks))
