"""Laws of the kernel: however rows are split and merged, a pane says the same; and its counts are exact or bounded."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels.panes import Layout, concat, keep_heaviest, layout_of, merge, partial
from headrace.model import ROWS, DataType, Feed, Kind, Measure, Synopsis

INF, NAN = math.inf, math.nan
COUNTED = (ROWS, "rows", "wide")
PAIRS = pl.Struct({"of": pl.Int32, "by": pl.Float64})
NUMBERS = pl.Struct({"of": pl.Float64, "by": pl.Float64})


def pairs(of: st.SearchStrategy[Any], by: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"of": st.none() | of, "by": st.none() | by})


# Measure -> storage of its argument, type of its column, values that try it.
KINDS: dict[str, tuple[str, str, pl.DataType, st.SearchStrategy[Any]]] = {
    "count": ("count", "wide", pl.Int64(), st.integers(-5, 5)),
    "sum of ints": ("sum", "int", pl.Int32(), st.integers(-(2**31), 2**31 - 1)),
    "sum of bigints": ("sum", "wide", pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    "sum of doubles": ("sum", "float", pl.Float64(), st.integers(-1000, 1000).map(float) | st.sampled_from([INF, NAN])),
    "sum of decimals": ("sum", "decimal:2", pl.Decimal(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "min of ints": ("min", "int", pl.Int32(), st.integers(-9, 9)),
    "max of ints": ("max", "int", pl.Int32(), st.integers(-9, 9)),
    "min of doubles": ("min", "float", pl.Float64(), st.sampled_from([1.5, -2.0, INF, -INF, NAN])),
    "max of doubles": ("max", "float", pl.Float64(), st.sampled_from([1.5, -2.0, INF, -INF, NAN])),
    "min of strings": ("min", "other", pl.String(), st.text("abÅ", max_size=3)),
    "max of booleans": ("max", "other", pl.Boolean(), st.booleans()),
    "bits of ints": ("bit_and", "int", pl.Int32(), st.integers(-9, 9)),
    "any bits": ("bit_or", "wide", pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    "odd bits": ("bit_xor", "int", pl.Int8(), st.integers(-9, 9)),
    "the greatest pair": ("max_by", "other", PAIRS, pairs(st.integers(-2, 2), st.sampled_from([0.5, -1.0, NAN]))),
    "the least pair": ("min_by", "other", PAIRS, pairs(st.integers(-2, 2), st.sampled_from([0.5, INF, NAN]))),
    "shape": ("shape", "float", pl.Float64(), st.integers(-1000, 1000).map(float)),
    "comoments": ("comoments", "other", NUMBERS, pairs(st.integers(-9, 9).map(float), st.integers(-9, 9).map(float))),
    "moments": ("moments", "float", pl.Float64(), st.integers(-1000, 1000).map(float)),
    "moments with specials": ("moments", "float", pl.Float64(), st.sampled_from([1.0, 2.0, INF, NAN])),
}


def layout(*measures: tuple[str, str], keys: int = 1, detail: bool = False, keep: int | None = None) -> Layout:
    named = ((f"m{i}", kind, storage) for i, (kind, storage) in enumerate(measures, 1))
    return Layout("s", 10, keys, detail, (COUNTED, *named), keep)


def plain(frame: pl.DataFrame) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows by pane and groups; a group without values has moments of nothing, however that is written."""
    groups = [name for name in frame.columns if name[0] not in "mn"]
    found = {}
    for row in frame.iter_rows(named=True):
        measures = {k: v for k, v in row.items() if k not in groups}
        if measures.get("m1_n") == 0:
            measures |= dict.fromkeys(name for name in measures if name.startswith("m1_") and name != "m1_n")
        found[tuple(row[g] for g in groups)] = tuple(measures.values())
    assert len(found) == frame.height, "one row per group"
    return found


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
    return type(a) is type(b) and bool(a == b)


def assert_same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert one.schema == other.schema
    left, right = plain(one), plain(other)
    assert left.keys() == right.keys()
    for key, values in left.items():
        assert all(map(close, values, right[key])), f"{key}: {values} is not {right[key]}"


