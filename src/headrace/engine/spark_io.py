"""State and results carried by Spark, for file systems that only its JVMs can reach.

Reading: the `binaryFile` source hands whole chunks to tasks; with several bins a first stage takes them apart and a
shuffle brings each bin its parts. Writing: tasks yield the bytes of whole files, and Spark's text writer, which writes
a string as the bytes it is made of and then a line separator, lays them down: the separator is the magic word that the
file ends with anyway. What tasks report comes back with the job, in an accumulator; the driver renames what they made.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.functions import lit, pmod

from headrace.engine.absorb import Absorbed, AbsorbTask
from headrace.engine.arrow_rows import run_on_batches
from headrace.engine.carried import Made, box, current_box
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.chunks import MAGIC, Chunk, Part, fault_of, parts_of
from headrace.engine.compact import CompactTask
from headrace.engine.deliver import AnswerTask, CombineTask, DeliverTask, Delivery, whole_of
from headrace.engine.join_task import Counted, JoinTask, JoinWork, PairsTask
from headrace.engine.slots import SlotsDelivery, SlotsTask
from headrace.engine.storage import Storage, for_spark, place_of
from headrace.errors import CorruptStateError, EngineError
from headrace.planning import Spent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkIo"]

_PARQUET_MAGIC = b"PAR1"
# A row is a bin to work on (no name), a whole chunk (no part), one part of a chunk for one bin, or, for each bin, the
# word that a chunk was taken apart (an empty part): Spark passes over empty files without one.
_CARGO = "bin INT, name STRING, part STRING, data BINARY"
_FILE = pa.schema([("i", pa.int32()), ("data", pa.binary())])
_PARTS = pa.schema([("bin", pa.int32()), ("name", pa.string()), ("part", pa.string()), ("data", pa.binary())])
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
        self._reports = spark.sparkContext.accumulator([], _Gather())

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
            _Combine(self._on_bins(combine, needs)), "work INT, data BINARY, error STRING, spent BINARY"
        )
        by_query = combined.repartitionById(pieces, pmod(combined["work"], lit(pieces)))
        return self._write(by_query, _OnAnswers(DeliverTask(works)), _PARQUET_MAGIC, pieces)

    def _by_bin(self, combine: CombineTask) -> CombineTask:
        """A task has what its bin holds, so it answers all groups in that bin."""
        bins = range(self._checkpoint.bins)
        return replace(combine, shares=tuple(tuple(u for u in combine.units if u[1] == bin_) for bin_ in bins))

    def finish(self, task: SlotsTask) -> list[Delivery | Spent]:
        bins, works, slots = self._checkpoint.bins, task.combine.works, task.slots
        needs = task.combine.panes.chunks
        shared = SlotsTask(self._by_bin(task.combine), slots)
        answers = self._cargo(needs, whole_of(works)).mapInArrow(_Answer(self._on_bins(shared, needs)), slots.ddl)
        rows, pieces = answers.selectExpr(*slots.select), min(bins, len(works))
        if bins > 1:
            rows = rows.repartitionById(pieces, pmod(rows["_q"], lit(pieces)))
        return self._write(rows, SlotsDelivery(works, slots), _PARQUET_MAGIC, pieces)

    def answers(self, task: AnswerTask, ddl: str) -> DataFrame:
        needs = task.panes.chunks
        cargo = self._cargo(needs, whole_of([task.work]))
        return cargo.mapInArrow(_Answer(self._on_bins(_AsBatch(task), needs)), ddl)

    def hosts(self) -> int:
        """A host has what its bin is brought."""
        return self._checkpoint.bins

    def join(self, task: JoinTask, hosts: int) -> list[Delivery | Counted]:
        needs = _needs(task.works)
        cargo, bins = self._cargo(needs, frozenset(needs)), self._checkpoint.bins
        return self._write(cargo, self._on_bins(_OnHosts(task, hosts, bins), needs), _PARQUET_MAGIC, bins)

    def pairs(self, task: PairsTask, hosts: int, ddl: str) -> DataFrame:
        needs = _needs([task.work])
        cargo = self._cargo(needs, frozenset(needs))
        on_hosts = _OnHosts(_AsBatch(task), hosts, self._checkpoint.bins)
        return cargo.mapInArrow(_Answer(self._on_bins(on_hosts, needs)), ddl)

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
        found = files.mapInArrow(_Verify(folder, by_name), "name STRING, fault STRING").collect()
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

    def _on_bins(self, task: Callable[[Iterable[int]], Iterable[Any]], needs: Mapping[str, Iterable[str]]) -> _OnBins:
        return _OnBins(self._checkpoint.state_folder, task, tuple(_names(needs)))

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
            take_apart = _TakeApart(
                folder, {synopsis: frozenset(each) for synopsis, each in needs.items()}, bins, whole
            )
            cargo = cargo.unionAll(files if bins == 1 else files.mapInArrow(take_apart, _CARGO))
        return cargo.coalesce(1) if bins == 1 else cargo.repartitionById(bins, cargo["bin"])

    def _write(self, rows: DataFrame, task: _OverBatches, end: bytes, partitions: int) -> list[Any]:
        """Runs a task that makes files, puts them where they belong, and gives what the tasks report."""
        staging = f"state/_{uuid4().hex}"
        self._reports.value = []
        made = rows.mapInArrow(_Write(task, self._reports, staging, end), "i INT, data BINARY")
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

    def _adopt(self, staging: str, reports: Mapping[int, _Report]) -> None:
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


# What runs in tasks ------------------------------------------------------------------------------------------------

_OverBatches = Callable[[Iterator[pa.RecordBatch]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class _Report:
    """What a task says of itself: its partition, its results, and the paths its files are to have."""

    job: str
    partition: int
    results: list[Any]
    made: list[str]


class _Gather(AccumulatorParam[list[_Report]]):
    """Reports of a job; those of a task count once, however often it ran."""

    def zero(self, value: list[_Report]) -> list[_Report]:
        return []

    def addInPlace(self, value1: list[_Report], value2: list[_Report]) -> list[_Report]:  # noqa: N802 - Spark's name
        return value1 + value2


@dataclass(frozen=True)
class _Write:
    """Yields the files a task makes, without the bytes they end with; reports the rest."""

    task: _OverBatches
    reports: Accumulator[list[_Report]]
    job: str
    end: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with box() as held:
            results = list(self.task(batches))
        context = TaskContext.get()
        assert context is not None
        paths = [f"{made.folder}/{made.name}" for made in held.made]
        self.reports.add([_Report(self.job, context.partitionId(), results, paths)])
        for i, made in enumerate(held.made):
            yield pa.record_batch([[i], [self._body(made)]], schema=_FILE)

    def _body(self, made: Made) -> bytes:
        data: bytes = made.data.to_pybytes()
        assert data.endswith(self.end)
        return data[: -len(self.end)]


@dataclass(frozen=True)
class _OnBins:
    """Calls a task with the bins of its partition, with the parts that came along in the box."""

    folder: str
    task: Callable[[Iterable[int]], Iterable[Any]]
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        held = current_box()
        assert held is not None
        bins: list[int] = []
        for batch in batches:
            for bin_, name, part, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if name is None:
                    bins.append(bin_)
                elif part is None:
                    held.parts.setdefault(name, []).extend(parts_of(f"{self.folder}/{name}", data))
                else:
                    parts = held.parts.setdefault(name, [])
                    parts += [(Part(*json.loads(part)), data)] if part else []
        for name in self.names:
            if name not in held.parts:
                raise CorruptStateError(f"state file {self.folder}/{name} is missing or empty")
        yield from self.task(sorted(bins))


@dataclass(frozen=True)
class _OnHosts:
    """Calls a task of a join with the hosts that a bin stands for: several where there are more of them than bins."""

    task: Callable[[Iterable[int]], Iterable[Any]]
    hosts: int
    bins: int

    def __call__(self, bins: Iterable[int]) -> Iterable[Any]:
        return self.task([host for bin_ in bins for host in range(bin_, self.hosts, self.bins)])


@dataclass(frozen=True)
class _TakeApart:
    """Turns whole chunks into the parts that are needed, for the bins they belong to."""

    folder: str
    wanted: Mapping[str, frozenset[str]]
    bins: int
    whole: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, data in zip(batch.column(1).to_pylist(), batch.column(3).to_pylist(), strict=True):
                each = list(range(self.bins))
                yield pa.record_batch([each, [name] * self.bins, [""] * self.bins, [b""] * self.bins], schema=_PARTS)
                for part, content in parts_of(f"{self.folder}/{name}", data):
                    if name in self.wanted.get(part.synopsis, ()):
                        values = [part.synopsis, part.bin, part.offset, part.length, part.crc, part.first_pane]
                        text = json.dumps([*values, part.last_pane])
                        for to in each if part.synopsis in self.whole else [part.bin]:
                            yield pa.record_batch([[to], [name], [text], [content]], schema=_PARTS)


@dataclass(frozen=True)
class _Combine:
    """Yields answers of single bins, on their way to the tasks that write them."""

    task: _OverBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with box():
            for number, item in self.task(batches):
                data, error, spent = (None, None, pickle.dumps(item)) if isinstance(item, Spent) else (*item, None)
                columns = [
                    pa.array([number], pa.int32()),
                    pa.array([data], pa.binary()),
                    pa.array([error], pa.string()),
                    pa.array([spent], pa.binary()),
                ]
                yield pa.record_batch(columns, names=["work", "data", "error", "spent"])


@dataclass(frozen=True)
class _OnAnswers:
    """Calls a task with the answers that `_Combine` has sent."""

    task: DeliverTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Delivery | Spent]:
        rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        return self.task(
            (number, (data, error) if spent is None else pickle.loads(spent))
            for batch in rows
            for number, data, error, spent in batch
        )


@dataclass(frozen=True)
class _Answer:
    """Yields one query's answers."""

    task: _OverBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with box():
            yield from self.task(batches)


@dataclass(frozen=True)
class _AsBatch:
    """Calls a task that takes bins as a batch."""

    task: AnswerTask | PairsTask

    def __call__(self, bins: Iterable[int]) -> Iterable[pa.RecordBatch]:
        return self.task(iter([pa.record_batch([pa.array(bins, pa.int64())], names=["id"])]))


@dataclass(frozen=True)
class _Verify:
    """Compares whole chunks with what a manifest says of them."""

    folder: str
    chunks: Mapping[str, Chunk]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = batch.column(1).to_pylist()
            faults = [
                fault_of(f"{self.folder}/{name}", self.chunks[name], data)
                for name, data in zip(names, batch.column(3).to_pylist(), strict=True)
            ]
            yield pa.record_batch(
                [pa.array(names, pa.string()), pa.array(faults, pa.string())], names=["name", "fault"]
            )
