"""Absorb: one pass over an epoch's rows feeds all synopses and row stores, and counts every row.

Spark evaluates the queries' expressions (`engine/operators/projection.py`); the kernel judges rows by time and
aggregates plain columns. Each task writes what it made as one chunk and reports the chunk's name, its counts and the
event times it saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from headrace.kernels.border import kernels
from headrace.kernels.chunks import APART, Chunk, write_chunk
from headrace.kernels.panes import Layout, keep_heaviest, merge, partial
from headrace.model import Entry

__all__ = [
    "GREATEST",
    "LEAST",
    "AbsorbTask",
    "Absorbed",
    "Bounds",
    "Cut",
    "FeedColumns",
    "Projection",
    "RowColumns",
    "StreamCount",
]

# Rows aggregated at once in a task: enough to amortise calls, few enough that a task stays within some 100 MB.
SLAB_ROWS = 1_000_000
# Of the hashes of a store's keys, those that so many rows of a sample have are reported, and how many.
SAMPLE_ROWS, HEAVIEST = 20_000, 16
# Stand for the bounds until an epoch has them; NUL cannot be part of a query.
LEAST, GREATEST = "\0least\0", "\0greatest\0"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Event times a stream admits in an epoch: older is late, newer is rejected."""

    least_us: int
    greatest_us: int


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """Names of the projected columns a synopsis takes from one stream."""

    stream: int
    where: str | None
    keys: tuple[str, ...]
    detail: str | None
    arguments: tuple[str | None, ...]
    bin: str | None


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Names of the projected columns a row store takes from one stream, and of the hash of its keys."""

    stream: int
    where: str | None
    columns: tuple[str, ...]
    hash: str | None


@dataclass(frozen=True, slots=True)
class Cut:
    """How the rows of a store are cut into parts: a part's number is `kind * slices + slice`.

    Rows are sliced by the hash of their keys, as kind 0; those whose hash is in `hot`, or all if `rows` says so, go
    round the slices one by one instead, as kind `kind`. Of all rows the share `keep` is taken, by a hash of their
    content and `seed`. A store that is kept `apart` has chunks of its own, which are not merged with others.
    """

    slices: int = 1
    kind: int = 1
    rows: bool = False
    hot: tuple[int, ...] = ()
    keep: float = 1.0
    seed: int = 0
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """Spark SQL that turns an epoch's rows into plain columns, and who takes which."""

    select: tuple[str, ...]
    feeds: tuple[tuple[Layout, tuple[FeedColumns, ...]], ...]
    streams: tuple[str, ...]
    corrupt: bool
    stores: tuple[tuple[str, tuple[RowColumns, ...]], ...] = ()

    def bound(self, bounds: Sequence[Bounds]) -> list[str]:
        """The columns with an epoch's bounds in place."""
        least = f"array({', '.join(f'{b.least_us:d}L' for b in bounds)})"
        greatest = f"array({', '.join(f'{b.greatest_us:d}L' for b in bounds)})"
        return [sql.replace(LEAST, least).replace(GREATEST, greatest) for sql in self.select]


@dataclass(frozen=True, slots=True)
class StreamCount:
    """What a task, or all of them, saw of one stream; times are None when no row was admitted."""

    used: int = 0
    late: int = 0
    ahead: int = 0
    no_time: int = 0
    unparseable: int = 0
    first_us: int | None = None
    last_us: int | None = None

    @property
    def rejected(self) -> int:
        return self.ahead + self.no_time + self.unparseable

    @property
    def entry(self) -> Entry:
        return Entry(used=self.used, late=self.late, rejected=self.rejected)

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
            best("least", self.first_us, other.first_us),
            best("greatest", self.last_us, other.last_us),
        )


