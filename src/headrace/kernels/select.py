"""The results of SELECTs without a window: an epoch's rows as absorb left them, written or handed to Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.kernels.border import kernels, told
from headrace.kernels.carried import Want
from headrace.kernels.chunks import open_output, read_numbers
from headrace.kernels.deliver import Delivery
from headrace.kernels.sound import to_arrow

__all__ = ["SELECTED", "SelectRows", "SelectTask", "SelectWork", "shared_out"]

# The one slice of rows that pass through an epoch.
SELECTED = 0
# A query with fewer rows is written by one task: cutting it would make more files and save no time.
MOST_ROWS_UNCUT = 200_000


@dataclass(frozen=True)
class SelectWork:
    """One query in an epoch: its store, the chunks that hold its rows, its result columns, and where they go.

    `picked` has by result column the position in the store.
    """

    store: str
    chunks: tuple[str, ...]
    picked: tuple[int, ...]
    schema: pa.Schema
    staging: str | None = None

    def wants(self, chunks: Iterable[str]) -> Iterator[Want]:
        """What a task reads that has these chunks."""
        return (Want(name, self.store, frozenset({SELECTED})) for name in chunks)

    def frames(self, folder: str, chunks: Iterable[str]) -> Iterator[pl.DataFrame]:
        """The rows of some chunks."""
        for name in chunks:
            for _, _, frame in read_numbers(folder, name, self.store, frozenset({SELECTED})):
                yield frame

    def table(self, frame: pl.DataFrame) -> pa.Table:
        """Rows of the store as results, typed as Spark types them."""
        named = frame.select(pl.col(f"c{column}").alias(f"{i}") for i, column in enumerate(self.picked))
        return to_arrow(named).rename_columns(self.schema.names).cast(self.schema)


# By task the works it does, each with the chunks it reads of it.
Shares = tuple[tuple[tuple[int, tuple[str, ...]], ...], ...]


def shared_out(chunks: Iterable[tuple[str, ...]], rows: Iterable[int], tasks: int) -> Shares:
    """Gives works, of which the chunks and rows are known, to tasks: the heaviest first, each to the least loaded.

    A work that is large, and has more than a task's share of all rows, is cut by its chunks.

    >>> shared_out([("a", "b"), ("a",), ("b",)], [30, 20, 10], 2)
    (((0, ('a', 'b')),), ((1, ('a',)), (2, ('b',))))
    >>> shared_out([("a", "b")], [1_000_000], 2)
    (((0, ('a',)),), ((0, ('b',)),))
    """
    counts, units = list(rows), list[tuple[float, int, tuple[str, ...]]]()
    for work, mine in enumerate(chunks):
        large = counts[work] > max(MOST_ROWS_UNCUT, sum(counts) / tasks)
        pieces = min(tasks, len(mine)) if large else 1
        units += ((counts[work] / pieces, work, mine[i::pieces]) for i in range(pieces))
    shares: list[list[tuple[int, tuple[str, ...]]]] = [[] for _ in range(tasks)]
    loads = [0.0] * tasks
    for weight, work, mine in sorted(units, key=lambda unit: -unit[0]):
        least = loads.index(min(loads))
        shares[least].append((work, mine))
        loads[least] += weight
    return tuple(tuple(share) for share in shares if share)


@dataclass(frozen=True)
class SelectTask:
    """Writes the results of many queries, each task those of its share; a query that fails disturbs no other."""

    folder: str
    works: tuple[SelectWork, ...]
    shares: Shares

    def wants(self, task: int) -> Iterator[Want]:
        """What one task reads."""
        for number, chunks in self.shares[task]:
            yield from self.works[number].wants(chunks)

    def __call__(self, tasks: Iterable[int]) -> Iterator[Delivery]:
        for task in tasks:
            for number, chunks in self.shares[task]:
                yield from self._delivered(number, list(self.works[number].frames(self.folder, chunks)))

    def _delivered(self, number: int, frames: list[pl.DataFrame]) -> Iterator[Delivery]:
        work = self.works[number]
        assert work.staging is not None
        if not frames:
            return
        try:
            with kernels():
                table = pa.concat_tables([work.table(frame) for frame in frames])
        except Exception as error:  # the query's own failure: told, not raised
            yield Delivery(number, error=told(error))
            return
        name = f"{uuid.uuid4().hex}.parquet"
        with open_output(work.staging, name, make_folder=True) as out:
            pq.write_table(table, out, compression="snappy")
        yield Delivery(number, file=name, rows=table.num_rows)


@dataclass(frozen=True)
class SelectRows:
    """Hands the results of one query to Spark, for sinks that Spark writes to."""

    folder: str
    work: SelectWork
    tasks: int

    def wants(self, task: int) -> Iterator[Want]:
        """What one task reads."""
        return self.work.wants(self.work.chunks[task :: self.tasks])

    def __call__(self, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            for frame in self.work.frames(self.folder, self.work.chunks[task :: self.tasks]):
                yield from self.work.table(frame).to_batches(max_chunksize=50_000)
