"""Many windows from one scan: panes of a bin, indexed so that any window costs its groups and not its panes.

What can be subtracted (counts, exact sums) is added up once, over time: for every time at which a window begins or
ends, and every group, the sum of all panes before it. A window is the difference of two of these rows:

    group        a   b   c
    before 2     7   1   4          window [2, 4): a 9 - 7, b 6 - 1, c 4 - 4 (no pane of c: not in the window)
    before 4     9   6   4

What cannot (minima, maxima, sums of floats, moments) is combined from rows ordered by group and time, of which a window
is one range per group: a tree of blocks of 2, 4, 8, ... rows has them in a few steps. Sums of decimals are added up in
that order, too; those of wide ones in two limbs (`limbs.py`), so that their running sums have room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.errors import QueryFailure
from headrace.kernels.limbs import columns_of_limbs
from headrace.kernels.moments import MOMENTS, columns_of_moments, merge_parts
from headrace.kernels.panes import Layout, columns_of_best
from headrace.kernels.trees import Integers, Tree

__all__ = ["Ranges", "Top", "View", "numbered"]

Bounds = Sequence[tuple[int, int]]
# The columns of a measure for ranges of rows `low <= row < high`.
Evaluator = Callable[[Integers, Integers], list[pl.Series]]
# Beyond this a running sum of decimals could lose digits that its differences need.
_DECIMAL_LIMIT = 10**37
# Running sums held at once when windows of a view are only counted.
COUNTED_AT_ONCE = 16_000_000
# Groups that tell how much a group must have to be among the first of a window; views of few groups need no such help.
SAMPLED = 1024
WORTH_SAMPLING = 16 * SAMPLED
# Bounds are computed in double precision: a group is left out only if it is further below than this, relatively.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Top:
    """Only the first `k` groups of a window by one measure are wanted, and all that tie with the last of them."""

    measure: str
    k: int
    descending: bool
    nulls_first: bool

    def wanted(self, values: pl.Series) -> NDArray[np.bool_] | None:
        """Which groups may be among the wanted; None: all, also where the values cannot be compared as numbers."""
        if len(values) <= self.k or not (values.dtype.is_numeric() or values.dtype.is_decimal()):
            return None
        exact, nulls = values.dtype.is_integer(), values.null_count()
        if len(values) - nulls <= self.k:
            return None
        numbers = values if exact else values.cast(pl.Float64).fill_nan(float("inf"))
        found = (numbers.fill_null(0) if nulls else numbers).to_numpy()
        absent = values.is_null().to_numpy() if nulls else np.zeros(len(values), np.bool_)
        known = found[~absent] if nulls else found
        at = len(known) - self.k if self.descending else self.k - 1
        last = np.partition(known, at)[at]
        if not exact:
            # Decimals are compared in double precision: a little more is kept.
            last = last - abs(last) * 1e-12 if self.descending else last + abs(last) * 1e-12
        kept: NDArray[np.bool_] = (found >= last) if self.descending else (found <= last)
        kept[absent] = self.nulls_first
        return kept

    def heights(self, values: pl.Series) -> NDArray[np.float64]:
        """Values as numbers of which the greatest come first; a null is below them all."""
        numbers = values.cast(pl.Float64).fill_nan(float("inf"))
        return (numbers if self.descending else -numbers).fill_null(float("-inf")).to_numpy()


class View:
    """The panes of one demanded synopsis in one bin, ready for any window.

    Groups are in the order of their keys and details, so the details of a group's key lie side by side in a window.
    """

    def __init__(self, frame: pl.DataFrame, layout: Layout) -> None:
        self._frame, self._layout = frame, layout
        self._panes: Integers = frame["p"].unique().sort().to_numpy()
        self._group, first = numbered(frame, layout.groups)
        self._groups = frame.select(layout.groups)[first] if layout.groups else pl.DataFrame({"_one": [0]})
        self._keys = _runs(self._groups, layout.groups[: layout.keys]) if layout.detail else None

    @property
    def size(self) -> int:
        """How many groups there are, over all panes."""
        return self._groups.height

    @property
    def rows(self) -> int:
        """How many rows the panes have."""
        return self._frame.height

    @property
    def panes(self) -> Integers:
        """When the panes that hold rows begin, in order."""
        return self._panes

    def windows(self, bounds: Bounds, tops: Sequence[Top | None] | None = None) -> tuple[pl.DataFrame, Integers]:
        """The groups of each window `[begin, end)` with their merged measures, window by window.

        The frame has `w` (the window's position), the group columns and the measures, with details also `_s`, one
        number per window and key; the array says where each window's rows begin in it, and where the last end.
        """
        spans = _Spans(self, bounds)
        picks: list[Integers] = []
        for number in range(len(bounds)):
            (pick,) = np.nonzero(spans.rows(number))
            top = tops[number] if tops is not None else None
            if top is not None and len(pick) > top.k:
                kept = top.wanted(spans.measure(top.measure, [(number, pick)])[0])
                if kept is not None:
                    pick = pick[kept]
            picks.append(pick)
        counts = np.array([len(pick) for pick in picks], np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        pick = _joined(picks)
        groups = self._groups[pick] if self._layout.groups else self._groups[pick].select()
        window = np.repeat(np.arange(len(bounds), dtype=np.int64), counts)
        columns = [pl.Series("w", window), *groups.get_columns()]
        if self._keys is not None:
            columns.append(pl.Series("_s", window * (int(self._keys.max(initial=0)) + 1) + self._keys[pick]))
        for name, _, _ in self._layout.measures:
            columns += spans.measure(name, list(enumerate(picks)))
        return pl.DataFrame(columns), starts

    def first(self, bounds: Bounds, tops: Sequence[Top]) -> View:
        """The view of those groups only that may be among the first of some window: mostly a few of very many.

        A group cannot have more in a window than the panes of all windows give it together. What it must have is told
        by some groups that have the most in all panes: the k-th of them in a window is at most the window's k-th.
        """
        if self.size < WORTH_SAMPLING or any(top.nulls_first for top in tops):
            return self
        wanted = np.zeros(self.size, np.bool_)
        for top in dict.fromkeys(tops):
            most = self._most(top)
            if most is None:
                return self
            sampled = np.zeros(self.size, np.bool_)
            sampled[np.argpartition(most, -SAMPLED)[-SAMPLED:]] = True
            least = self._only(sampled)._least([b for b, t in zip(bounds, tops, strict=True) if t == top], top)
            wanted |= most * (1 + np.copysign(_SLACK, most)) >= least - abs(least) * _SLACK
        return self._only(wanted)

    def _only(self, groups: NDArray[np.bool_]) -> View:
        return View(self._frame.filter(pl.Series(groups[self._group])), self._layout)

    def _least(self, bounds: Bounds, top: Top) -> float:
        """The least that a group has which is the k-th of a window, over all windows."""
        spans, least = _Spans(self, bounds), float("inf")
        for number in range(len(bounds)):
            (pick,) = np.nonzero(spans.rows(number))
            if len(pick) < top.k:
                return float("-inf")
            heights = top.heights(spans.measure(top.measure, [(number, pick)])[0])
            least = min(least, float(np.partition(heights, -top.k)[-top.k]))
        return least

    def _most(self, top: Top) -> NDArray[np.float64] | None:
        """Per group the most it can have in any window, as heights; None if nothing is known without looking."""
        kind, storage = self._kind(top.measure)
        column = self._frame[top.measure]
        if (
            not (kind in ("rows", "count", "min", "max") or storage in ("int", "float"))
            or not column.dtype.is_numeric()
        ):
            return None
        heights = top.heights(column)
        if kind in ("min", "max"):
            most = np.full(self.size, -np.inf)
            np.maximum.at(most, self._group, heights)
            return most if (kind == "max") == top.descending else None
        sums: NDArray[Any] = np.bincount(self._group, weights=np.maximum(heights, 0.0), minlength=self.size)
        return sums

    @property
    def keys(self) -> tuple[Integers, pl.DataFrame]:
        """With details: where the groups of each key begin among all groups, and the keys."""
        assert self._keys is not None
        (starts,) = np.nonzero(np.concatenate([[True], self._keys[1:] != self._keys[:-1]]))
        names = self._layout.groups[: self._layout.keys]
        return starts, self._groups.select(names)[starts] if names else pl.DataFrame({"_one": [0]}).select()

    @property
    def details(self) -> pl.Series:
        """The detail of each group."""
        return self._groups["d"]

    def counts(self, bounds: Bounds, measure: str) -> Iterator[Integers]:
        """For each window the sum of a count in every group, also in those it has no row of."""
        at_once = max(1, COUNTED_AT_ONCE // (2 * max(1, self.size)))
        for first in range(0, len(bounds), at_once):
            some = bounds[first : first + at_once]
            spans = _Spans(self, some)
            for number in range(len(some)):
                yield spans.difference(measure, number)

    # ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def pane(self) -> Integers:
        """The position of each row's pane among all panes."""
        p = self._frame["p"].to_numpy()
        least, unit = int(self._panes[0]), int(np.gcd.reduce(np.diff(self._panes))) or 1
        span = (int(self._panes[-1]) - least) // unit + 1
        if span > max(4 * len(p), 1 << 16):
            return np.searchsorted(self._panes, p)
        table = np.zeros(span, np.int64)
        table[(self._panes - least) // unit] = np.arange(len(self._panes))
        found: Integers = table[(p - least) // unit]
        return found

    @property
    def group(self) -> Integers:
        """The position of each row's group among all groups."""
        return self._group

    def values(self, measure: str) -> NDArray[Any]:
        """A measure of each row, zero where there is none."""
        return self._frame[measure].fill_null(0).to_numpy()

    def known(self, measure: str) -> NDArray[np.bool_]:
        """Whether each row has a measure."""
        return self._frame[measure].is_not_null().to_numpy()

    def _kind(self, name: str) -> tuple[str, str]:
        return next((kind, storage) for known, kind, storage in self._layout.measures if known == name)

    def subtracts(self, name: str) -> bool:
        """Whether a measure of a window is the difference of two sums since the beginning."""
        kind, storage = self._kind(name)
        return kind in ("rows", "count") or (kind == "sum" and storage == "int")

    def never_null(self, name: str) -> bool:
        """Whether a measure has a value in every window of a group: all its rows have one, or it is a count."""
        return self._kind(name)[0] in ("rows", "count") or self._frame[name].null_count() == 0

    @cached_property
    def ranges(self) -> Ranges:
        """The same rows in the order of their groups and times."""
        return Ranges(self._frame.select(self._layout.columns), self._layout, self._group, self.pane, self.size)


class _Spans:
    """What the groups of a view have in given windows."""

    def __init__(self, view: View, bounds: Bounds) -> None:
        self._view, self._bounds = view, bounds
        times = sorted({time for bound in bounds for time in bound})
        self._at = {time: number for number, time in enumerate(times)}
        # A pane adds to the sums before every time that is later than its begin; to none if it begins after them all.
        slots = np.searchsorted(np.array(times, np.int64), view.panes, side="right")
        self._cell = slots[view.pane] * view.size + view.group if times else np.empty(0, np.int64)
        self._sums: dict[str, NDArray[Any]] = {}

    def _running(self, name: str, values: Callable[[str], Any]) -> NDArray[Any]:
        """Per time and group the sum of the values of all rows in panes before that time.

        Running sums may wrap around; their differences are right all the same.
        """
        if name not in self._sums:
            size, times = self._view.size, len(self._at)
            sums: NDArray[Any] = np.zeros((times + 1, size), np.int64)
            with np.errstate(over="ignore"):
                np.add.at(sums.reshape(-1), self._cell, values(name))
                for number in range(1, times):
                    sums[number] += sums[number - 1]
            self._sums[name] = sums
        return self._sums[name]

    def _between(self, sums: NDArray[Any], number: int) -> Integers:
        begin, end = self._bounds[number]
        with np.errstate(over="ignore"):
            found: Integers = sums[self._at[end]] - sums[self._at[begin]]
        return found

    @property
    def _present(self) -> NDArray[Any]:
        return self._running("", lambda _: 1)

    def rows(self, number: int) -> Integers:
        """How many rows each group has in a window."""
        return self._between(self._present, number)

    def difference(self, measure: str, number: int) -> Integers:
        """What a measure that can be subtracted has gained in a window, per group."""
        return self._between(self._running(measure, self._view.values), number)

    def measure(self, name: str, picks: Sequence[tuple[int, Integers]]) -> list[pl.Series]:
        """The columns of a measure for some groups of some windows, one window after the other."""
        if not self._view.subtracts(name):
            sums = self._present
            starts = self._view.ranges.starts
            lows = [starts[pick] + sums[self._at[self._bounds[number][0]]][pick] for number, pick in picks]
            highs = [starts[pick] + sums[self._at[self._bounds[number][1]]][pick] for number, pick in picks]
            return self._view.ranges.measure(name, _joined(lows), _joined(highs))
        values = pl.Series(name, _joined([self.difference(name, number)[pick] for number, pick in picks]))
        if self._view.never_null(name):
            return [values]
        counted = self._running(f"\0{name}", lambda _: self._view.known(name))
        present = _joined([self._between(counted, number)[pick] for number, pick in picks]) > 0
        return [values.set(~pl.Series(present), None)]


class Ranges:
    """Rows in the order of their groups and times: a window is a range of rows per group."""

    def __init__(self, rows: pl.DataFrame, layout: Layout, group: Integers, pane: Integers, size: int) -> None:
        self._layout = layout
        order = np.argsort(group * (int(pane.max(initial=0)) + 1) + pane)
        self._rows = rows[order]
        lengths = np.bincount(group, minlength=size)
        self.starts: Integers = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self._longest = int(lengths.max(initial=0))
        self._evaluators: dict[str, Evaluator] = {}

    def measure(self, name: str, low: Integers, high: Integers) -> list[pl.Series]:
        """The columns of a measure for ranges of rows `low <= row < high`."""
        # Infinities that cancel out, sums beyond the greatest double: SQL has values for them, no warning.
        with np.errstate(invalid="ignore", over="ignore"):
            if name not in self._evaluators:
                self._evaluators[name] = self._made(name)
            return self._evaluators[name](low, high)

    def _made(self, name: str) -> Evaluator:
        kind, storage = next((kind, storage) for known, kind, storage in self._layout.measures if known == name)
        match kind:
            case "count":
                return self._count(name)
            case "sum" if storage == "float":
                return self._float_sum(name)
            case "sum":
                return self._decimal_sum(name)
            case "limbs":
                limbs = [self._decimal_sum(limb) for limb in columns_of_limbs(name)]
                return lambda low, high: [column for limb in limbs for column in limb(low, high)]
            case "min" | "max":
                return self._extreme(name, kind)
            case "bit_and" | "bit_or" | "bit_xor":
                return self._bits(name, kind)
            case "max_by" | "min_by":
                return self._best(name, kind)
            case _ if kind in MOMENTS:
                return self._deviation(name, kind)
            case other:
                raise ValueError(f"unknown measure kind '{other}'")

    def _valid(self, name: str) -> Callable[[Integers, Integers], NDArray[np.bool_]]:
        """Whether a range holds a value at all: the sum of none is NULL."""
        column = self._rows[name]
        if column.null_count() == 0:
            return lambda low, high: high > low
        known = np.concatenate([[0], np.cumsum(column.is_not_null().to_numpy())])
        return lambda low, high: known[high] > known[low]

    def _count(self, name: str) -> Evaluator:
        counts = np.concatenate([[0], np.cumsum(self._rows[name].fill_null(0).to_numpy())])
        return lambda low, high: [pl.Series(name, counts[high] - counts[low])]

    def _decimal_sum(self, name: str) -> Evaluator:
        column = self._rows[name].fill_null(0)
        extremes: list[Any] = [column.max(), column.min()]
        greatest = max((abs(v) for v in extremes if v is not None), default=0) * max(1, len(column))
        scale = getattr(column.dtype, "scale", 0)
        if greatest * 10**scale > _DECIMAL_LIMIT:
            # Wide decimals come as limbs, which are far from it: this takes some 10^9 rows of the greatest values.
            raise QueryFailure("sums of so many decimals need more than 38 digits on the way; CAST them to DOUBLE")
        sums, valid = pl.concat([column.clear(1), column]).fill_null(0).cum_sum(), self._valid(name)

        def between(low: Integers, high: Integers) -> list[pl.Series]:
            made = pl.DataFrame({"a": sums.gather(high), "b": sums.gather(low), "valid": valid(low, high)})
            return [made.select(pl.when("valid").then(pl.col("a") - pl.col("b")).alias(name)).to_series()]

        return between

    def _float_sum(self, name: str) -> Evaluator:
        leaves = (self._rows[name].fill_null(0.0).to_numpy(),)
        tree = Tree.over(leaves, lambda a, b: (a[0] + b[0],), (0.0,), self._longest)
        valid = self._valid(name)
        return lambda low, high: [_nullable(name, tree.ranges(low, high)[0], valid(low, high))]

    def _extreme(self, name: str, kind: str) -> Evaluator:
        """Minima and maxima of values of any type, by their rank among all values."""
        column = self._rows[name]
        order = column.arg_sort(nulls_last=True).head(len(column) - column.null_count())
        place, known = self._first_in(order, kind), column.gather(order)
        return lambda low, high: [known.gather(place(low, high)).alias(name)]

    def _best(self, name: str, kind: str) -> Evaluator:
        """The rows with the greatest or least `by`, among those with the greatest or least `of`; NULL comes last."""
        names, greatest = columns_of_best(name), kind == "max_by"
        sort = pl.arg_sort_by(*names, nulls_last=[True, not greatest])
        order = self._rows.select(sort).to_series().head(len(self._rows) - self._rows[names[0]].null_count())
        place, known = self._first_in(order, kind.removesuffix("_by")), self._rows.select(names)[order]

        def best(low: Integers, high: Integers) -> list[pl.Series]:
            rank = place(low, high)
            return [column.gather(rank) for column in known.get_columns()]

        return best

    def _first_in(self, order: pl.Series, kind: str) -> Callable[[Integers, Integers], pl.Series]:
        """The place in an order of a range's last row in it (`max`), or of its first; NULL without one."""
        none = -1 if kind == "max" else len(order)
        ranks = np.full(len(self._rows), none, np.int64)
        ranks[order.to_numpy()] = np.arange(len(order))
        better = np.maximum if kind == "max" else np.minimum
        tree = Tree.over((ranks,), lambda a, b: (better(a[0], b[0]),), (none,), self._longest)

        def first(low: Integers, high: Integers) -> pl.Series:
            rank = pl.Series(tree.ranges(low, high)[0])
            return rank.set(rank == none, None)

        return first

    def _bits(self, name: str, kind: str) -> Evaluator:
        column, valid = self._rows[name], self._valid(name)
        combine, identity = {
            "bit_and": (np.bitwise_and, -1), "bit_or": (np.bitwise_or, 0), "bit_xor": (np.bitwise_xor, 0)
        }[kind]  # fmt: skip
        leaves = (column.fill_null(identity).to_numpy(),)
        tree = Tree.over(leaves, lambda a, b: (combine(a[0], b[0]),), (identity,), self._longest)
        return lambda low, high: [_nullable(name, tree.ranges(low, high)[0], valid(low, high))]

    def _deviation(self, name: str, kind: str) -> Evaluator:
        columns = columns_of_moments(name, kind)
        leaves = tuple(self._rows[column].fill_null(0).to_numpy() for column in columns)
        tree = Tree.over(leaves, partial(merge_parts, kind), (0,) * len(columns), self._longest)

        def merged(low: Integers, high: Integers) -> list[pl.Series]:
            n, *rest = tree.ranges(low, high)
            found = [_nullable(column, values, n > 0) for column, values in zip(columns[1:], rest, strict=True)]
            return [pl.Series(columns[0], n), *found]

        return merged


def _joined(arrays: Sequence[Integers]) -> Integers:
    return np.concatenate([*arrays, np.empty(0, np.int64)])


def _nullable(name: str, values: NDArray[Any], valid: NDArray[np.bool_]) -> pl.Series:
    series = pl.Series(name, values)
    return series if valid.all() else series.set(~pl.Series(valid), None)


def _runs(frame: pl.DataFrame, by: Sequence[str]) -> Integers:
    """Numbers the rows of a sorted frame so that neighbours with equal values have the same number."""
    if not by:
        return np.zeros(frame.height, np.int64)
    changed = frame.select(pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in by))
    steps = changed.to_series().to_numpy().astype(np.int64)
    steps[:1] = 0
    return np.cumsum(steps)


def numbered(frame: pl.DataFrame, by: Sequence[str]) -> tuple[Integers, Integers]:
    """The group of each row, numbered in the order of the groups' values, nulls last; and a row of each group."""
    codes = np.zeros(frame.height, np.int64)
    size = 1
    for name in by:
        column, values = _column_codes(frame[name])
        # Products beyond this are numbered anew, so that there are no more than rows.
        if size * values > 1 << 40:
            known, codes = np.unique(codes, return_inverse=True)
            size = len(known)
        codes = codes * values + column
        size *= values
    if size > max(4 * frame.height, 1 << 16):
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        return number, first
    row = np.full(size, -1, np.int64)
    row[codes] = np.arange(frame.height)
    (known,) = np.nonzero(row >= 0)
    if len(known) < size:
        number = np.empty(size, np.int64)
        number[known] = np.arange(len(known))
        codes = number[codes]
    return codes, row[known]


def _column_codes(column: pl.Series) -> tuple[Integers, int]:
    """Numbers of a column's values in their order, and how many there may be; null is the last."""
    physical = column.to_physical()
    if physical.dtype.is_integer() and physical.dtype != pl.Int128:
        bounds: tuple[Any, Any] = physical.min(), physical.max()
        least, greatest = bounds
        if least is None:
            return np.zeros(len(column), np.int64), 1
        span = greatest - least + 1
        if span <= max(4 * len(column), 1 << 16):
            return (physical.cast(pl.Int64) - least).fill_null(span).to_numpy(), span + 1
    order = column.arg_sort(nulls_last=True)
    values = column.gather(order)
    number = np.empty(len(column), np.int64)
    number[order.to_numpy()] = _runs(values.to_frame("x"), ["x"])
    return number, int(number.max(initial=0)) + 1
