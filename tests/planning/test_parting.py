"""Queries that would share synopses are kept apart where their weights differ enough to pay, and stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.language import bind_query, parse_schema
from headrace.model import EngineSettings, Query, QueryShedding, Stream
from headrace.planning import AnswerPlan, nodes_of, part_queries, parts_of, plan_query, share

STREAMS = {"s": Stream("s", parse_schema("ts TIMESTAMP, k STRING, x DOUBLE"), time="ts")}
SUMS = "SELECT k, SUM(x) AS v FROM s [WINDOW 1 min SLIDE 10 s] GROUP BY k"
VALUES = "SELECT k, MEDIAN(x) AS v FROM s [WINDOW 1 min SLIDE 10 s] GROUP BY k"
SHED = EngineSettings(shedding="fit")


def query(name: str, text: str, weight: float = 1.0, **given: object) -> Query:
    return replace(bind_query(name, text, STREAMS, **given), weight=weight)  # type: ignore[arg-type]


def apart(
    *queries: Query, settings: EngineSettings = SHED, going_on: dict[str, QueryShedding] | None = None
) -> set[str]:
    return {each.name for each in part_queries(queries, settings, going_on or {}) if each.shedding.apart}


HEAVY, LIGHT = query("heavy", SUMS, 9.0), query("light", VALUES)


@pytest.mark.parametrize(
    ("queries", "settings", "found"),
    [
        pytest.param((HEAVY, LIGHT), SHED, {"heavy"}, id="sums that weigh nine beside values that weigh one"),
        pytest.param((HEAVY, LIGHT), replace(SHED, objective="fair"), {"heavy"}, id="to be fair"),
        pytest.param((HEAVY, LIGHT), EngineSettings(), set(), id="not where nothing is shed"),
        pytest.param((HEAVY, query("light", SUMS)), SHED, set(), id="not where both need the same"),
        pytest.param(
            (replace(HEAVY, weight=1.0, priority=1), LIGHT), replace(SHED, objective="priority"), {"heavy"},
            id="by priority",
        ),
        pytest.param(
            (query("heavy", SUMS, 9.0, shedding=QueryShedding(never=True)), LIGHT), SHED, set(),
            id="not a query that is never shed",
        ),
        pytest.param(
            (HEAVY, query("light", VALUES.replace("GROUP", "WHERE x > 0 GROUP"))), SHED, set(),
            id="not from one of other rows",
        ),
    ],
)  # fmt: skip
def test_who_is_kept_apart(queries: tuple[Query, ...], settings: EngineSettings, found: set[str]):
    assert apart(*queries, settings=settings) == found


def test_a_query_that_goes_on_stays_as_it_is():
    stays = {"heavy": QueryShedding()}
    assert apart(HEAVY, LIGHT, going_on=stays) == set()
    assert apart(replace(HEAVY, weight=1.0), LIGHT, going_on={"heavy": QueryShedding(apart=True)}) == {"heavy"}
    assert apart(HEAVY, LIGHT, settings=EngineSettings(), going_on={"heavy": QueryShedding(apart=True)}) == {"heavy"}


def test_queries_that_are_apart_have_synopses_and_parts_of_their_own():
    def workload(*queries: Query):
        answers, _ = nodes_of(plan_query(each) for each in queries)
        assert all(isinstance(plan, AnswerPlan) for plan in answers.values())
        return share(answers, list(STREAMS.values()))

    whole, parted = workload(HEAVY, LIGHT), workload(*part_queries((HEAVY, LIGHT), SHED, {}))
    assert (len(whole.kept), len(parted.kept)) == (2, 3)
    assert [part.queries for part in parts_of(whole, whole.queries, STREAMS)] == [("heavy", "light")]
    assert sorted(part.queries for part in parts_of(parted, parted.queries, STREAMS)) == [("heavy",), ("light",)]
    assert set(whole.kept) < set(parted.kept), "what the light one needs is what both needed"