@dataclass(frozen=True, slots=True)
class Heavy:
    """The heaviest hashes among so many sampled rows, each with its count."""

    sampled: int
    hashes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What a task, or all tasks of an epoch, made of the rows: chunks, counts per stream, rows per synopsis or store.

    `heavy` has per store the heaviest hashes of keys with how many of how many sampled rows they had, by task; `shed`
    how many rows a store did not take; `slices` the rows of each slice of stores that are kept apart.
    """

    chunks: tuple[Chunk, ...] = ()
    counts: Mapping[str, StreamCount] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    heavy: Mapping[str, tuple[Heavy, ...]] = field(default_factory=dict)
    shed: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by store and stream
    slices: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def __add__(self, other: Absorbed) -> Absorbed:
        names = self.counts.keys() | other.counts.keys()
        none = StreamCount()
        counts = {name: self.counts.get(name, none) + other.counts.get(name, none) for name in sorted(names)}
        rows = {id_: self.rows.get(id_, 0) + other.rows.get(id_, 0) for id_ in self.rows.keys() | other.rows.keys()}
        shed = {id_: self.shed.get(id_, 0) + other.shed.get(id_, 0) for id_ in self.shed.keys() | other.shed.keys()}
        ids = self.heavy.keys() | other.heavy.keys()
        heavy = {id_: self.heavy.get(id_, ()) + other.heavy.get(id_, ()) for id_ in ids}
        cut = {
            key: self.slices.get(key, 0) + other.slices.get(key, 0) for key in self.slices.keys() | other.slices.keys()
        }
        return Absorbed(self.chunks + other.chunks, counts, rows, heavy, shed, cut)


@dataclass(frozen=True)
class AbsorbTask:
    """What every task of an epoch's absorb does; called by Spark with the projected rows of one partition."""

    folder: str | None  # None: a trial that leaves nothing behind
    epoch: int
    bounds: tuple[Bounds, ...]
    projection: Projection
    cuts: Mapping[str, Cut] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Absorbed]:
        with kernels():
            yield self._absorbed(batches)

    def _absorbed(self, batches: Iterator[pa.RecordBatch]) -> Absorbed:
        counts = {name: StreamCount() for name in self.projection.streams}
        partials: list[list[pl.DataFrame]] = [[] for _ in self.projection.feeds]
        kept: dict[str, list[pl.DataFrame]] = {}
        shed: dict[tuple[str, str], int] = {}
        for slab in _slabs(batches):
            masks = self._absorb(slab, counts, partials)
            for id_, feeds in self.projection.stores:
                for feed in feeds:
                    rows_in = _rows_of(masks, feed)
                    taken = _taken(rows_in, self.cuts.get(id_, Cut()))
                    kept.setdefault(id_, []).append(taken)
                    if taken.height < rows_in.height:
                        key = id_, self.projection.streams[feed.stream]
                        shed[key] = shed.get(key, 0) + rows_in.height - taken.height
        parts, heavy = list(self._parts(partials)), dict[str, tuple[Heavy, ...]]()
        for id_, frames in kept.items():
            frame = pl.concat(frames)
            if not frame.is_empty():
                heavy[id_] = _heaviest(frame)
                parts += ((id_, 1, bin_, part) for bin_, part in _cut(frame, self.cuts.get(id_, Cut())))
        rows: dict[str, int] = {}
        for synopsis, _, _, frame in parts:
            rows[synopsis] = rows.get(synopsis, 0) + frame.height
        apart = {id_ for id_, cut in self.cuts.items() if cut.apart}
        slices = {(id_, number): frame.height for id_, _, number, frame in parts if id_ in apart}
        return Absorbed(self._chunks(parts, apart), counts, rows, heavy, shed, slices)

    def _chunks(self, parts: list[tuple[str, int, int, pl.DataFrame]], apart: set[str]) -> tuple[Chunk, ...]:
        if self.folder is None:
            return ()
        made = [write_chunk(self.folder, self.epoch, 0, [part for part in parts if part[0] not in apart])]
        # Each by itself: one store may need its rows longer than another.
        made += [
            write_chunk(self.folder, self.epoch, APART, [part for part in parts if part[0] == id_])
            for id_ in sorted(apart)
        ]
        return tuple(chunk for chunk in made if chunk is not None)

    def _absorb(
        self, slab: pa.Table, counts: dict[str, StreamCount], partials: list[list[pl.DataFrame]]
    ) -> dict[tuple[int, str | None], pl.DataFrame]:
        rows = pl.from_arrow(slab)
        assert isinstance(rows, pl.DataFrame)
        several = len(self.bounds) > 1
        masks: dict[tuple[int, str | None], pl.DataFrame] = {}
        for i, (name, bounds) in enumerate(zip(self.projection.streams, self.bounds, strict=True)):
            own = rows.filter(pl.col("_s") == i) if several else rows
            admitted, count = _judge(own, bounds, self.projection.corrupt)
            counts[name] += count
            masks[i, None] = admitted
        panes: dict[tuple[int, str | None, int], pl.DataFrame] = {}
        for made, (layout, feeds) in zip(partials, self.projection.feeds, strict=True):
            for feed in feeds:
                if (feed.stream, feed.where) not in masks:
                    masks[feed.stream, feed.where] = masks[feed.stream, None].filter(pl.col(feed.where or ""))
                key = (feed.stream, feed.where, layout.pane_us)
                if key not in panes:
                    panes[key] = masks[feed.stream, feed.where].with_columns(
                        p=pl.col("_t") // layout.pane_us * layout.pane_us
                    )
                if not panes[key].is_empty():
                    made.append(_feed(panes[key], layout, feed))
        return masks

    def _parts(self, partials: list[list[pl.DataFrame]]) -> Iterator[tuple[str, int, int, pl.DataFrame]]:
        for made, (layout, feeds) in zip(partials, self.projection.feeds, strict=True):
            if not made:
                continue
            carry = ["h"] if feeds[0].bin is not None else []
            frame = made[0] if len(made) == 1 else merge(made, layout, ["p", *layout.groups], carry)
            frame = keep_heaviest(frame, layout, ["p", *layout.groups[: layout.keys]])
            if not carry:
                yield layout.id, layout.pane_us, 0, frame
                continue
            for (bin_,), part in frame.partition_by("h", as_dict=True, include_key=False).items():
                assert isinstance(bin_, int)
                yield layout.id, layout.pane_us, bin_, part


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


