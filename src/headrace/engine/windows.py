"""Many windows from one scan: panes of a bin, indexed so that any window costs its groups and not its panes.

Rows are ordered by group and, within it, by time, so a window is one range of rows per group:

    group      a  a  a  a  b  b  c  c  c          window [2, 4): a rows 1..3, b row 5, c rows 7..8
    pane       1  2  3  4  1  3  0  2  3
    row        0  1  2  3  4  5  6  7  8

What can be subtracted (counts, exact sums) is answered by the difference of two running prefixes; what cannot (minima,
maxima, sums of floats, moments) by a tree of blocks of 2, 4, 8, ... rows of which a range needs a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.engine.panes import Layout

__all__ = ["Cut", "View"]

Integers = NDArray[np.int64]
Part = tuple[NDArray[Any], ...]
# The columns of a measure for ranges of rows `low <= row < high`.
Evaluator = Callable[[Integers, Integers], list[pl.Series]]
# Beyond this a running sum of decimals could lose digits that its differences need.
_DECIMAL_LIMIT = 10**37
# Windows whose begins and ends are looked up together: enough to share the way there, few enough to hold.
COUNTED_AT_ONCE = 16


@dataclass(frozen=True)
class _Tree:
    """Combined values of blocks of 1, 2, 4, ... neighbouring rows."""

    levels: tuple[Part, ...]
    combine: Callable[[Part, Part], Part]
    identity: tuple[Any, ...]

    @classmethod
    def over(
        cls, leaves: Part, combine: Callable[[Part, Part], Part], identity: tuple[Any, ...], longest: int
    ) -> _Tree:
        """A tree high enough for ranges of up to `longest` rows."""
        levels = [leaves]
        while (1 << len(levels)) <= longest:
            below = levels[-1]
            even = tuple(column[0 : len(column) // 2 * 2 : 2] for column in below)
            odd = tuple(column[1::2] for column in below)
            levels.append(combine(even, odd))
        return cls(tuple(levels), combine, identity)

    def ranges(self, low: Integers, high: Integers) -> Part:
        """The combined values of the rows `low <= row < high`, for each pair."""
        left, right = low.copy(), high.copy()
        found = tuple(
            np.full(len(low), value, column.dtype) for column, value in zip(self.levels[0], self.identity, strict=True)
        )
        for level in self.levels:
            self._take(found, level, left, (left & 1 == 1) & (left < right), after=1)
            self._take(found, level, right, (right & 1 == 1) & (left < right), after=-1)
            left >>= 1
            right >>= 1
        return found

    def _take(self, found: Part, level: Part, at: Integers, mask: NDArray[np.bool_], after: int) -> None:
        """Adds one block to the ranges in the mask: the one at `at`, or the one before it when going down."""
        (chosen,) = np.nonzero(mask)
        if not len(chosen):
            return
        if after < 0:
            at[chosen] -= 1
        blocks = tuple(column[at[chosen]] for column in level)
        if after > 0:
            at[chosen] += 1
        for column, value in zip(found, self.combine(tuple(column[chosen] for column in found), blocks), strict=True):
            column[chosen] = value


def _moments(a: Part, b: Part) -> Part:
    """Count, mean and squared deviations of two sets together (Chan, Golub, LeVeque 1979)."""
    n = a[0] + b[0]
    share = b[0] / np.maximum(n, 1)
    apart = b[1] - a[1]
    mean = np.where(a[0] == 0, b[1], np.where(b[0] == 0, a[1], a[1] + apart * share))
    square = np.where((a[0] == 0) | (b[0] == 0), 0.0, apart * apart * a[0] * share)
    return n, mean, a[2] + b[2] + square


@dataclass(frozen=True, slots=True)
class Cut:
    """Only the first `k` groups of a window by one measure are wanted, and all that tie with the last of them."""

    measure: str
    k: int
    descending: bool
    nulls_first: bool

    def keep(self, values: pl.Series) -> NDArray[np.bool_] | None:
        """Which groups may be among the wanted; None: all, also where the values cannot be compared as numbers."""
        if len(values) <= self.k or not (values.dtype.is_numeric() or values.dtype.is_decimal()):
            return None
        exact = values.dtype.is_integer()
        numbers = values if exact else values.cast(pl.Float64).fill_nan(float("inf"))
        absent = values.is_null().to_numpy()
        found = numbers.fill_null(0).to_numpy()
        known = found[~absent]
        if len(known) <= self.k:
            return None
        at = len(known) - self.k if self.descending else self.k - 1
        last = np.partition(known, at)[at]
        if not exact:
            # Decimals are compared in double precision: a little more is kept.
            last = last - abs(last) * 1e-12 if self.descending else last + abs(last) * 1e-12
        kept: NDArray[np.bool_] = (found >= last) if self.descending else (found <= last)
        kept[absent] = self.nulls_first
        return kept


class View:
    """The panes of one demanded synopsis in one bin, ready for any window.

    Groups are in the order of their keys and details, so the details of a group's key lie side by side in a window.
    """

    def __init__(self, frame: pl.DataFrame, layout: Layout) -> None:
        self._layout = layout
        p = frame["p"].to_numpy()
        self._panes = np.unique(p)
        pane = np.searchsorted(self._panes, p)
        codes = _codes(frame, layout.groups)
        order = np.argsort(codes * len(self._panes) + pane)
        codes = codes[order]
        (starts,) = np.nonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        lengths = np.diff(np.append(starts, len(codes)))
        self._rows = frame.select(layout.columns)[order]
        self._groups = frame.select(layout.groups)[order[starts]] if layout.groups else pl.DataFrame({"_one": [0]})
        self._keys = _runs(self._groups, layout.groups[: layout.keys]) if layout.detail else None
        # The group of each row, pane by pane: counting them tells where windows begin and end in every group.
        group = np.repeat(np.arange(len(starts), dtype=np.int32), lengths)
        pane = pane[order]
        short = pane.astype(np.uint16) if len(self._panes) < 1 << 16 else pane
        self._by_pane = group[np.argsort(short, kind="stable")]
        self._pane_starts = np.concatenate([[0], np.cumsum(np.bincount(pane, minlength=len(self._panes)))])
        self._starts = starts.astype(np.int64)
        self._longest = int(lengths.max(initial=0))
        self._evaluators: dict[str, Evaluator] = {}

    @property
    def size(self) -> int:
        """How many groups there are, over all panes."""
        return len(self._starts)

    @property
    def rows(self) -> int:
        """How many rows the panes have."""
        return len(self._by_pane)

    @property
    def panes(self) -> Integers:
        """When the panes that hold rows begin, in order."""
        return self._panes

    def windows(
        self, bounds: Sequence[tuple[int, int]], cuts: Sequence[Cut | None] | None = None
    ) -> tuple[pl.DataFrame, Integers]:
        """The groups of each window `[begin, end)` with their merged measures, window by window.

        The frame has `w` (the window's position), the group columns and the measures, with details also `_s`, one
        number per window and key; the array says where each window's rows begin in it, and where the last end.
        """
        lows: list[Integers] = []
        highs: list[Integers] = []
        picks: list[Integers] = []
        before = self._rows_before([time for bound in bounds for time in bound])
        for number, (begin, end) in enumerate(bounds):
            first, last = before[begin], before[end]
            (pick,) = np.nonzero(last > first)
            low, high = first[pick], last[pick]
            cut = cuts[number] if cuts is not None else None
            if cut is not None and len(pick) > cut.k:
                kept = cut.keep(self._measure(cut.measure, low, high)[0])
                if kept is not None:
                    pick, low, high = pick[kept], low[kept], high[kept]
            picks.append(pick)
            lows.append(low)
            highs.append(high)
        counts = np.array([len(pick) for pick in picks], np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        low, high = np.concatenate([*lows, np.empty(0, np.int64)]), np.concatenate([*highs, np.empty(0, np.int64)])
        pick = np.concatenate([*picks, np.empty(0, np.int64)])
        groups = self._groups[pick] if self._layout.groups else self._groups[pick].select()
        window = np.repeat(np.arange(len(bounds), dtype=np.int64), counts)
        columns = [pl.Series("w", window), *groups.get_columns()]
        if self._keys is not None:
            columns.append(pl.Series("_s", window * (int(self._keys.max(initial=0)) + 1) + self._keys[pick]))
        for name, _, _ in self._layout.measures:
            columns += self._measure(name, low, high)
        return pl.DataFrame(columns), starts

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

    def counts(self, bounds: Sequence[tuple[int, int]], measure: str) -> Iterator[Integers]:
        """For each window the sum of a count in every group, also in those it has no row of."""
        sums = _prefix(self._rows[measure].fill_null(0).to_numpy())
        for first in range(0, len(bounds), COUNTED_AT_ONCE):
            some = bounds[first : first + COUNTED_AT_ONCE]
            before = self._rows_before([time for bound in some for time in bound])
            for begin, end in some:
                yield sums[before[end]] - sums[before[begin]]

    def _rows_before(self, times: Iterable[int]) -> dict[int, Integers]:
        """For each time, per group, the position of its first row whose pane begins then or later."""
        found: dict[int, Integers] = {}
        at, counts, last = 0, np.zeros(self.size, np.int64), None
        for time in sorted(set(times)):
            pane = int(np.searchsorted(self._panes, time))
            if pane != at or last is None:
                rows = self._by_pane[self._pane_starts[at] : self._pane_starts[pane]]
                counts = counts + np.bincount(rows, minlength=self.size)
                at, last = pane, self._starts + counts
            found[time] = last
        return found

    def _measure(self, name: str, low: Integers, high: Integers) -> list[pl.Series]:
        kind, storage = next((kind, storage) for known, kind, storage in self._layout.measures if known == name)
        # Infinities that cancel out, sums beyond the greatest double: SQL has values for them, no warning.
        with np.errstate(invalid="ignore", over="ignore"):
            return self._evaluator(name, kind, storage)(low, high)

    def _evaluator(self, name: str, kind: str, storage: str) -> Evaluator:
        if name not in self._evaluators:
            self._evaluators[name] = self._made(name, kind, storage)
        return self._evaluators[name]

    def _made(self, name: str, kind: str, storage: str) -> Evaluator:
        match kind:
            case "rows" | "count":
                counts = _prefix(self._rows[name].fill_null(0).to_numpy())
                return lambda low, high: [pl.Series(name, counts[high] - counts[low])]
            case "sum" if storage == "int":
                return self._exact_sum(name)
            case "sum" if storage == "float":
                return self._float_sum(name)
            case "sum":
                return self._decimal_sum(name)
            case "min" | "max":
                return self._extreme(name, kind)
            case "moments":
                return self._deviation(name)
            case other:
                raise ValueError(f"unknown measure kind '{other}'")

    def _valid(self, name: str) -> Callable[[Integers, Integers], NDArray[np.bool_]]:
        """Whether a range holds a value at all: the sum of none is NULL."""
        column = self._rows[name]
        if column.null_count() == 0:
            return lambda low, high: high > low
        known = _prefix(column.is_not_null().cast(pl.Int64).to_numpy())
        return lambda low, high: known[high] > known[low]

    def _exact_sum(self, name: str) -> Evaluator:
        sums, valid = _prefix(self._rows[name].fill_null(0).to_numpy()), self._valid(name)
        # Running sums may wrap around; their differences are right all the same.
        return lambda low, high: [_nullable(name, sums[high] - sums[low], valid(low, high))]

    def _decimal_sum(self, name: str) -> Evaluator:
        column = self._rows[name].fill_null(0)
        extremes: list[Any] = [column.max(), column.min()]
        greatest = max((abs(v) for v in extremes if v is not None), default=0) * max(1, len(column))
        scale = getattr(column.dtype, "scale", 0)
        if greatest * 10**scale > _DECIMAL_LIMIT:
            return self._row_by_row(name)
        sums, valid = pl.concat([column.clear(1), column]).fill_null(0).cum_sum(), self._valid(name)

        def between(low: Integers, high: Integers) -> list[pl.Series]:
            made = pl.DataFrame({"a": sums.gather(high), "b": sums.gather(low), "valid": valid(low, high)})
            return [made.select(pl.when("valid").then(pl.col("a") - pl.col("b")).alias(name)).to_series()]

        return between

    def _row_by_row(self, name: str) -> Evaluator:
        """Sums of decimals so large that only their own rows may be added."""
        column = self._rows[name]

        def added(low: Integers, high: Integers) -> list[pl.Series]:
            lengths = high - low
            at = np.repeat(low - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
            rows = pl.DataFrame({"i": np.repeat(np.arange(len(low)), lengths), "x": column.gather(at)})
            x = pl.col("x")
            return [
                rows.group_by("i", maintain_order=True)
                .agg(pl.when(x.count() > 0).then(x.sum()).alias(name))
                .get_column(name)
            ]

        return added

    def _float_sum(self, name: str) -> Evaluator:
        leaves = (self._rows[name].fill_null(0.0).to_numpy(),)
        tree = _Tree.over(leaves, lambda a, b: (a[0] + b[0],), (0.0,), self._longest)
        valid = self._valid(name)
        return lambda low, high: [_nullable(name, tree.ranges(low, high)[0], valid(low, high))]

    def _extreme(self, name: str, kind: str) -> Evaluator:
        """Minima and maxima of values of any type, by their rank among all values."""
        column = self._rows[name]
        order = column.arg_sort(nulls_last=True).head(len(column) - column.null_count())
        none = -1 if kind == "max" else len(order)
        ranks = np.full(len(column), none, np.int64)
        ranks[order.to_numpy()] = np.arange(len(order))
        leaves = (ranks,)
        better = np.maximum if kind == "max" else np.minimum
        tree = _Tree.over(leaves, lambda a, b: (better(a[0], b[0]),), (none,), self._longest)
        known = column.gather(order)

        def best(low: Integers, high: Integers) -> list[pl.Series]:
            rank = pl.Series(tree.ranges(low, high)[0])
            return [known.gather(rank.set(rank == none, None)).alias(name)]

        return best

    def _deviation(self, name: str) -> Evaluator:
        rows = self._rows
        leaves = (
            rows[f"{name}_n"].fill_null(0).to_numpy(),
            rows[f"{name}_mean"].fill_null(0.0).to_numpy(),
            rows[f"{name}_m2"].fill_null(0.0).to_numpy(),
        )
        tree = _Tree.over(leaves, _moments, (0, 0.0, 0.0), self._longest)

        def merged(low: Integers, high: Integers) -> list[pl.Series]:
            n, mean, m2 = tree.ranges(low, high)
            return [
                pl.Series(f"{name}_n", n),
                _nullable(f"{name}_mean", mean, n > 0),
                _nullable(f"{name}_m2", m2, n > 0),
            ]

        return merged


def _prefix(values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.concatenate([np.zeros(1, values.dtype), np.cumsum(values, dtype=values.dtype)])


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


def _codes(frame: pl.DataFrame, by: Sequence[str]) -> Integers:
    """A number per row, the same for rows with equal values, in the order of the values, nulls last."""
    codes = np.zeros(frame.height, np.int64)
    size = 1
    for name in by:
        column, values = _column_codes(frame[name])
        # Room for the panes besides: products beyond this are numbered anew, so that there are no more than rows.
        if size * values > 1 << 40:
            known, codes = np.unique(codes, return_inverse=True)
            size = len(known)
        codes = codes * values + column
        size *= values
    return codes


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
