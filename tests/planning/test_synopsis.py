"""Which synopses answer which aggregates, and when two queries demand the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import SpecError
from headrace.model import ROWS, DataType, Kind, Measure, Query, Synopsis
from headrace.planning import AnswerPlan, Demand, plan_answer

Bind = Callable[..., Query]
WINDOW = "[WINDOW 10 min SLIDE 2 min]"


def text(measure: Measure) -> str:
    return measure.kind if measure.arguments is None else f"{measure.kind}({measure.arguments[0]})"


def described(demand: Demand) -> list[str]:
    return [text(measure) for measure in demand.measures]


def synopses(plan: AnswerPlan) -> list[Synopsis]:
    return [demand.synopsis for demand in plan.demands]


def used(plan: AnswerPlan) -> list[tuple[int, ...]]:
    """Per aggregate the positions of its measures in the demand they come from."""
    columns = {d.synopsis.id: [measure.column for measure in d.measures] for d in plan.demands}
    return [tuple(columns[s.synopsis].index(column) for column in s.columns) for s in plan.columns]


def plan(bind: Bind, select: str, tail: str = "", name: str = "q") -> AnswerPlan:
    return plan_answer(bind(f"SELECT {select} FROM packets {WINDOW} {tail}", name))


@pytest.mark.parametrize(
    ("aggregate", "measures", "positions"),
    [
        pytest.param("COUNT(*)", ["rows"], (0,), id="a count of rows needs rows"),
        pytest.param("COUNT(1)", ["rows"], (0,), id="so does a count of a constant"),
        pytest.param("COUNT(length)", ["rows", "count(packets.length)"], (1,), id="a count of values skips nulls"),
        pytest.param("SUM(length)", ["rows", "sum(packets.length)"], (1,), id="a sum"),
        pytest.param("MIN(src)", ["rows", "min(packets.src)"], (1,), id="a minimum, of strings too"),
        pytest.param("MAX(x)", ["rows", "max(packets.x)"], (1,), id="a maximum"),
        pytest.param(
            "AVG(x)", ["rows", "sum(packets.x)", "count(packets.x)"], (1, 2), id="an average is a sum and a count"
        ),
        pytest.param("STDDEV(x)", ["rows", "moments(packets.x)"], (1,), id="a deviation needs moments"),
        pytest.param("VAR_POP(length)", ["rows", "moments(packets.length)"], (1,), id="so does a variance"),
        pytest.param("bool_or(ok)", ["rows", "max(packets.ok)"], (1,), id="bool_or is a maximum"),
        pytest.param(
            "SUM(src)",
            ["rows", "sum(CAST(packets.src AS DOUBLE))"],
            (1,),
            id="strings are summed as numbers, as in Spark",
        ),
        pytest.param(
            "SUM(length) FILTER (WHERE port = 80)",
            ["rows", "sum(CASE WHEN packets.port = 80 THEN packets.length END)"],
            (1,),
            id="a filter folds into the argument",
        ),
        pytest.param(
            "COUNT(*) FILTER (WHERE ok)",
            ["rows", "count(CASE WHEN packets.ok THEN TRUE END)"],
            (1,),
            id="a filtered count of rows counts what passes",
        ),
        pytest.param(
            "MIN(DISTINCT length)", ["rows", "min(packets.length)"], (1,), id="DISTINCT does not change a minimum"
        ),
    ],
)
def test_plain_aggregates_need_one_synopsis(
    bind: Bind, aggregate: str, measures: list[str], positions: tuple[int, ...]
):
    found = plan(bind, f"{aggregate} AS v")
    (demand,) = found.demands
    synopsis = demand.synopsis
    assert [name.lower() for name in described(demand)] == [name.lower() for name in measures]
    assert (synopsis.detail, synopsis.keep, synopsis.feeds[0].detail) == (None, None, None)
    (source,) = found.columns
    assert (used(found), source.synopsis, found.main) == ([positions], synopsis.id, synopsis.id)


@pytest.mark.parametrize(
    ("aggregate", "detail", "keep", "measures", "parameters"),
    [
        pytest.param("COUNT(DISTINCT src)", "packets.src", None, ["rows"], (), id="distinct values are details"),
        pytest.param("SUM(DISTINCT length)", "packets.length", None, ["rows"], (), id="so are those of a sum"),
        pytest.param("MEDIAN(x)", "packets.x", None, ["rows"], (0.5,), id="a median needs all values, counted"),
        pytest.param(
            "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY x)", "packets.x", None, ["rows"], (0.9,), id="a percentile too"
        ),
        pytest.param("approx_top_k(src, 3)", "packets.src", 1000, ["rows"], (3.0,), id="top k tracks 1000 items"),
        pytest.param("approx_top_k(src, 3, 50)", "packets.src", 50, ["rows"], (3.0,), id="or as many as asked for"),
        pytest.param("approx_top_k(src)", "packets.src", 1000, ["rows"], (5.0,), id="five unless told"),
    ],
)
def test_details(
    bind: Bind, aggregate: str, detail: str, keep: int | None, measures: list[str], parameters: tuple[float, ...]
):
    found = plan(bind, f"{aggregate} AS v")
    main, demand = found.demands
    other = demand.synopsis
    (source,) = found.columns
    assert found.main == main.synopsis.id
    assert described(main) == ["rows"], "groups are known even where no detail is"
    assert (other.feeds[0].detail, other.keep, described(demand)) == (detail, keep, measures)
    assert (source.synopsis, source.columns, source.parameters) == (other.id, (ROWS,), parameters)


@pytest.mark.parametrize(
    ("aggregate", "bits"),
    [
        pytest.param("approx_count_distinct(src)", 11, id="2048 registers unless told"),
        pytest.param("approx_count_distinct(src, 0.3)", 11, id="never fewer"),
        pytest.param("approx_count_distinct(src, 0.01)", 14, id="1.04 / sqrt(2^14) is within 1 percent"),
        pytest.param("approx_count_distinct(src, 0.0001)", 16, id="never more than 65536"),
    ],
)
def test_distinct_estimates_take_as_many_registers_as_the_deviation_asks(bind: Bind, aggregate: str, bits: int):
    found = plan(bind, f"{aggregate} AS v")
    (source,) = found.columns
    assert source.parameters == (bits,)
    registers = found.demands[1]
    assert f"& {2**bits - 1}L" in (registers.synopsis.feeds[0].detail or "")
    assert [m.kind for m in registers.measures] == ["max"]


@pytest.mark.parametrize(
    ("aggregate", "error"),
    [
        pytest.param("approx_percentile(x, 0.9)", 0.01, id="one percent unless told"),
        pytest.param("approx_percentile(x, 0.9, 200)", 0.005, id="the inverse of the accuracy"),
        pytest.param("approx_percentile(x, 0.9, 1000000)", 0.001, id="no finer than a thousandth"),
        pytest.param("approx_percentile(x, 0.9, 2)", 0.1, id="no coarser than a tenth"),
    ],
)
def test_approximate_percentiles_state_their_error(bind: Bind, aggregate: str, error: float):
    (source,) = plan(bind, f"{aggregate} AS v").columns
    assert source.parameters == (0.9, pytest.approx(error))


def test_average_sum_and_count_share_their_measures(bind: Bind):
    found = plan(bind, "AVG(x) AS a, SUM(x) AS b, COUNT(x) AS c, COUNT(*) AS n")
    (demand,) = found.demands
    assert described(demand) == ["rows", "sum(packets.x)", "count(packets.x)"]
    assert used(found) == [(1, 2), (1,), (2,), (0,)]


def test_percentiles_and_distinct_counts_of_one_column_share_their_details(bind: Bind):
    found = plan(bind, "MEDIAN(length) AS a, PERCENTILE(length, 0.9) AS b, COUNT(DISTINCT length) AS c")
    assert len(found.demands) == 2
    assert len({source.synopsis for source in found.columns}) == 1


def test_kept_and_whole_details_do_not_mix(bind: Bind):
    found = plan(bind, "approx_top_k(src, 3) AS a, COUNT(DISTINCT src) AS b")
    assert [s.keep for s in synopses(found)] == [None, 1000, None]


SAME = "src, SUM(length) AS bytes"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(
            (SAME, "GROUP BY src"), ("src AS who, SUM(length) AS b", "GROUP BY src"), True, id="names of results"
        ),
        pytest.param((SAME, "GROUP BY src"), ("SUM(length) AS b, src", "GROUP BY 2"), True, id="order of results"),
        pytest.param(
            (SAME, "GROUP BY src"),
            (SAME, "GROUP BY src HAVING COUNT(*) > 5 ORDER BY bytes LIMIT 3"),
            True,
            id="the finish",
        ),
        pytest.param(
            ("AVG(x) AS a", ""), ("SUM(x) AS a, COUNT(x) AS b", ""), True, id="an average, or its sum and its count"
        ),
        pytest.param(
            (SAME, "GROUP BY src"),
            ("src, MAX(port) AS p", "GROUP BY src"),
            True,
            id="measures come and go with queries",
        ),
        pytest.param(("STDDEV(x) AS a", ""), ("VAR_POP(x) AS a", ""), True, id="deviation or variance"),
        pytest.param(("MEDIAN(x) AS a", ""), ("PERCENTILE(x, 0.9) AS a", ""), True, id="fractions of a percentile"),
        pytest.param((SAME, "GROUP BY src"), ("dst, SUM(length) AS bytes", "GROUP BY dst"), False, id="other keys"),
        pytest.param((SAME, "GROUP BY src"), ("src, SUM(port) AS bytes", "GROUP BY src"), True, id="other arguments"),
        pytest.param(
            ("src, dst, COUNT(*) AS n", "GROUP BY src, dst"),
            ("src, dst, COUNT(*) AS n", "GROUP BY dst, src"),
            False,
            id="the order of keys",
        ),
        pytest.param(("MEDIAN(x) AS a", ""), ("MEDIAN(length) AS a", ""), False, id="other details"),
        pytest.param(
            ("approx_top_k(src, 3) AS a", ""), ("approx_top_k(src, 3, 50) AS a", ""), False, id="other bounds"
        ),
        pytest.param((SAME, "GROUP BY src"), (SAME, "WHERE port = 80 GROUP BY src"), False, id="another filter"),
    ],
)
def test_identity_is_which_rows_are_kept_by_what(bind: Bind, one: tuple[str, str], other: tuple[str, str], same: bool):
    first, second = plan(bind, *one, name="first"), plan(bind, *other, name="second")
    assert (synopses(first) == synopses(second)) is same
    assert ({s.id for s in synopses(first)} == {s.id for s in synopses(second)}) is same


def test_windows_do_not_belong_to_identity(bind: Bind):
    papers = plan_answer(bind("SELECT COUNT(*) AS n FROM packets [WINDOW 10 min SLIDE 4 min]"))
    sparks = plan_answer(bind("SELECT COUNT(*) AS n FROM packets GROUP BY window(ts, '6 minutes', '2 minutes')"))
    shifted = plan_answer(
        bind("SELECT COUNT(*) AS n FROM packets GROUP BY window(ts, '6 minutes', '2 minutes', '30 seconds')")
    )
    assert papers.main == sparks.main == shifted.main
    panes = [found.aggregate.window.pane_us // 1_000_000 for found in (papers, sparks, shifted)]
    assert panes == [120, 120, 30], "a start time cuts panes shorter"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("SUM(length)", "AVG(length)", True, id="a sum and the sum of an average"),
        pytest.param("MIN(length)", "MAX(length)", False, id="two kinds over one argument"),
        pytest.param("SUM(length)", "SUM(port)", False, id="two arguments"),
        pytest.param("SUM(length)", "SUM(length) FILTER (WHERE ok)", False, id="with and without a filter"),
        pytest.param("STDDEV(x)", "VAR_POP(x)", True, id="moments are moments"),
    ],
)
def test_columns_are_named_by_what_they_hold(bind: Bind, one: str, other: str, same: bool):
    first, second = plan(bind, f"{one} AS v"), plan(bind, f"src, {other} AS v", "WHERE ok GROUP BY src")
    assert (first.columns[0].columns[0] == second.columns[0].columns[0]) is same


def test_a_column_tells_types_apart():
    columns = {Measure("min", ("s.a",), DataType(kind)).column for kind in (Kind.INT, Kind.BIGINT, Kind.STRING)}
    assert len(columns) == 3
    assert Measure("rows", None, DataType(Kind.BIGINT)).column == ROWS


def test_identity_is_the_same_in_every_process(bind: Bind):
    # A changed id makes every checkpoint out there start anew: change it knowingly.
    found = plan(bind, "SUM(length) AS n")
    assert (found.main, found.columns[0].columns) == ("907d8c22192a", ("sum_ca513b66b9ce",))


@pytest.mark.parametrize(
    ("key", "type_"), [pytest.param("x", "DOUBLE", id="doubles"), pytest.param("f", "FLOAT", id="floats")]
)
def test_float_keys_have_one_nan_and_one_zero(bind: Bind, key: str, type_: str):
    (synopsis,) = synopses(plan(bind, f"{key}, COUNT(*) AS n", f"GROUP BY {key}"))
    column = f"packets.{key}"
    assert synopsis.feeds[0].keys == (f"CASE WHEN isnan({column}) THEN {type_}('NaN') ELSE {column} + {type_}(0) END",)


def test_other_keys_are_taken_as_they_are(bind: Bind):
    (synopsis,) = synopses(plan(bind, "src, port, COUNT(*) AS n", "GROUP BY src, port"))
    assert synopsis.feeds[0].keys == ("packets.src", "packets.port")
    assert [str(key) for key in synopsis.keys] == ["STRING", "INT"]


def test_distinct_floats_have_one_nan_and_one_zero(bind: Bind):
    detail = synopses(plan(bind, "COUNT(DISTINCT x) AS n"))[1].feeds[0].detail
    assert detail is not None
    assert "isnan(packets.x)" in detail


def test_a_union_feeds_one_synopsis_from_every_stream(bind: Bind):
    found = plan_answer(
        bind(
            "SELECT src, SUM(length) AS b FROM "
            "(SELECT src, length FROM packets WHERE port = 80 UNION ALL SELECT dst, length * 2 FROM flows) "
            f"{WINDOW} GROUP BY src"
        )
    )
    (demand,) = found.demands
    packets, flows = demand.synopsis.feeds
    assert (packets.stream, packets.where, packets.keys) == ("packets", "packets.port = 80", ("packets.src",))
    assert (flows.stream, flows.where, flows.keys) == ("flows", None, ("flows.dst",))
    assert [m.arguments for m in demand.measures] == [None, ("packets.length", "flows.length * 2")]


def test_what_cannot_be_kept_is_refused(bind: Bind):
    with pytest.raises(SpecError) as refused:
        plan_answer(bind(f"SELECT approx_percentile(ts, 0.5) AS t FROM packets {WINDOW}"))
    message = "query 'q': approx_percentile needs a number, not TIMESTAMP; cast it, or use percentile"
    assert str(refused.value) == message
