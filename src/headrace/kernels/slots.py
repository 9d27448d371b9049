"""Many queries finished by Spark SQL in one job: their answers share one table, a column per position and type.

    query        its columns                 in the table
    1            c0 INT, a0 BIGINT           c0_0, a0_0
    2            c0 STRING, a0 BIGINT        c0_1, a0_0

Each result column of the table is one CASE over the queries, so an expression sees the rows of its own query only.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.carried import Want
from headrace.kernels.deliver import CombineTask, DeliverTask, Delivery, Frames, Work
from headrace.kernels.finish import DirectFinish
from headrace.kernels.sound import to_arrow
from headrace.model import ERROR, KEPT, DataType, Spent

__all__ = ["HEAD", "OWN", "Slots", "SlotsDelivery", "SlotsTask"]

# What every row has: its query, or else what a task has to say instead of a row; and the window.
HEAD = pa.schema(
    [
        ("_q", pa.int32()),
        ("_note", pa.binary()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
    ]
)
_HEAD_DDL = "_q INT, _note BINARY, window_start TIMESTAMP, window_end TIMESTAMP"
OWN = ("window_start", "window_end")


@dataclass(frozen=True)
class Slots:
    """The common table of some queries: its columns, the SQL over them, and per query where its own are."""

    columns: tuple[tuple[str, DataType], ...]
    select: tuple[str, ...]
    finishes: tuple[DirectFinish, ...]
    places: tuple[tuple[tuple[str, str], ...], ...]  # (the query's name of a column, the table's)

    @property
    def ddl(self) -> str:
        return ", ".join([_HEAD_DDL, *(f"{name} {type_}" for name, type_ in self.columns)])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*HEAD, *((name, arrow_type(type_)) for name, type_ in self.columns)])


@dataclass(frozen=True)
class SlotsTask:
    """Puts the answers of a task's share of the queries into their common table, and notes besides."""

    combine: CombineTask
    slots: Slots

    def wants(self, task: int) -> Iterator[Want]:
        """What one task reads."""
        return self.combine.wants(task)

    def __call__(self, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
        schema = self.slots.schema
        for item in self.combine.frames(tasks):
            if isinstance(item, Spent):
                yield _noted(schema, item)
                continue
            number, frame, error = item
            if frame is None:
                yield _noted(schema, (number, None, error))
                continue
            names = self.combine.works[number].spec.keys, self.combine.works[number].spec.aggregates
            there = dict(self.slots.places[number])
            own = [*OWN, *names[0], *(aggregate.name for aggregate in names[1])]
            own += [f"{aggregate.name}{ERROR}" for aggregate in names[1] if aggregate.scaled]
            own += [KEPT] if self.combine.works[number].kept is not None else []
            table = to_arrow(frame.select(own))
            found = {there.get(name, name): table[name] for name in own}
            columns = [
                pa.repeat(pa.scalar(number, pa.int32()), frame.height)
                if field.name == "_q"
                else found[field.name].cast(field.type)
                if field.name in found
                else pa.nulls(frame.height, field.type)
                for field in schema
            ]
            yield from pa.table(columns, schema=schema).to_batches(max_chunksize=50_000)


def _noted(schema: pa.Schema, note: object) -> pa.RecordBatch:
    """A row of no query that says something else."""
    columns = [pa.nulls(1, field.type) for field in schema]
    columns[0], columns[1] = pa.array([-1], pa.int32()), pa.array([pickle.dumps(note)], pa.binary())
    return pa.record_batch(columns, schema=schema)


@dataclass(frozen=True)
class SlotsDelivery:
    """Takes the finished table apart again and writes each query's results."""

    works: tuple[Work, ...]
    slots: Slots

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Delivery | Spent]:
        works = tuple(
            replace(work, finish=finish) for work, finish in zip(self.works, self.slots.finishes, strict=True)
        )
        return DeliverTask(works).deliver(self._frames(batches))

    def _frames(self, batches: Iterator[pa.RecordBatch]) -> Frames:
        for batch in batches:
            table = pl.from_arrow(batch)
            assert isinstance(table, pl.DataFrame)
            yield from map(pickle.loads, table["_note"].drop_nulls())
            rows = table.filter(pl.col("_note").is_null() & pl.col("_keep"))
            for (number,), mine in rows.group_by(["_q"], maintain_order=True):
                assert isinstance(number, int)
                own = (pl.col(slot).alias(name) for name, slot in self.slots.places[number])
                yield number, mine.select(*OWN, *own), None
