"""Windows put together from panes, against straightforward references."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from held import hold
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import QueryFailure
from headrace.kernels import answer as answering
from headrace.kernels.answer import AnswerSpec, DemandSpec, Meter, Panes, answers
from headrace.kernels.panes import Layout, partial
from headrace.kernels.values import PlannedAggregate
from headrace.model import BUCKET_OFFSET, ROWS, Due, Failure, Fault

INF, NAN = math.inf, math.nan
STORAGE = {pl.Int32: "int", pl.Int64: "wide", pl.Float64: "float", pl.Float32: "float", pl.String: "other"}
MEASURES = {"sum": ("sum",), "avg": ("sum", "count"), "count": ("count",), "min": ("min",), "max": ("max",)}
MOMENTS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
DETAILED = ("percentile", "percentile_disc", "approx_top_k", "collect_list", "collect_set")
COUNTED = (ROWS, "rows", "wide")


def us(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1_000_000, UTC)


def demand(layout: Layout) -> DemandSpec:
    """A demand that its own panes supply."""
    return DemandSpec(layout, ((layout.id, tuple(range(layout.keys))),), False)


def answer(spec: AnswerSpec, panes: Panes, due: Due) -> pl.DataFrame | None:
    """What one query answers alone."""
    found = []
    for position, frame in answers([(spec, due)], panes, 0):
        assert position == 0
        if isinstance(frame, Failure):
            raise frame.error()
        found.append(frame)
    return pl.concat(found, how="vertical_relaxed") if found else None


def ask(
    function: str,
    rows: dict[str, list[Any]],
    dtype: Any,
    type_: str = "DOUBLE",
    parameters: tuple[float, ...] = (),
    distinct: bool = False,
    due: Due = Due((10,)),  # noqa: B008 - frozen
    size: int = 10,
    always: bool = True,
) -> pl.DataFrame | None:
    """One aggregate `v` over rows with time `t`, value `x` and perhaps key `k`, in panes of 5 us."""
    keys = 1 if "k" in rows else 0
    frame = pl.DataFrame({"p": pl.Series(rows["t"], dtype=pl.Int64) // 5 * 5, "x": pl.Series(rows["x"], dtype=dtype)})
    if keys:
        frame = frame.with_columns(k0=pl.Series(rows["k"], dtype=pl.String))
    storage = f"decimal:{dtype.scale}" if isinstance(dtype, pl.Decimal) else STORAGE[dtype]
    detail = distinct or function in DETAILED
    kinds = MEASURES.get(function, ("moments",))
    plain = Layout("main", 5, keys, False, (COUNTED, *(() if detail else ((k, k, storage) for k in kinds))), None)
    fine = Layout("fine", 5, keys, True, (COUNTED,), None)
    parts = []
    # One chunk for odd rows and one for even ones.
    for some in (frame[::2], frame[1::2]):
        parts.append([("main", 0, partial(some, plain, [None, *(["x"] * (len(plain.measures) - 1))], []))])
        if detail:
            parts[-1].append(("fine", 0, partial(some.rename({"x": "d"}), fine, [None], [])))
    columns = (ROWS,) if detail else kinds
    aggregate = PlannedAggregate("v", function, type_, distinct, "fine" if detail else "main", columns, parameters)
    demands = (demand(plain), demand(fine)) if detail else (demand(plain),)
    spec = AnswerSpec(size, always and not keys, ("c0",) * keys, (aggregate,), demands)
    return answer(spec, hold(parts), due)


def value(function: str, values: list[Any], dtype: Any, **options: Any) -> Any:
    # Some rows in each of the window's two panes.
    found = ask(function, {"t": [i * 7 % 10 for i in range(len(values))], "x": values}, dtype, **options)
    assert found is not None
    assert found.height == 1
    return found["v"].item()


def close(a: Any, b: Any) -> bool:
    return (a is None and b is None) or (
        a is not None and b is not None and (a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b))
    )


@pytest.mark.parametrize(
    ("function", "values", "dtype", "wanted"),
    [
        pytest.param("count", [1, None, 3], pl.Int32, 2, id="a count of values"),
        pytest.param("sum", [1, None, 3], pl.Int32, 4, id="a sum skips nulls"),
        pytest.param("sum", [None], pl.Int32, None, id="a sum of nulls is null"),
        pytest.param(
            "sum", [2**62, -(2**62), 2**62], pl.Int64, 2**62, id="a sum that only passes 2^63 on the way fits"
        ),
        pytest.param("avg", [1, 2, None], pl.Int32, 1.5, id="an average skips nulls"),
        pytest.param("avg", [None], pl.Int32, None, id="an average of nulls is null"),
        pytest.param(
            "avg", [2**63 - 1, 2**63 - 1], pl.Int64, float(2**63), id="an average of bigints does not overflow"
        ),
        pytest.param("min", [2.0, NAN], pl.Float64, 2.0, id="a minimum"),
        pytest.param("max", [2.0, NAN], pl.Float64, NAN, id="a maximum"),
        pytest.param("var_samp", [5.0], pl.Float64, None, id="one value has no sample variance"),
        pytest.param("stddev_samp", [5.0], pl.Float64, None, id="nor a sample deviation"),
        pytest.param("var_pop", [5.0], pl.Float64, 0.0, id="its population variance is zero"),
        pytest.param("var_pop", [None], pl.Float64, None, id="without values there is no variance"),
    ],
)
def test_plain_functions(function: str, values: list[Any], dtype: Any, wanted: Any):
    assert close(value(function, values, dtype), wanted)


@pytest.mark.parametrize("function", MOMENTS)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
@settings(max_examples=20)
def test_deviations_are_those_of_the_textbook(function: str, values: list[float]):
    reference = {
        "stddev_samp": statistics.stdev, "stddev_pop": statistics.pstdev,
        "var_samp": statistics.variance, "var_pop": statistics.pvariance,
    }[function]  # fmt: skip
    assert value(function, values, pl.Float64) == pytest.approx(reference(values), rel=1e-6, abs=1e-4)


def test_a_sum_of_bigints_that_does_not_fit_is_an_error_not_a_number():
    with pytest.raises(QueryFailure, match=r"SUM exceeds BIGINT in the window ending .* UTC; CAST its argument to"):
        value("sum", [2**63 - 1, 1], pl.Int64, type_="BIGINT")


# Decimals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        # DECIMAL(4,2) averages to DECIMAL(8,6).
        pytest.param(["0.01", "0.02"], "0.015000", id="an exact average"),
        pytest.param(["1.00", "0.00", "0.01"], "0.336667", id="rounds up from six tenths"),
        pytest.param(["0.01", "0.00", "0.03", "-0.01"], "0.007500", id="negative values"),
        pytest.param([None, "0.05"], "0.050000", id="nulls are not counted"),
        pytest.param([None], None, id="nothing but nulls"),
    ],
)
def test_decimal_averages(values: list[str | None], wanted: str | None, distinct: bool):
    decimals = [None if v is None else Decimal(v) for v in values]
    found = value("avg", decimals, pl.Decimal(4, 2), type_="DECIMAL(8,6)", distinct=distinct)
    assert found == (None if wanted is None else Decimal(wanted))


@given(st.lists(st.decimals(-9999, 9999, places=2), min_size=1, max_size=30))
@settings(max_examples=50)
def test_decimal_averages_round_half_up(values: list[Decimal]):
    wanted = (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.001"), ROUND_HALF_UP)
    # Three digits, so that halves are met.
    assert value("avg", values, pl.Decimal(8, 2), type_="DECIMAL(9,3)") == wanted


@pytest.mark.parametrize(
    ("sum_", "count", "wanted"),
    [
        pytest.param("0.01", 8, "0.0013", id="a half goes up"),
        pytest.param("-0.01", 8, "-0.0013", id="a negative half away from zero"),
        pytest.param("0.03", 8, "0.0038", id="a half above an odd digit goes up too"),
    ],
)
def test_halves_go_away_from_zero(sum_: str, count: int, wanted: str):
    values = [Decimal(sum_)] + [Decimal("0.00")] * (count - 1)
    assert value("avg", values, pl.Decimal(4, 2), type_="DECIMAL(8,4)") == Decimal(wanted)


# Details -------------------------------------------------------------------------------------------------------------

numbers = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=30)


@given(numbers, st.sampled_from([0.0, 0.05, 0.25, 0.5, 0.9, 0.99, 1.0]))
@settings(max_examples=50)
def test_percentiles_interpolate(values: list[float], fraction: float):
    found = value("percentile", values, pl.Float64, parameters=(fraction,))
    assert found == pytest.approx(float(np.percentile(values, fraction * 100)), abs=1e-9)


@given(numbers, st.sampled_from([0.0, 0.05, 0.25, 0.5, 0.9, 0.99, 1.0]))
@settings(max_examples=50)
def test_discrete_percentiles_are_values(values: list[float], fraction: float):
    found = value("percentile_disc", values, pl.Float64, parameters=(fraction,))
    assert found == sorted(values)[max(1, math.ceil(fraction * len(values))) - 1]


@pytest.mark.parametrize(
    ("values", "fraction", "wanted"),
    [
        pytest.param([1.0, None, 3.0, None], 0.5, 2.0, id="nulls are no values"),
        pytest.param([None, None], 0.5, None, id="nothing but nulls has no median"),
        pytest.param([INF, INF], 0.25, INF, id="between two infinities lies infinity"),
        pytest.param([-INF, INF], 0.5, NAN, id="between opposite ones nothing does"),
        pytest.param([1.0, INF], 0.5, INF, id="half way to infinity is infinite"),
        pytest.param([1.0, INF], 0.0, 1.0, id="at a value nothing is mixed in"),
        pytest.param([NAN, 1.0, 2.0], 0.5, 2.0, id="NaN stands last"),
        pytest.param([7.0], 0.99, 7.0, id="one value is every percentile"),
    ],
)
def test_percentiles_of_specials(values: list[float | None], fraction: float, wanted: float | None):
    assert close(value("percentile", values, pl.Float64, parameters=(fraction,)), wanted)


@pytest.mark.parametrize(
    ("function", "values", "dtype", "wanted"),
    [
        pytest.param(
            "count", ["a", "b", "a", None], pl.String, 2, id="distinct values are counted once, nulls not at all"
        ),
        pytest.param("count", [None], pl.String, 0, id="nulls only: none"),
        pytest.param("sum", [5, 5, 7, None], pl.Int32, 12, id="a distinct sum"),
        pytest.param("sum", [2**30, 2**30 + 1, 2**30 + 2], pl.Int32, 3 * 2**30 + 3, id="of ints is wider than an int"),
        pytest.param("sum", [2**62, 2**62 + 1, -7], pl.Int64, 2**63 - 6, id="of bigints is exact"),
        pytest.param("sum", [16777216.0, 1.0], pl.Float32, 16777217.0, id="of floats is a double"),
        pytest.param("sum", [None], pl.Int32, None, id="of nulls is null"),
        pytest.param("avg", [1, 1, 4], pl.Int32, 2.5, id="a distinct average"),
    ],
)
def test_distinct(function: str, values: list[Any], dtype: Any, wanted: Any):
    found = value(function, values, dtype, distinct=True, type_="BIGINT")
    assert found == wanted


@pytest.mark.parametrize(
    ("values", "k", "wanted"),
    [
        pytest.param(list("abbccc"), 2, [("c", 3), ("b", 2)], id="the heaviest first"),
        pytest.param(list("dbcad"), 3, [("d", 2), ("a", 1), ("b", 1)], id="ties in the order of the items"),
        pytest.param([None, None, "a"], 2, [("a", 1)], id="nulls are no items"),
        pytest.param(["a"], 9, [("a", 1)], id="no more than there are"),
        pytest.param([None], 2, None, id="nothing to rank"),
    ],
)
def test_top_k(values: list[str | None], k: int, wanted: list[tuple[str, int]] | None):
    found = value("approx_top_k", values, pl.String, parameters=(float(k),))
    rows = None if found is None else found.to_list() if isinstance(found, pl.Series) else found
    assert (None if rows is None else [(row["item"], row["count"]) for row in rows]) == wanted


def test_details_of_groups_do_not_mix():
    rows = {"t": [0, 1, 2, 3, 4], "x": [1.0, 3.0, 9.0, None, 5.0], "k": [None, None, "b", "c", "b"]}
    found = ask("percentile", rows, pl.Float64, parameters=(0.5,))
    assert found is not None
    assert dict(found.select("c0", "v").rows()) == {None: 2.0, "b": 7.0, "c": None}
    counts = ask("count", rows, pl.Float64, distinct=True)
    assert counts is not None
    assert dict(counts.select("c0", "v").rows()) == {None: 2, "b": 2, "c": 0}


# Sketches ------------------------------------------------------------------------------------------------------------


def sketch(function: str, type_: str, detail: list[int], measure: list[int], parameters: tuple[float, ...]) -> Any:
    kind = "max" if function == "approx_count_distinct" else "rows"
    column = ROWS if kind == "rows" else "max_rank"
    main = Layout("main", 10, 0, False, (COUNTED,), None)
    fine = Layout("fine", 10, 0, True, ((column, kind, "int"),), None)
    aggregate = PlannedAggregate("v", function, type_, False, "fine", (column,), parameters)
    spec = AnswerSpec(10, True, (), (aggregate,), (demand(main), demand(fine)))
    details = pl.DataFrame(
        {"p": [0] * len(detail), "d": pl.Series(detail, dtype=pl.Int32), column: pl.Series(measure, dtype=pl.Int64)},
        schema_overrides={"p": pl.Int64},
    )
    panes = hold([[("main", 0, pl.DataFrame({"p": [0], ROWS: [len(detail)]})), ("fine", 0, details)]])
    found = answer(spec, panes, Due((10,)))
    assert found is not None
    return found["v"].item()


def hashes(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """splitmix64 of a counter."""
    z = (np.arange(count, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hll(count: int, bits: int, seed: int) -> int:
    """The estimate from the registers that `count` distinct values leave."""
    hashed = hashes(count, seed)
    register = (hashed & np.uint64((1 << bits) - 1)).astype(np.int64)
    # frexp's exponent is the number of significant bits.
    significant = np.frexp((hashed >> np.uint64(bits)).astype(np.float64))[1]
    ranks = np.zeros(1 << bits, dtype=np.int64)
    np.maximum.at(ranks, register, 64 - bits - significant + 1)
    touched = np.flatnonzero(ranks)
    found = sketch("approx_count_distinct", "BIGINT", touched.tolist(), ranks[touched].tolist(), (float(bits),))
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("count", [1, 2, 5, 20, 100, 500, 2_000, 5_000, 10_000, 50_000, 200_000])
@pytest.mark.parametrize("bits", [11, 14])
def test_distinct_estimates_are_within_three_standard_errors(count: int, bits: int):
    error = 1.04 / math.sqrt(1 << bits)
    found = [hll(count, bits, seed) for seed in range(1, 6)]
    assert all(abs(estimate - count) <= max(0.5, 3 * error * count) for estimate in found), found
    # And no lean to either side beyond chance.
    assert abs(statistics.mean(found) - count) <= max(0.5, 3 * error * count / math.sqrt(len(found))), found


def test_no_distinct_value_is_none():
    assert sketch("approx_count_distinct", "BIGINT", [], [], (11.0,)) == 0


def bucket(x: float, error: float) -> int:
    """What the planner's SQL says of a value (DDSketch)."""
    if math.isnan(x):
        return 2**31 - 1
    if math.isinf(x):
        return int(math.copysign(2**31 - 2, x))
    if x == 0:
        return 0
    size = math.ceil(math.log(abs(x)) / math.log((1 + error) / (1 - error))) + BUCKET_OFFSET
    return int(math.copysign(size, x))


