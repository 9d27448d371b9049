"""Absorb: one pass over an epoch's rows feeds all synopses and row stores, and counts every row.

Spark evaluates the queries' expressions (`engine/operators/projection.py`); the kernel judges rows by time and
aggregates plain columns. Each task writes what it made as one chunk and reports the chunk's name, its counts and the
event times it saw.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from headrace.kernels.border import kernels
from headrace.kernels.chunks import APART, Chunk, write_chunk
from headrace.kernels.keeping import Passed
from headrace.kernels.panes import Layout, keep_heaviest, merge, partial
from headrace.model import Entry, Shed, edge_into

__all__ = [
    "BUCKETS",
    "GREATEST",
    "LEAST",
    "MOST",
    "SEED",
    "AbsorbTask",
    "Absorbed",
    "Bounds",
    "EpochColumns",
    "FeedColumns",
    "RowColumns",
    "Slicing",
    "StreamCount",
    "Worked",
]

# Rows aggregated at once in a task: enough to amortise calls, few enough that a task stays within some 100 MB.
SLAB_ROWS = 1_000_000
# Of the hashes of a store's keys, those that so many rows of a sample have are reported, and how many.
SAMPLE_ROWS, HEAVIEST = 20_000, 16
# Buckets that values of a key are hashed into where rare ones are protected.
BUCKETS = 64
# Stand for the bounds, the seeds and the greatest hashes of kept rows until an epoch has them; NUL cannot be part of a
# query.
LEAST, GREATEST, SEED, MOST = "\0least\0", "\0greatest\0", "\0seed\0", "\0most\0"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Event times a stream admits in an epoch: older is late, newer is rejected."""

    least_us: int
    greatest_us: int


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """Names of the projected columns a synopsis takes from one stream; an argument `extra:x1` is made of column x1.

    Where rows are panes that another site made, `merged` has the columns of the layout's measures, in their order.
    """

    stream: int
    where: str | None
    keys: tuple[str, ...]
    detail: str | None
    arguments: tuple[str | None, ...]
    bin: str | None
    bucket: str | None = None
    merged: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Names of the projected columns a row store takes from one stream, and of the hash of its keys."""

    stream: int
    where: str | None
    columns: tuple[str, ...]
    hash: str | None


@dataclass(frozen=True, slots=True)
class Slicing:
    """How the rows of a store are cut into parts: a part's number is `kind * slices + slice`.

    Rows are sliced by the hash of their keys, as kind 0; those whose hash is in `hot`, or all if `rows` says so, go
    round the slices one by one instead, as kind `kind`. A store that is kept `apart` has chunks of its own, which are
    not merged with others. Rows that are `passing` are needed in their epoch and not after it: all such stores share a
    chunk per task, which no manifest names.
    """

    slices: int = 1
    kind: int = 1
    rows: bool = False
    hot: tuple[int, ...] = ()
    apart: bool = False
    passing: bool = False


@dataclass(frozen=True, slots=True)
class EpochColumns:
    """Spark SQL that turns an epoch's rows into plain columns, and who takes which."""

    select: tuple[str, ...]
    feeds: tuple[tuple[Layout, tuple[FeedColumns, ...]], ...]
    streams: tuple[str, ...]
    corrupt: bool
    stores: tuple[tuple[str, tuple[RowColumns, ...]], ...] = ()
    hashes: tuple[str | None, ...] = ()  # by stream the column that rows are shed by

    def bound(self, bounds: Sequence[Bounds], seeds: Sequence[int] = (), most: Sequence[int] = ()) -> list[str]:
        """The columns with an epoch's bounds in place; by stream the seed of its hashes, and the greatest hash that a
        row has which some edge keeps."""
        numbers = {
            LEAST: [each.least_us for each in bounds],
            GREATEST: [each.greatest_us for each in bounds],
            SEED: seeds,
            MOST: most,
        }
        told = {mark: f"array({', '.join(f'{each:d}L' for each in values)})" for mark, values in numbers.items()}
        return [_filled(sql, told) for sql in self.select]


def _filled(sql: str, told: Mapping[str, str]) -> str:
    for mark, values in told.items():
        sql = sql.replace(mark, values)
    return sql


