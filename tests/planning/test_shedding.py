"""What a pipeline may shed follows from its graph; the plan for an epoch from costs, rows and the objective."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import (
    EngineSettings,
    EpochDecision,
    Query,
    QueryShedding,
    SheddingDecision,
    Stream,
    TimeWindow,
    plain,
    restored,
)
from headrace.planning import (
    Asked,
    Part,
    Shedding,
    Workload,
    decide_shedding,
    nodes_of,
    parts_of,
    plan_query,
    protected_edges,
    share,
    with_kept,
)
from headrace.planning.shedding import HEADROOM, edges_of
from headrace.policies.shedding import OverloadState, RowCosts
from headrace.policies.shedding.line import Line

STREAMS = {
    name: Stream(name, parse_schema("ts TIMESTAMP, k STRING, g INT, x DOUBLE"), time="ts") for name in ("s", "r")
}
BY_K = "SELECT k, SUM(x) AS v FROM s [WINDOW 1 min SLIDE 10 s] GROUP BY k"
BY_G = "SELECT g, COUNT(*) AS n FROM s [WINDOW 1 min SLIDE 10 s] GROUP BY g"
SOME = "SELECT k, MAX(x) AS v FROM s [WINDOW 1 min SLIDE 10 s] WHERE g = 3 GROUP BY k"
JOIN = "SELECT s.k, r.x FROM s [RANGE 5 s] JOIN r [RANGE 5 s] ON s.k = r.k"
TWICE = "SELECT a.k, r.x FROM (SELECT ts, k FROM s UNION ALL SELECT ts, k FROM s) AS a [RANGE 5 s] {rest}"
OVER_JOIN = f"SELECT k, COUNT(*) AS n FROM ({JOIN.replace('s.k,', 's.ts, s.k AS k,')}) AS j [WINDOW 1 min] GROUP BY k"
LAST = "SELECT k, AVG(x) AS v FROM s [PARTITION BY k ROWS 10]"
SHED = EngineSettings(shedding="fit")
# An epoch of a second, of which a fixed tenth and the headroom leave 0.7 s for rows.
FIXED_S, TRIGGER_S = 0.1, 1.0
CAPACITY_S = TRIGGER_S * (1 - max(HEADROOM)) - FIXED_S


def workload(*texts: str, **given: Query) -> Workload:
    queries = {f"q{i}": bind_query(f"q{i}", text, STREAMS) for i, text in enumerate(texts)} | given
    answers, flows = nodes_of(plan_query(query) for query in queries.values())
    return replace(share(answers, list(STREAMS.values())), flows=flows)


def parts(of: Workload) -> dict[str, Part]:
    return {query: part for part in parts_of(of, of.queries, STREAMS) for query in part.queries}


def costs(of: Workload, per_row_s: dict[str, float]) -> RowCosts:
    """Costs by query, each the same for all its edges."""
    keep = {e: per_row_s[q] / len(es) for q, part in parts(of).items() for es in part.edges.values() for e in es}
    return RowCosts(
        {s: reading(0.0) for s in STREAMS}, {e: line(0.0, c) for e, c in keep.items()}, {}, line(FIXED_S, 1.0)
    )


def line(fixed: float, per_row: float, samples: int = 10) -> Line:
    found = Line()
    for rows in range(1, samples + 1):
        found = found.learn(rows, fixed + per_row * rows)
    return found


def reading(per_row: float, per_skipped: float | None = None) -> Line:
    found, skipped_s = Line(), per_row if per_skipped is None else per_skipped
    for rows in range(1, 11):
        for skipped in (0, 7 * rows):
            found = found.learn(rows, per_row * rows + skipped_s * skipped, skipped)
    return found


def decided(
    of: Workload,
    per_row_s: dict[str, float],
    rows: float,
    settings: EngineSettings = SHED,
    answer_s: float = 0.0,
    **changed: object,
) -> SheddingDecision:
    state = Shedding(costs(of, per_row_s))
    asked = replace(Asked({"s": rows}, {}, 1.0, False, TRIGGER_S, answer_s), **changed)  # type: ignore[arg-type]
    queries = {name: plan.query for name, plan in of.queries.items()}
    return decide_shedding(state, parts_of(of, of.queries, STREAMS), queries, settings, asked)[0]


# What may be shed ----------------------------------------------------------------------------------------------------


def test_queries_that_share_a_synopsis_are_one_part():
    of = workload(BY_K, BY_K.replace("1 min", "5 min"), BY_G)
    found = parts(of)
    assert found["q0"] is found["q1"]
    assert found["q2"] is not found["q0"]
    assert found["q0"].edges.keys() == {"s"}
    assert set(edges_of(of, "q0")) == set(found["q0"].edges["s"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(JOIN.replace("JOIN", "LEFT JOIN"), "as if they had met nobody", id="left joins"),
        pytest.param(JOIN.replace("JOIN", "FULL JOIN"), "as if they had met nobody", id="full joins"),
        pytest.param(JOIN.replace("s.k = r.k", "s.x < r.x"), "no key says which rows", id="joins without a key"),
        pytest.param(
            TWICE.format(rest="JOIN r [RANGE 5 s] ON a.k = r.k"), "more than one key", id="unions of one stream"
        ),
        pytest.param(JOIN + " JOIN s AS t [RANGE 5 s] ON t.k = r.k", "a join lacks all its pairs", id="joins of joins"),
        pytest.param(LAST, "others would be the last of their key", id="row windows"),
        pytest.param(OVER_JOIN, "a join lacks all its pairs", id="aggregates over joins"),
    ],
)
def test_what_is_never_shed_says_why(text: str, why: str):
    found = parts(workload(text))["q0"]
    assert found.why_never is not None
    assert why in found.why_never
    assert found.edges


def test_a_join_with_a_key_is_one_part_of_its_own_that_keeps_keys():
    of = workload(JOIN, BY_K)
    found = parts(of)["q0"]
    assert found.why_never is None
    assert found.by_key
    assert found.edges.keys() == {"s", "r"}
    assert not parts(of)["q1"].by_key
    assert {edge for edges in found.edges.values() for edge in edges} == set(edges_of(of, "q0"))
    assert with_kept(of.queries["q0"].query, SHED).finish.outputs[-1].name == "kept"
    with pytest.raises(SpecError, match="a join has no sums"):
        bind_query("q", JOIN, STREAMS, shedding=QueryShedding(scale=True))


def test_a_query_with_never_keeps_all_queries_of_its_synopsis_whole():
    never = bind_query("a", BY_K, STREAMS, shedding=QueryShedding(never=True))
    found = parts(workload(BY_K.replace("1 min", "5 min"), a=never))
    assert found["q0"].why_never == found["a"].why_never == "its file says never"


def test_the_file_decides_the_columns_of_results():
    query = bind_query("q", BY_K, STREAMS)
    assert with_kept(query, EngineSettings()) is query
    assert [o.name for o in with_kept(query, SHED).finish.outputs] == ["window_start", "window_end", "k", "v", "kept"]
    assert with_kept(replace(query, shedding=QueryShedding(never=True)), SHED).finish == query.finish
    assert with_kept(bind_query("q", LAST, STREAMS), SHED).finish.outputs[-1].name == "v"
    with pytest.raises(SpecError, match="result column 'kept' of its own"):
        with_kept(bind_query("q", BY_K.replace("AS v", "AS Kept"), STREAMS), SHED)


# What is decided -----------------------------------------------------------------------------------------------------

THREE = (BY_K, BY_G, SOME)
# Seconds per row: what fits is a tenth of all three.
DEAR = {"q0": 1e-4, "q1": 2e-4, "q2": 4e-4}
ROWS = CAPACITY_S / 7e-4 * 4


@pytest.mark.parametrize("strategy", ["fit", "central"])
def test_what_is_kept_fits_the_capacity_and_uses_it(strategy: str):
    found = decided(workload(*THREE), DEAR, ROWS, replace(SHED, shedding=strategy))
    used = sum(found.kept[query] * ROWS * cost for query, cost in DEAR.items())
    assert found.sheds
    assert found.acting == ("shed",)
    assert 0.95 * CAPACITY_S <= used <= CAPACITY_S * 1.001
    assert found.needs_s == pytest.approx(4 * CAPACITY_S, rel=1e-3)


def test_throughput_keeps_the_rows_that_cost_least():
    kept = decided(workload(*THREE), DEAR, ROWS).kept
    assert kept["q0"] == 1.0
    assert kept["q0"] > kept["q1"] >= kept["q2"]


def test_a_weight_outweighs_a_cost():
    of = workload(BY_K, BY_G, heavy=replace(bind_query("heavy", SOME, STREAMS), weight=100.0))
    kept = decided(of, {"q0": 1e-4, "q1": 2e-4, "heavy": 4e-4}, ROWS).kept
    assert kept["heavy"] > 0.4
    assert kept["q0"] == kept["q1"] == 0.0


def test_fairness_gives_all_queries_the_same_share_and_weights_twice_as_much():
    kept = decided(workload(*THREE), DEAR, ROWS, replace(SHED, objective="fair")).kept
    assert min(kept.values()) == pytest.approx(0.25, abs=0.02)
    of = workload(BY_K, BY_G, heavy=replace(bind_query("heavy", SOME, STREAMS), weight=2.0))
    kept = decided(of, {"q0": 1e-4, "q1": 2e-4, "heavy": 4e-4}, ROWS, replace(SHED, objective="fair")).kept
    assert kept["heavy"] == pytest.approx(2 * min(kept["q0"], kept["q1"]), rel=0.1)


def test_priority_comes_before_cost():
    of = workload(BY_K, BY_G, first=replace(bind_query("first", SOME, STREAMS), priority=10**9))
    kept = decided(of, {"q0": 1e-4, "q1": 2e-4, "first": 4e-4}, ROWS, replace(SHED, objective="priority")).kept
    assert kept["first"] == pytest.approx(CAPACITY_S / (ROWS * 4e-4), rel=0.02)
    assert kept["q1"] == 0.0


def test_a_query_with_never_loses_nothing_while_others_do():
    never = replace(bind_query("a", SOME, STREAMS), shedding=QueryShedding(never=True))
    found = decided(workload(BY_K, BY_G, a=never), {"q0": 1e-4, "q1": 2e-4, "a": 1e-4}, ROWS)
    assert found.kept["a"] == 1.0
    assert min(found.kept["q0"], found.kept["q1"]) < 1.0
    assert not any(edge in found.keep for edge in parts(workload(BY_K, BY_G, a=never))["a"].edges["s"])


@pytest.mark.parametrize("strategy", ["fit", "central"])
def test_both_sides_of_a_join_keep_one_fraction_of_all_their_rows(strategy: str):
    """Rows of both streams cost 1e-4 s in the join, those of s 1e-4 s in the aggregate, too."""
    of = workload(JOIN, BY_K)
    fair = replace(SHED, shedding=strategy, objective="fair")
    found = decided(of, {"q0": 1e-4, "q1": 1e-4}, ROWS, fair, coming={"s": 2 * ROWS, "r": ROWS})
    assert len({found.keep[edge] for edge in edges_of(of, "q0")}) == 1
    assert found.kept["q0"] == pytest.approx(found.kept["q1"], abs=0.03)
    assert 5 * ROWS * 1e-4 * found.kept["q0"] == pytest.approx(CAPACITY_S, rel=0.05)


def test_a_join_keeps_everything_where_an_aggregate_is_worth_less_for_the_same_cost():
    of = workload(BY_K, a=replace(bind_query("a", JOIN, STREAMS), weight=100.0))
    found = decided(of, {"q0": 4e-4, "a": 1e-4}, ROWS, coming={"s": ROWS * 0.8, "r": ROWS * 0.4})
    assert found.kept["a"] == 1.0
    assert found.kept["q0"] < 1.0


def test_edges_of_a_part_keep_one_fraction():
    of = workload("SELECT k, SUM(x) AS v, COUNT(DISTINCT g) AS n FROM s [WINDOW 1 min] GROUP BY k", BY_G)
    edges = parts(of)["q0"].edges["s"]
    assert len(edges) > 1
    keep = decided(of, {"q0": 4e-4, "q1": 1e-4}, ROWS).keep
    assert len({keep[edge] for edge in edges}) == 1


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        pytest.param(ROWS / 4, {}, id="rows that fit"),
        pytest.param(ROWS / 2.1, {}, id="a burst that fits the buffer"),
        pytest.param(ROWS * 5, {"started": True}, id="a backlog"),
        pytest.param(ROWS / 5, {"answer_s": 30.0, "since_s": 30.0}, id="answers that take long"),
    ],
)
def test_nothing_is_shed_of(rows: float, changed: dict[str, object]):
    found = decided(workload(*THREE), DEAR, rows, **changed)  # type: ignore[arg-type]
    assert not found.sheds
    assert not found.keep
    assert found.reason
    assert found.acting == (("answer late",) if "answer_s" in changed else ())


def test_where_rows_and_answers_are_too_much_answers_come_late_before_rows_are_shed():
    found = decided(workload(*THREE), DEAR, ROWS, answer_s=0.5)
    assert found.acting == ("answer late", "shed")


@pytest.mark.parametrize(
    ("over", "headroom"),
    [
        pytest.param(1.0, 0.08, id="8 % before epochs are known"),
        pytest.param(0.015, 0.06, id="four times as much as they are longer than expected"),
        pytest.param(0.001, 0.03, id="3 % however exactly they are known"),
    ],
)
def test_the_surer_it_is_what_epochs_take_the_more_is_planned_into_them(over: float, headroom: float):
    of = workload(BY_K)
    state = Shedding(costs(of, {"q0": CAPACITY_S / ROWS}), over=over)
    made, _ = decide_shedding(
        state, parts_of(of, of.queries, STREAMS), {}, SHED, Asked({"s": ROWS}, {}, 1.0, False, 1.0)
    )
    assert made.capacity_s == pytest.approx(TRIGGER_S * (1 - headroom) - FIXED_S, rel=2e-3)


def test_what_spark_takes_between_epochs_is_no_room_for_rows():
    of = workload(BY_K)
    state = Shedding(costs(of, {"q0": CAPACITY_S / ROWS}), OverloadState(overloaded=True))
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    found = [
        decide_shedding(state, parts_of(of, of.queries, STREAMS), {}, SHED, replace(asked, between_s=between_s))[0]
        for between_s in (0.0, 0.2)
    ]
    assert [each.capacity_s for each in found] == pytest.approx([CAPACITY_S, CAPACITY_S - 0.2], rel=2e-3)


def test_where_reading_takes_the_capacity_rows_are_still_kept_in_proportion():
    of = workload(*THREE)
    read = {"s": reading(20e-4), "r": reading(0.0)}
    state = Shedding(replace(costs(of, DEAR), read=read))
    queries = {name: plan.query for name, plan in of.queries.items()}
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    made, _ = decide_shedding(state, parts_of(of, of.queries, STREAMS), queries, replace(SHED, objective="fair"), asked)
    assert min(made.kept.values()) == pytest.approx(CAPACITY_S / (ROWS * 27e-4), rel=0.05)
    assert "reading alone takes" in made.reason


def test_rows_that_no_edge_keeps_take_less_than_those_that_are_evaluated():
    """Reading takes 10e-4 s of an evaluated row, 1e-4 s of another; an edge takes 1e-4 s."""
    of = workload(BY_K)
    read = {"s": reading(10e-4, 1e-4), "r": reading(0.0)}
    state = Shedding(replace(costs(of, {"q0": 1e-4}), read=read))
    asked, rows = Asked({"s": 2000.0}, {}, 1.0, False, TRIGGER_S), 2000.0
    kept = {}
    for name, buckets in (("known", {}), ("protected", dict.fromkeys(edges_of(of, "q0"), (1.0,) * 64))):
        made, _ = decide_shedding(replace(state, buckets=buckets), parts_of(of, of.queries, STREAMS), {}, SHED, asked)
        kept[name] = made.kept["q0"]
    assert kept["known"] == pytest.approx((CAPACITY_S - rows * 1e-4) / (rows * 10e-4), rel=0.02)
    # Where rare keys are protected all rows are evaluated: the edge keeps its part of the capacity, as little as it is.
    assert kept["protected"] == pytest.approx(CAPACITY_S / (rows * 11e-4), rel=0.02)


def test_answers_have_what_they_have_lately_taken_and_a_fifth_at_most():
    of = workload(BY_K)
    state = Shedding(costs(of, {"q0": CAPACITY_S / ROWS}), OverloadState(overloaded=True))
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    found = []
    for answer_s in (0.05, 0.0, 0.9):
        made, state = decide_shedding(
            state, parts_of(of, of.queries, STREAMS), {}, SHED, replace(asked, answer_s=answer_s)
        )
        found.append(made.capacity_s)
    assert found == pytest.approx([CAPACITY_S - 0.05, CAPACITY_S - 0.045, CAPACITY_S - 0.2], rel=2e-3)


def test_edges_that_protect_have_a_fraction_for_each_bucket():
    of = workload(BY_G, a=replace(bind_query("a", BY_K, STREAMS), shedding=QueryShedding(protect="K")))
    (edge,) = protected_edges(of)
    assert edge in parts(of)["a"].edges["s"]
    counts = (1000.0, *(1.0,) * 63)
    state = Shedding(costs(of, {"q0": 1e-4, "a": 6e-4}), buckets={edge: counts})
    queries = {name: plan.query for name, plan in of.queries.items()}
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    made, after = decide_shedding(state, parts_of(of, of.queries, STREAMS), queries, SHED, asked)
    assert made.buckets[edge][1:] == (1.0,) * 63
    assert sum(n * p for n, p in zip(counts, made.buckets[edge], strict=True)) == pytest.approx(
        made.keep[edge] * sum(counts), rel=0.01
    )
    assert after.with_buckets({edge: {0: 2000}}).buckets[edge][:2] == (1300.0, 0.7)
    with pytest.raises(ValueError, match="protect names a column of GROUP BY"):
        replace(bind_query("a", BY_K, STREAMS), shedding=QueryShedding(protect="v"))


def test_nothing_is_shed_by_costs_that_nobody_knows():
    state = Shedding(replace(costs(workload(*THREE), DEAR), epoch=line(FIXED_S, 1.0, samples=1)))
    of = workload(*THREE)
    queries = {name: plan.query for name, plan in of.queries.items()}
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    made, _ = decide_shedding(state, parts_of(of, of.queries, STREAMS), queries, SHED, asked)
    assert not made.sheds
    assert made.reason == "costs are not known yet"


def test_where_shedding_is_off_the_reason_says_what_it_would_have_done():
    found = decided(workload(*THREE), DEAR, ROWS, EngineSettings())
    assert not found.sheds
    assert "shed" not in found.acting
    assert "shedding is off; with shedding: fit, 0% to 100% of rows would be kept" in found.reason


def test_a_decision_survives_the_log():
    found = decided(workload(*THREE), DEAR, ROWS)
    logged = EpochDecision(3, 2, 10, 7, ("q0",), nodes={"*shedding": found})
    assert EpochDecision.from_json(json.loads(json.dumps(logged.to_json()))).shedding == found


# What windows lost ---------------------------------------------------------------------------------------------------


def test_the_part_of_a_window_that_was_kept_is_counted_by_pane():
    state = Shedding(panes={"s>a": ((0, 10, 0), (10, 10, 5)), "s>b": ((10, 20, 20),)})
    assert state.kept_of(["s>a"], TimeWindow(10, 10), [10, 20]) == {20: 0.5}
    assert state.kept_of(["s>a"], TimeWindow(20, 10), [10, 20, 30]) == {20: 0.75, 30: 0.5}
    assert state.kept_of(["s>a", "s>b"], TimeWindow(10, 10), [20]) == {20: pytest.approx(5 / 30)}
    assert state.kept_of(["s>c"], TimeWindow(20, 10), [20]) == {}
    assert state.kept_of_all(["s>a", "s>b"]) == pytest.approx(15 / 40)
    assert state.kept_of_all(["s>c"]) == 1.0


def test_accounts_of_panes_add_up_and_are_forgotten_with_the_windows():
    state = Shedding(panes={"s>a": ((0, 10, 0), (10, 10, 5)), "s>gone": ((0, 1, 1),)})
    after = state.with_panes({"s>a": {10: (4, 1), 20: (8, 2)}, "s>b": {20: (3, 0)}})
    made = after.reaching({"s>a": 10, "s>b": 0}).panes
    assert made == {"s>a": ((10, 14, 6), (20, 8, 2)), "s>b": ((20, 3, 0),)}
    assert restored(Shedding, json.loads(json.dumps(plain(replace(state, panes=made))))).panes == made


def test_what_is_remembered_says_that_there_was_overload():
    of = workload(*THREE)
    queries = {name: plan.query for name, plan in of.queries.items()}
    asked = Asked({"s": ROWS}, {}, 1.0, False, TRIGGER_S)
    state = Shedding(costs(of, DEAR))
    _, after = decide_shedding(state, parts_of(of, of.queries, STREAMS), queries, SHED, asked)
    assert after.overload.overloaded
    assert after.remedies.acting == ("shed",)
    assert state.overload == OverloadState()