@pytest.mark.parametrize("error", [0.001, 0.01, 0.1])
@pytest.mark.parametrize(
    "x", [1.0, -1.0, 1e-300, 1e300, -1e300, 3.7, 1e-9, 123456.789, 0.0, INF, -INF, NAN, 5e-324, -2.5e-310]
)
def test_a_bucket_stands_for_its_values_within_the_error(x: float, error: float):
    found = sketch("approx_percentile", "DOUBLE", [bucket(x, error)], [3], (0.5, error))
    if x == 0 or math.isinf(x) or math.isnan(x):
        assert close(found, x)
    elif abs(x) < 2.3e-308:
        assert abs(found) < 2.3e-308, "below normal doubles there are too few digits for a relative error"
    else:
        assert abs(found - x) <= error * abs(x) * (1 + 1e-9)


def test_buckets_stand_in_the_order_of_their_values():
    values = [-INF, -1e300, -5.0, -1e-300, 0.0, 1e-300, 5.0, 1e300, INF, NAN]
    buckets = [bucket(x, 0.01) for x in values]
    assert buckets == sorted(buckets)
    for i, x in enumerate(values):
        found = sketch("approx_percentile", "DOUBLE", buckets[::-1], [1] * len(values), ((i + 1) / len(values), 0.01))
        assert close(found, x) or abs(found - x) <= 0.01 * abs(x) * (1 + 1e-9)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_approximate_percentiles_are_near_the_value_at_the_rank(fraction: float):
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.lognormal(3, 2, 700), -rng.lognormal(1, 1, 200), np.zeros(100)])
    buckets, counts = np.unique([bucket(x, 0.01) for x in values], return_counts=True)
    found = sketch("approx_percentile", "DOUBLE", buckets.tolist(), counts.tolist(), (fraction, 0.01))
    exact = np.sort(values)[max(1, math.ceil(fraction * len(values))) - 1]
    assert abs(found - exact) <= 0.01 * abs(exact) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("type_", "wanted"),
    [
        pytest.param("INT", 1000, id="whole numbers of an int"),
        pytest.param("DECIMAL(10,2)", Decimal("1000"), id="decimals of a decimal"),
    ],
)
def test_approximate_percentiles_have_the_type_of_their_argument(type_: str, wanted: Any):
    found = sketch("approx_percentile", type_, [bucket(1000.0, 0.001)], [1], (0.5, 0.001))
    assert found == pytest.approx(wanted, rel=Decimal("0.001") if isinstance(wanted, Decimal) else 0.001)
    assert found == round(found, 2 if isinstance(wanted, Decimal) else 0)


