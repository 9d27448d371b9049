"""Sums of wide decimals: exact in any order of partial sums, merges and differences, NULL where no type has room."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext

import polars as pl
import pytest

from headrace.kernels.limbs import total
from headrace.kernels.panes import Layout, merge, partial
from headrace.kernels.windows import View
from headrace.model import ROWS

MOST = Decimal("9999999999999999999999999999.9999999999")
LEAST_STEP = Decimal("0.0000000001")
LOW = MOST.copy_negate()  # a minus sign would round to 28 digits
LAYOUT = Layout("s", 1, 1, False, ((ROWS, "rows", "wide"), ("m", "limbs", "limbs:10")), None)


def panes(rows: list[tuple[int, str, Decimal | None]]) -> pl.DataFrame:
    schema = {"p": pl.Int64, "k0": pl.String, "x": pl.Decimal(38, 10)}
    return partial(pl.DataFrame(rows, schema=schema, orient="row"), LAYOUT, [None, "x"], [])


def exact(values: list[Decimal | None]) -> Decimal | None:
    """The sum; None if there is none, or DECIMAL(38,10) has no room for it."""
    known = [value for value in values if value is not None]
    with localcontext(prec=80):
        found = sum(known, Decimal(0))
        return found if known and abs(found) <= MOST else None


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([MOST], id="the greatest value"),
        pytest.param([LOW], id="the least value"),
        pytest.param([MOST, MOST], id="a sum of 39 digits"),
        pytest.param([LOW, LOW, LOW], id="a negative sum that would come back round positive"),
        pytest.param([MOST, LEAST_STEP], id="one step too much"),
        pytest.param([LOW, LEAST_STEP.copy_negate()], id="one step too little"),
        pytest.param([MOST, MOST, MOST, LOW, LOW], id="too much only on the way"),
        pytest.param([MOST, LOW], id="zero"),
        pytest.param([Decimal(-7), None], id="a small negative value and a null"),
        pytest.param([None], id="nothing but nulls"),
    ],
)
def test_a_sum_is_exact_or_null(values: list[Decimal | None]):
    merged = merge([panes([(0, "a", value)]) for value in values], LAYOUT, ["p", "k0"])
    at_once = panes([(0, "a", value) for value in values])
    for frame in (merged, at_once):
        assert frame.select(total("m", 10)).item() == exact(values)


def test_any_window_has_the_sum_of_its_own_rows():
    """Running sums over all panes have far more than 38 digits; those of most windows do not."""
    rng = random.Random(4)
    choices = [MOST, LOW, MOST, LEAST_STEP, Decimal(5), None]
    rows = [(rng.randint(0, 30), rng.choice("abc"), rng.choice(choices)) for _ in range(400)]
    view = View(panes(rows), LAYOUT)
    bounds = [(begin, begin + size) for begin in range(0, 30, 3) for size in (1, 2, 7, 31)]
    frame, starts = view.windows(bounds)
    summed = frame.with_columns(total("m", 10).alias("v"))
    outcomes = set()
    for number, (begin, end) in enumerate(bounds):
        found = dict(summed[int(starts[number]) : int(starts[number + 1])].select("k0", "v").rows())
        wanted = {k: exact([x for p, g, x in rows if g == k and begin <= p < end]) for k in found}
        assert found == wanted
        outcomes |= {value is None for value in wanted.values()}
    assert outcomes == {True, False}
