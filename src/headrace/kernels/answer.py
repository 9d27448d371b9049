"""Answer: all due windows of a group of queries put together from its panes, inside a Spark task, one bin at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.kernels.border import kernels, own
from headrace.kernels.carried import Want
from headrace.kernels.chunks import read_part
from headrace.kernels.panes import Layout, concat
from headrace.kernels.values import (
    PlannedAggregate,
    filled,
    find_beyond,
    finish_detail,
    finish_error,
    finish_plain,
    finish_quantile,
)
from headrace.kernels.windows import Top, View
from headrace.model import AGGREGATES, ERROR, ROWS, Due, Failure

__all__ = [
    "AnswerSpec",
    "DemandSpec",
    "Meter",
    "Panes",
    "answers",
]

_UTC_US = pl.Datetime("us", "UTC")
# Groups of all windows held at once in a task; beyond it windows are answered in several goes.
MOST_GROUPS = 2_000_000


@dataclass(frozen=True, slots=True)
class DemandSpec:
    """A demanded synopsis: what its frames look like, and the kept ones (with key positions) that make it up.

    `whole` says that the rows of a group may be in any bin of the sources, or in another bin than the main one's.
    """

    layout: Layout
    sources: tuple[tuple[str, tuple[int, ...]], ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class AnswerSpec:
    """All a task needs to answer one query: plain values that travel to it; the first demand holds the groups."""

    size_us: int
    always: bool  # answer empty windows too: the papers' form without GROUP BY
    keys: tuple[str, ...]
    aggregates: tuple[PlannedAggregate, ...]
    demands: tuple[DemandSpec, ...]
    top: Top | None = None  # of a window only its first groups are wanted
    cumulates: bool = False  # windows begin at multiples of the size, instead of a size before their end

    @property
    def main(self) -> DemandSpec:
        return self.demands[0]

    def begin_us(self, end_us: int) -> int:
        """When the window begins that ends at a time."""
        return (end_us - 1) // self.size_us * self.size_us if self.cumulates else end_us - self.size_us

    def left_us(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the last windows that hold panes end."""
        return panes // self.size_us * self.size_us + self.size_us if self.cumulates else panes + self.size_us


@dataclass(frozen=True)
class Panes:
    """Where the panes of an epoch's answers are: chunks by kept synopsis, and how many bins they have."""

    folder: str
    chunks: Mapping[str, tuple[str, ...]]
    bins: int

    def wants(self, demands: Iterable[DemandSpec], bin_: int) -> Iterator[Want]:
        """What one bin reads for some demands."""
        needed = {(synopsis, demand.whole) for demand in demands for synopsis, _ in demand.sources}
        for synopsis, whole in sorted(needed):
            for name in self.chunks.get(synopsis, ()):
                yield Want(name, synopsis, None if whole else frozenset([bin_]))

    def view(self, demand: DemandSpec, bin_: int, begin_us: int, end_us: int) -> View | None:
        """The panes of a demand in one bin from `begin` to `end`, indexed; None if there are none."""
        inside = pl.col("p").is_between(begin_us, end_us, closed="left")
        frames = []
        for synopsis, keys in demand.sources:
            columns = [pl.col(f"k{position}").alias(f"k{i}") for i, position in enumerate(keys)]
            for name in self.chunks.get(synopsis, ()):
                for bin_read in range(self.bins) if demand.whole else (bin_,):
                    for frame in read_part(self.folder, name, synopsis, bin_read):
                        rest = [c for c in frame.columns if c in ("p", "d") or c in demand.layout.columns]
                        frames.append(frame.filter(inside).select(*columns, *rest))
        frames = [frame for frame in frames if not frame.is_empty()]
        return View(_whole(frames, demand.layout), demand.layout) if frames else None


def _whole(frames: Sequence[pl.DataFrame], layout: Layout) -> pl.DataFrame:
    """All rows, with an empty column for a measure that no pane here has."""
    columns = ["p", *layout.groups, *layout.columns]
    rows = concat([frame.select(c for c in columns if c in frame.columns) for frame in frames], layout)
    return rows.with_columns(pl.lit(None).alias(c) for c in columns if c not in rows.columns).select(columns)


@dataclass
class Meter:
    """How much was read: the most panes, and all their rows."""

    panes: int = 0
    rows: int = 0