# Windows -------------------------------------------------------------------------------------------------------------


def test_windows_take_the_rows_from_their_start_up_to_their_end():
    #   rows   0   4 | 5 | 10 14 |    |
    #   ends        5   10      15   20   25       size 10, slide 5
    rows = {"t": [0, 4, 5, 10, 14], "x": [1, 2, 4, 8, 16]}
    found = ask("sum", rows, pl.Int64, due=Due(range(5, 26, 5)))
    assert found is not None
    assert found.select("window_start", "window_end", "v").rows() == [
        (us(-5), us(5), 3),
        (us(0), us(10), 7),
        (us(5), us(15), 28),
        (us(10), us(20), 24),
        (us(15), us(25), None),
    ]


@pytest.mark.parametrize(
    ("function", "dtype", "options", "empty"),
    [
        pytest.param("count", pl.Int32, {}, 0, id="a count is zero"),
        pytest.param("sum", pl.Int32, {}, None, id="a sum is null"),
        pytest.param("sum", pl.Int64, {}, None, id="a wide sum is null"),
        pytest.param("avg", pl.Decimal(4, 2), {"type_": "DECIMAL(8,6)"}, None, id="a decimal average is null"),
        pytest.param("var_pop", pl.Float64, {}, None, id="a variance is null"),
        pytest.param("count", pl.Int32, {"distinct": True}, 0, id="a distinct count is zero"),
        pytest.param("percentile", pl.Float64, {"parameters": (0.5,)}, None, id="a median is null"),
        pytest.param("approx_top_k", pl.Int64, {"parameters": (3.0,)}, None, id="top k is null"),
        pytest.param("collect_list", pl.Int32, {}, [], id="a list is empty"),
        pytest.param("collect_set", pl.Int32, {}, [], id="a set is empty"),
    ],
)
@pytest.mark.parametrize(
    ("times", "there"),
    [
        pytest.param([], [], id="no window has rows"),
        pytest.param([12], [20], id="the second of three has"),
        pytest.param([2, 22], [10, 30], id="the second has not"),
    ],
)
def test_the_papers_form_without_keys_answers_empty_windows_too(
    function: str, dtype: Any, options: dict[str, Any], empty: Any, times: list[int], there: list[int]
):
    rows = {"t": times, "x": [1] * len(times)}
    found = ask(function, rows, dtype, due=Due(range(10, 31, 10)), **options)
    assert found is not None
    assert found["window_end"].to_list() == [us(10), us(20), us(30)]
    for end, answered in zip(found["window_end"], found["v"].to_list(), strict=True):
        assert (answered == empty) is (end not in [us(e) for e in there])


