"""The tasks of an epoch's answer: combine panes of a bin into answers, then write them or hand them to Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import QueryFailure
from headrace.kernels.answer import AnswerSpec, Meter, Panes, answers
from headrace.kernels.border import kernels, told
from headrace.kernels.carried import Want
from headrace.kernels.chunks import open_output
from headrace.kernels.finish import DirectFinish
from headrace.kernels.sound import to_arrow
from headrace.model import KEPT, Due, Failure, Spent

__all__ = ["AnswerTask", "CombineTask", "DeliverTask", "Delivery", "Frames", "Work", "bins_of"]


@dataclass(frozen=True)
class Work:
    """One query that is due: what to answer, how to finish it and where to put it."""

    spec: AnswerSpec
    due: Due
    finish: DirectFinish | None
    staging: str | None
    kept: Mapping[int, float] | None = None  # by window end, of windows that lost rows; None if nobody asks

    def shown(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Answers with the part of each window's rows that was kept, if that is a result."""
        if self.kept is None:
            return frame
        ends = pl.col("window_end").cast(pl.Int64)
        kept = ends.replace_strict(list(self.kept), list(self.kept.values()), default=1.0, return_dtype=pl.Float64)
        return frame.with_columns((kept if self.kept else pl.lit(1.0)).alias(KEPT))


@dataclass(frozen=True)
class Delivery:
    """What became of one query's answers: a staged file and its rows, or an error."""

    work: int
    file: str | None = None
    rows: int = 0
    error: str | None = None


# Answers of one query and bin, by the query's position: Arrow bytes, or what went wrong; or what they took.
Combined = tuple[int, tuple[bytes | None, str | None] | Spent]
Frames = Iterator[tuple[int, pl.DataFrame | None, str | None] | Spent]


