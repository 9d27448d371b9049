"""The join kernel: pairs of rows that fit, found by equality, by range, or one by one, inside a Spark task.

Frames have `p` (event time, microseconds) and columns `c0...`. A pair fits when `p` of the right row is in
`[left.p - right_us, left.p + left_us]` and every comparison holds; one with NULL never does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

__all__ = ["Matching", "pairs"]

# Candidate pairs looked at together: some 100 MB of positions, times and compared values.
MOST_PAIRS = 2_000_000
# Rows looked up to estimate how many pairs all of them make.
SAMPLE = 1024
_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "TINYINT": pl.Int64,
    "SMALLINT": pl.Int64,
    "INT": pl.Int64,
    "BIGINT": pl.Int64,
    "FLOAT": pl.Float64,
    "DOUBLE": pl.Float64,
}
_LOW, _HIGH = (">", ">="), ("<", "<=")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Matching:
    """Which pairs fit: how long rows of each side last, and `(left column, operator, right column, type)`."""

    left_us: int
    right_us: int
    comparisons: tuple[tuple[int, str, int, str], ...]


def pairs(left: pl.DataFrame, right: pl.DataFrame, matching: Matching) -> Iterator[tuple[pl.Series, pl.Series]]:
    """Positions of the rows of all pairs that fit, in several goes."""
    a, b = _within(_compared(left, matching, 0), _compared(right, matching, 1), matching)
    if a.is_empty() or b.is_empty():
        return
    equal = [n for n, (_, operator, _, _) in enumerate(matching.comparisons) if operator == "="]
    yield from _by_key(a, b, matching, equal) if equal else _by_range(a, b, matching)


def _compared(rows: pl.DataFrame, matching: Matching, side: int) -> pl.DataFrame:
    """Position `i0` or `i1`, time `p0` or `p1`, what comparison n compares as `x<n>` or `y<n>`; no row with NULL."""
    columns = [pl.int_range(pl.len(), dtype=pl.UInt32).alias(f"i{side}"), pl.col("p").alias(f"p{side}")]
    names = []
    for n, comparison in enumerate(matching.comparisons):
        column, type_ = pl.col(f"c{comparison[2 * side]}"), _TYPES.get(comparison[3])
        if type_ is not None:
            column = column.cast(type_)
        if type_ is pl.Float64:
            column = column + 0.0  # one zero
        names.append(f"{'xy'[side]}{n}")
        columns.append(column.alias(names[-1]))
    found = rows.select(columns)
    if any(found[name].null_count() for name in names):
        found = found.drop_nulls(names)
    # NaN is equal to NaN, which Polars' ways to join do not agree on: NULL, of which there is none left, stands for it.
    equal = [name for name, (_, operator, _, _) in zip(names, matching.comparisons, strict=True) if operator == "="]
    return found.with_columns(pl.col(name).fill_nan(None) for name in equal if found[name].dtype == pl.Float64)


def _within(a: pl.DataFrame, b: pl.DataFrame, matching: Matching) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Without the rows that are too old or too new for all of the other side."""
    if a.is_empty() or b.is_empty():
        return a, b
    first, last = b["p1"].min(), b["p1"].max()
    assert isinstance(first, int) and isinstance(last, int)  # noqa: PT018 - one fact
    begin, end = first - matching.left_us, last + matching.right_us
    a = a if _inside(a["p0"], begin, end) else a.filter(pl.col("p0").is_between(begin, end))
    if a.is_empty():
        return a, b
    first, last = a["p0"].min(), a["p0"].max()
    assert isinstance(first, int) and isinstance(last, int)  # noqa: PT018 - one fact
    begin, end = first - matching.right_us, last + matching.left_us
    return a, b if _inside(b["p1"], begin, end) else b.filter(pl.col("p1").is_between(begin, end))


def _inside(times: pl.Series, begin: int, end: int) -> bool:
    first, last = times.min(), times.max()
    return isinstance(first, int) and isinstance(last, int) and begin <= first and last <= end


def _fits(matching: Matching, done: frozenset[int], timed: bool) -> pl.Expr | None:
    """What is still to be asked of candidates."""
    conditions = []
    if not timed:
        conditions.append((pl.col("p1") - pl.col("p0")).is_between(-matching.right_us, matching.left_us))
    for n, (_, operator, _, _) in enumerate(matching.comparisons):
        if n not in done:
            x, y = pl.col(f"x{n}"), pl.col(f"y{n}")
            conditions.append({"=": x == y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operator])
    return pl.all_horizontal(conditions) if conditions else None


