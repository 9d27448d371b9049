"""State and results carried by Spark, for file systems that only its JVMs can reach.

Reading: the `binaryFile` source hands over whole chunks; a first stage takes them apart and a shuffle brings each task
the parts that its order wants. Writing: tasks yield the bytes of whole files, and Spark's text writer, which writes a
string as the bytes it is made of and then a line separator, lays them down: the separator is the byte that all files
end with anyway. What tasks report comes back with the job, in an accumulator; the driver renames what they made. A task
that needs more than its order said, because state was lost, reports that, and another job runs it again with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.functions import lit, pmod

from headrace.engine.spark.arrow_rows import run_on_batches
from headrace.engine.spark.jobs import ordered
from headrace.engine.spark.pinned import PinnedJobs
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.state_io import Stays
from headrace.engine.state.storage import Storage, for_spark, place_of
from headrace.errors import CorruptStateError, EngineError
from headrace.kernels.border import Bordered
from headrace.kernels.cargo import (
    END,
    AsBytes,
    Boxed,
    ByKey,
    Gather,
    Keyed,
    OnNumbers,
    OverBatches,
    Report,
    TakeApart,
    Verify,
    Write,
    wanted_by,
)
from headrace.kernels.carried import Order, Want
from headrace.kernels.chunks import Chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkIo"]

# See `kernels/cargo.py`.
_CARGO = "task INT, name STRING, part STRING, data BINARY"
_FILE = "i INT, data BINARY"
_SETTINGS = {
    # A chunk is a row here: batches are bounded by bytes, well below the 2 GB an Arrow column of bytes can hold.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.adaptive.enabled": "false",
    # Chunks are given one by one; more than 32 of them would be looked up by a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
# By number what a task wants besides what its order says.
_More = Mapping[int, tuple[Want, ...]]


class SparkIo:
    """Tasks open no file: Spark brings them what they read and writes what they make."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._storage = checkpoint, checkpoint.storage
        # A session of its own with all settings of the caller's but those above.
        self._session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        for key, value in _SETTINGS.items():
            self._session.conf.set(key, value)
        self._pinned = PinnedJobs(spark.sparkContext, checkpoint.storage.root)
        self._reports: Any = spark.sparkContext.accumulator([], Gather())  # type: ignore[arg-type]

    @property
    def slots(self) -> int:
        return self._pinned.slots

    def delivers_to(self, sink: Storage) -> bool:
        """Files are renamed into the sink, so it must be in the checkpoint's file system."""
        place = place_of(sink.root)
        return place == place_of(self._storage.root) and not place.startswith("viewfs:")

    def run(self, order: Order, tasks: int, stays: Stays = Stays.NOWHERE) -> list[Any]:
        results: list[Any] = []
        numbers, more = list(range(tasks)), dict[int, tuple[Want, ...]]()
        while numbers:
            cargo, task = self._cargo(order, numbers, more), self._on(order, numbers, more)
            pinned = (numbers, tasks) if stays is Stays.PROCESS else None
            reports = self._write(cargo, task, len(numbers), pinned)
            results += [each for report in reports for each in report.results]
            lacking = {numbers[report.partition]: report.lacking for report in reports if report.lacking}
            more = {number: (*more.get(number, ()), *wants) for number, wants in lacking.items()}
            numbers = sorted(lacking)
        return results

    def run_by_key(
        self, order: Order, tasks: int, then: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]], pieces: int
    ) -> list[Any]:
        numbers = range(tasks)
        task = Boxed(Keyed(self._on(order, numbers)))
        items = self._cargo(order, numbers).mapInArrow(Bordered(task), "key INT, item BINARY")
        by_key = items.repartitionById(pieces, pmod(items["key"], lit(pieces)))
        return [each for report in self._write(by_key, ByKey(then), pieces) for each in report.results]

    def over(self, rows: DataFrame, schema: pa.Schema, task: OverBatches, makes_files: bool = True) -> list[Any]:
        if not makes_files:
            return run_on_batches(rows, schema, task)
        partitions = int(rows._jdf.queryExecution().toRdd().getNumPartitions())
        return [each for report in self._write(rows, task, partitions) for each in report.results]

    def rows(self, order: Order, tasks: int, ddl: str) -> DataFrame:
        numbers = range(tasks)
        return self._cargo(order, numbers).mapInArrow(Bordered(Boxed(self._on(order, numbers))), ddl)

    def verify(self, chunks: Sequence[Chunk]) -> list[str]:
        folder = self._checkpoint.state_folder
        by_name = {chunk.name: chunk for chunk in chunks}
        listed = [name for name in self._storage.names("state") if name in by_name]
        faults = [f"state file {folder}/{name} is missing" for name in by_name if name not in listed]
        if not listed:
            return faults
        # What cannot be read is passed over, and so missed among those that were.
        files = self._files(listed, ignoreCorruptFiles=True, ignoreMissingFiles=True)
        found = files.mapInArrow(Verify(folder, by_name), "name STRING, fault STRING").collect()
        faults += [row.fault for row in found if row.fault is not None]
        read = {row.name for row in found}
        return faults + [self._unread(by_name[name]) for name in listed if name not in read]

    def _unread(self, chunk: Chunk) -> str:
        """Why a chunk that is there was passed over."""
        size = self._storage.size(f"state/{chunk.name}") or 0
        what = "cannot be read" if size == chunk.bytes else f"is truncated: {size} of {chunk.bytes} bytes"
        return f"state file {self._checkpoint.state_folder}/{chunk.name} {what}"

    def _files(self, names: Iterable[str], **options: bool) -> DataFrame:
        """Whole chunks as cargo; they must be there."""
        reader = self._session.read.format("binaryFile").option("__globPaths__", "false").options(**options)
        found = reader.load([f"{for_spark(self._checkpoint.state_folder)}/{name}" for name in names])
        return found.selectExpr("0 AS task", "_metadata.file_name AS name", "CAST(NULL AS STRING) AS part",
                                "content AS data")  # fmt: skip

    def _on(self, order: Order, numbers: Sequence[int], more: _More | None = None) -> OnNumbers:
        return OnNumbers(self._checkpoint.state_folder, order, tuple(numbers), more or {})

    def _cargo(self, order: Order, numbers: Sequence[int], more: _More | None = None) -> DataFrame:
        """A partition per number with all that its task wants."""
        tasks, folder = len(numbers), self._checkpoint.state_folder
        wanted = wanted_by([*order.wants(number), *(more or {}).get(number, ())] for number in numbers)
        cargo = self._session.range(0, tasks, 1, 1 if wanted else tasks).selectExpr(
            "CAST(id AS INT) AS task", "CAST(NULL AS STRING) AS name", "CAST(NULL AS STRING) AS part",
            "CAST(NULL AS BINARY) AS data")  # fmt: skip
        if not wanted:
            return cargo
        missing = sorted(wanted.keys() - set(self._storage.names("state")))
        if missing:
            raise CorruptStateError(f"state file {folder}/{missing[0]} is missing")
        files = self._files(sorted(wanted))
        if tasks == 1:
            return cargo.unionAll(files).coalesce(1)
        cargo = cargo.unionAll(files.mapInArrow(Bordered(TakeApart(folder, wanted)), _CARGO))
        return cargo.repartitionById(tasks, cargo["task"])

    def _write(
        self, rows: DataFrame, task: OverBatches, partitions: int, pinned: tuple[Sequence[int], int] | None = None
    ) -> list[Report]:
        """Runs a task that makes files, puts them where they belong, and gives what the tasks report.

        `pinned` are the numbers whose processes the tasks run in, and how many numbers there are.
        """
        staging = f"state/_{uuid4().hex}"
        self._reports.value = []
        write = Write(task, self._reports, staging)
        with nullcontext() if pinned is None else ordered(self._session.sparkContext, AsBytes(write)):
            made = rows.mapInArrow(Bordered(write), _FILE) if pinned is None else self._in_processes(rows, *pinned)
            text = made.selectExpr("i", "CAST(data AS STRING) AS data").write.partitionBy("i")
            try:
                text = text.options(lineSep=END.decode(), compression="none")
                text.text(f"{for_spark(self._storage.root)}/{staging}")
                reports = {report.partition: report for report in self._reports.value if report.job == staging}
                if len(reports) != partitions:
                    raise EngineError(
                        f"{len(reports)} of {partitions} tasks have reported what they wrote to {staging}"
                    )
                self._name_files(staging, reports)
            finally:
                self._storage.delete(staging)
        return [reports[number] for number in sorted(reports)]

    def _in_processes(self, cargo: DataFrame, numbers: Sequence[int], all_numbers: int) -> DataFrame:
        """The files that tasks make of cargo, each in the process of its number."""
        from pyspark.sql import DataFrame

        made = self._pinned.over(cargo._jdf.toArrowBatchRdd(), numbers, all_numbers)
        jvm: Any = self._session.sparkContext._jvm
        binary = jvm.org.apache.spark.sql.Encoders.BINARY()
        values = self._session._jsparkSession.createDataset(made._jrdd.rdd(), binary)
        return DataFrame(values.toDF(), self._session).selectExpr(*AsBytes.select())

    def _name_files(self, staging: str, reports: Mapping[int, Report]) -> None:
        files: dict[tuple[int, int], str] = {}
        for i in range(max((len(report.made) for report in reports.values()), default=0)):
            for name in self._storage.names(f"{staging}/i={i}"):
                # Spark's names: part-00003-<id of the job>.c000.txt
                files[int(name.split("-")[1]), i] = f"{staging}/i={i}/{name}"
        for number, report in reports.items():
            for i, target in enumerate(report.made):
                if (number, i) not in files:
                    raise EngineError(f"task {number} has made {target}, and Spark has not written it")
                self._storage.move(files[number, i], target.removeprefix(f"{self._storage.root}/"))
