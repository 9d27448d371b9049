"""Windows from running prefixes and trees, against adding up the rows of every window one by one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels import windows
from headrace.kernels.panes import Layout
from headrace.kernels.windows import Top, View
from headrace.model import ROWS

INF, NAN = math.inf, math.nan
DAY, NOON = date(1969, 12, 30), datetime(1969, 12, 31, 12, tzinfo=UTC)
Rng = random.Random
Rows = list[dict[str, Any]]


def one_of(*values: Any) -> Callable[[Rng], Any]:
    return lambda rng: rng.choice(values)


# Kind, storage, type of the column, values that try it.
MEASURES: dict[str, tuple[str, str, pl.DataType, Callable[[Rng], Any]]] = {
    "counts": ("count", "wide", pl.Int64(), lambda rng: rng.randint(0, 9)),
    "sums of ints": ("sum", "int", pl.Int64(), lambda rng: rng.randint(-(2**40), 2**40)),
    "sums of ints whose prefixes wrap around": ("sum", "int", pl.Int64(), one_of(2**62, -(2**62), 2**63 - 1, 5)),
    "sums of bigints": ("sum", "wide", pl.Decimal(38, 0), lambda rng: Decimal(rng.randint(-(2**70), 2**70))),
    "sums of doubles": ("sum", "float", pl.Float64(), lambda rng: rng.randint(-1000, 1000) / 8),
    "sums of doubles with NaN and infinities": ("sum", "float", pl.Float64(), one_of(1.5, -0.0, INF, -INF, NAN)),
    "sums of decimals": ("sum", "decimal:2", pl.Decimal(38, 2), lambda rng: Decimal(rng.randint(-(10**9), 10**9)) / 4),
    "minima of ints": ("min", "int", pl.Int32(), lambda rng: rng.randint(-9, 9)),
    "maxima of ints": ("max", "int", pl.Int32(), lambda rng: rng.randint(-9, 9)),
    "minima of bigints": ("min", "wide", pl.Int64(), one_of(-(2**63), 2**63 - 1, 2**53, 2**53 + 1)),
    "maxima of bigints": ("max", "wide", pl.Int64(), one_of(-(2**63), 2**63 - 1, 2**53, 2**53 + 1)),
    "minima of doubles": ("min", "float", pl.Float64(), one_of(1.5, 0.0, -0.0, INF, -INF, NAN, 5e-324)),
    "maxima of doubles": ("max", "float", pl.Float64(), one_of(1.5, 0.0, -0.0, INF, -INF, NAN, -5e-324)),
    "maxima of doubles, mostly NaN": ("max", "float", pl.Float64(), one_of(NAN, NAN, 2.0)),
    "minima of floats": ("min", "float", pl.Float32(), one_of(1.5, -0.0, INF, NAN)),
    "minima of strings": ("min", "other", pl.String(), one_of("", "a", "b", "Å", "ab")),
    "maxima of strings": ("max", "other", pl.String(), one_of("", "a", "b", "Å", "ab")),
    "minima of booleans": ("min", "other", pl.Boolean(), one_of(True, False)),
    "maxima of booleans": ("max", "other", pl.Boolean(), one_of(True, False)),
    "minima of dates": ("min", "other", pl.Date(), lambda rng: DAY + timedelta(days=rng.randint(0, 9))),
    "maxima of times": (
        "max", "other", pl.Datetime("us", "UTC"), lambda rng: NOON + timedelta(microseconds=rng.randint(-9, 9))
    ),
    "minima of decimals": ("min", "decimal:2", pl.Decimal(12, 2), lambda rng: Decimal(rng.randint(-999, 999)) / 4),
    "maxima of binaries": ("max", "other", pl.Binary(), one_of(b"", b"a", b"\xff", b"a\0")),
}  # fmt: skip
# Group columns of a view and the values they have.
GROUPS: dict[str, tuple[int, bool]] = {
    "no key": (0, False),
    "a key": (1, False),
    "two keys": (2, False),
    "a key and a detail": (1, True),
    "a detail only": (0, True),
}


def layout(*measures: tuple[str, str, str], keys: int = 0, detail: bool = False) -> Layout:
    return Layout("s", 1, keys, detail, ((ROWS, "rows", "wide"), *measures), None)


def rank(value: Any) -> Any:
    """The order of SQL: NaN is the greatest number."""
    return (math.isnan(value), value) if isinstance(value, float) else value


def merged(kind: str, values: list[Any]) -> Any:
    """What a measure says of rows, from what it says of each."""
    known = [value for value in values if value is not None]
    if kind == "count":
        return sum(known)
    if not known:
        return None
    if kind in ("min", "max"):
        return min(known, key=rank) if kind == "min" else max(known, key=rank)
    with localcontext(prec=60):
        total = sum(known)
    # Only so many bits: sums that do not fit come back round.
    return (total + 2**63) % 2**64 - 2**63 if isinstance(total, int) else total


def naive(rows: Rows, form: Layout, bounds: list[tuple[int, int]], kind: str) -> list[dict[tuple[Any, ...], Any]]:
    """Per window its groups, with how many rows they have and their measure."""
    found: list[dict[tuple[Any, ...], Any]] = []
    for begin, end in bounds:
        inside: dict[tuple[Any, ...], Rows] = {}
        for row in rows:
            if begin <= row["p"] < end:
                inside.setdefault(tuple(row[g] for g in form.groups), []).append(row)
        found.append(
            {
                group: (sum(row[ROWS] for row in some), merged(kind, [row["m"] for row in some]))
                for group, some in inside.items()
            }
        )
    return found


def answered(view: View, form: Layout, bounds: list[tuple[int, int]]) -> list[dict[tuple[Any, ...], Any]]:
    frame, starts = view.windows(bounds)
    assert frame.columns == ["w", *form.groups, *(["_s"] if form.detail else []), *form.columns]
    assert len(starts) == len(bounds) + 1
    assert (starts[0], starts[-1]) == (0, frame.height)
    if form.detail:
        assert frame["_s"].is_sorted(), "the details of a key lie side by side"
        frame = frame.drop("_s")
    found: list[dict[tuple[Any, ...], Any]] = []
    for i in range(len(bounds)):
        part = frame[int(starts[i]) : int(starts[i + 1])]
        assert set(part["w"]) <= {i}
        found.append({row[1 : 1 + len(form.groups)]: row[1 + len(form.groups) :] for row in part.rows()})
        assert len(found[-1]) == part.height, "a group is in a window once"
    return found


def close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and bool(a == b)


def drawn(rng: Rng, form: Layout, value: Callable[[Rng], Any], count: int) -> Rows:
    """Rows of few groups and panes, so that a group has several in a pane, as chunks give them."""
    gap = rng.choice([1, 5, 1000])
    return [
        {
            "p": rng.randint(-20, 20) * gap,
            **{g: rng.choice(["a", "b", None]) for g in form.groups},
            ROWS: rng.randint(1, 9),
            "m": None if rng.random() < 0.3 else value(rng),
        }
        for _ in range(count)
    ]


def spans(rng: Rng, rows: Rows) -> list[tuple[int, int]]:
    """Windows of all lengths, also before, after and between panes, empty, repeated, and in no order."""
    panes = sorted({row["p"] for row in rows}) or [0]
    times = [panes[0] - 5, panes[-1] + 5, *(p + d for p in panes for d in (0, 0, 1))]
    found = [(min(a, b), max(a, b)) for a, b in (rng.choices(times, k=2) for _ in range(25))]
    everything = (panes[0], panes[-1] + 1)
    return [*found, everything, (panes[-1] + 1, panes[-1] + 9), (panes[0] - 9, panes[0]), everything]


def frame_of(rows: Rows, form: Layout, dtype: pl.DataType, pieces: int = 1) -> pl.DataFrame:
    types = {"p": pl.Int64(), **dict.fromkeys(form.groups, pl.String()), ROWS: pl.Int64(), "m": dtype}
    whole = pl.DataFrame({n: pl.Series([r[n] for r in rows], dtype=t) for n, t in types.items()})
    # Concatenated, as the parts of several chunks are: Polars treats such columns in ways of its own.
    return pl.concat([whole[i::pieces] for i in range(pieces)])


@pytest.mark.parametrize("by", GROUPS)
@pytest.mark.parametrize("measure", MEASURES)
def test_any_window_is_the_sum_of_its_rows(measure: str, by: str):
    kind, storage, dtype, value = MEASURES[measure]
    keys, detail = GROUPS[by]
    form = layout(("m", kind, storage), keys=keys, detail=detail)
    for seed in range(6):
        rng = Rng(seed)
        rows = drawn(rng, form, value, rng.choice([1, 2, 7, 60]))
        view = View(frame_of(rows, form, dtype, pieces=rng.choice([1, 2, len(rows)])), form)
        bounds = spans(rng, rows)
        found, wanted = answered(view, form, bounds), naive(rows, form, bounds, kind)
        for window, got, right in zip(bounds, found, wanted, strict=True):
            assert got.keys() == right.keys(), (seed, window)
            for group, values in right.items():
                assert close(got[group], values), f"seed {seed}, {window}, {group}: {got[group]} is not {values}"
        frame, _ = view.windows(bounds)
        assert frame.schema["m"] == dtype
        assert view.rows == len(rows)
        assert view.size == (len({tuple(row[g] for g in form.groups) for row in rows}) if form.groups else 1)
        assert view.panes.tolist() == sorted({row["p"] for row in rows})


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab"), st.integers(-5, 5)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(-2, 14), st.integers(0, 14)), max_size=8),
)
@settings(max_examples=100)
def test_prefixes_and_trees_agree(values: list[tuple[int, str, int]], windows: list[tuple[int, int]]):
    form = layout(("i", "sum", "int"), ("f", "sum", "float"), ("d", "sum", "wide"), ("least", "min", "int"), keys=1)
    p, k, x = (list(column) for column in zip(*values, strict=True))
    frame = pl.DataFrame(
        {"p": p, "k0": k, ROWS: [1] * len(p), "i": x, "f": [float(v) for v in x],
         "d": pl.Series(x, dtype=pl.Decimal(38, 0)), "least": x}
    )  # fmt: skip
    bounds = [(begin, begin + length) for begin, length in windows]
    found, _ = View(frame, form).windows(bounds)
    wanted = {}
    for w, (begin, end) in enumerate(bounds):
        for key in set(k):
            inside = [v for t, g, v in values if g == key and begin <= t < end]
            if inside:
                wanted[w, key] = (len(inside), sum(inside), float(sum(inside)), Decimal(sum(inside)), min(inside))
    assert {row[:2]: row[2:] for row in found.rows()} == wanted


# Moments -------------------------------------------------------------------------------------------------------------


def moments_frame(parts: list[tuple[int, str, list[float]]]) -> pl.DataFrame:
    """Panes `(p, key, values)` with the moments of their values."""
    rows = []
    for p, key, values in parts:
        mean = math.fsum(values) / len(values) if values else None
        m2 = None if mean is None else math.fsum((v - mean) ** 2 for v in values)
        rows.append({"p": p, "k0": key, ROWS: len(values), "m_n": len(values), "m_mean": mean, "m_m2": m2})
    return pl.DataFrame(rows, schema_overrides={"m_mean": pl.Float64, "m_m2": pl.Float64})


@pytest.mark.parametrize(
    ("center", "spread"),
    [
        pytest.param(0.0, 1000.0, id="around zero"),
        pytest.param(1e9, 1.0, id="far from zero with a small spread"),
        pytest.param(5.0, 0.0, id="all the same"),
    ],
)
def test_moments_of_any_window_are_those_of_its_values(center: float, spread: float):
    form = layout(("m", "moments", "float"), keys=1)
    for seed in range(6):
        rng = Rng(seed)
        parts = [
            (rng.randint(0, 15), rng.choice("ab"), [center + spread * rng.random() for _ in range(rng.randint(0, 6))])
            for _ in range(40)
        ]
        bounds = [(a, a + n) for a, n in ((rng.randint(-2, 16), rng.randint(0, 18)) for _ in range(25))]
        for window, groups in zip(bounds, answered(View(moments_frame(parts), form), form, bounds), strict=True):
            for (key,), (_, n, mean, m2) in groups.items():
                values = [v for p, k, some in parts if k == key and window[0] <= p < window[1] for v in some]
                assert n == len(values)
                if not values:
                    assert (mean, m2) == (None, None)
                    continue
                right = math.fsum(values) / n
                assert mean == pytest.approx(right, rel=1e-12)
                assert m2 == pytest.approx(math.fsum((v - right) ** 2 for v in values), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        pytest.param([[1.0], [INF]], (2, INF, NAN), id="an infinite value has no finite spread"),
        pytest.param([[INF], [-INF]], (2, NAN, NAN), id="opposite infinities have no mean"),
        pytest.param([[NAN], [1.0], [2.0]], (3, NAN, NAN), id="NaN stays"),
        pytest.param([[], [3.0]], (1, 3.0, 0.0), id="a pane of nulls adds nothing"),
        pytest.param([[], []], (0, None, None), id="nothing but nulls"),
    ],
)
def test_moments_of_specials(parts: list[list[float]], wanted: tuple[Any, ...]):
    frame = pl.DataFrame(
        {
            "p": list(range(len(parts))), ROWS: [1] * len(parts), "m_n": [len(part) for part in parts],
            "m_mean": pl.Series([part[0] if part else None for part in parts], dtype=pl.Float64),
            "m_m2": pl.Series([(part[0] - part[0] if part else None) for part in parts], dtype=pl.Float64),
        }
    )  # fmt: skip
    form = layout(("m", "moments", "float"))
    ((found,),) = (groups.values() for groups in answered(View(frame, form), form, [(0, 9)]))
    assert close(found[1:], wanted), found


# Edges ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [0, 1])
@pytest.mark.parametrize(
    ("kind", "storage", "none"),
    [
        pytest.param("count", "wide", (0,), id="a count"),
        pytest.param("sum", "int", (None,), id="a sum of ints"),
        pytest.param("sum", "wide", (None,), id="a sum of bigints"),
        pytest.param("sum", "float", (None,), id="a sum of doubles"),
        pytest.param("sum", "decimal:2", (None,), id="a sum of decimals"),
        pytest.param("min", "other", (None,), id="a minimum"),
        pytest.param("max", "float", (None,), id="a maximum"),
        pytest.param("moments", "float", (0, None, None), id="moments"),
    ],
)
def test_panes_from_before_a_measure_was_kept_have_none_of_it(kind: str, storage: str, none: Any, keys: int):
    form = layout(("m", kind, storage), keys=keys)
    frame = pl.DataFrame({"p": [0, 10], "k0": ["a", "a"], ROWS: [1, 2]})
    frame = frame.with_columns(pl.lit(None).alias(column) for column in form.columns if column != ROWS)
    assert answered(View(frame, form), form, [(0, 20), (5, 20), (30, 40)]) == [
        {("a",) * keys: (3, *none)},
        {("a",) * keys: (2, *none)},
        {},
    ]


@pytest.mark.parametrize("by", GROUPS)
def test_without_windows_there_are_no_rows(by: str):
    keys, detail = GROUPS[by]
    form = layout(("m", "max", "int"), keys=keys, detail=detail)
    rows = drawn(Rng(1), form, lambda rng: 1, 5)
    frame, starts = View(frame_of(rows, form, pl.Int32()), form).windows([])
    assert (frame.height, starts.tolist()) == (0, [0])
    assert frame.columns == ["w", *form.groups, *(["_s"] if detail else []), ROWS, "m"]


def test_float_groups_have_one_nan_and_one_zero():
    form = layout(keys=1)
    frame = pl.DataFrame({"p": [0, 1, 2, 3], "k0": [NAN, -0.0, NAN, 0.0], ROWS: [1, 2, 4, 8]})
    found, _ = View(frame, form).windows([(0, 9)])
    assert sorted(found[ROWS]) == [5, 10]


@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33])
def test_trees_of_every_height(height: int):
    form = layout(("m", "max", "int"), ("f", "sum", "float"))
    values = [(i * 7919) % 101 for i in range(height)]
    frame = pl.DataFrame(
        {"p": list(range(height)), ROWS: [1] * height, "m": values, "f": [float(v) for v in values]}
    )  # fmt: skip
    bounds = [(a, b) for a in range(height) for b in range(a + 1, height + 1)]
    found, _ = View(frame, form).windows(bounds)
    assert found["m"].to_list() == [max(values[a:b]) for a, b in bounds]
    assert found["f"].to_list() == [float(sum(values[a:b])) for a, b in bounds]


def test_the_order_of_rows_does_not_matter():
    form = layout(("m", "sum", "int"), keys=1)
    rows = drawn(Rng(3), form, lambda rng: rng.randint(0, 99), 50)
    bounds = spans(Rng(4), rows)
    one = answered(View(frame_of(rows, form, pl.Int64()), form), form, bounds)
    assert answered(View(frame_of(rows[::-1], form, pl.Int64()), form), form, bounds) == one


def test_an_unknown_measure_is_refused():
    form = layout(("m", "mode", "int"))
    view = View(pl.DataFrame({"p": [0], ROWS: [1], "m": [1]}), form)
    with pytest.raises(ValueError, match="unknown measure kind 'mode'"):
        view.windows([(0, 1)])


# Only the first groups ------------------------------------------------------------------------------------------------

ORDERED = [name for name, (_, _, dtype, _) in MEASURES.items() if dtype.is_numeric() or dtype.is_decimal()]


@pytest.mark.parametrize("descending", [True, False], ids=["greatest", "least"])
@pytest.mark.parametrize("measure", ORDERED)
def test_groups_left_out_are_not_among_the_first(measure: str, descending: bool, monkeypatch: pytest.MonkeyPatch):
    """Whatever a view of fewer groups has of a window, its first k are those of the whole view, ties included."""
    monkeypatch.setattr(windows, "SAMPLED", 3)
    monkeypatch.setattr(windows, "WORTH_SAMPLING", 1)
    kind, storage, dtype, value = MEASURES[measure]
    form = layout(("m", kind, storage), keys=1)
    for seed in range(12):
        rng = Rng(seed)
        rows = drawn(rng, form, value, rng.choice([20, 80]))
        for row in rows:
            row["k0"] = str(int(20 * rng.random() ** 3))
        view = View(frame_of(rows, form, dtype), form)
        bounds = spans(rng, rows)
        tops = [Top(rng.choice(["m", ROWS]), rng.choice([1, 2, 3]), descending, rng.random() < 0.1) for _ in bounds]
        few = view.first(bounds, tops)
        assert few.size <= view.size
        for window, top, all_groups, kept in zip(
            bounds, tops, answered(view, form, bounds), answered(few, form, bounds), strict=True
        ):
            position = 0 if top.measure == ROWS else 1
            known = [rank(v[position]) for v in all_groups.values() if v[position] is not None]
            last = sorted(known, reverse=descending)[: top.k][-1:]
            for group, values in all_groups.items():
                found = values[position]
                first = found is not None and (rank(found) >= last[0] if descending else rank(found) <= last[0])
                if len(known) < top.k or first or (found is None and top.nulls_first):
                    assert close(kept.get(group), values), (seed, window, top, group)


def test_a_few_of_very_many_groups_are_looked_at():
    rng = Rng(5)
    count = 4 * windows.WORTH_SAMPLING
    frame = pl.DataFrame(
        {
            "p": [rng.randint(0, 9) for _ in range(count)],
            "k0": [int(count * rng.random() ** 2) for _ in range(count)],
            ROWS: [1] * count,
        }
    )
    form = layout(keys=1)
    view = View(frame, form)
    tops = [Top(ROWS, 5, True, False), Top(ROWS, 9, True, False)]
    assert view.first([(0, 5), (2, 10)], tops).size < view.size / 10