def _feed(rows: pl.DataFrame, layout: Layout, feed: FeedColumns) -> pl.DataFrame:
    """Rows of one stream under the names the layout gives them, aggregated."""
    named = [pl.col("p")]
    named += [pl.col(name).alias(f"k{i}") for i, name in enumerate(feed.keys)]
    if feed.detail is not None:
        named.append(pl.col(feed.detail).alias("d"))
    if feed.bin is not None:
        named.append(pl.col(feed.bin).alias("h"))
    arguments = {name: pl.col(name) for name in feed.arguments if name is not None}
    return partial(rows.select(*named, **arguments), layout, feed.arguments, ["h"] if feed.bin is not None else [])


def _rows_of(masks: dict[tuple[int, str | None], pl.DataFrame], feed: RowColumns) -> pl.DataFrame:
    """Admitted rows that a store takes: their time `p`, columns `c0...`, and the hash `h` of their keys, if any."""
    if (feed.stream, feed.where) not in masks:
        masks[feed.stream, feed.where] = masks[feed.stream, None].filter(pl.col(feed.where or ""))
    named = [pl.col("_t").alias("p"), *(pl.col(name).alias(f"c{i}") for i, name in enumerate(feed.columns))]
    return masks[feed.stream, feed.where].select(*named, *([] if feed.hash is None else [pl.col(feed.hash).alias("h")]))


def _taken(rows: pl.DataFrame, cut: Cut) -> pl.DataFrame:
    """The rows that are not shed."""
    return rows if cut.keep >= 1 else rows.filter(rows.hash_rows(cut.seed) <= int(cut.keep * (2**64 - 1)))


def _heaviest(rows: pl.DataFrame) -> tuple[Heavy, ...]:
    if "h" not in rows.columns:
        return ()
    sample = rows["h"].gather_every(max(1, rows.height // SAMPLE_ROWS))
    counts = sample.value_counts(name="n").top_k(HEAVIEST, by="n")
    return (Heavy(len(sample), tuple((h, n) for h, n in counts.iter_rows())),)


def _cut(rows: pl.DataFrame, cut: Cut) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows by number of their part, without the hash."""
    whole = rows.drop("h", strict=False)
    row = (pl.int_range(pl.len(), dtype=pl.Int64) % cut.slices) + cut.kind * cut.slices
    if cut.rows or "h" not in rows.columns:
        number = row
    elif cut.hot:
        number = pl.when(rows["h"].is_in(list(cut.hot))).then(row).otherwise(rows["h"] % cut.slices)
    else:
        number = pl.lit(rows["h"] % cut.slices)
    if cut.slices == 1 and not cut.hot:
        yield (cut.kind if cut.rows or "h" not in rows.columns else 0), whole
        return
    parts = whole.with_columns(number.alias("_part")).partition_by("_part", as_dict=True, include_key=False)
    for (bin_,), part in parts.items():
        assert isinstance(bin_, int)
        yield bin_, part