def rows_of(values: list[tuple[int, str | None, int, Any]], dtype: pl.DataType) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "p": pl.Series([v[0] for v in values], dtype=pl.Int64),
            "k0": pl.Series([v[1] for v in values], dtype=pl.String),
            "part": pl.Series([v[2] for v in values], dtype=pl.Int64),
            "x": pl.Series([v[3] for v in values], dtype=dtype),
        }
    )


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=20)
def test_partials_of_any_split_merge_to_the_partial_of_all(kind: str, data: st.DataObject):
    measure, storage, dtype, values = KINDS[kind]
    row = st.tuples(st.integers(-1, 1), st.sampled_from(["a", "b", None]), st.integers(0, 3), st.none() | values)
    rows = rows_of(data.draw(st.lists(row, min_size=1, max_size=25)), dtype)
    form = layout((measure, storage))
    whole = partial(rows.drop("part"), form, [None, "x"], [])
    parts = [
        partial(rows.filter(pl.col("part") == i).drop("part"), form, [None, "x"], [])
        for i in range(4)
        if rows.filter(pl.col("part") == i).height
    ]
    by = ["p", "k0"]
    assert_same(merge(parts, form, by), whole)
    assert_same(merge(parts[::-1], form, by), whole)
    left = parts[0]
    for part in parts[1:]:
        left = merge([left, part], form, by)
    assert_same(left, whole)
    # A window merges panes: the same as if there were one pane only.
    single = partial(rows.drop("part").with_columns(p=pl.lit(0)), form, [None, "x"], []).drop("p")
    assert_same(merge(parts, form, ["k0"]), single)


@pytest.mark.parametrize(
    ("measure", "storage", "dtype", "values", "wanted"),
    [
        pytest.param("count", "wide", pl.Int64(), [1, None, 3], (2,), id="a count skips nulls"),
        pytest.param("count", "wide", pl.Int64(), [None], (0,), id="a count of nulls is zero"),
        pytest.param("sum", "int", pl.Int32(), [None, None], (None,), id="a sum of nulls is null, not zero"),
        pytest.param(
            "sum", "int", pl.Int32(), [2**31 - 1] * 3, (3 * (2**31 - 1),), id="a sum of ints is wider than an int"
        ),
        pytest.param(
            "sum", "wide", pl.Int64(), [2**63 - 1] * 3, (Decimal(3 * (2**63 - 1)),), id="a sum of bigints passes 2^63"
        ),
        pytest.param("sum", "wide", pl.Int64(), [-(2**63)] * 3, (Decimal(-3 * 2**63),), id="in both directions"),
        pytest.param(
            "sum", "decimal:2", pl.Decimal(12, 2), [Decimal("0.10")] * 3, (Decimal("0.30"),), id="decimals stay exact"
        ),
        pytest.param("sum", "float", pl.Float32(), [16777216.0, 1.0], (16777217.0,), id="floats are summed as doubles"),
        pytest.param("sum", "float", pl.Float64(), [1.0, NAN], (NAN,), id="NaN makes a sum NaN"),
        pytest.param("min", "float", pl.Float64(), [1.0, NAN, None], (1.0,), id="NaN is greater than any number"),
        pytest.param("max", "float", pl.Float64(), [INF, NAN, None], (NAN,), id="also than infinity"),
        pytest.param("min", "float", pl.Float64(), [NAN, NAN], (NAN,), id="a minimum of NaN is NaN"),
        pytest.param("max", "float", pl.Float64(), [None, None], (None,), id="a maximum of nulls is null"),
        pytest.param("max", "other", pl.Boolean(), [False, None, True], (True,), id="true is the greater boolean"),
        pytest.param("bit_and", "int", pl.Int32(), [6, None, 3], (2,), id="bits of nulls do not count"),
        pytest.param("bit_xor", "int", pl.Int32(), [None], (None,), id="bits of nothing are null"),
        pytest.param(
            "max_by",
            "other",
            PAIRS,
            [{"of": 1, "by": 2.0}, {"of": 9, "by": None}],
            (2.0, 1),
            id="what is best by null is out",
        ),
        pytest.param(
            "max_by",
            "other",
            PAIRS,
            [{"of": 1, "by": 2.0}, {"of": 3, "by": 2.0}, {"of": None, "by": 2.0}],
            (2.0, 3),
            id="the greatest value of equally great ones",
        ),
        pytest.param(
            "min_by",
            "other",
            PAIRS,
            [{"of": None, "by": 1.0}, {"of": 5, "by": NAN}],
            (1.0, None),
            id="the best row may have no value",
        ),
        pytest.param(
            "max_by",
            "other",
            PAIRS,
            [{"of": 5, "by": NAN}, {"of": 7, "by": INF}, None],
            (NAN, 5),
            id="NaN is the greatest",
        ),
        pytest.param(
            "shape",
            "float",
            pl.Float64(),
            [0.1, 0.1, 0.1],
            (3, 0.1, 0.0, 0.0, 0.0),
            id="equal values do not deviate at all",
        ),
        pytest.param(
            "comoments",
            "other",
            NUMBERS,
            [{"of": 1.0, "by": 2.0}, {"of": 3.0, "by": 4.0}, {"of": None, "by": 9.0}],
            (2, 3.0, 2.0, 2.0, 2.0, 2.0),
            id="a pair has both",
        ),
        pytest.param("moments", "float", pl.Float64(), [3.0], (1, 3.0, 0.0), id="one value does not deviate"),
        pytest.param("moments", "float", pl.Int32(), [1, 2, None, 3], (3, 2.0, 2.0), id="moments skip nulls"),
    ],
)
def test_one_group(measure: str, storage: str, dtype: pl.DataType, values: list[Any], wanted: tuple[Any, ...]):
    form = layout((measure, storage), keys=0)
    rows = pl.DataFrame({"p": [0] * len(values), "x": pl.Series(values, dtype=dtype)})
    made = partial(rows, form, [None, "x"], [])
    # Merged twice over, and for a window without keys: still the same.
    again = merge([merge([made], form, ["p"])], form, [])
    for frame in (made.drop("p"), again):
        found = frame.row(0)
        assert found[0] == len(values)
        assert len(found) == 1 + len(wanted)
        assert all(map(close, found[1:], wanted)), found


