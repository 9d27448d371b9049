"""How jobs run on state, chosen once when a run starts: tasks open files by themselves, or Spark carries them.

`ArrowIo`   tasks open files through Arrow: fastest, for paths that Arrow reaches on every executor
`SparkIo`   Spark's JVMs read and write the files (`spark_io`): any path Spark reaches

Both leave the same files behind, so a checkpoint can be continued with the other one. What a job does is an `Order`
(`kernels/carried.py`), which says what its tasks read; here is only how tasks run, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.spark.arrow_rows import run_on_batches
from headrace.engine.spark.jobs import Jobs
from headrace.engine.spark.pinned import PinnedJobs
from headrace.engine.spark.ship import is_local
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.reach import tasks_reach
from headrace.engine.state.storage import Storage, is_remote, place_of
from headrace.kernels.border import Bordered
from headrace.kernels.cargo import Numbered, OverBatches
from headrace.kernels.carried import Order
from headrace.kernels.chunks import Chunk
from headrace.kernels.compact import VerifyTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowIo", "StateIo", "Stays"]


class Stays(Enum):
    """Where the task of a number runs when the next job has one of that number.

    NOWHERE: wherever there is room. EXECUTOR: in a cluster on the same executor, where what it has read stays decoded.
    PROCESS: in the same Python process, which no other number uses, as long as it lives.
    """

    NOWHERE = 0
    EXECUTOR = 1
    PROCESS = 2


class StateIo(Protocol):
    """Runs orders on Spark; what tasks yield comes back in no particular order, a value or two each, never rows."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    def delivers_to(self, sink: Storage) -> bool:
        """Whether tasks can leave files there."""

    def run(self, order: Order, tasks: int, stays: Stays = Stays.NOWHERE) -> list[Any]:
        """A task per number."""

    def run_by_key(
        self, order: Order, tasks: int, then: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]], pieces: int
    ) -> list[Any]:
        """A task per number yields pairs of a key and an item; as many tasks as `pieces` are given them by key."""

    def over(self, rows: DataFrame, schema: pa.Schema, task: OverBatches, makes_files: bool = True) -> list[Any]:
        """A task per partition of rows."""

    def rows(self, order: Order, tasks: int, ddl: str) -> DataFrame:
        """The batches that a task per number yields, for Spark SQL."""

    def verify(self, chunks: Sequence[Chunk]) -> list[str]:
        """What is wrong with the chunks."""


class ArrowIo:
    """Tasks open state files, and results that they finish themselves, through Arrow's file systems."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._jobs = Jobs(spark.sparkContext)
        self._pinned = PinnedJobs(spark.sparkContext, checkpoint.storage.root)
        self._reached: dict[str, bool] = {}

    @property
    def slots(self) -> int:
        return self._pinned.slots

    def delivers_to(self, sink: Storage) -> bool:
        if not is_remote(sink.root):
            return True
        place = place_of(sink.root)
        if place not in self._reached:
            state = self._checkpoint.storage
            self._reached[place] = place == place_of(state.root) or not tasks_reach(sink, "_staging", self._jobs, 1)
        return self._reached[place]

    def run(self, order: Order, tasks: int, stays: Stays = Stays.NOWHERE) -> list[Any]:
        cluster = not is_local(self._spark.sparkContext)
        pinned = stays is Stays.PROCESS or (stays is Stays.EXECUTOR and cluster)
        return self._pinned.run(order, tasks) if pinned else self._jobs.run(order, tasks)

    def run_by_key(
        self, order: Order, tasks: int, then: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]], pieces: int
    ) -> list[Any]:
        items = self._spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(Bordered(order))
        return items.partitionBy(pieces).mapPartitions(Bordered(then)).collect()

    def over(self, rows: DataFrame, schema: pa.Schema, task: OverBatches, makes_files: bool = True) -> list[Any]:
        return run_on_batches(rows, schema, task)

    def rows(self, order: Order, tasks: int, ddl: str) -> DataFrame:
        return self._spark.range(0, tasks, 1, tasks).mapInArrow(Bordered(Numbered(order)), ddl)

    def verify(self, chunks: Sequence[Chunk]) -> list[str]:
        return self._jobs.run(VerifyTask(self._checkpoint.state_folder, tuple(chunks)), len(chunks))