def answers(
    specs: Sequence[tuple[AnswerSpec, Due]], panes: Panes, bin_: int, meter: Meter | None = None
) -> Iterator[tuple[int, pl.DataFrame | Failure]]:
    """Groups and aggregates of all due windows of queries over one main synopsis, as `(position, frame)`.

    Frames have `window_start` and `window_end`; a query may have several, or none. One that fails gives its failure.
    """
    views = _Views(specs, panes, bin_, meter or Meter())
    topped = [number for number, (spec, _) in enumerate(specs) if spec.top is not None]
    rest = [number for number, (spec, _) in enumerate(specs) if spec.top is None]
    try:
        with kernels():
            whole = views.of(specs[0][0].main)
            ends = [_ends(spec, whole, due) for spec, due in specs]
            first = whole and _first(whole, specs, topped, ends)
    except Exception as failure:  # panes that nobody can put together: all these queries are over them
        failed = own(failure)
        yield from ((number, failed) for number in range(len(specs)))
        return
    for main, numbers in ((first, topped), (whole, rest)):
        for batch in _batches(numbers, ends, main):
            yield from _isolated(specs, batch, main, views)


def _first(
    main: View, specs: Sequence[tuple[AnswerSpec, Due]], topped: Sequence[int], ends: Sequence[Sequence[int]]
) -> View:
    """The groups that any of the queries of which only the first are wanted can want."""
    bounds, tops = [], []
    for number in topped:
        spec = specs[number][0]
        assert spec.top is not None
        bounds += [(spec.begin_us(end), end) for end in ends[number]]
        tops += [spec.top] * len(ends[number])
    return main.first(bounds, tops) if bounds else main


