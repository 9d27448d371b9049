"""The kernel of row windows: for each row a statistic over the last n rows of its key, in the order of event time.

Rows are ordered by key and time, so the window of a row is the range of rows that ends with it:

    key     a  a  a  a  b  b  c          ROWS 3: row 3 has the rows 1..3, row 4 (the first of b) has itself alone
    row     0  1  2  3  4  5  6

Rows of a key with the same time are in the order of their values, column by column, nulls first; rows that are equal
in all of them are interchangeable. So an answer depends on which rows there are, and not on how they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.kernels.panes import Layout, row_measure
from headrace.kernels.trees import Integers
from headrace.kernels.values import (
    PlannedAggregate,
    filled,
    find_beyond,
    finish_detail,
    finish_plain,
    finish_quantile,
)
from headrace.kernels.windows import Ranges, numbered
from headrace.model import AGGREGATES, ROWS

__all__ = ["RowsSpec", "evaluate", "in_order", "trim"]

# Rows of windows laid side by side at once, where an aggregate has to see each of them.
MOST_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class RowsSpec:
    """All a task needs to know of a row window: how many rows, which columns of a store are what.

    `results` are the columns that results take from their row, by name; `aggregates` come with the column of their
    argument (None: whole rows) and how a sum of it is kept.
    """

    rows: int
    keys: tuple[str, ...]
    ties: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    aggregates: tuple[tuple[PlannedAggregate, str | None, str], ...]


def in_order(rows: pl.DataFrame, spec: RowsSpec) -> tuple[pl.DataFrame, Integers]:
    """The rows by key and time, and the number of each row's key."""
    group, _ = numbered(rows, spec.keys)
    time = rows["p"].to_numpy()
    order = np.lexsort((time, group))
    sorted_group, sorted_time = group[order], time[order]
    tied = (sorted_group[1:] == sorted_group[:-1]) & (sorted_time[1:] == sorted_time[:-1])
    if not tied.any():
        return rows[order], sorted_group
    # A frame's own sort is stable: what is equal in all columns stays as it came.
    named = rows.with_columns(_group=pl.Series(group)).sort(["_group", "p", *spec.ties], maintain_order=True)
    return named.drop("_group"), named["_group"].to_numpy()


def _starts(group: Integers) -> Integers:
    """Where the key of each row begins."""
    first = np.diff(group, prepend=-1) != 0
    return np.maximum.accumulate(np.where(first, np.arange(len(group)), 0))


def trim(rows: pl.DataFrame, group: Integers, final: NDArray[np.bool_], spec: RowsSpec) -> pl.DataFrame:
    """The rows that windows to come can reach: those that are not final, and the last n - 1 final ones of each key.

    Final rows of a key come before the others, because time does.
    """
    counted = np.cumsum(final)
    last = np.concatenate([group[1:] != group[:-1], [True]]) if len(group) else np.empty(0, bool)
    total = counted[last][group - group[0]] if len(group) else counted
    return rows.filter(pl.Series(~final | (total - counted < spec.rows - 1)))


def evaluate(rows: pl.DataFrame, group: Integers, wanted: NDArray[np.bool_], spec: RowsSpec) -> pl.DataFrame:
    """Results of the wanted rows, of all rows in order: columns of the row, then its aggregates."""
    windows = _Windows(group, _starts(group), np.nonzero(wanted)[0], spec.rows)
    seen = windows.seen
    if 2 * int(seen.sum()) < len(seen):
        # Of a key whose work is shared, the others' rows.
        return evaluate(rows.filter(pl.Series(seen)), group[seen], wanted[seen], spec)
    chosen = rows[windows.at]
    columns = [chosen[source].alias(name) for name, source in spec.results]
    plain = _Plain(rows, group, spec)
    for aggregate, argument, _ in spec.aggregates:
        if argument is None or not aggregate.by_value:
            made = plain.values(aggregate, windows.low, windows.high)
        elif aggregate.reads == "quantile":
            made = _quantiles(rows[argument], windows, aggregate)
        elif aggregate.function in ("count", "approx_count_distinct"):  # exact here: all rows are there
            made = _distinct(rows[argument], windows)
        else:
            made = _details(rows[argument], windows, aggregate)
        columns.append(made.to_frame("_").select(filled(aggregate, pl.col("_")).alias(aggregate.name)).to_series())
    return pl.DataFrame(columns)


