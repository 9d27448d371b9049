"""Sums, counts and averages over the rows that were kept, scaled to all rows: without bias, and with their errors."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from headrace.kernels.absorb import AbsorbTask, Bounds, EpochColumns, FeedColumns, _Meter
from headrace.kernels.keeping import Passed
from headrace.kernels.panes import Layout
from headrace.kernels.values import PlannedAggregate, finish_error, finish_plain

EVER = (Bounds(-(2**62), 2**62),)
KEEP = 0.3
MEASURES = (
    ("n", "rows", "wide"), ("sum", "sum", "int"), ("count", "count", "wide"),
    ("extra_n", "sum", "float"), ("spread_n", "sum", "float"),
    ("extra_x", "sum", "float"), ("spread_x", "sum", "float"),
    ("extra_1", "sum", "float"), ("spread_1", "sum", "float"), ("cross", "sum", "float"),
)  # fmt: skip
ARGUMENTS = (None, "x", "x", "extra:", "spread:", "extra:x", "spread:x", "extra:one", "spread:one", "cross:x")
LAYOUT = Layout("panes", 10**9, 0, False, MEASURES, None)
TOTAL = PlannedAggregate("v", "sum", "BIGINT", False, "panes", ("sum", "extra_x", "spread_x"), (), scaled=True)
ROWS = PlannedAggregate("v", "count", "BIGINT", False, "panes", ("n", "extra_n", "spread_n"), (), scaled=True)
COLUMNS = ("sum", "count", "extra_x", "spread_x", "extra_1", "spread_1", "cross")
MEAN = PlannedAggregate("v", "avg", "DOUBLE", False, "panes", COLUMNS, (), scaled=True)


def rows(count: int, copies: int = 1) -> pl.DataFrame:
    """Rows of which some lack a value; each is there so many times."""
    rng = np.random.default_rng(3)
    x = [int(v) if rng.random() < 0.9 else None for v in rng.integers(1, 100, count // copies)]
    frame = pl.DataFrame({"_t": range(len(x)), "x": x}, schema={"_t": pl.Int64, "x": pl.Int64})
    frame = frame.with_columns(one=pl.when(pl.col("x").is_not_null()).then(1.0))
    return pl.concat([frame] * copies)


def scaled(given: pl.DataFrame, keep: float, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Values and errors of the three aggregates over the rows that are kept by hashes drawn with a seed."""
    hashes = np.random.default_rng(seed).integers(-(2**63), 2**63, given["_t"].max() + 1)  # type: ignore[operator]
    given = given.with_columns(hash=pl.Series(hashes)[given["_t"]])
    feeds = ((LAYOUT, (FeedColumns(0, None, (), None, ARGUMENTS, None),)),)
    shape = EpochColumns((), feeds, ("s",), False, (), ("hash" if keep < 1 else None,))
    task = AbsorbTask(None, 0, EVER, shape, {}, {"s>panes": keep} if keep < 1 else {})
    partials: list[list[pl.DataFrame]] = [[]]
    task._absorb(Passed((given,), shape.hashes, task.keep), partials, _Meter())
    (frame,) = partials[0]
    each = {"sum": TOTAL, "count": ROWS, "avg": MEAN}
    values = frame.select(finish_plain(aggregate, LAYOUT).alias(name) for name, aggregate in each.items())
    return values, frame.select(finish_error(aggregate, LAYOUT).alias(name) for name, aggregate in each.items())


def truth(given: pl.DataFrame) -> dict[str, float]:
    x = given["x"]
    return {"sum": float(x.sum()), "count": float(given.height), "avg": float(x.mean())}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sum", "count", "avg"])
@pytest.mark.parametrize("copies", [1, 4], ids=["rows that differ", "four equal rows of each"])
def test_scaled_values_have_no_bias_and_vary_as_much_as_they_say(name: str, copies: int):
    given, tries = rows(800, copies), 400
    found = [scaled(given, KEEP, seed) for seed in range(tries)]
    values = np.array([value[name][0] for value, _ in found], float)
    errors = np.array([error[name][0] for _, error in found])
    wanted = truth(given)[name]
    spread = values.std(ddof=1)
    assert abs(values.mean() - wanted) < 4 * spread / np.sqrt(tries) + (0.01 * wanted if name == "avg" else 0)
    assert np.sqrt((errors**2).mean()) == pytest.approx(spread, rel=0.15)
    assert (abs(values - wanted) < 3 * errors).mean() > 0.98


def test_few_rows_that_were_kept_do_not_look_surer_than_they_are():
    """Of thirty-odd kept rows most came before the overload, and five or six stand for all that came in it."""
    within = 0
    for seed in range(600):
        rng = np.random.default_rng(seed)
        x = rng.integers(1, 1500, 60)
        kept = rng.random(60) < 0.1
        extra, spread = (x[kept] * 9.0).sum(), (0.9 * x[kept] ** 2 / 0.01).sum()
        frame = pl.DataFrame({"sum": [int(x[kept].sum())], "extra_x": [extra], "spread_x": [spread]})
        value, error = frame.select(v=finish_plain(TOTAL, LAYOUT), e=finish_error(TOTAL, LAYOUT)).row(0)
        within += abs(value - x.sum()) <= 3 * error
        assert error <= np.sqrt(3 * spread)
    assert within >= 0.97 * 600


def test_where_nothing_was_shed_values_are_exact_and_errors_nothing():
    given = rows(500)
    values, errors = scaled(given, 1.0, 1)
    assert values.row(0, named=True) == pytest.approx(truth(given), rel=1e-12)
    assert values["sum"].dtype == values["count"].dtype == pl.Int64
    assert set(errors.row(0)) == {0.0}