@dataclass(frozen=True, slots=True)
class StreamCount:
    """What a task, or all of them, saw of one stream; times are None when no row was admitted."""

    used: int = 0
    late: int = 0
    ahead: int = 0
    no_time: int = 0
    unparseable: int = 0
    shed: int = 0  # of the admitted rows those that some edge left out
    first_us: int | None = None
    last_us: int | None = None

    @property
    def rejected(self) -> int:
        return self.ahead + self.no_time + self.unparseable

    @property
    def entry(self) -> Entry:
        return Entry(used=self.used - self.shed, late=self.late, shed=self.shed, rejected=self.rejected)

    @property
    def span_us(self) -> tuple[int, int] | None:
        """The least and the greatest event time of the admitted rows."""
        return None if self.first_us is None or self.last_us is None else (self.first_us, self.last_us)

    def __add__(self, other: StreamCount) -> StreamCount:
        def best(pick: object, a: int | None, b: int | None) -> int | None:
            known = [v for v in (a, b) if v is not None]
            return None if not known else (min(known) if pick == "least" else max(known))

        return StreamCount(
            self.used + other.used,
            self.late + other.late,
            self.ahead + other.ahead,
            self.no_time + other.no_time,
            self.unparseable + other.unparseable,
            self.shed + other.shed,
            best("least", self.first_us, other.first_us),
            best("greatest", self.last_us, other.last_us),
        )


@dataclass(frozen=True, slots=True)
class Heavy:
    """The heaviest hashes among so many sampled rows, each with its count."""

    sampled: int
    hashes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Worked:
    """Rows that a stream brought or an edge kept, and the seconds of tasks that went into them."""

    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: Worked) -> Worked:
        return Worked(self.rows + other.rows, self.seconds + other.seconds)