@dataclass(frozen=True)
class _Windows:
    """Each row's key and where that begins, the rows whose windows are wanted, and how many rows a window has."""

    group: Integers
    starts: Integers
    at: Integers
    rows: int

    @cached_property
    def lows(self) -> Integers:
        """Where the window of each row begins."""
        return np.maximum(self.starts, np.arange(len(self.group)) - self.rows + 1)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """The rows that some wanted window has."""
        steps = np.bincount(self.low, minlength=len(self.group) + 1) - np.bincount(
            self.high, minlength=len(self.group) + 1
        )
        return np.cumsum(steps[:-1]) > 0

    @cached_property
    def low(self) -> Integers:
        return self.lows[self.at]

    @property
    def high(self) -> Integers:
        return self.at + 1


class _Plain:
    """Aggregates whose measures combine: each row's own measure is a part, a window is a range of them."""

    def __init__(self, rows: pl.DataFrame, group: Integers, spec: RowsSpec) -> None:
        measures: dict[str, tuple[str, str]] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        columns: list[pl.Expr] = []
        for aggregate, argument, storage in spec.aggregates:
            needed = [] if argument is None else _measures(aggregate, argument, storage)
            self._needs[aggregate.name] = tuple(name for name, _ in needed)
            for name, kind in needed:
                if argument is not None and name not in measures:
                    measures[name] = kind, storage
                    columns += row_measure(name, kind, storage, argument)
        self._layout = Layout("", 1, 0, False, tuple((n, kind, s) for n, (kind, s) in measures.items()), None)
        if columns:
            size = int(group.max(initial=0)) + 1
            self._ranges = Ranges(rows.select(columns), self._layout, group, np.arange(len(group)), size)

    def values(self, aggregate: PlannedAggregate, low: Integers, high: Integers) -> pl.Series:
        names = self._needs[aggregate.name]
        if not names:
            return pl.Series(high - low)
        found = pl.DataFrame([column for name in names for column in self._ranges.measure(name, low, high)])
        planned = replace(aggregate, columns=names)
        made = found.select(finish_plain(planned, self._layout).alias("_")).to_series()
        if find_beyond(found, planned, self._layout, made) is not None:
            raise aggregate.beyond("one of its windows")
        return made


def _measures(aggregate: PlannedAggregate, argument: str, storage: str) -> list[tuple[str, str]]:
    """Names and kinds of the measures an aggregate is finished from; none if it sees each row of a window."""
    if aggregate.by_value:
        return []
    kept = AGGREGATES[aggregate.function].keeps.split()
    kinds = ["limbs" if kind == "sum" and storage.startswith("limbs") else kind for kind in kept]
    return [(f"{kind}_{argument}", kind) for kind in kinds]


