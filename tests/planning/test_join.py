"""What a join keeps of each side, what it looks pairs up by, and what is above it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.model import Query
from headrace.planning import LEFT, PAIR_TIME, RIGHT, AnswerPlan, JoinPlan, plan_query

FROM = "FROM packets p [RANGE 10 s] JOIN flows g [RANGE 5 s] ON"


def planned(bind: Callable[..., Query], sql: str) -> JoinPlan:
    plan = plan_query(bind(sql))
    assert isinstance(plan, JoinPlan)
    return plan


@pytest.mark.parametrize(
    ("on", "compared", "rest"),
    [
        pytest.param("p.src = g.src", ["src = src"], None, id="an equality is looked up"),
        pytest.param("g.src = p.src", ["src = src"], None, id="whichever side comes first"),
        pytest.param("g.length > p.length", ["length < length"], None, id="a comparison is turned to the left side"),
        pytest.param(
            "p.length BETWEEN g.length - 1 AND g.length + 1",
            ["length >= compared1", "length <= compared2"],
            None,
            id="a range is two comparisons, with what they compare computed once per row",
        ),
        pytest.param("p.length + g.length > 3", [], "p.length + g.length > 3", id="an expression of both: Spark"),
        pytest.param("p.src = g.length", [], "p.src = g.length", id="types that Spark casts are left to it"),
        pytest.param(
            "p.src = g.src AND p.length % g.length = 1", ["src = src"], "p.length % g.length = 1", id="some of each"
        ),
    ],
)
def test_what_pairs_are_looked_up_by(
    bind: Callable[..., Query], on: str, compared: list[str], rest: str | None
) -> None:
    join = planned(bind, f"SELECT p.src {FROM} {on}").join
    assert [f"{c.left} {c.operator} {c.right}" for c in join.comparisons] == compared
    assert (None if join.rest is None else join.rest.sql) == rest


def test_stores_keep_the_columns_in_use_and_hash_keys_as_one_type(bind: Callable[..., Query]) -> None:
    plan = planned(bind, f"SELECT p.src, g.length {FROM} p.length = g.x WHERE p.port = 80")
    (left,), (right,) = plan.store(LEFT).feeds, plan.store(RIGHT).feeds
    assert (left.stream, left.where) == ("packets", "packets.port = 80")
    assert set(left.columns) == {"packets.src", "packets.length"}
    # One type for both sides, one NaN and one zero.
    assert "ELSE CAST(packets.length AS DOUBLE) + DOUBLE(0) END" in left.keys[0]
    assert "ELSE flows.x + DOUBLE(0) END" in right.keys[0]
    assert plan.picked == ((LEFT, plan.position(LEFT, "src")), (RIGHT, plan.position(RIGHT, "length")))


def test_a_query_that_changes_keeps_other_rows(bind: Callable[..., Query]) -> None:
    one, other = (planned(bind, f"SELECT p.src {FROM} p.src = g.src AND p.length > {n}") for n in (1, 2))
    again = planned(bind, f"SELECT p.src {FROM} p.src = g.src AND p.length > 1")
    assert one.store(LEFT).id == again.store(LEFT).id
    assert len({store.id for plan in (one, other) for store in plan.stores}) == 4


def test_three_streams_are_a_join_over_the_pairs_of_another(bind: Callable[..., Query]) -> None:
    plan = planned(bind, f"SELECT p.src {FROM} p.src = g.src JOIN packets q [RANGE 3 s] ON q.port = p.port")
    (below,) = plan.below
    assert isinstance(below, JoinPlan)
    assert below.feeds is not None
    assert [each.name for each in plan.tree] == [below.feeds.name, "q"]
    assert plan.streams == {LEFT: (below.feeds.name,), RIGHT: ("packets",)}
    assert (below.feeds.stream.time, below.feeds.delay_us) == (PAIR_TIME, 0)
    assert plan.reach_us == 5_000_000 + 10_000_000
    assert len({store.id for each in (below, plan) for store in each.stores}) == 4


@pytest.mark.parametrize(
    ("sql", "dated", "delay_s"),
    [
        pytest.param(
            f"SELECT COUNT(*) AS n FROM (SELECT p.src {FROM} p.src = g.src) AS j [WINDOW 1 min]",
            PAIR_TIME,
            0,
            id="the later of two times is never behind the watermark",
        ),
        pytest.param(
            f"SELECT COUNT(*) AS n {FROM} p.src = g.src GROUP BY window(g.ts, '1 minute')",
            "c0",
            10,
            id="one side's time can be as old as the join reaches",
        ),
        pytest.param(
            "SELECT COUNT(*) AS n FROM (SELECT p.src FROM packets p [RANGE 10 s] LEFT JOIN flows g [RANGE 5 s] "
            "ON p.src = g.src) AS j [WINDOW 1 min]",
            PAIR_TIME,
            10,
            id="so can a row that met nobody",
        ),
    ],
)
def test_an_aggregate_is_over_the_stream_that_pairs_make(
    bind: Callable[..., Query], sql: str, dated: str, delay_s: int
) -> None:
    plan = plan_query(bind(sql))
    assert isinstance(plan, AnswerPlan)
    (pairs,) = plan.below
    assert pairs.feeds is not None
    assert plan.demands[0].synopsis.feeds[0].stream == pairs.feeds.name
    assert (pairs.feeds.stream.time, pairs.feeds.delay_us) == (dated, delay_s * 1_000_000)


def test_a_join_below_another_operator_is_named_by_what_it_does(bind: Callable[..., Query]) -> None:
    sql = f"SELECT COUNT(*) AS n FROM (SELECT p.src {FROM} p.src = g.src) AS j [WINDOW 1 min]"
    one, other = (plan_query(bind(text, name)) for name, text in (("one", sql), ("other", sql.replace("1 min", "5 s"))))
    third = plan_query(bind(sql.replace("p.src = g.src", "p.src <> g.src"), "one"))
    assert one.below[0].name == other.below[0].name != third.below[0].name


def test_a_union_with_a_join_in_it_is_a_union_of_streams(bind: Callable[..., Query]) -> None:
    union = f"(SELECT p.src AS s {FROM} p.src = g.src UNION ALL SELECT src AS s FROM packets)"
    plan = planned(bind, f"SELECT u.s FROM {union} AS u [RANGE 1 s] JOIN flows h [RANGE 1 s] ON u.s = h.src")
    assert plan.streams == {LEFT: (plan.below[0].name, "packets"), RIGHT: ("flows",)}
