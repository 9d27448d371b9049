"""What queries go on from when they come back, and what is gone with those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.engine.state.carry_over import carry_over
from headrace.engine.state.checkpoint import Manifest, QueryState
from headrace.engine.state.workload import plan_workload
from headrace.errors import StateError
from headrace.kernels.chunks import APART, Chunk, holding
from headrace.language import bind_query, parse_schema
from headrace.model import AnswersState, JoinSample, JoinState, JoinWay, KeyedState, StepFunction, Stream
from headrace.planning import FlowPlan, plan_query
from headrace.policies import StreamClock, begin

COLUMNS = "ts TIMESTAMP, k INT, v DOUBLE"
FUNCTION = StepFunction("m:f", parse_schema("k INT, x DOUBLE"), parse_schema("k INT, m DOUBLE"))
SQL = {
    "function": "SELECT * FROM r [PARTITION BY k]",
    "rows": "SELECT *, AVG(v) AS a FROM r [PARTITION BY k ROWS 5]",
    "join": "SELECT r.v, s.v AS w FROM r [RANGE 60 s] JOIN s [RANGE 60 s] ON r.k = s.k",
    "over": "SELECT w, COUNT(*) AS n FROM (SELECT s.v AS w FROM r [RANGE 9 s] JOIN s [RANGE 9 s] ON r.k = s.k) AS j "
    "[WINDOW 10 s] GROUP BY w",
    "peak": "SELECT MAX(n) AS n FROM (SELECT k, COUNT(*) AS n FROM r GROUP BY window(ts, '10 s'), k) AS m "
    "[WINDOW 1 min]",
    "other": "SELECT k, COUNT(*) AS n FROM r [WINDOW 10 s] GROUP BY k",
}
FOR_EVER = -(2**62)


def streams(columns: str = COLUMNS) -> dict[str, Stream]:
    return {name: Stream(name, parse_schema(columns), "ts") for name in ("r", "s")}


def planned(name: str, columns: str = COLUMNS) -> Any:
    step = FUNCTION if name == "function" else None
    return plan_query(bind_query(name, SQL[name], streams(columns), step=step))


def come(
    manifest: Manifest, *names: str, columns: str = COLUMNS, refused: tuple[str, ...] = ()
) -> tuple[Manifest, str]:
    """The state that some queries go on from, and what is said about it."""
    notes: list[str] = []
    plans = {name: planned(name, columns) for name in names}
    workload = plan_workload(plans, list(streams(columns).values()), None, {})
    found = carry_over(manifest, workload, {name: manifest.queries[name] for name in refused}, notes.append)
    return found, "; ".join(notes)


def state_of(name: str, forms: tuple[str, ...]) -> JoinState | KeyedState:
    """What is remembered of a flow whose rows have these forms."""
    if name == "join":
        way = JoinWay("hash", None, (), (0,), "the test")
        return JoinState(way, 1, False, forms, None, JoinSample(), 0, (1.0,))
    version = 1 if name == "function" else 0
    return replace(begin(1, 1), version=version, forms=forms, snapshots=("c",))


def remembered(name: str, **facts: Any) -> Manifest:
    """A manifest after some epochs of one flow."""
    plan = planned(name)
    assert isinstance(plan, FlowPlan)
    ends = tuple((store.id, 100) for store in plan.stores)
    return Manifest(
        5,
        5,
        queries={name: QueryState(SQL[name], **facts)},
        nodes={name: state_of(name, plan.forms)},
        chunks=(Chunk("c", 1, 1, APART if name != "join" else 0, ends),),
    )


@pytest.mark.parametrize("name", ["function", "rows", "join"])
def test_a_query_that_was_there_goes_on(name: str) -> None:
    manifest = remembered(name)
    found, said = come(manifest, name)
    assert (found.flows, found.chunks, said) == (manifest.flows, manifest.chunks, "")


def test_a_function_that_failed_goes_on_and_others_start_anew() -> None:
    found, said = come(remembered("function", failed="KeyError"), "function")
    assert found.flows.keys() == {"function"}
    assert found.queries["function"].failed is None
    assert "had failed (KeyError) and goes on with its state of then" in said
    found, said = come(remembered("rows", failed="KeyError"), "rows")
    assert not found.flows
    assert "had failed (KeyError) and starts anew: its results are about rows from now on" in said


def test_state_of_a_function_that_cannot_run_now_waits_for_it() -> None:
    manifest = remembered("function", failed="KeyError")
    for others in ((), ("other",)):
        found, _ = come(manifest, *others, refused=("function",))
        assert found.flows == manifest.flows
        assert come(found, "function", *others)[0].flows == manifest.flows
    gone, said = come(manifest, "other")
    assert not gone.flows
    assert "query 'function' is gone" in said


def test_another_lifetime_counts_for_a_function_that_failed() -> None:
    manifest = remembered("function", failed="KeyError", lifetime_us=10, ends_us=50)
    assert come(manifest, "function")[0].queries["function"].ends_us is None


def test_rows_of_other_columns_are_not_taken_for_those_that_were() -> None:
    wider = COLUMNS + ", w INT"
    with pytest.raises(StateError, match="'function' keeps state about rows with other columns"):
        come(remembered("function"), "function", columns=wider)
    found, said = come(remembered("rows"), "rows", columns=wider)
    assert not found.flows
    assert "starts anew" in said
    # The same columns by name, one of another type.
    assert not come(remembered("rows"), "rows", columns=COLUMNS.replace("DOUBLE", "FLOAT"))[0].flows
    # What a query does not select does not concern it.
    assert come(remembered("join"), "join", columns=wider)[0].flows


def test_rows_below_an_aggregate_are_judged_as_well() -> None:
    (pairs,) = planned("over").below
    manifest = Manifest(
        5,
        5,
        queries={"over": QueryState(SQL["over"])},
        nodes={pairs.name: state_of("join", pairs.forms)},
    )
    assert come(manifest, "over") == (replace(manifest, coverage=come(manifest, "over")[0].coverage), "")
    found, said = come(manifest, "over", columns=COLUMNS.replace("DOUBLE", "FLOAT"))
    assert not found.flows
    assert "starts anew" in said


def test_answers_that_others_read_begin_with_windows_whose_rows_are_to_come() -> None:
    (answers,) = planned("peak").below
    clocks = {name: StreamClock(0, 95_000_000, 90_000_000) for name in ("r", "s")}
    found, said = come(Manifest(5, 5, clocks=clocks), "peak")
    assert "its windows begin after what was seen so far" in said
    assert found.nodes[answers.name] == AnswersState(since_us=95_000_001)
    # The first window without a gap begins after the first answer that could lack rows.
    assert found.queries["peak"].since_us == 95_000_000 + 10_000_000 + 1
    assert found.clocks[answers.name] == StreamClock(last_us=105_000_000)
    # Once they are there, another query that reads them goes on from what was seen of them.
    known = replace(found, nodes={answers.name: AnswersState(100_000_000)}, coverage={})
    known = replace(known, clocks={**clocks, answers.name: StreamClock(0, 99_999_999, 100_000_000)})
    again, _ = come(replace(known, queries={}), "peak")
    assert again.nodes == known.nodes
    assert again.queries["peak"].since_us == 100_000_000


def test_what_is_above_a_node_that_begins_anew_begins_anew() -> None:
    (pairs,) = planned("over").below
    manifest = Manifest(5, 5, queries={"over": QueryState(SQL["over"], answered_us=7)})
    found, said = come(manifest, "over")
    assert "starts anew" in said or "is new" in said
    assert (found.queries["over"].answered_us, pairs.name in found.clocks) == (None, True)


@pytest.mark.parametrize("facts", [{"ended": True}, {"failed": "KeyError"}])
def test_rows_of_an_earlier_life_are_not_found_again(facts: dict[str, Any]) -> None:
    ids = [store.id for store in planned("join").stores]
    found, _ = come(remembered("join", **facts), "join")
    assert holding(found.chunks, dict.fromkeys(ids, FOR_EVER)) == dict.fromkeys(ids, ())
    # Nor if it is dropped and added again with no epoch in between.
    dropped, _ = come(remembered("join"))
    again, said = come(dropped, "join")
    assert holding(again.chunks, dict.fromkeys(ids, FOR_EVER)) == dict.fromkeys(ids, ())
    assert "is new" in said