def _slabs(low: Integers, high: Integers) -> Iterator[slice]:
    """Windows in goes of bounded size."""
    widest = max(1, int((high - low).max(initial=1)))
    step = max(1, MOST_CELLS // widest)
    return (slice(first, first + step) for first in range(0, len(low), step))


def _quantiles(values: pl.Series, windows: _Windows, aggregate: PlannedAggregate) -> pl.Series:
    """Quantiles of the values of each window; they are exact, also where an approximation was asked for.

    Polars rolls over ranks, which are numbers whatever the values are, in time that hardly depends on a window's size.
    """
    order = values.arg_sort(nulls_last=True)
    count, fraction = len(values) - values.null_count(), aggregate.parameters[0]
    ranks = np.empty(len(values))
    ranks[order.to_numpy()] = np.arange(len(values))
    frame = pl.DataFrame({"g": pl.Series(windows.group).set_sorted(), "r": ranks})
    rank = pl.when(pl.col("r") < count).then("r")

    def at(place: Literal["lower", "higher", "equiprobable"]) -> pl.Series:
        rolled = rank.rolling_quantile(fraction, place, window_size=windows.rows, min_samples=1)
        found = frame.select(rolled.over("g")).to_series()
        return values.gather(order.gather(found.gather(windows.at).cast(pl.UInt32)))

    if aggregate.function != "percentile":
        low = at("equiprobable")
        if aggregate.function == "approx_percentile":
            return low
        high, weight = low, np.zeros(len(low))
    else:
        low, high = at("lower"), at("higher")
        known = np.concatenate([[0], np.cumsum(values.is_not_null().to_numpy())])
        place = fraction * np.maximum(known[windows.high] - known[windows.low] - 1, 0)
        weight = place - np.floor(place)
    pair = pl.DataFrame({"_low": low.cast(pl.Float64), "_high": high.cast(pl.Float64), "_weight": weight})
    return pair.select(finish_quantile(aggregate).alias("_")).to_series()


def _distinct(values: pl.Series, windows: _Windows) -> pl.Series:
    """How many distinct values each window has: from one window to the next, a value may come and one may leave."""
    codes, _ = numbered(values.to_frame("d"), ["d"])
    before, after = _neighbours(windows.group, codes)
    known, lows = values.is_not_null().to_numpy(), windows.lows
    comes = known & (before < lows)
    left = np.maximum(lows - 1, 0)
    leaves = (lows > windows.starts) & known[left] & (after[left] >= np.arange(len(codes)))
    total = np.cumsum(comes.astype(np.int64) - leaves)
    of_keys_before = np.concatenate([[0], total])[windows.starts]
    return pl.Series("_", (total - of_keys_before)[windows.at], pl.Int64)


def _details(values: pl.Series, windows: _Windows, aggregate: PlannedAggregate) -> pl.Series:
    """Aggregates over the distinct values of each window, for which each of them has to be seen."""
    codes, _ = numbered(values.to_frame("d"), ["d"])
    before, _ = _neighbours(windows.group, codes)
    null, low, high = values.is_null().to_numpy(), windows.low, windows.high
    made: list[pl.Series] = []
    for slab in _slabs(low, high):
        begin, end = low[slab, None], high[slab, None]
        at = begin + np.arange(int((end - begin).max(initial=1)))
        inside = at < end
        at = np.minimum(at, len(values) - 1)
        inside &= ~null[at]
        # A value counts where it comes first in the window: where the same value before it lies outside.
        first = inside & (before[at] < begin)
        made.append(_from_details(values, at, first, inside, codes, aggregate))
    return pl.concat(made) if made else pl.Series("_", [], pl.Null)


def _neighbours(group: Integers, codes: Integers) -> tuple[Integers, Integers]:
    """Per row the rows before and after it of the same key with the same value; -1 and beyond the last if none is."""
    order = np.lexsort((np.arange(len(codes)), codes, group))
    same = (group[order][1:] == group[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    before, after = np.full(len(codes), -1, np.int64), np.full(len(codes), len(codes), np.int64)
    before[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    return before, after


def _from_details(
    values: pl.Series,
    at: Integers,
    first: NDArray[np.bool_],
    inside: NDArray[np.bool_],
    codes: Integers,
    aggregate: PlannedAggregate,
) -> pl.Series:
    """One value per window from a table of its distinct values, ordered and counted, as panes keep them."""
    window, place = np.nonzero(first)
    table = pl.DataFrame({"_s": window, "_code": codes[at[window, place]], "d": values.gather(at[window, place])})
    if not aggregate.distinct:
        every, where = np.nonzero(inside)
        seen = pl.DataFrame({"_s": every, "_code": codes[at[every, where]]})
        table = table.join(seen.group_by("_s", "_code").agg(pl.len().cast(pl.Int64).alias(ROWS)), on=["_s", "_code"])
    finished = finish_detail(table.sort("_s", "_code").drop("_code"), aggregate, ["_s"])
    windows = pl.DataFrame({"_s": np.arange(len(first))})
    return windows.join(finished, on="_s", how="left", maintain_order="left")[aggregate.name].alias("_")
