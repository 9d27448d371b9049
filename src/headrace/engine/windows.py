"""Many windows from one scan: panes of a bin, indexed so that any window costs its groups and not its panes.

Rows are ordered by group and, within it, by time, so a window is one range of rows per group:

    group      a  a  a  a  b  b  c  c  c          window [2, 4): a rows 1..3, b row 5, c rows 7..8
    pane       1  2  3  4  1  3  0  2  3
    row        0  1  2  3  4  5  6  7  8

What can be subtracted (counts, exact sums) is answered by the difference of two running prefixes; what cannot (minima,
maxima, sums of floats, moments) by a tree of blocks of 2, 4, 8, ... rows of which a range needs a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.engine.panes import Layout

__all__ = ["View"]

Integers = NDArray[np.int64]
Part = tuple[NDArray[Any], ...]
# The columns of a measure for ranges of rows `low <= row < high`.
Evaluator = Callable[[Integers, Integers], list[pl.Series]]
# Beyond this a running sum of decimals could lose digits that its differences need.
_DECIMAL_LIMIT = 10**37


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


class View:
    """The panes of one demanded synopsis in one bin, ready for any window."""

    def __init__(self, frame: pl.DataFrame, layout: Layout) -> None:
        self._layout = layout
        rows = frame.sort("p")
        if layout.groups:
            by_group = rows.group_by(layout.groups, maintain_order=True).agg("p", *layout.columns)
            lengths = by_group["p"].list.len().to_numpy().astype(np.int64)
            self._groups = by_group.select(layout.groups)
            rows = by_group.select("p", *layout.columns).explode("p", *layout.columns)
        else:
            lengths = np.array([rows.height], np.int64)
            self._groups = pl.DataFrame({"_one": [0]})
        self._rows = rows
        p = rows["p"].to_numpy()
        self._panes = np.unique(p)
        # Row order by (group, pane) as one number, so that one search finds a range in every group.
        self._stride = len(self._panes) + 1
        pane = np.searchsorted(self._panes, p)
        self._order = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths) * self._stride + pane
        self._begins = np.arange(len(lengths), dtype=np.int64) * self._stride
        self._longest = int(lengths.max(initial=0))
        self._evaluators: dict[str, Evaluator] = {}

    @property
    def size(self) -> int:
        """How many groups there are, over all panes."""
        return len(self._begins)

    @property
    def rows(self) -> int:
        """How many rows the panes have."""
        return len(self._order)

    @property
    def panes(self) -> Integers:
        """When the panes that hold rows begin, in order."""
        return self._panes

    def windows(self, bounds: Sequence[tuple[int, int]]) -> tuple[pl.DataFrame, Integers]:
        """The groups of each window `[begin, end)` with their merged measures, window by window.

        The frame has `w` (the window's position), the group columns and the measures; the array says where each
        window's rows begin in it, and where the last end.
        """
        lows: list[Integers] = []
        highs: list[Integers] = []
        picks: list[Integers] = []
        found: dict[int, Integers] = {}
        for begin, end in bounds:
            low, high = (self._rows_before(time, found) for time in (begin, end))
            (present,) = np.nonzero(high > low)
            picks.append(present)
            lows.append(low[present])
            highs.append(high[present])
        counts = np.array([len(pick) for pick in picks], np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        low, high = np.concatenate([*lows, np.empty(0, np.int64)]), np.concatenate([*highs, np.empty(0, np.int64)])
        pick = np.concatenate([*picks, np.empty(0, np.int64)])
        groups = self._groups[pick] if self._layout.groups else self._groups[pick].select()
        columns = [pl.Series("w", np.repeat(np.arange(len(bounds), dtype=np.int64), counts)), *groups.get_columns()]
        # Infinities that cancel out, sums beyond the greatest double: SQL has values for them, no warning.
        with np.errstate(invalid="ignore", over="ignore"):
            for name, kind, storage in self._layout.measures:
                columns += self._evaluator(name, kind, storage)(low, high)
        return pl.DataFrame(columns), starts

    def _rows_before(self, time: int, found: dict[int, Integers]) -> Integers:
        """Per group the position of its first row whose pane begins at or after `time`."""
        pane = int(np.searchsorted(self._panes, time))
        if pane not in found:
            found[pane] = np.searchsorted(self._order, self._begins + pane).astype(np.int64)
        return found[pane]

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