def _by_key(
    a: pl.DataFrame, b: pl.DataFrame, matching: Matching, equal: list[int]
) -> Iterator[tuple[pl.Series, pl.Series]]:
    on = {"left_on": [f"x{n}" for n in equal], "right_on": [f"y{n}" for n in equal], "nulls_equal": True}
    condition = _fits(matching, frozenset(equal), timed=False)
    assert condition is not None
    step = a.height
    if a.height * b.height > MOST_PAIRS:
        every = max(1, a.height // SAMPLE)
        sample = a.gather_every(every).select(f"x{n}" for n in equal)
        found = sample.join(b.select(f"y{n}" for n in equal), **on, how="inner").height  # type: ignore[arg-type]
        step = max(1, min(a.height, MOST_PAIRS * sample.height // max(1, found)))
    for begin in range(0, a.height, step):
        part = a if step == a.height else a.slice(begin, step)
        found_pairs = part.join(b, **on, how="inner").filter(condition)  # type: ignore[arg-type]
        if not found_pairs.is_empty():
            yield found_pairs["i0"], found_pairs["i1"]


@dataclass(frozen=True, slots=True)
class _Ranges:
    """For each row of one side the rows of the other, ordered by a column, from `begin` to `end`."""

    side: int
    order: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    done: frozenset[int]
    timed: bool

    @property
    def candidates(self) -> int:
        return int(np.maximum(self.end - self.begin, 0).sum())


def _by_range(a: pl.DataFrame, b: pl.DataFrame, matching: Matching) -> Iterator[tuple[pl.Series, pl.Series]]:
    """Candidates from the column whose ranges leave the fewest, time included."""
    best = min(_indexes(a, b, matching), key=lambda found: found.candidates)
    condition = _fits(matching, best.done, best.timed)
    rows, others = (a, b) if best.side == 0 else (b, a)
    counts = np.maximum(best.end - best.begin, 0)
    total = np.cumsum(counts)
    first = 0
    while first < len(counts):
        before = total[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(total, before + MOST_PAIRS, side="right")))
        mine = counts[first:last]
        here = np.repeat(np.arange(first, last), mine)
        offset = np.arange(mine.sum()) - np.repeat(np.cumsum(mine) - mine, mine)
        there = best.order[np.repeat(best.begin[first:last], mine) + offset]
        found = pl.concat([rows[here], others[there]], how="horizontal")
        if condition is not None:
            found = found.filter(condition)
        if not found.is_empty():
            yield found["i0"], found["i1"]
        first = last


def _indexes(a: pl.DataFrame, b: pl.DataFrame, matching: Matching) -> Iterator[_Ranges]:
    times = b["p1"].to_numpy()
    order = np.argsort(times, kind="stable")
    mine = a["p0"].to_numpy()
    begin = np.searchsorted(times[order], mine - matching.right_us, side="left")
    yield _Ranges(
        0, order, begin, np.searchsorted(times[order], mine + matching.left_us, side="right"), frozenset(), True
    )
    # A column of one side that is bounded from below or above by columns of the other.
    bounded: dict[tuple[int, int], list[int]] = {}
    for n, (left, operator, right, type_) in enumerate(matching.comparisons):
        if type_ in _TYPES and operator != "=":
            bounded.setdefault((0, left), []).append(n)
            bounded.setdefault((1, right), []).append(n)
    for (side, _), numbers in bounded.items():
        values, frame, other = "xy"[side], (a, b)[side], (b, a)[side]
        column = frame[f"{values}{numbers[0]}"].to_numpy()
        order = np.argsort(column, kind="stable")
        begin, end = np.zeros(other.height, np.int64), np.full(other.height, len(column), np.int64)
        for n in numbers:
            operator = matching.comparisons[n][1]
            # column operator bound
            operator = operator if side == 0 else _TURNED[operator]
            bound = other[f"{'yx'[side]}{n}"].to_numpy()
            if operator in _LOW:
                at = np.searchsorted(column[order], bound, side="right" if operator == ">" else "left")
                begin = np.maximum(begin, at)
            else:
                at = np.searchsorted(column[order], bound, side="left" if operator == "<" else "right")
                end = np.minimum(end, at)
        yield _Ranges(1 - side, order, begin, end, frozenset(numbers), False)
