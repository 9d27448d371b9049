"""Partial aggregates as queries: what is asked where rows are born, and what of it can be merged."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.language import bind_query
from headrace.model import Query, Stream
from headrace.planning import AnswerPlan, merged_columns, partial_of, plan_query, share

WINDOW = "GROUP BY window(packets.`ts`, '60000000 microseconds')"


def asked(bind: Callable[[str], Query], select: str) -> list[str | None]:
    """What is asked for each demand of an aggregate; None where rows have to travel."""
    plan = plan_query(bind(f"SELECT {select} FROM packets [WINDOW 1 min]"))
    assert isinstance(plan, AnswerPlan)
    made = [partial_of(d.synopsis, 0, d.measures, plan.aggregate.window.pane_us, "ts") for d in plan.demands]
    return [None if each is None else _short(each.sql("packets")) for each in made]


def _short(sql: str) -> str:
    """Without the digests in names, and what is the same for all."""
    return re.sub(r"_[0-9a-f]{12}\b", "", sql).replace(f" FROM packets {WINDOW}", "")


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        pytest.param("COUNT(*) AS n", ["SELECT COUNT(*) AS n"], id="rows"),
        pytest.param("SUM(length) AS v", ["SELECT COUNT(*) AS n, SUM(packets.length) AS sum"], id="a sum"),
        pytest.param(
            "SUM(CAST(length AS BIGINT)) AS v",
            ["SELECT COUNT(*) AS n, SUM(CAST(CAST(packets.length AS BIGINT) AS DECIMAL(19,0))) AS sum"],
            id="a sum of long integers has room for all that a pane can hold",
        ),
        pytest.param("MIN(d) AS v", ["SELECT MIN(packets.d) AS min, COUNT(*) AS n"], id="an extreme"),
        pytest.param(
            "percentile(x, 0.5) AS v, COUNT(DISTINCT x) AS u",
            ["SELECT COUNT(*) AS n", "SELECT packets.x AS d, COUNT(*) AS n, packets.x"],
            id="values of a percentile and of a distinct count are keys",
        ),
        pytest.param("SUM(CAST(d AS DECIMAL(38,2))) AS v", [None], id="a sum in two columns"),
        pytest.param("skewness(x) AS v", [None], id="moments above the second"),
        pytest.param("max_by(src, length) AS v", [None], id="the value of the best row"),
        pytest.param("approx_top_k(src, 3) AS v", ["SELECT COUNT(*) AS n", None], id="the heaviest of each pane"),
    ],
)
def test_what_is_asked_where_rows_are_born(bind: Callable[[str], Query], select: str, wanted: list[str | None]) -> None:
    assert asked(bind, select)[: len(wanted)] == wanted


def test_a_deviation_is_merged_from_what_sql_gives(bind: Callable[[str], Query]) -> None:
    plan = plan_query(bind("SELECT STDDEV(x) AS v FROM packets [WINDOW 1 min]"))
    assert isinstance(plan, AnswerPlan)
    (demand,) = plan.demands
    moments = next(measure for measure in demand.measures if measure.kind == "moments")
    feed = replace(demand.synopsis.feeds[0], panes="_panes_1")
    at = f"packets.`_panes_1`.`{moments.column}"
    assert list(merged_columns(moments, 0, feed)) == [f"{at}_n`", f"{at}_mean`", f"{at}_var` * {at}_n`"]


def test_panes_of_one_query_never_serve_another_that_keeps_more(streams: dict[str, Stream]) -> None:
    """What comes along a link are the measures of one synopsis: a coarser one cannot be rolled up from it."""
    apart = replace(streams["packets"], as_panes=True)
    fine = "SELECT src, dst, COUNT(*) AS n FROM packets [WINDOW 1 min] GROUP BY src, dst"
    other = "SELECT dst, src, COUNT(*) AS n, SUM(length) AS v FROM packets [WINDOW 1 min] GROUP BY dst, src"
    for stream, kept in ((streams["packets"], 1), (apart, 2)):
        plans = {
            name: plan_query(bind_query(name, sql, {"packets": stream})) for name, sql in (("a", fine), ("b", other))
        }
        assert len(share({n: p for n, p in plans.items() if isinstance(p, AnswerPlan)}, [stream]).kept) == kept