def test_sums_of_bigints_stay_exact_over_many_merges():
    form = layout(("sum", "wide"), keys=0)
    value = 2**63 - 1
    made = partial(pl.DataFrame({"p": [0] * 1000, "x": [value] * 1000}), form, [None, "x"], [])
    for _ in range(10):
        made = merge([made, made], form, ["p"])
    assert made["m1"].to_list() == [Decimal(value * 1000 * 2**10)]


def test_moments_of_large_values_with_a_small_spread_are_stable():
    values = [1e9 + (i * 7919 % 1000) / 1000 for i in range(5000)]
    form = layout(("moments", "float"), keys=0)
    rows = pl.DataFrame({"p": [0] * len(values), "x": values})
    made = partial(rows[:10], form, [None, "x"], [])
    for at in range(10, len(values), 10):
        made = merge([made, partial(rows[at : at + 10], form, [None, "x"], [])], form, ["p"])
    _, _, n, mean, m2 = made.row(0)
    exact = [Decimal(v) for v in values]
    assert n == 5000
    assert mean == pytest.approx(float(statistics.mean(exact)), rel=1e-12)
    assert m2 / n == pytest.approx(float(statistics.pvariance(exact)), rel=1e-5), (
        "sums of squares would be off by 100 %"
    )


def test_groups_are_kept_apart_by_null_keys_and_details():
    form = Layout("s", 10, 1, True, (COUNTED,), None)
    rows = pl.DataFrame({"p": [0, 0, 0, 1], "k0": ["a", None, None, None], "d": [1, 1, None, None]})
    assert plain(partial(rows, form, [None], [])) == {
        (0, "a", 1): (1,),
        (0, None, 1): (1,),
        (0, None, None): (1,),
        (1, None, None): (1,),
    }


def test_float_groups_have_one_nan_and_one_zero():
    form = layout()
    rows = pl.DataFrame({"p": [0] * 4, "k0": [NAN, -NAN, 0.0, -0.0]})
    assert sorted(partial(rows, form, [None], [])[ROWS].to_list()) == [2, 2]
    made = [partial(rows[i : i + 1], form, [None], []) for i in range(4)]
    assert sorted(merge(made, form, ["p", "k0"])[ROWS].to_list()) == [2, 2]


def test_no_rows_make_no_groups():
    rows = pl.DataFrame(schema={"p": pl.Int64, "k0": pl.String, "x": pl.Int32})
    assert partial(rows, layout(("sum", "int")), [None, "x"], []).is_empty()


def test_carried_columns_stay_with_their_group():
    form = layout()
    rows = pl.DataFrame({"p": [0, 0, 1], "k0": ["a", "b", "a"], "h": [3, 4, 3]})
    made = partial(rows, form, [None], ["h"])
    assert set(merge([made, made], form, ["p", "k0"], ["h"]).select("k0", "h").rows()) == {("a", 3), ("b", 4)}


def test_an_unknown_measure_is_refused():
    with pytest.raises(ValueError, match="unknown measure kind 'mode'"):
        partial(pl.DataFrame({"p": [0], "x": [1]}), layout(("mode", "int"), keys=0), [None, "x"], [])


@pytest.mark.parametrize(
    ("type_", "storage"),
    [
        pytest.param(DataType(Kind.INT), "int", id="ints"),
        pytest.param(DataType(Kind.BIGINT), "wide", id="bigints"),
        pytest.param(DataType(Kind.FLOAT), "float", id="floats"),
        pytest.param(DataType(Kind.DECIMAL, 12, 3), "decimal:3", id="decimals keep their scale"),
        pytest.param(DataType(Kind.STRING), "other", id="strings"),
    ],
)
def test_layout_of_a_synopsis(type_: DataType, storage: str):
    synopsis = Synopsis((Feed("s", None, ("s.k",), "s.v"),), (DataType(Kind.STRING),), DataType(Kind.INT), keep=7)
    measure = Measure("min", ("s.x",), type_)
    found = layout_of(synopsis, [measure], 10)
    assert found == Layout(synopsis.id, 10, 1, True, ((measure.column, "min", storage),), 7)
    assert (found.groups, found.columns) == (["k0", "d"], [measure.column])


