"""State and results carried by Spark, for file systems that only its JVMs can reach.

Reading: the `binaryFile` source hands whole chunks to tasks; with several bins a first stage takes them apart and a
shuffle brings each bin its parts. Writing: tasks yield the bytes of whole files, and Spark's text writer, which writes
a string as the bytes it is made of and then a line separator, lays them down: the separator is the magic word that the
file ends with anyway. What tasks report comes back with the job, in an accumulator; the driver renames what they made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.functions import lit, pmod

from headrace.engine.spark.arrow_rows import run_on_batches
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import Storage, for_spark, place_of
from headrace.errors import CorruptStateError, EngineError
from headrace.kernels.absorb import Absorbed, AbsorbTask
from headrace.kernels.border import Bordered
from headrace.kernels.cargo import (
    Answer,
    AsBatch,
    Combine,
    Gather,
    OnAnswers,
    OnBins,
    OnHosts,
    OverBatches,
    Report,
    TakeApart,
    Verify,
    Write,
)
from headrace.kernels.chunks import MAGIC, Chunk
from headrace.kernels.compact import CompactTask
from headrace.kernels.deliver import AnswerTask, CombineTask, DeliverTask, Delivery, whole_of
from headrace.kernels.join import Counted, JoinTask, JoinWork, PairsTask
from headrace.kernels.slots import SlotsDelivery, SlotsTask
from headrace.model import Spent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkIo"]

_PARQUET_MAGIC = b"PAR1"
# See `kernels/cargo.py`.
_CARGO = "bin INT, name STRING, part STRING, data BINARY"
_SETTINGS = {
    # A chunk is a row here: batches are bounded by bytes, well below the 2 GB an Arrow column of bytes can hold.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.adaptive.enabled": "false",
    # Chunks are given one by one; more than 32 of them would be looked up by a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


class SparkIo:
    """Tasks open no file: Spark brings them what they read and writes what they make."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._storage = checkpoint, checkpoint.storage
        # A session of its own with all settings of the caller's but those above.
        self._session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        for key, value in _SETTINGS.items():
            self._session.conf.set(key, value)
        self._reports: Any = spark.sparkContext.accumulator([], Gather())  # type: ignore[arg-type]

    def delivers_to(self, sink: Storage) -> bool:
        """Files are renamed into the sink, so it must be in the checkpoint's file system."""
        place = place_of(sink.root)
        return place == place_of(self._storage.root) and not place.startswith("viewfs:")

    def absorb(self, rows: DataFrame, schema: pa.Schema, task: AbsorbTask) -> list[Absorbed]:
        if task.folder is None:
            return run_on_batches(rows, schema, task)
        partitions = int(rows._jdf.queryExecution().toRdd().getNumPartitions())
        return self._write(rows, task, MAGIC, partitions)

    def deliver(self, combine: CombineTask) -> list[Delivery | Spent]:
        bins, works = self._checkpoint.bins, combine.works
        combine, needs = self._by_bin(combine), combine.panes.chunks
        cargo = self._cargo(needs, whole_of(works))
        if bins == 1:
            return self._write(cargo, self._on_bins(DeliverTask(works, combine), needs), _PARQUET_MAGIC, 1)
        pieces = min(bins, len(works))
        combined = cargo.mapInArrow(
            Bordered(Combine(self._on_bins(combine, needs))), "work INT, data BINARY, error STRING, spent BINARY"
        )
        by_query = combined.repartitionById(pieces, pmod(combined["work"], lit(pieces)))
        return self._write(by_query, OnAnswers(DeliverTask(works)), _PARQUET_MAGIC, pieces)

    def _by_bin(self, combine: CombineTask) -> CombineTask:
        """A task has what its bin holds, so it answers all groups in that bin."""
        bins = range(self._checkpoint.bins)
        return replace(combine, shares=tuple(tuple(u for u in combine.units if u[1] == bin_) for bin_ in bins))

    def finish(self, task: SlotsTask) -> list[Delivery | Spent]:
        bins, works, slots = self._checkpoint.bins, task.combine.works, task.slots
        needs = task.combine.panes.chunks
        shared = SlotsTask(self._by_bin(task.combine), slots)
        answer = Bordered(Answer(self._on_bins(shared, needs)))
        answers = self._cargo(needs, whole_of(works)).mapInArrow(answer, slots.ddl)
        rows, pieces = answers.selectExpr(*slots.select), min(bins, len(works))
        if bins > 1:
            rows = rows.repartitionById(pieces, pmod(rows["_q"], lit(pieces)))
        return self._write(rows, SlotsDelivery(works, slots), _PARQUET_MAGIC, pieces)

    def answers(self, task: AnswerTask, ddl: str) -> DataFrame:
        needs = task.panes.chunks
        cargo = self._cargo(needs, whole_of([task.work]))
        return cargo.mapInArrow(Bordered(Answer(self._on_bins(AsBatch(task), needs))), ddl)

    def hosts(self) -> int:
        """A host has what its bin is brought."""
        return self._checkpoint.bins

    def join(self, task: JoinTask, hosts: int) -> list[Delivery | Counted]:
        needs = _needs(task.works)
        cargo, bins = self._cargo(needs, frozenset(needs)), self._checkpoint.bins
        return self._write(cargo, self._on_bins(OnHosts(task, hosts, bins), needs), _PARQUET_MAGIC, bins)

    def pairs(self, task: PairsTask, hosts: int, ddl: str) -> DataFrame:
        needs = _needs([task.work])
        cargo = self._cargo(needs, frozenset(needs))
        on_hosts = OnHosts(AsBatch(task), hosts, self._checkpoint.bins)
        return cargo.mapInArrow(Bordered(Answer(self._on_bins(on_hosts, needs))), ddl)

    def compact(self, task: CompactTask) -> list[Chunk]:
        cargo = self._cargo(task.chunks, frozenset(task.stores))
        return self._write(cargo, self._on_bins(task, task.chunks), MAGIC, self._checkpoint.bins)

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
        return found.selectExpr("0 AS bin", "_metadata.file_name AS name", "CAST(NULL AS STRING) AS part",
                                "content AS data")  # fmt: skip

    def _on_bins(self, task: Callable[[Iterable[int]], Iterable[Any]], needs: Mapping[str, Iterable[str]]) -> OnBins:
        return OnBins(self._checkpoint.state_folder, task, tuple(_names(needs)))

    def _cargo(self, needs: Mapping[str, Iterable[str]], whole: frozenset[str] = frozenset()) -> DataFrame:
        """A partition per bin with its number and all it holds of the synopses in the chunks named for them.

        Every bin has the parts of all bins of the synopses in `whole`.
        """
        bins, folder = self._checkpoint.bins, self._checkpoint.state_folder
        names = _names(needs)
        cargo = self._session.range(0, bins, 1, 1).selectExpr(
            "CAST(id AS INT) AS bin", "CAST(NULL AS STRING) AS name", "CAST(NULL AS STRING) AS part",
            "CAST(NULL AS BINARY) AS data")  # fmt: skip
        if names:
            missing = sorted(set(names) - set(self._storage.names("state")))
            if missing:
                raise CorruptStateError(f"state file {folder}/{missing[0]} is missing")
            files = self._files(names)
            take_apart = TakeApart(folder, {synopsis: frozenset(each) for synopsis, each in needs.items()}, bins, whole)
            cargo = cargo.unionAll(files if bins == 1 else files.mapInArrow(Bordered(take_apart), _CARGO))
        return cargo.coalesce(1) if bins == 1 else cargo.repartitionById(bins, cargo["bin"])

    def _write(self, rows: DataFrame, task: OverBatches, end: bytes, partitions: int) -> list[Any]:
        """Runs a task that makes files, puts them where they belong, and gives what the tasks report."""
        staging = f"state/_{uuid4().hex}"
        self._reports.value = []
        made = rows.mapInArrow(Bordered(Write(task, self._reports, staging, end)), "i INT, data BINARY")
        text = made.selectExpr("i", "CAST(data AS STRING) AS data").write.partitionBy("i")
        try:
            text.options(lineSep=end.decode(), compression="none").text(f"{for_spark(self._storage.root)}/{staging}")
            reports = {report.partition: report for report in self._reports.value if report.job == staging}
            if len(reports) != partitions:
                raise EngineError(f"{len(reports)} of {partitions} tasks have reported what they wrote to {staging}")
            self._adopt(staging, reports)
        finally:
            self._storage.delete(staging)
        return [each for number in sorted(reports) for each in reports[number].results]

    def _adopt(self, staging: str, reports: Mapping[int, Report]) -> None:
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


def _needs(works: Iterable[JoinWork]) -> dict[str, list[str]]:
    """The chunks that joins read, by store."""
    found: dict[str, list[str]] = {}
    for work in works:
        for store, held in zip(work.stores, work.held, strict=True):
            found.setdefault(store, []).extend((*held, *work.fresh))
    return found


def _names(needs: Mapping[str, Iterable[str]]) -> list[str]:
    return sorted({name for names in needs.values() for name in names})