# By edge and pane the rows that came along the edge, and how many of them were shed.
PaneCounts = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What a task, or all tasks of an epoch, made of the rows: chunks, counts per stream, rows per synopsis or store.

    `heavy` has per store the heaviest hashes of keys with how many of how many sampled rows they had, by task; `shed`
    the accounts of edges that shed; `slices` the rows of each slice of stores that are kept apart. `worked` says by
    stream and by edge what tasks spent on its rows, `panes` what came of each pane along edges that are counted.
    """

    chunks: tuple[Chunk, ...] = ()
    counts: Mapping[str, StreamCount] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    heavy: Mapping[str, tuple[Heavy, ...]] = field(default_factory=dict)
    shed: Mapping[str, Shed] = field(default_factory=dict)  # by edge
    slices: Mapping[tuple[str, int], int] = field(default_factory=dict)
    worked: Mapping[str, Worked] = field(default_factory=dict)  # by stream, and by edge
    panes: PaneCounts = field(default_factory=dict)
    buckets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # rows by edge that protects and by bucket

    def __add__(self, other: Absorbed) -> Absorbed:
        names = self.counts.keys() | other.counts.keys()
        none = StreamCount()
        counts = {name: self.counts.get(name, none) + other.counts.get(name, none) for name in sorted(names)}
        rows = {id_: self.rows.get(id_, 0) + other.rows.get(id_, 0) for id_ in self.rows.keys() | other.rows.keys()}
        edges = self.shed.keys() | other.shed.keys()
        shed = {edge: self.shed.get(edge, Shed()) + other.shed.get(edge, Shed()) for edge in edges}
        ids = self.heavy.keys() | other.heavy.keys()
        heavy = {id_: self.heavy.get(id_, ()) + other.heavy.get(id_, ()) for id_ in ids}
        cut = {
            key: self.slices.get(key, 0) + other.slices.get(key, 0) for key in self.slices.keys() | other.slices.keys()
        }
        none_worked = Worked()
        worked = {
            name: self.worked.get(name, none_worked) + other.worked.get(name, none_worked)
            for name in self.worked.keys() | other.worked.keys()
        }
        panes = _added(self.panes, other.panes)
        buckets = {edge: dict(counts) for edge, counts in self.buckets.items()}
        for edge, more in other.buckets.items():
            mine = buckets.setdefault(edge, {})
            for bucket, count in more.items():
                mine[bucket] = mine.get(bucket, 0) + count
        return Absorbed(self.chunks + other.chunks, counts, rows, heavy, shed, cut, worked, panes, buckets)


def _added(a: PaneCounts, b: PaneCounts) -> PaneCounts:
    found = {edge: dict(counts) for edge, counts in a.items()}
    for edge, counts in b.items():
        mine = found.setdefault(edge, {})
        for pane, (rows, shed) in counts.items():
            before = mine.get(pane, (0, 0))
            mine[pane] = before[0] + rows, before[1] + shed
    return found


@dataclass(frozen=True)
class AbsorbTask:
    """What every task of an epoch's absorb does; called by Spark with the projected rows of one partition."""

    folder: str | None  # None: a trial that leaves nothing behind
    epoch: int
    bounds: tuple[Bounds, ...]
    projection: EpochColumns
    slicings: Mapping[str, Slicing] = field(default_factory=dict)
    keep: Mapping[str, float] = field(default_factory=dict)  # by edge, of those that do not keep everything
    counted: Mapping[str, int] = field(default_factory=dict)  # by edge whose rows are counted the length of its panes
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by edge that protects rare keys
    keyed: Mapping[str, float] = field(default_factory=dict)  # by edge into a join that keeps so much of its keys

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Absorbed]:
        with kernels():
            yield self._absorbed(batches)

    def _absorbed(self, batches: Iterator[pa.RecordBatch]) -> Absorbed:
        meter = _Meter()
        counts = {name: StreamCount() for name in self.projection.streams}
        partials: list[list[pl.DataFrame]] = [[] for _ in self.projection.feeds]
        kept: dict[str, list[pl.DataFrame]] = {}
        shed: dict[str, Shed] = {}
        for slab in _slabs(batches):
            passed = self._judged(slab, counts, shed)
            self._absorb(passed, partials, meter)
            for id_, feeds in self.projection.stores:
                for feed in feeds:
                    edge = self._edge(feed.stream, id_)
                    with meter.at(edge):
                        taken = passed.along(feed.stream, feed.where, edge)
                        kept.setdefault(id_, []).append(_rows_of(taken, feed))
                    meter.rows(edge, taken.height)
                    if edge in self.counted:
                        offered, pane_us = passed.offered(feed.stream, feed.where), self.counted[edge]
                        meter.count(edge, offered, taken["_t"] // pane_us * pane_us, pane_us)
        parts, heavy = list(self._parts(partials, meter)), dict[str, tuple[Heavy, ...]]()
        for id_, frames in kept.items():
            with meter.at(self._first_edge(id_)):
                frame = pl.concat(frames)
                if not frame.is_empty():
                    heavy[id_] = _heaviest(frame)
                    slicing = self.slicings.get(id_, Slicing())
                    parts += ((id_, 1, bin_, part) for bin_, part in _sliced(frame, slicing))
        rows: dict[str, int] = {}
        for synopsis, _, _, frame in parts:
            rows[synopsis] = rows.get(synopsis, 0) + frame.height
        apart = {id_ for id_, slicing in self.slicings.items() if slicing.apart}
        slices = {(id_, number): frame.height for id_, _, number, frame in parts if id_ in apart}
        with meter.among({self._first_edge(id_): cells for id_, cells in _cells(parts).items()}):
            chunks = self._chunks(parts, apart)
        meter.read(counts)
        return Absorbed(chunks, counts, rows, heavy, shed, slices, meter.worked, meter.panes, meter.buckets)

    def _chunks(self, parts: list[tuple[str, int, int, pl.DataFrame]], apart: set[str]) -> tuple[Chunk, ...]:
        if self.folder is None:
            return ()
        passing = {id_ for id_, slicing in self.slicings.items() if slicing.passing}
        stays = [part for part in parts if part[0] not in apart and part[0] not in passing]
        made = [write_chunk(self.folder, self.epoch, 0, stays)]
        made += [write_chunk(self.folder, self.epoch, APART, [part for part in parts if part[0] in passing])]
        # Each by itself: one store may need its rows longer than another.
        made += [
            write_chunk(self.folder, self.epoch, APART, [part for part in parts if part[0] == id_])
            for id_ in sorted(apart)
        ]
        return tuple(chunk for chunk in made if chunk is not None)

    def _edge(self, stream: int, node: str) -> str:
        return edge_into(node, self.projection.streams[stream])

    def _first_edge(self, node: str) -> str:
        """The edge that pays for what is done with the rows of all edges into a synopsis or a store."""
        feeds = {layout.id: each[0].stream for layout, each in self.projection.feeds}
        feeds |= {id_: each[0].stream for id_, each in self.projection.stores}
        return self._edge(feeds[node], node)

    def _judged(self, slab: pa.Table, counts: dict[str, StreamCount], shed: dict[str, Shed]) -> Passed:
        """The admitted rows of each stream; what came, and what edges shed of it, is counted."""
        rows = pl.from_arrow(slab)
        assert isinstance(rows, pl.DataFrame)
        several = len(self.bounds) > 1
        admitted: list[pl.DataFrame] = []
        for i, (name, bounds) in enumerate(zip(self.projection.streams, self.bounds, strict=True)):
            own = rows.filter(pl.col("_s") == i) if several else rows
            good, count = _judge(own, bounds, self.projection.corrupt)
            counts[name] += count
            admitted.append(good)
        passed = Passed(tuple(admitted), self.projection.hashes, self.keep, self._bucketed(), self._by_key())
        for i, name in enumerate(self.projection.streams):
            wheres = self._wheres(i)
            if wheres:
                accounts, lost = passed.account(i, wheres)
                counts[name] += StreamCount(shed=lost)
                for edge, account in accounts.items():
                    shed[edge] = shed.get(edge, Shed()) + account
        return passed

    def _bucketed(self) -> dict[str, tuple[str, tuple[float, ...]]]:
        """By edge that keeps a fraction by bucket the column of the bucket, and the fractions."""
        return {
            edge: (feed.bucket, self.buckets[edge])
            for layout, feeds in self.projection.feeds
            for feed in feeds
            if (edge := self._edge(feed.stream, layout.id)) in self.buckets and feed.bucket is not None
        }

    def _by_key(self) -> dict[str, tuple[str, float]]:
        """By edge that sheds by the key of a join the column with its hash, and the fraction that is kept."""
        return {
            edge: (feed.hash, self.keyed[edge])
            for id_, feeds in self.projection.stores
            for feed in feeds
            if (edge := self._edge(feed.stream, id_)) in self.keyed and feed.hash is not None
        }

    def _wheres(self, stream: int) -> dict[str, set[str | None]]:
        """By edge of a stream that sheds the filters of its feeds: one, or those of a union's parts."""
        found: dict[str, set[str | None]] = {}
        if self.keep or self.keyed:
            feeds = [(layout.id, feed.stream, feed.where) for layout, many in self.projection.feeds for feed in many]
            rows = [(id_, feed.stream, feed.where) for id_, many in self.projection.stores for feed in many]
            for id_, of, where in (*feeds, *rows):
                edge = self._edge(stream, id_)
                if of == stream and (edge in self.keep or edge in self.keyed):
                    found.setdefault(edge, set()).add(where)
        return found

    def _absorb(self, passed: Passed, partials: list[list[pl.DataFrame]], meter: _Meter) -> None:
        panes: dict[tuple[int, str | None, float | str, int], pl.DataFrame] = {}
        for made, (layout, feeds) in zip(partials, self.projection.feeds, strict=True):
            for feed in feeds:
                edge = self._edge(feed.stream, layout.id)
                part = edge if edge in self.buckets else self.keep.get(edge, 1.0)
                key = (feed.stream, feed.where, part, layout.pane_us)
                with meter.at(edge):
                    if key not in panes:
                        rows = passed.along(feed.stream, feed.where, edge)
                        panes[key] = rows.with_columns(p=pl.col("_t") // layout.pane_us * layout.pane_us)
                    if not panes[key].is_empty():
                        kept = passed.fraction(edge), passed.hash_of(feed.stream)
                        made.append(_feed(panes[key], layout, feed, *kept))
                meter.rows(edge, panes[key].height)
                if edge in self.counted:
                    offered = passed.offered(feed.stream, feed.where)
                    meter.count(edge, offered, panes[key]["p"], layout.pane_us)
                    if feed.bucket is not None:
                        meter.sort(edge, offered[feed.bucket])

    def _parts(self, partials: list[list[pl.DataFrame]], meter: _Meter) -> Iterator[tuple[str, int, int, pl.DataFrame]]:
        for made, (layout, feeds) in zip(partials, self.projection.feeds, strict=True):
            if not made:
                continue
            carry = ["h"] if feeds[0].bin is not None else []
            with meter.at(self._edge(feeds[0].stream, layout.id)):
                frame = made[0] if len(made) == 1 else merge(made, layout, ["p", *layout.groups], carry)
                frame = keep_heaviest(frame, layout, ["p", *layout.groups[: layout.keys]])
            if not carry:
                yield layout.id, layout.pane_us, 0, frame
                continue
            for (bin_,), part in frame.partition_by("h", as_dict=True, include_key=False).items():
                assert isinstance(bin_, int)
                yield layout.id, layout.pane_us, bin_, part


class _Meter:
    """What a task spends on each edge, what is left of its time, and what came of each pane."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.worked: dict[str, Worked] = {}
        self.panes: dict[str, dict[int, tuple[int, int]]] = {}
        self.buckets: dict[str, dict[int, int]] = {}

    @contextmanager
    def at(self, edge: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.worked[edge] = self.worked.get(edge, Worked()) + Worked(0, time.perf_counter() - began)

    @contextmanager
    def among(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Time that edges share, in proportion to sizes."""
        began, total = time.perf_counter(), sum(sizes.values())
        yield
        took = time.perf_counter() - began
        for edge, size in sizes.items():
            self.worked[edge] = self.worked.get(edge, Worked()) + Worked(0, took * size / total if total else 0.0)

    def rows(self, edge: str, rows: int) -> None:
        self.worked[edge] = self.worked.get(edge, Worked()) + Worked(rows, 0.0)

    def read(self, counts: Mapping[str, StreamCount]) -> None:
        """All time that no edge took goes to the streams, by their rows."""
        left = time.perf_counter() - self._began - sum(each.seconds for each in self.worked.values())
        came = {name: count.entry.rows_in for name, count in counts.items()}
        total = sum(came.values())
        self.worked |= {name: Worked(rows, left * rows / total) for name, rows in came.items() if rows}

    def count(self, edge: str, offered: pl.DataFrame, kept: pl.Series, pane_us: int) -> None:
        """Counts the rows that came along an edge and those that were shed, by pane."""
        came = offered.select(p=pl.col("_t") // pane_us * pane_us)["p"].value_counts(name="n")
        there = dict(kept.value_counts(name="n").iter_rows()) if len(kept) < offered.height else None
        mine = self.panes.setdefault(edge, {})
        for pane, rows in came.iter_rows():
            lost = 0 if there is None else rows - there.get(pane, 0)
            before = mine.get(pane, (0, 0))
            mine[pane] = before[0] + rows, before[1] + lost

    def sort(self, edge: str, buckets: pl.Series) -> None:
        """Counts the rows that came along an edge by bucket of their key."""
        mine = self.buckets.setdefault(edge, {})
        for bucket, rows in buckets.drop_nulls().value_counts(name="n").iter_rows():
            mine[bucket] = mine.get(bucket, 0) + rows


def _cells(parts: Sequence[tuple[str, int, int, pl.DataFrame]]) -> dict[str, int]:
    """By synopsis and store how many values its parts have."""
    found: dict[str, int] = {}
    for id_, _, _, frame in parts:
        found[id_] = found.get(id_, 0) + frame.height * frame.width
    return found


def _slabs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= SLAB_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def _judge(rows: pl.DataFrame, bounds: Bounds, corrupt: bool) -> tuple[pl.DataFrame, StreamCount]:
    """The admitted rows, and how many were not and why; a row counts once, by the first fault it has."""
    t = pl.col("_t")
    good = pl.lit(True) if not corrupt else ~pl.col("_bad")
    timed = good & t.is_not_null()
    found = rows.select(
        unparseable=(~good).sum() if corrupt else pl.lit(0),
        no_time=(good & t.is_null()).sum(),
        late=(timed & (t < bounds.least_us)).sum(),
        ahead=(timed & (t > bounds.greatest_us)).sum(),
    ).row(0, named=True)
    fault = sum(found.values())
    admitted = rows
    if fault:
        admitted = rows.filter(timed & t.is_between(bounds.least_us, bounds.greatest_us))
    first, last = admitted.select(t.min().alias("first"), t.max().alias("last")).row(0)
    return admitted, StreamCount(used=rows.height - fault, first_us=first, last_us=last, **found)


def _feed(
    rows: pl.DataFrame, layout: Layout, feed: FeedColumns, keep: float | pl.Expr | None, hashed: str | None
) -> pl.DataFrame:
    """Rows of one stream under the names the layout gives them, aggregated; `keep` is the fraction that was kept."""
    named = [pl.col("p")]
    named += [pl.col(name).alias(f"k{i}") for i, name in enumerate(feed.keys)]
    if feed.detail is not None:
        named.append(pl.col(feed.detail).alias("d"))
    carry = ["h"] if feed.bin is not None else []
    if feed.bin is not None:
        named.append(pl.col(feed.bin).alias("h"))
    if feed.merged is not None:
        measures = (pl.col(name).alias(column) for name, column in zip(feed.merged, layout.columns, strict=True))
        return merge([rows.select(*named, *measures)], layout, ["p", *layout.groups], carry)
    arguments = {
        name: pl.col(name) if ":" not in name else _scaling(name, keep, hashed)
        for name in feed.arguments
        if name is not None
    }
    return partial(rows.select(*named, **arguments), layout, feed.arguments, carry)


def _scaling(name: str, keep: float | pl.Expr | None, hashed: str | None) -> pl.Expr:
    """What each kept row adds to what a sum lacks, to the variance of the scaled sum, or to how it varies with a count.

    Equal rows share a hash and so their fate: they vary as one row with the sum of their values, within a task. A row's
    part of that variance is its value times the sum.
    """
    kind, _, column = name.partition(":")
    if keep is None or hashed is None or (isinstance(keep, float) and keep <= 0):
        return pl.lit(0.0)
    x = pl.col(column).cast(pl.Float64) if column else pl.lit(1.0)
    if kind == "extra":
        return x * (1 / keep - 1)
    known = pl.col(column).is_not_null().cast(pl.Float64) if column else pl.lit(1.0)
    alike = (pl.lit(1.0) * (known if kind == "cross" else x)).sum().over(hashed) if column else pl.len().over(hashed)
    return x * alike * ((1 - keep) / keep**2)


def _rows_of(rows: pl.DataFrame, feed: RowColumns) -> pl.DataFrame:
    """Rows as a store takes them: their time `p`, columns `c0...`, and the hash `h` of their keys, if any."""
    named = [pl.col("_t").alias("p"), *(pl.col(name).alias(f"c{i}") for i, name in enumerate(feed.columns))]
    return rows.select(*named, *([] if feed.hash is None else [pl.col(feed.hash).alias("h")]))


def _heaviest(rows: pl.DataFrame) -> tuple[Heavy, ...]:
    if "h" not in rows.columns:
        return ()
    sample = rows["h"].gather_every(max(1, rows.height // SAMPLE_ROWS))
    counts = sample.value_counts(name="n").top_k(HEAVIEST, by="n")
    return (Heavy(len(sample), tuple((h, n) for h, n in counts.iter_rows())),)


def _sliced(rows: pl.DataFrame, slicing: Slicing) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows by number of their part, without the hash."""
    whole = rows.drop("h", strict=False)
    row = (pl.int_range(pl.len(), dtype=pl.Int64) % slicing.slices) + slicing.kind * slicing.slices
    if slicing.rows or "h" not in rows.columns:
        number = row
    elif slicing.hot:
        number = pl.when(rows["h"].is_in(list(slicing.hot))).then(row).otherwise(rows["h"] % slicing.slices)
    else:
        number = pl.lit(rows["h"] % slicing.slices)
    if slicing.slices == 1 and not slicing.hot:
        yield (slicing.kind if slicing.rows or "h" not in rows.columns else 0), whole
        return
    parts = whole.with_columns(number.alias("_part")).partition_by("_part", as_dict=True, include_key=False)
    for (bin_,), part in parts.items():
        assert isinstance(bin_, int)
        yield bin_, part