@dataclass(frozen=True)
class AnswerTask:
    """Hands one query's answers to Spark, typed, for finishing by SQL."""

    panes: Panes
    work: Work
    schema: pa.Schema

    def wants(self, bin_: int) -> Iterator[Want]:
        """What one bin reads."""
        return self.panes.wants(self.work.spec.demands, bin_)

    def __call__(self, bins: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for bin_ in bins:
            if bin_ in bins_of(self.work.spec, self.panes.bins):
                for _, frame in answers([(self.work.spec, self.work.due)], self.panes, bin_):
                    if isinstance(frame, Failure):
                        raise QueryFailure(frame.text)
                    table = to_arrow(self.work.shown(frame)).cast(self.schema)
                    yield from table.to_batches(max_chunksize=50_000)


def bins_of(spec: AnswerSpec, bins: int) -> range:
    """The bins that answer a query: all of them, or one where groups are spread over bins or there are none."""
    return range(1 if not spec.keys or spec.main.whole else bins)


@dataclass(frozen=True)
class CombineTask:
    """Answers groups of queries, each group and bin by one task; a query that fails does not disturb the others.

    `groups` are main synopses and the positions of the works that have them in common; `shares` says which task does
    which `(group, bin)`.
    """

    panes: Panes
    works: tuple[Work, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    weights: tuple[float, ...] = ()  # what each group took before, if that is known
    shares: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def units(self) -> list[tuple[int, int]]:
        """All pairs of a group and a bin that answers it."""
        return [
            (group, bin_)
            for group, (_, members) in enumerate(self.groups)
            for bin_ in bins_of(self.works[members[0]].spec, self.panes.bins)
        ]

    def shared_by(self, tasks: int) -> CombineTask:
        """The same with its units given to tasks, the heaviest first, each to the task with the least so far."""
        weights = self.weights or (1.0,) * len(self.groups)
        shares: list[list[tuple[int, int]]] = [[] for _ in range(tasks)]
        loads = [0.0] * tasks
        for unit in sorted(self.units, key=lambda unit: -weights[unit[0]]):
            least = loads.index(min(loads))
            shares[least].append(unit)
            loads[least] += weights[unit[0]]
        return replace(self, shares=tuple(map(tuple, shares)))

    def wants(self, task: int) -> Iterator[Want]:
        """What one task reads."""
        for group, bin_ in self.shares[task]:
            members = (self.works[number] for number in self.groups[group][1])
            yield from self.panes.wants((demand for work in members for demand in work.spec.demands), bin_)

    def __call__(self, tasks: Iterable[int]) -> Iterator[Combined]:
        for item in self.frames(tasks):
            if isinstance(item, Spent):
                yield -1, item
            else:
                number, frame, error = item
                yield number, (None if frame is None else _to_ipc(frame), error)

    def frames(self, tasks: Iterable[int]) -> Frames:
        """Per query its answers, cut to what any bin can contribute, or what went wrong."""
        for task in tasks:
            for group, bin_ in self.shares[task]:
                yield from self._group(group, bin_)

    def _group(self, group: int, bin_: int) -> Frames:
        began = time.perf_counter()
        alike: dict[tuple[AnswerSpec, Due], list[int]] = {}
        name, members = self.groups[group]
        meter = Meter()
        for number in members:
            alike.setdefault((self.works[number].spec, self.works[number].due), []).append(number)
        answered = 0
        for position, frame in answers(list(alike), self.panes, bin_, meter):
            numbers = list(alike.values())[position]
            if isinstance(frame, Failure):
                yield from ((number, None, frame.text) for number in numbers)
                continue
            answered += frame.height
            heads: dict[tuple[object, ...], pl.DataFrame] = {}
            for number in numbers:
                work = self.works[number]
                finish = work.finish
                try:
                    with kernels():
                        cut = ((), work.kept is None) if finish is None else (finish.cut, work.kept is None)
                        if cut not in heads:
                            shown = work.shown(frame)
                            heads[cut] = shown if finish is None else finish.head(shown)
                except Exception as error:  # the query's own failure: told, not raised
                    yield number, None, told(error)
                    continue
                yield number, heads[cut], None
        yield Spent(name, time.perf_counter() - began, meter.panes, meter.rows, answered)


@dataclass(frozen=True)
class DeliverTask:
    """Writes each query's answers as one Parquet file and reports it."""

    works: tuple[Work, ...]
    combine: CombineTask | None = None  # with a single bin both steps are one

    def wants(self, task: int) -> Iterable[Want]:
        """What one task reads."""
        return self.combine.wants(task) if self.combine else ()

    def __call__(self, items: Iterable[Any]) -> Iterator[Delivery | Spent]:
        return self.deliver(self.combine.frames(items) if self.combine else _decoded(items))

    def deliver(self, frames: Frames) -> Iterator[Delivery | Spent]:
        """Writes what there is of each query, once all of it is there."""
        found: dict[int, list[pl.DataFrame]] = {}
        errors: dict[int, str] = {}
        for item in frames:
            if isinstance(item, Spent):
                yield item
                continue
            number, frame, error = item
            if error is not None:
                errors[number] = error
            elif frame is not None:
                found.setdefault(number, []).append(frame)
        for number, parts in found.items():
            if number not in errors:
                yield from self._deliver(number, parts)
        yield from (Delivery(number, error=error) for number, error in errors.items())

    def _deliver(self, number: int, frames: list[pl.DataFrame]) -> Iterator[Delivery]:
        work = self.works[number]
        assert work.finish is not None
        assert work.staging is not None
        try:
            with kernels():
                # Windows without rows are made of literals, whose types give way to those of the others.
                whole = pl.concat(frames, how="vertical_relaxed")
                table = work.finish.table(work.finish.head(whole) if len(frames) > 1 or not self.combine else whole)
        except Exception as error:  # the query's own failure: told, not raised
            yield Delivery(number, error=told(error))
            return
        if not table.num_rows:
            return
        name = f"{uuid.uuid4().hex}.parquet"
        with open_output(work.staging, name, make_folder=True) as out:
            pq.write_table(table, out, compression="snappy")
        yield Delivery(number, file=name, rows=table.num_rows)


def _to_ipc(frame: pl.DataFrame) -> bytes:
    table = to_arrow(frame)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decoded(items: Iterable[Combined]) -> Frames:
    for number, item in items:
        if isinstance(item, Spent):
            yield item
            continue
        data, error = item
        frame = None if data is None else pl.from_arrow(pa.ipc.open_stream(data).read_all())
        assert frame is None or isinstance(frame, pl.DataFrame)
        yield number, frame, error
