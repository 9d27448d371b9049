"""What a host does in an epoch of a join: finds its blocks, makes their pairs, writes them or hands them to Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.kernels.border import kernels, told
from headrace.kernels.carried import Want
from headrace.kernels.chunks import Part, open_output, read_part, slice_parts
from headrace.kernels.deliver import Delivery
from headrace.kernels.pairs import Matching, pairs
from headrace.kernels.sound import to_arrow
from headrace.model import EVERYWHERE, KEY, ONCE, Block, host_of

__all__ = ["CONSTANT", "Closing", "Counted", "JoinTask", "JoinWork", "PairsTask"]

# Stands for a side where a result column is the part of the rows that was kept, the same for all pairs of an epoch.
CONSTANT = 2


@dataclass(frozen=True, slots=True)
class Closing:
    """Rows of a side whose window closes now: those before `until_us` that are new, or not before `from_us`."""

    from_us: int
    until_us: int


@dataclass(frozen=True)
class JoinWork:
    """One join in one epoch: its stores (left, right) with the chunks that hold them, and who makes which pairs.

    `hosts` is the host of each slice; `closing` has, for a side whose unmatched rows are results, what closes now. The
    results of a join that is a `half` are what closes of the left side, with a match or without, and no pairs.
    """

    stores: tuple[str, str]
    held: tuple[tuple[str, ...], tuple[str, ...]]
    fresh: tuple[str, ...]
    matching: Matching
    hosts: tuple[int, ...]
    mixed: bool
    columns: tuple[int, int]  # how many columns each side has
    picked: tuple[tuple[int, int], ...] | None = None  # result columns as (side, column)
    schema: pa.Schema | None = None
    staging: str | None = None
    closing: tuple[Closing | None, Closing | None] = (None, None)
    kept: float = 1.0
    half: str | None = None  # semi | anti

    def wants(self, host: int) -> Iterator[Want]:
        """What one host may read: of hash slices, unless keys are in blocks of several kinds, only its own."""
        slices, numbers = len(self.hosts), None
        if not self.mixed:
            others = (kind * slices + slice_ for kind in (ONCE, EVERYWHERE) for slice_ in range(slices))
            own = (KEY * slices + slice_ for slice_, each in enumerate(self.hosts) if each == host)
            numbers = frozenset((*own, *others))
        for store, held in zip(self.stores, self.held, strict=True):
            yield from (Want(name, store, numbers) for name in (*held, *self.fresh))


@dataclass(frozen=True, slots=True)
class Counted:
    """What a host had to do with one join: rows it was sent and rows it holds, by side, and how long it took.

    `home_rows` and `home_bytes` are of the rows that it holds and no other host counts.
    """

    work: int
    host: int
    seconds: float
    received: tuple[int, int]
    held: tuple[int, int]
    home_rows: tuple[int, int]
    home_bytes: tuple[int, int]
    pairs: int


@dataclass
class _Side:
    """The blocks of one side that are there, and the rows of those that were read."""

    folder: str
    store: str
    parts: dict[Block, list[tuple[str, Part]]] = field(default_factory=dict)
    read: dict[Block, pl.DataFrame] = field(default_factory=dict)

    def rows(self, blocks: Iterable[Block]) -> pl.DataFrame | None:
        frames = []
        for block in blocks:
            if block not in self.read:
                found = [
                    frame
                    for name, part in self.parts[block]
                    for frame in read_part(self.folder, name, self.store, part.bin)
                ]
                self.read[block] = pl.concat(found, rechunk=False)
            frames.append(self.read[block])
        return pl.concat(frames, rechunk=False) if frames else None


@dataclass(frozen=True)
class JoinTask:
    """Makes the pairs of its hosts, of all joins that are written directly, as one Parquet file per host and join."""

    folder: str
    works: tuple[JoinWork, ...]

    def wants(self, host: int) -> Iterator[Want]:
        """What one host may read."""
        return (want for work in self.works for want in work.wants(host))

    def __call__(self, hosts: Iterable[int]) -> Iterator[Delivery | Counted]:
        for host in hosts:
            for number, work in enumerate(self.works):
                yield from self._join(number, work, host)

    def _join(self, number: int, work: JoinWork, host: int) -> Iterator[Delivery | Counted]:
        made = Host(self.folder, number, work, host)
        try:
            with kernels():
                written = _written(number, work, made.results())
            if written is not None:
                yield written
        except Exception as error:  # the query's own failure: told, not raised
            yield Delivery(number, error=told(error))
        yield made.counted()


@dataclass(frozen=True)
class PairsTask:
    """Hands the pairs of one join to Spark, with all columns of both sides; see `Host.candidates`."""

    folder: str
    work: JoinWork
    schema: pa.Schema

    def wants(self, host: int) -> Iterator[Want]:
        """What one host may read."""
        return self.work.wants(host)

    def __call__(self, hosts: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for host in hosts:
            with kernels():
                for frame in Host(self.folder, 0, self.work, host).candidates():
                    table = to_arrow(frame).cast(self.schema)
                    yield from table.to_batches(max_chunksize=50_000)


class Host:
    """One host's part of one join in one epoch."""

    def __init__(self, folder: str, number: int, work: JoinWork, host: int) -> None:
        self._number, self._work, self._host = number, work, host
        self._began = time.perf_counter()
        self._pairs = 0
        self._sides = tuple(_Side(folder, store) for store in work.stores)
        slices = len(work.hosts)
        for side, names in zip(self._sides, work.held, strict=True):
            for fresh, chunks in ((False, names), (True, work.fresh)):
                for name in chunks:
                    for part in slice_parts(folder, name, side.store):
                        block = Block(part.bin // slices, part.bin % slices, fresh)
                        side.parts.setdefault(block, []).append((name, part))

    def _cells(self) -> dict[frozenset[Block], list[Block]]:
        """This host's cells as rectangles: left blocks by the set of right blocks they all meet."""
        left, right = self._sides
        found: dict[frozenset[Block], list[Block]] = {}
        for a in left.parts:
            meets = frozenset(b for b in right.parts if host_of(a, b, self._work.hosts, self._work.mixed) == self._host)
            if meets:
                found.setdefault(meets, []).append(a)
        # Rows of different hash slices never fit, so rectangles of KEY blocks may be put together.
        together: dict[tuple[frozenset[bool], frozenset[bool]], tuple[set[Block], set[Block]]] = {}
        cells: dict[frozenset[Block], list[Block]] = {}
        for meets, mine in found.items():
            if all(block.kind == KEY for block in (*meets, *mine)):
                shape = frozenset(b.fresh for b in mine), frozenset(b.fresh for b in meets)
                lefts, rights = together.setdefault(shape, (set(), set()))
                lefts |= set(mine)
                rights |= meets
            else:
                cells[meets] = mine
        for lefts, rights in together.values():
            cells[frozenset(rights)] = [*cells.get(frozenset(rights), ()), *lefts]
        return cells

    def found(self) -> Iterator[tuple[tuple[pl.DataFrame, pl.Series], tuple[pl.DataFrame, pl.Series]]]:
        """All pairs, in several goes: rows of the left side and their positions, and the same of the right."""
        left, right = self._sides
        for meets, mine in self._cells().items():
            a, b = left.rows(sorted(mine, key=_order)), right.rows(sorted(meets, key=_order))
            if a is None or b is None:
                continue
            for i, j in pairs(a, b, self._work.matching):
                self._pairs += len(i)
                yield (a, i), (b, j)

    def results(self) -> Iterator[pl.DataFrame]:
        """The result columns `o0...` of all pairs, and of unmatched rows."""
        picked = self._work.picked
        assert picked is not None
        for sides in self.found() if self._work.half is None else ():
            count = len(sides[0][1])
            yield pl.DataFrame(
                [
                    pl.repeat(self._work.kept, count, dtype=pl.Float64, eager=True).alias(f"o{n}")
                    if side == CONSTANT
                    else sides[side][0][f"c{c}"].gather(sides[side][1]).alias(f"o{n}")
                    for n, (side, c) in enumerate(picked)
                ]
            )
        for side in (0, 1):
            closing = self._closing(side)
            if closing is None:
                continue
            met = pl.int_range(pl.len(), dtype=pl.UInt32).is_in(self._matched(side, closing))
            yield closing.filter(met if self._work.half == "semi" else ~met).select(
                (pl.col(f"c{column}") if own == side else pl.lit(None)).alias(f"o{n}")
                for n, (own, column) in enumerate(picked)
            )

    def candidates(self) -> Iterator[pl.DataFrame]:
        """Pairs, with `_what` = 0; rows that close, with `_what` = 1 or 2 by side, alone and with all they may meet.

        Such rows have a number `_row` of their own.
        """
        counts = self._work.columns
        for (a, i), (b, j) in self.found() if self._work.half is None else ():
            rows = _both(a[i], b[j], counts)
            yield rows.select(pl.lit(0).alias("_what"), pl.lit(None).alias("_row"), pl.all())
        for side in (0, 1):
            closing = self._closing(side)
            if closing is None:
                continue
            first = self._host << 40
            number = (pl.int_range(pl.len(), dtype=pl.Int64) + first).alias("_row")
            what = pl.lit(side + 1).alias("_what")
            empty = _nulls(closing.height)
            alone = _both(closing, empty, counts) if side == 0 else _both(empty, closing, counts)
            yield alone.with_columns(number, pl.lit(False).alias("_pair")).select(what, "_row", pl.exclude("_row"))
            other = self._others(side)
            if other is None:
                continue
            for i, j in self._met(side, closing, other):
                mine, theirs = closing[i], other[j]
                rows = _both(mine, theirs, counts) if side == 0 else _both(theirs, mine, counts)
                yield rows.with_columns((i.cast(pl.Int64) + first).alias("_row"), pl.lit(True).alias("_pair")).select(
                    what, "_row", pl.exclude("_row")
                )

    def _closing(self, side: int) -> pl.DataFrame | None:
        """Rows of a side whose window closes now; each at the home of its block."""
        closing, mine = self._work.closing[side], self._sides[side]
        if closing is None:
            return None
        frames = []
        for block in sorted(mine.parts, key=_order):
            if self._work.hosts[block.slice] == self._host:
                rows = mine.rows([block])
                assert rows is not None
                first = pl.lit(True) if block.fresh else pl.col("p") >= closing.from_us
                frames.append(rows.filter((pl.col("p") < closing.until_us) & first))
        found = pl.concat(frames) if frames else None
        return None if found is None or found.is_empty() else found

    def _others(self, side: int) -> pl.DataFrame | None:
        """All rows of the other side that rows closing here can have met."""
        mine, other = self._sides[side], self._sides[1 - side]
        homes = [b for b in mine.parts if self._work.hosts[b.slice] == self._host]
        kinds = {block.kind for block in homes}
        slices = {block.slice for block in homes if block.kind == KEY}
        found = [
            b
            for b in sorted(other.parts, key=_order)
            if (b.kind == KEY and (b.slice in slices or (self._work.mixed and kinds != {KEY})))
            or (b.kind != KEY and (self._work.mixed or kinds != {KEY}))
        ]
        return other.rows(found)

    def _met(self, side: int, closing: pl.DataFrame, other: pl.DataFrame) -> Iterator[tuple[pl.Series, pl.Series]]:
        if side == 0:
            yield from pairs(closing, other, self._work.matching)
        else:
            yield from ((j, i) for i, j in pairs(other, closing, self._work.matching))

    def _matched(self, side: int, closing: pl.DataFrame) -> pl.Series:
        other = self._others(side)
        found = [] if other is None else [i.unique() for i, _ in self._met(side, closing, other)]
        return pl.concat(found).unique() if found else pl.Series([], dtype=pl.UInt32)

    def counted(self) -> Counted:
        """What this host was sent and holds."""
        received, held, home, size = [], [], [], []
        for side in self._sides:
            heights = {block: rows.height for block, rows in side.read.items()}
            received.append(sum(rows for block, rows in heights.items() if block.fresh))
            held.append(sum(rows for block, rows in heights.items() if not block.fresh))
            mine = [b for b in side.parts if self._work.hosts[b.slice] == self._host]
            home.append(sum(heights.get(block, 0) for block in mine))
            size.append(sum(int(side.read[block].estimated_size()) for block in mine if block in side.read))
        seconds = time.perf_counter() - self._began
        return Counted(
            self._number, self._host, seconds, (received[0], received[1]), (held[0], held[1]), (home[0], home[1]),
            (size[0], size[1]), self._pairs,
        )  # fmt: skip


def _order(block: Block) -> tuple[int, int, bool]:
    return block.kind, block.slice, block.fresh


def _nulls(height: int) -> pl.DataFrame:
    return pl.DataFrame({"p": pl.Series([None] * height, dtype=pl.Int64)})


def _both(a: pl.DataFrame, b: pl.DataFrame, counts: tuple[int, int]) -> pl.DataFrame:
    """Columns `l0...` and `r0...` side by side, NULL where a frame has no columns; `_t` is the later of their times."""
    height = a.height
    columns: list[pl.Series] = []
    for letter, frame, count in (("l", a, counts[0]), ("r", b, counts[1])):
        for n in range(count):
            name = f"c{n}"
            found = frame[name] if name in frame.columns else pl.Series([None] * height)
            columns.append(found.alias(f"{letter}{n}"))
    times = pl.DataFrame([a["p"].alias("a"), b["p"].alias("b")]).select(pl.max_horizontal("a", "b").alias("_t"))
    pair = pl.repeat(True, height, dtype=pl.Boolean, eager=True)
    return pl.DataFrame([*columns, pair.alias("_pair"), times["_t"]])


def _written(number: int, work: JoinWork, results: Iterator[pl.DataFrame]) -> Delivery | None:
    """Writes results as they come; nothing if there are none."""
    assert work.schema is not None
    assert work.staging is not None
    frames = (frame for frame in results if not frame.is_empty())
    first = next(frames, None)
    if first is None:
        return None
    name, rows = f"{uuid.uuid4().hex}.parquet", 0
    with (
        open_output(work.staging, name, make_folder=True) as out,
        pq.ParquetWriter(out, work.schema, compression="snappy") as writer,
    ):
        for frame in (first, *frames):
            table = to_arrow(frame).rename_columns(work.schema.names)
            writer.write_table(table.cast(work.schema))
            rows += frame.height
    return Delivery(number, file=name, rows=rows)