def test_moments_are_three_columns():
    assert layout(("moments", "float"), ("sum", "int")).columns == [ROWS, "m1_n", "m1_mean", "m1_m2", "m2"]


# Measures that come and go ------------------------------------------------------------------------------------------

OLD = pl.DataFrame({"p": [0, 10], "k0": ["a", "b"], ROWS: [2, 3], "gone": [7, 8]})
NEW = pl.DataFrame({"p": [10, 10], "k0": ["a", "b"], ROWS: [5, 6], "m1": pl.Series([None, 4], dtype=pl.Int64)})


def test_frames_that_lack_a_measure_have_none_of_it_and_leave_out_what_nobody_needs():
    found = concat([OLD, NEW], layout(("sum", "int")))
    assert sorted(found.columns) == ["k0", "m1", ROWS, "p"]
    assert sorted(found.select("p", "k0", ROWS, "m1").rows(), key=str) == [
        (0, "a", 2, None),
        (10, "a", 5, None),
        (10, "b", 3, None),
        (10, "b", 6, 4),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_panes_from_before_a_measure_merge_with_those_since(order: int):
    found = merge([OLD, NEW][::order], layout(("sum", "int")), ["p", "k0"])
    assert plain(found) == {(0, "a"): (2, None), (10, "a"): (5, None), (10, "b"): (9, 4)}


@pytest.mark.parametrize("kind", ["count", "sum", "min", "max", "moments"])
def test_panes_that_all_lack_a_measure_still_merge(kind: str):
    found = merge([OLD, OLD], layout((kind, "int")), ["p", "k0"])
    assert dict(found.select("k0", ROWS).rows()) == {"a": 4, "b": 6}
    # And later with panes that have it.
    since = partial(pl.DataFrame({"p": [0], "k0": ["a"], "x": [9]}), layout((kind, "int")), [None, "x"], [])
    again = merge([found, since], layout((kind, "int")), ["p", "k0"])
    assert dict(again.select("k0", ROWS).rows()) == {"a": 5, "b": 6}
    assert again.schema == since.schema


def test_one_frame_as_it_is_wanted_is_passed_on():
    frame = pl.DataFrame({"p": [0], "k0": ["a"], ROWS: [1]})
    assert concat([frame], layout()) is frame


# Misra-Gries ---------------------------------------------------------------------------------------------------------


def counted(items: list[int | None], form: Layout) -> pl.DataFrame:
    rows = pl.DataFrame({"p": [0] * len(items), "k0": ["a"] * len(items), "d": pl.Series(items, dtype=pl.Int64)})
    return partial(rows, form, [None], [])


@given(
    st.lists(st.lists(st.none() | st.integers(0, 12) | st.just(1), min_size=1, max_size=40), min_size=1, max_size=5),
    st.integers(1, 6),
)
@settings(max_examples=50)
def test_kept_counts_are_low_by_no_more_than_the_bound(parts: list[list[int | None]], keep: int):
    form = Layout("s", 10, 1, True, (COUNTED,), keep)
    by = ["p", "k0"]
    made = keep_heaviest(counted(parts[0], form), form, by)
    for part in parts[1:]:
        made = merge([made, keep_heaviest(counted(part, form), form, by)], form, ["p", "k0", "d"])
        made = keep_heaviest(made, form, by)
    assert made.height <= keep
    true = Counter(item for part in parts for item in part)
    kept = dict(made.select("d", ROWS).rows())
    bound = sum(true.values()) / (keep + 1)
    assert all(true[item] - bound <= kept.get(item, 0) <= true[item] for item in true)
    assert set(kept) <= set(true)


def test_few_details_are_kept_whole():
    form = Layout("s", 10, 1, True, (COUNTED,), 3)
    frame = counted([1, 1, 2, None], form)
    assert_same(keep_heaviest(frame, form, ["p", "k0"]), frame)


def test_without_a_limit_all_is_kept():
    form = Layout("s", 10, 1, True, (COUNTED,), None)
    frame = counted(list(range(50)), form)
    assert_same(keep_heaviest(frame, form, ["p", "k0"]), frame)


def test_a_crowded_group_does_not_cut_its_neighbours():
    form = Layout("s", 10, 1, True, (COUNTED,), 2)
    frame = pl.DataFrame(
        {"p": [0] * 5, "k0": [None, None, None, "b", "b"], "d": [1, 2, 3, 1, 2], ROWS: [9, 5, 2, 1, 1]}
    )
    assert plain(keep_heaviest(frame, form, ["p", "k0"])) == {
        (0, None, 1): (7,),
        (0, None, 2): (3,),
        (0, "b", 1): (1,),
        (0, "b", 2): (1,),
    }
