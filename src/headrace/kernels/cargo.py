"""State that Spark brings to tasks and takes from them, where they open no files themselves.

A row of cargo is a bin to work on (no name), a whole chunk (no part), one part of a chunk for one bin, or, for each
bin, the word that a chunk was taken apart (an empty part): Spark passes over empty files without one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import CorruptStateError
from headrace.kernels.carried import Made, box, current_box
from headrace.kernels.chunks import Chunk, Part, fault_of, parts_of
from headrace.kernels.deliver import AnswerTask, DeliverTask, Delivery
from headrace.kernels.join import PairsTask
from headrace.model import Spent

__all__ = [
    "Answer",
    "AsBatch",
    "Combine",
    "Gather",
    "OnAnswers",
    "OnBins",
    "OnHosts",
    "OverBatches",
    "Report",
    "TakeApart",
    "Verify",
    "Write",
]

_FILE = pa.schema([("i", pa.int32()), ("data", pa.binary())])
_PARTS = pa.schema([("bin", pa.int32()), ("name", pa.string()), ("part", pa.string()), ("data", pa.binary())])

OverBatches = Callable[[Iterator[pa.RecordBatch]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a task says of itself: its partition, its results, and the paths its files are to have."""

    job: str
    partition: int
    results: list[Any]
    made: list[str]


class Gather:
    """How Spark adds up the reports of a job: those of a task count once, however often it ran."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802 - Spark's name
        return value1 + value2


@dataclass(frozen=True)
class Write:
    """Yields the files a task makes, without the bytes they end with; reports the rest."""

    task: OverBatches
    reports: Any  # an accumulator of Spark's
    job: str
    end: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with box() as held:
            results = list(self.task(batches))
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        paths = [f"{made.folder}/{made.name}" for made in held.made]
        self.reports.add([Report(self.job, context.partitionId(), results, paths)])
        for i, made in enumerate(held.made):
            yield pa.record_batch([[i], [self._body(made)]], schema=_FILE)

    def _body(self, made: Made) -> bytes:
        data: bytes = made.data.to_pybytes()
        assert data.endswith(self.end)
        return data[: -len(self.end)]


@dataclass(frozen=True)
class OnBins:
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
class OnHosts:
    """Calls a task of a join with the hosts that a bin stands for: several where there are more of them than bins."""

    task: Callable[[Iterable[int]], Iterable[Any]]
    hosts: int
    bins: int

    def __call__(self, bins: Iterable[int]) -> Iterable[Any]:
        return self.task([host for bin_ in bins for host in range(bin_, self.hosts, self.bins)])


@dataclass(frozen=True)
class TakeApart:
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
class Combine:
    """Yields answers of single bins, on their way to the tasks that write them."""

    task: OverBatches

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
class OnAnswers:
    """Calls a task with the answers that `Combine` has sent."""

    task: DeliverTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Delivery | Spent]:
        rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        return self.task(
            (number, (data, error) if spent is None else pickle.loads(spent))
            for batch in rows
            for number, data, error, spent in batch
        )


@dataclass(frozen=True)
class Answer:
    """Yields one query's answers."""

    task: OverBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with box():
            yield from self.task(batches)


@dataclass(frozen=True)
class AsBatch:
    """Calls a task that takes bins as a batch."""

    task: AnswerTask | PairsTask

    def __call__(self, bins: Iterable[int]) -> Iterable[pa.RecordBatch]:
        return self.task(iter([pa.record_batch([pa.array(bins, pa.int64())], names=["id"])]))


@dataclass(frozen=True)
class Verify:
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
