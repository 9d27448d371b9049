"""Rows that Spark brings to tasks and takes from them, where they open no files themselves.

A row of cargo is a task to be run (no name), a whole chunk (no part), one part of a chunk for one task, or, for each
task that wants some of a chunk, the word that the chunk was taken apart (an empty part): Spark passes over empty files
without one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import CorruptStateError
from headrace.kernels.carried import Made, NotCarried, Order, Want, box, current_box
from headrace.kernels.chunks import Chunk, Part, fault_of, parts_of

__all__ = [
    "CARGO",
    "END",
    "KEYED",
    "AsBytes",
    "Boxed",
    "ByKey",
    "Gather",
    "Keyed",
    "Numbered",
    "OnNumbers",
    "OverBatches",
    "Report",
    "TakeApart",
    "Verify",
    "Write",
    "wanted_by",
]

# Chunks end with HRCHUNK1 and Parquet files with PAR1: the last byte of both is what Spark puts after every string.
END = b"1"
# Small parts travel together up to so many bytes.
_BATCH_BYTES = 4 << 20
# Digits before the bytes of a file, where both travel as one value: which of its task's files it is.
_DIGITS = 6
_FILE = pa.schema([("i", pa.int32()), ("data", pa.binary())])
CARGO = pa.schema([("task", pa.int32()), ("name", pa.string()), ("part", pa.string()), ("data", pa.binary())])
KEYED = pa.schema([("key", pa.int32()), ("item", pa.binary())])

OverBatches = Callable[[Iterator[pa.RecordBatch]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a task says of itself: its partition, its results, the paths its files are to have, and what it lacked."""

    job: str
    partition: int
    results: list[Any]
    made: list[str]
    lacking: tuple[Want, ...] = ()


class Gather:
    """How Spark adds up the reports of a job: those of a task count once, however often it ran."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802 - Spark's name
        return value1 + value2


@dataclass(frozen=True)
class Write:
    """Yields the files a task makes, without the byte they end with; reports the rest."""

    task: OverBatches
    reports: Any  # an accumulator of Spark's
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for i, body in self.files(batches):
            yield pa.record_batch([[i], [body]], schema=_FILE)

    def files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
        """The files by their number in this task."""
        results: list[Any] = []
        lacking: tuple[Want, ...] = ()
        with box() as held:
            try:
                results = list(self.task(batches))
            except NotCarried as lack:
                lacking = lack.wants
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        made = [] if lacking else held.made
        paths = [f"{each.folder}/{each.name}" for each in made]
        self.reports.add([Report(self.job, context.partitionId(), results, paths, lacking)])
        yield from ((i, _body(each)) for i, each in enumerate(made))


def _body(made: Made) -> bytes:
    data: bytes = made.data.to_pybytes()
    assert data.endswith(END)
    return data[: -len(END)]


@dataclass(frozen=True)
class AsBytes:
    """The same over encoded batches: a file is its number, in so many digits, and its bytes."""

    write: Write

    def __call__(self, batches: Iterable[bytes]) -> Iterator[bytes]:
        decoded = (pa.ipc.read_record_batch(pa.py_buffer(batch), CARGO) for batch in batches)
        return (f"{i:0{_DIGITS}d}".encode() + body for i, body in self.write.files(decoded))

    @staticmethod
    def select() -> list[str]:
        """How Spark SQL takes number and bytes apart."""
        number = f"CAST(CAST(substring(value, 1, {_DIGITS}) AS STRING) AS INT) AS i"
        return [number, f"substring(value, {_DIGITS + 1}) AS data"]


@dataclass(frozen=True)
class OnNumbers:
    """Calls an order with the number of its task, with the parts that came along in the box.

    `numbers` are those of all tasks; `more` are, by number, wants that the order itself does not know of.
    """

    folder: str
    order: Order
    numbers: Sequence[int]
    more: Mapping[int, tuple[Want, ...]] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        held = current_box()
        assert held is not None
        mine: list[int] = []
        for batch in batches:
            for task, name, part, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if name is None:
                    mine.append(self.numbers[task])
                elif part is None:
                    held.parts.setdefault(name, []).extend(parts_of(f"{self.folder}/{name}", data))
                else:
                    parts = held.parts.setdefault(name, [])
                    parts += [(Part(*json.loads(part)), data)] if part else []
        for number in mine:
            held.brought += [*self.order.wants(number), *self.more.get(number, ())]
        for name in sorted({want.chunk for want in held.brought}):
            if name not in held.parts:
                raise CorruptStateError(f"state file {self.folder}/{name} is missing or empty")
        yield from self.order(mine)


def wanted_by(wants: Iterable[Iterable[Want]]) -> dict[str, list[tuple[int, Want]]]:
    """By chunk who wants what of it, given the wants of each task in their order."""
    found: dict[str, list[tuple[int, Want]]] = {}
    for task, some in enumerate(wants):
        for want in dict.fromkeys(some):
            found.setdefault(want.chunk, []).append((task, want))
    return found


class _Tasks:
    """Who wants which parts of one chunk."""

    def __init__(self, wanted: Sequence[tuple[int, Want]]) -> None:
        self.all = sorted({task for task, _ in wanted})
        self._by_number: dict[str, dict[int | None, set[int]]] = {}
        for task, want in wanted:
            tasks = self._by_number.setdefault(want.id, {})
            for number in (None,) if want.numbers is None else want.numbers:
                tasks.setdefault(number, set()).add(task)

    def of(self, part: Part) -> list[int]:
        """The tasks that want a part."""
        found = [tasks for id_, tasks in self._by_number.items() if part.synopsis.startswith(id_)]
        return sorted(set[int]().union(*(tasks.get(number, ()) for tasks in found for number in (None, part.bin))))


@dataclass(frozen=True)
class TakeApart:
    """Turns whole chunks into the parts that are wanted, for the tasks that want them."""

    folder: str
    wanted: Mapping[str, Sequence[tuple[int, Want]]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, data in zip(batch.column(1).to_pylist(), batch.column(3).to_pylist(), strict=True):
                yield from self._chunk(name, data)

    def _chunk(self, name: str, data: bytes) -> Iterator[pa.RecordBatch]:
        wanted = _Tasks(self.wanted[name])
        rows: list[tuple[int, str, str, bytes]] = [(task, name, "", b"") for task in wanted.all]
        size = 0
        for part, content in parts_of(f"{self.folder}/{name}", data):
            text = json.dumps(astuple(part))
            for task in wanted.of(part):
                if size and size + len(content) > _BATCH_BYTES:
                    yield _batch(rows)
                    rows, size = [], 0
                rows.append((task, name, text, content))
                size += len(content)
        if rows:
            yield _batch(rows)


def _batch(rows: Sequence[tuple[int, str, str, bytes]]) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=CARGO)


@dataclass(frozen=True)
class Numbered:
    """Calls an order with the numbers in the first column."""

    order: Order

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        yield from self.order(number for batch in batches for number in batch.column(0).to_pylist())


@dataclass(frozen=True)
class Boxed:
    """Calls a task that makes no files with a box around it."""

    task: OverBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        with box():
            yield from self.task(batches)


@dataclass(frozen=True)
class Keyed:
    """Yields the keyed items of an order, on their way to the tasks of their keys."""

    task: OverBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, item in self.task(batches):
            yield pa.record_batch([[key], [pickle.dumps(item)]], schema=KEYED)


@dataclass(frozen=True)
class ByKey:
    """Calls a task with the items that `Keyed` has sent."""

    task: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Any]:
        rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        return self.task((key, pickle.loads(item)) for batch in rows for key, item in batch)


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