def _batches(
    numbers: Sequence[int], ends: Sequence[Sequence[int]], main: View | None
) -> Iterator[list[tuple[int, Sequence[int]]]]:
    """Queries and window ends in goes that fit in memory."""
    batch: list[tuple[int, Sequence[int]]] = []
    room = most = max(1, MOST_GROUPS // (main.size if main is not None else 1))
    for number in numbers:
        left = ends[number]
        while len(left):
            now, left = left[:room], left[room:]
            batch.append((number, now))
            room -= len(now)
            if room <= 0:
                yield batch
                batch, room = [], most
    if batch:
        yield batch


class _Views:
    """The views of one bin, each made when it is first needed, over the time that any of the queries needs."""

    def __init__(self, specs: Sequence[tuple[AnswerSpec, Due]], panes: Panes, bin_: int, meter: Meter) -> None:
        self._panes, self._bin, self._meter = panes, bin_, meter
        self._made: dict[str, View | None] = {}
        self._demands: dict[str, DemandSpec] = {}
        self._span: dict[str, tuple[int, int]] = {}
        for spec, due in specs:
            for demand in spec.demands:
                id_ = demand.layout.id
                begin, end = self._span.get(id_, (due.last_us, due.last_us))
                self._span[id_] = min(begin, spec.begin_us(due.first_us)), max(end, due.last_us)
                before = self._demands.get(id_, demand).layout
                measures = tuple(dict.fromkeys((*before.measures, *demand.layout.measures)))
                self._demands[id_] = replace(demand, layout=replace(demand.layout, measures=measures))

    def of(self, demand: DemandSpec) -> View | None:
        """The view of a demand, with the measures that any of the queries needs."""
        id_ = demand.layout.id
        if id_ not in self._made:
            view = self._made[id_] = self._panes.view(self._demands[id_], self._bin, *self._span[id_])
            if view is not None:
                self._meter.panes = max(self._meter.panes, len(view.panes))
                self._meter.rows += view.rows
        return self._made[id_]


def _ends(spec: AnswerSpec, main: View | None, due: Due) -> Sequence[int]:
    """The due window ends to answer: all of them, or those whose window holds a pane."""
    if spec.always:
        return due.ends
    if main is None:
        return ()
    ends, panes = due.ends, main.panes
    if not isinstance(ends, range):
        held = np.searchsorted(panes, ends) > np.searchsorted(panes, [spec.begin_us(end) for end in ends])
        return [end for end, held_ in zip(ends, held, strict=True) if held_]
    # After a leap in time there are far more ends than panes: go by panes, each of which is in the windows that end
    # after it begins, up to where the last of its windows ends, and take from each only what those before did not give.
    first = np.maximum((panes - ends.start) // ends.step + 1, 0)
    last = np.minimum((spec.left_us(panes) - ends.start) // ends.step, len(ends) - 1)
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    counts = np.maximum(last - first + 1, 0)
    chosen = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return [ends[i] for i in chosen.tolist()]


def _isolated(
    specs: Sequence[tuple[AnswerSpec, Due]],
    batch: Sequence[tuple[int, Sequence[int]]],
    main: View | None,
    views: _Views,
) -> Iterator[tuple[int, pl.DataFrame | Failure]]:
    """One go; should it fail as a whole, each query by itself, so that only those that fail alone do."""
    try:
        with kernels():
            answered = list(_answered(specs, batch, main, views))
        yield from answered
    except Exception as failure:  # a query's own: told, not raised
        failed = own(failure)
        if len(batch) == 1:
            yield batch[0][0], failed
            return
        for item in batch:
            yield from _isolated(specs, [item], main, views)


def _answered(
    specs: Sequence[tuple[AnswerSpec, Due]],
    batch: Sequence[tuple[int, Sequence[int]]],
    main: View | None,
    views: _Views,
) -> Iterator[tuple[int, pl.DataFrame | Failure]]:
    """One go: the windows of some queries, from one evaluation of each measure over all of them."""
    bounds = [(specs[number][0].begin_us(end), end) for number, ends in batch for end in ends]
    tops = [specs[number][0].top for number, ends in batch for _ in ends]
    groups, starts = main.windows(bounds, tops) if main is not None else (None, np.zeros(len(bounds) + 1, np.int64))
    details = _Details(specs, batch, views)
    at = 0
    for position, (number, ends) in enumerate(batch):
        spec = specs[number][0]
        mine = None if groups is None else groups.slice(int(starts[at]), int(starts[at + len(ends)] - starts[at]))
        times = pl.DataFrame(
            {"w": range(at, at + len(ends)), "_end": list(ends)}, schema={"w": pl.Int64, "_end": pl.Int64}
        )
        at += len(ends)
        try:
            with kernels():
                frame = _finished(spec, mine, times, details, position)
        except Exception as failure:  # the query's own: told, not raised
            yield number, own(failure)
            continue
        if frame is not None:
            yield number, frame


def _finished(
    spec: AnswerSpec, groups: pl.DataFrame | None, times: pl.DataFrame, details: _Details, position: int
) -> pl.DataFrame | None:
    """One query's windows: every aggregate from its merged measures."""
    by = [f"k{i}" for i in range(len(spec.keys))]
    missing = groups is None or groups.is_empty()
    if missing and not spec.always:
        return None
    if spec.always:
        # Windows without rows are answered too: no group is there, and the aggregates of nothing are.
        out = times if missing or groups is None else times.join(groups, on="w", how="left", maintain_order="left")
    else:
        assert groups is not None
        out = groups.join(times, on="w", how="left", maintain_order="left")
    layouts = {demand.layout.id: demand.layout for demand in spec.demands}
    columns: list[pl.Expr] = [
        _begin(spec).cast(_UTC_US).alias("window_start"),
        pl.col("_end").cast(_UTC_US).alias("window_end"),
        *(pl.col(f"k{i}").alias(name) for i, name in enumerate(spec.keys)),
    ]
    for aggregate in spec.aggregates:
        layout = layouts[aggregate.synopsis]
        if aggregate.scaled:
            error = pl.lit(0.0) if missing else finish_error(aggregate, layout).fill_null(0.0)
            columns.append(error.alias(f"{aggregate.name}{ERROR}"))
        if layout.detail:
            detail = None if missing else details.of(aggregate, position, by)
            if detail is None:
                columns.append(_empty(aggregate))
                continue
            out = out.join(detail, on=["w", *by], how="left", nulls_equal=True, maintain_order="left")
            column = pl.col(aggregate.name)
        elif missing:
            columns.append(_empty(aggregate))
            continue
        else:
            column = finish_plain(aggregate, layout).alias(aggregate.name)
        columns.append(filled(aggregate, column))
    made = out.select(columns)
    for aggregate in spec.aggregates:
        layout = layouts[aggregate.synopsis]
        row = None if layout.detail or missing else find_beyond(out, aggregate, layout, made[aggregate.name])
        if row is not None:
            raise aggregate.beyond(f"the window ending {made['window_end'][row]:%Y-%m-%d %H:%M:%S} UTC")
    return made


class _Details:
    """Aggregates over counted details, evaluated once for all windows of the queries that ask for the same."""

    def __init__(
        self, specs: Sequence[tuple[AnswerSpec, Due]], batch: Sequence[tuple[int, Sequence[int]]], views: _Views
    ) -> None:
        self._specs, self._batch, self._views = specs, batch, views
        self._made: dict[PlannedAggregate, pl.DataFrame | None] = {}

    def of(self, aggregate: PlannedAggregate, position: int, by: list[str]) -> pl.DataFrame | None:
        """Per window `w` and group the aggregate's value, under its name."""
        alike = replace(aggregate, name="_value")
        if alike not in self._made:
            self._made[alike] = self._evaluate(alike, by)
        made = self._made[alike]
        if made is None:
            return None
        first = sum(len(ends) for _, ends in self._batch[:position])
        last = first + len(self._batch[position][1])
        mine = made.filter(pl.col("w").is_between(first, last, closed="left"))
        return mine.rename({"_value": aggregate.name})

    def _evaluate(self, alike: PlannedAggregate, by: list[str]) -> pl.DataFrame | None:
        bounds: list[tuple[int, int]] = []
        at: list[int] = []
        total = 0
        demand: DemandSpec | None = None
        for number, ends in self._batch:
            spec = self._specs[number][0]
            if any(replace(a, name="_value") == alike for a in spec.aggregates):
                demand = next(d for d in spec.demands if d.layout.id == alike.synopsis)
                bounds += [(spec.begin_us(end), end) for end in ends]
                at += range(total, total + len(ends))
            total += len(ends)
        assert demand is not None
        view = self._views.of(demand)
        if view is None:
            return None
        if alike.reads == "quantile":
            return _quantiles(view, bounds, at, alike)
        rows, _ = view.windows(bounds)
        # Which of all windows of the batch each of these is.
        rows = rows.with_columns(w=pl.Series(at, dtype=pl.Int64).gather(rows["w"]))
        return finish_detail(rows.filter(pl.col("d").is_not_null()), alike, ["w", *by])


def _begin(spec: AnswerSpec) -> pl.Expr:
    """When the window begins that ends at `_end`."""
    end = pl.col("_end")
    return (end - 1) // spec.size_us * spec.size_us if spec.cumulates else end - spec.size_us


def _empty(aggregate: PlannedAggregate) -> pl.Expr:
    empty = AGGREGATES[aggregate.function].empty
    return pl.lit([] if empty == () else empty).alias(aggregate.name)


def _quantiles(
    view: View, bounds: Sequence[tuple[int, int]], at: Sequence[int], aggregate: PlannedAggregate
) -> pl.DataFrame:
    """Quantiles of counted values per window and key: by linear interpolation (percentile) or the value at the rank.

    The values of a key are in order, each so many times as its count in the window says.
    """
    fraction = aggregate.parameters[0]
    starts, keys = view.keys
    absent = view.details.is_null().to_numpy()
    windows, picks, lows, highs, weights = [], [], [], [], []
    for number, counts in zip(at, view.counts(bounds, ROWS), strict=True):
        counts[absent] = 0
        upto = np.cumsum(counts)
        before = np.concatenate([[0], upto])[starts]
        n = np.diff(np.append(before, upto[-1:]))
        (pick,) = np.nonzero(n)
        n, before = n[pick], before[pick]
        if aggregate.function == "percentile":
            place = fraction * (n - 1)
            low, high = np.floor(place), np.ceil(place)
        else:
            low = high = place = np.maximum(np.ceil(fraction * n), 1.0) - 1
        windows.append(np.full(len(pick), number))
        picks.append(pick)
        lows.append(np.searchsorted(upto, before + low, side="right"))
        highs.append(np.searchsorted(upto, before + high, side="right"))
        weights.append(place - low)
    found = pl.DataFrame(
        {
            "_low": view.details.gather(np.concatenate(lows)).cast(pl.Float64),
            "_high": view.details.gather(np.concatenate(highs)).cast(pl.Float64),
            "_weight": np.concatenate(weights),
        }
    )
    groups = keys[np.concatenate(picks)] if keys.width else keys
    value = found.select(finish_quantile(aggregate).alias(aggregate.name)).to_series()
    return pl.DataFrame([pl.Series("w", np.concatenate(windows), pl.Int64), *groups.get_columns(), value])