def test_a_window_of_nulls_beside_a_window_of_values():
    found = ask("percentile", {"t": [2, 12], "x": [None, 4.0]}, pl.Float64, parameters=(0.5,), due=Due((10, 20)))
    assert found is not None
    assert found["v"].to_list() == [None, 4.0]


def test_sparks_form_answers_no_empty_window():
    rows = {"t": [2, 22], "x": [1, 1]}
    found = ask("sum", rows, pl.Int32, due=Due(range(10, 31, 10)), always=False)
    assert found is not None
    assert found["window_end"].to_list() == [us(10), us(30)]
    assert ask("sum", {"t": [2], "x": [1]}, pl.Int32, due=Due((40, 50)), always=False) is None


@given(
    st.lists(st.tuples(st.integers(-60, 60), st.sampled_from(["a", "b", None])), min_size=1, max_size=15),
    st.sampled_from([(5, 5), (20, 5), (15, 10), (5, 20), (10, 10)]),
    st.integers(-8, 4),
    st.integers(0, 20),
)
@settings(max_examples=50)
def test_every_window_that_holds_rows_is_answered_with_them_and_no_other(
    rows: list[tuple[int, str | None]], form: tuple[int, int], first: int, more: int
):
    (size, slide), begin = form, first * 5
    due = Due(range(begin, begin + more * slide + 1, slide))
    wanted = {
        (us(end), key): count
        for end in due.ends
        for key, count in Counter(k for t, k in rows if end - size <= t < end).items()
    }
    found = ask(
        "count",
        {"t": [t for t, _ in rows], "x": [1] * len(rows), "k": [k for _, k in rows]},
        pl.Int32,
        due=due,
        size=size,
    )
    got = {} if found is None else {(end, key): n for end, key, n in found.select("window_end", "c0", "v").rows()}
    assert got == wanted


