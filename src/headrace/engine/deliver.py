"""The tasks of an epoch's answer: combine panes of a bin into answers, then write them or hand them to Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine.answer import AnswerSpec, answer, load_panes
from headrace.engine.chunks import open_output
from headrace.engine.finish import DirectFinish
from headrace.errors import CorruptStateError
from headrace.policies import Due

__all__ = ["AnswerTask", "CombineTask", "DeliverTask", "Delivery", "Work"]


@dataclass(frozen=True)
class Work:
    """One query that is due: what to answer, from which chunks, how to finish it and where to put it."""

    spec: AnswerSpec
    due: Due
    chunks: Mapping[str, tuple[str, ...]]
    finish: DirectFinish | None
    staging: str | None


@dataclass(frozen=True)
class Delivery:
    """What became of one query's answers: a staged file and its rows, or an error."""

    work: int
    file: str | None = None
    rows: int = 0
    error: str | None = None


# Answers of one query and bin, by the query's position: Arrow bytes, or what went wrong.
Combined = tuple[int, tuple[bytes | None, str | None]]


def _answers(folder: str, work: Work, bin_: int) -> pl.DataFrame | None:
    if bin_ != 0 and not work.spec.keys:
        return None
    return answer(work.spec, load_panes(folder, work.chunks, work.spec, bin_, work.due), work.due)


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@dataclass(frozen=True)
class AnswerTask:
    """Hands one query's answers to Spark, typed, for finishing by SQL."""

    folder: str
    work: Work
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bins = (bin_ for batch in batches for bin_ in batch.column(0).to_pylist())
        for bin_ in bins:
            frame = _answers(self.folder, self.work, bin_)
            if frame is not None:
                table = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self.schema)
                yield from table.to_batches(max_chunksize=50_000)


@dataclass(frozen=True)
class CombineTask:
    """Answers all directly finished queries for some bins; a query that fails does not disturb the others."""

    folder: str
    works: tuple[Work, ...]

    def __call__(self, bins: Iterable[int]) -> Iterator[Combined]:
        for number, frame, error in self.frames(bins):
            yield number, (None if frame is None else _to_ipc(frame), error)

    def frames(self, bins: Iterable[int]) -> Iterator[tuple[int, pl.DataFrame | None, str | None]]:
        """Per bin and query its answers or what went wrong."""
        for bin_ in bins:
            for number, work in enumerate(self.works):
                assert work.finish is not None
                try:
                    frame = _answers(self.folder, work, bin_)
                    if frame is not None:
                        yield number, work.finish.head(frame), None
                except (CorruptStateError, OSError):
                    raise
                except Exception as error:  # the query's own failure: told, not raised
                    yield number, None, _failure(error)


@dataclass(frozen=True)
class DeliverTask:
    """Writes each query's answers as one Parquet file and reports it."""

    works: tuple[Work, ...]
    combine: CombineTask | None = None  # with a single bin both steps are one

    def __call__(self, items: Iterable[Any]) -> Iterator[Delivery]:
        answers: dict[int, list[pl.DataFrame]] = {}
        errors: dict[int, str] = {}
        for number, frame, error in self.combine.frames(items) if self.combine else _decoded(items):
            if error is not None:
                errors[number] = error
            elif frame is not None:
                answers.setdefault(number, []).append(frame)
        for number, frames in answers.items():
            if number not in errors:
                yield self._deliver(number, frames)
        yield from (Delivery(number, error=error) for number, error in errors.items())

    def _deliver(self, number: int, frames: list[pl.DataFrame]) -> Delivery:
        work = self.works[number]
        assert work.finish is not None
        assert work.staging is not None
        try:
            whole = pl.concat(frames)
            table = work.finish.table(work.finish.head(whole) if len(frames) > 1 else whole)
        except Exception as error:  # the query's own failure: told, not raised
            return Delivery(number, error=_failure(error))
        name = f"{uuid.uuid4().hex}.parquet"
        with open_output(work.staging, name, make_folder=True) as out:
            pq.write_table(table, out, compression="snappy")
        return Delivery(number, file=name, rows=table.num_rows)


def _to_ipc(frame: pl.DataFrame) -> bytes:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decoded(items: Iterable[Combined]) -> Iterator[tuple[int, pl.DataFrame | None, str | None]]:
    for number, (data, error) in items:
        frame = None if data is None else pl.from_arrow(pa.ipc.open_stream(data).read_all())
        assert frame is None or isinstance(frame, pl.DataFrame)
        yield number, frame, error