def test_groups_without_rows_in_a_window_are_not_in_its_answer():
    rows = {"t": [2, 3, 12], "x": [1, 2, 4], "k": ["a", "b", "b"]}
    found = ask("sum", rows, pl.Int32, due=Due(range(10, 31, 10)))
    assert found is not None
    assert sorted(found.select("window_end", "c0", "v").rows()) == [
        (us(10), "a", 1),
        (us(10), "b", 2),
        (us(20), "b", 4),
    ]


def test_panes_before_1970():
    rows = {"t": [-1, -5, -6], "x": [1, 2, 4]}
    found = ask("sum", rows, pl.Int32, due=Due(range(-5, 6, 5)), size=5)
    assert found is not None
    assert found["v"].to_list() == [4, 3, None]


def test_only_the_panes_that_windows_need_are_read():
    form = Layout("main", 5, 0, False, (COUNTED,), None)
    held = [[("main", 0, pl.DataFrame({"p": panes, ROWS: [1] * 3}))] for panes in ([0, 5, 10], [10, 15, 20])]
    aggregate = PlannedAggregate("v", "count", "BIGINT", False, "main", (ROWS,), ())
    spec = AnswerSpec(10, True, (), (aggregate,), (demand(form),))
    panes, meter = hold(held, bins=2), Meter()
    #   panes   0 | 5 | 10 | 15 | 20         ends at 15 and 20 need panes 5, 10 (twice) and 15
    ((_, found),) = answers([(spec, Due((15, 20)))], panes, 0, meter)
    assert isinstance(found, pl.DataFrame)
    assert found["v"].to_list() == [3, 3]
    assert (meter.panes, meter.rows) == (3, 4)
    ((_, other),) = answers([(spec, Due((15,)))], panes, 1)
    assert isinstance(other, pl.DataFrame)
    assert other["v"].to_list() == [0], "another bin has nothing"


def test_when_all_fail_together_only_those_that_fail_alone_have_failed(monkeypatch: pytest.MonkeyPatch):
    def answered(specs: object, batch: list[tuple[int, list[int]]], *views: object) -> Iterator[tuple[int, object]]:
        if any(number == 1 for number, _ in batch):
            raise ValueError("bad")
        yield from batch

    monkeypatch.setattr(answering, "_answered", answered)
    batch = [(0, [10]), (1, [20]), (2, [30])]
    found = dict(answering._isolated([], batch, None, None))  # type: ignore[arg-type]
    assert (found[0], found[2]) == ([10], [30])
    assert found[1] == Failure(Fault.QUERY, "ValueError: bad")
