"""A workload comes back from its checkpoint as it was, and queries that come and go start where they can."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headrace.engine.state import workload as workload_module
from headrace.engine.state.carry_over import carry_over, complete_since
from headrace.engine.state.checkpoint import Manifest, QueryState
from headrace.engine.state.workload import (
    describe_workload,
    forgettable,
    plan_workload,
    read_description,
)
from headrace.language import bind_query, parse_schema
from headrace.model import Stream
from headrace.planning import AnswerPlan, Coverage, Workload, forget, plan_answer, share
from headrace.policies import StreamClock
from headrace.units import SECOND_US

PACKETS = Stream(
    "packets",
    parse_schema(
        "ts TIMESTAMP, src STRING, dst STRING, port INT, length BIGINT, x DOUBLE, f FLOAT, d DECIMAL(10,2), "
        "ok BOOLEAN, day DATE, raw BINARY, tags ARRAY<STRING>, odd STRUCT<`my field`: INT, b: MAP<STRING,INT>>"
    ),
    "ts",
    lateness_us=5 * SECOND_US,
)
FLOWS = Stream("flows", parse_schema("ts TIMESTAMP, src STRING, dst STRING, port INT"), "ts")
STREAMS = (PACKETS, FLOWS)
RICH = {
    "sums": "SELECT src, SUM(length) AS a, AVG(d) AS b, STDDEV(x) AS c FROM packets [WINDOW 9 s SLIDE 3 s] "
    "GROUP BY src",
    "typed": "SELECT f, x, day, ok, MAX(raw) AS a, MIN(ts) AS b FROM packets [WINDOW 4 s] GROUP BY f, x, day, ok",
    "details": "SELECT MEDIAN(d) AS a, COUNT(DISTINCT src) AS b, approx_top_k(dst, 3) AS c, "
    "approx_count_distinct(x) AS d, approx_percentile(length, 0.9) AS e FROM packets [WINDOW 6 s]",
    "p80": "SELECT src, COUNT(*) AS n FROM packets [WINDOW 4 s] WHERE port = 80 GROUP BY src",
    "p443": "SELECT src, COUNT(*) AS n FROM packets [WINDOW 4 s] WHERE port = 443 GROUP BY src",
    "web": "SELECT src, COUNT(*) AS n FROM packets [WINDOW 4 s] WHERE port IN (80, 443) GROUP BY src",
    "there": "SELECT src, dst, COUNT(*) AS n FROM packets [WINDOW 4 s] GROUP BY src, dst",
    "back": "SELECT src, dst, COUNT(*) AS n FROM packets [WINDOW 4 s] GROUP BY dst, src",
    "quoted": "SELECT COUNT(*) AS n FROM packets [WINDOW 4 s] WHERE src = 'å\"''\\\\' AND odd.`my field` > 1",
    "unknown": "SELECT element_at(from_json(src, 'z ARRAY<INT>').z, 1) AS k, COUNT(*) AS n FROM packets [WINDOW 4 s] "
    "GROUP BY element_at(from_json(src, 'z ARRAY<INT>').z, 1)",
    "both": "SELECT src, COUNT(*) AS n FROM (SELECT src, port FROM packets UNION ALL SELECT dst, port FROM flows) "
    "[WINDOW 4 s] GROUP BY src",
}
COUNT = "SELECT src, COUNT(*) AS n FROM packets [WINDOW 4 s] GROUP BY src"
MOST = "SELECT src, MAX(x) AS m FROM packets [WINDOW 4 s] GROUP BY src"
FINE = "SELECT src, COUNT(*) AS n FROM packets [WINDOW 3 s] GROUP BY src"
OTHER = "SELECT dst, COUNT(*) AS n FROM packets [WINDOW 4 s] GROUP BY dst"
FLOW = "SELECT src, COUNT(*) AS n FROM flows [WINDOW 4 s] GROUP BY src"
AT_ONCE = "it answers at once, from panes that are there"
AFTER = "its windows begin after what was seen so far"


def plans_of(queries: Mapping[str, str]) -> dict[str, AnswerPlan]:
    streams = {stream.name: stream for stream in STREAMS}
    return {name: plan_answer(bind_query(name, sql, streams)) for name, sql in queries.items()}


def planned(queries: Mapping[str, str], before: Workload | None = None, manifest: Manifest | None = None) -> Workload:
    return plan_workload(plans_of(queries), STREAMS, before, manifest.coverage if manifest else {})


# The description -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("some", [tuple(RICH), *((name,) for name in RICH)], ids=lambda some: ", ".join(some))
def test_a_workload_survives_its_description(some: tuple[str, ...]):
    workload = share(plans_of({name: RICH[name] for name in some}), STREAMS)
    found = read_description(json.loads(json.dumps(describe_workload(workload, STREAMS))))
    assert found.kept == workload.kept
    assert found.supplies == workload.supplies
    assert [(s.name, s.columns, s.time, s.lateness_us) for s in found.streams] == [
        (s.name, s.columns, s.time, s.lateness_us) for s in STREAMS
    ]
    assert {id_: kept.synopsis.id for id_, kept in found.kept.items()} == {id_: id_ for id_ in workload.kept}


def test_a_description_is_as_good_as_the_workload_it_describes():
    workload = share(plans_of(RICH), STREAMS)
    manifest = carry_over(None, workload, {}, pytest.fail)
    found = read_description(json.loads(json.dumps(describe_workload(workload, STREAMS))))
    assert plan_workload(plans_of(RICH), STREAMS, found, manifest.coverage) == workload
    less = {name: sql for name, sql in RICH.items() if name not in ("p80", "sums")}
    from_disk = plan_workload(plans_of(less), STREAMS, found, manifest.coverage)
    assert from_disk == plan_workload(plans_of(less), STREAMS, workload, manifest.coverage)


def test_what_has_no_coverage_has_no_history():
    workload = share(plans_of({"web": RICH["web"]}), STREAMS)
    coarse = "SELECT COUNT(*) AS n FROM packets [WINDOW 4 s] WHERE port IN (80, 443)"
    found = plan_workload(plans_of({"web": RICH["web"], "all": coarse}), STREAMS, workload, {})
    assert len(found.kept) == 2, "panes that nobody vouches for are not rolled up"


# Queries that come and go --------------------------------------------------------------------------------------------

RUNNING = {"count": COUNT, "flow": FLOW}


def running(queries: Mapping[str, str] = RUNNING, **changes: QueryState) -> tuple[Workload, Manifest]:
    """A workload from the beginning, and its manifest after rows up to second 100 of packets and 200 of flows."""
    workload = share(plans_of(queries), STREAMS)
    manifest = carry_over(None, workload, {}, pytest.fail)
    states = {name: replace(state, answered_us=96 * SECOND_US, rows=7) for name, state in manifest.queries.items()}
    clocks = {
        "packets": StreamClock(10 * SECOND_US, 100 * SECOND_US - 1, 90 * SECOND_US),
        "flows": StreamClock(20 * SECOND_US, 200 * SECOND_US - 1, 90 * SECOND_US),
    }
    return workload, replace(manifest, epoch=5, batch=5, clocks=clocks, queries={**states, **changes})


def seen_us(manifest: Manifest, stream: str) -> int:
    last = manifest.clocks[stream].last_us
    assert last is not None
    return last + 1


def adopted(queries: Mapping[str, str], before: Workload, manifest: Manifest) -> tuple[Workload, Manifest, list[str]]:
    notes: list[str] = []
    workload = planned(queries, before, manifest)
    return workload, carry_over(manifest, workload, {}, notes.append), notes


def test_the_first_run_begins_at_the_beginning():
    workload = share(plans_of(RUNNING), STREAMS)
    refused = {"bad": QueryState("x", failed="a join")}
    manifest = carry_over(None, workload, refused, pytest.fail)
    assert (manifest.epoch, manifest.batch) == (-1, -1)
    assert list(manifest.queries) == ["count", "flow", "bad"]
    assert all(state.since_us is None for state in manifest.queries.values())
    assert manifest.coverage.keys() == workload.kept.keys()
    assert all(complete_since(workload, name, manifest.coverage) is None for name in RUNNING)


def test_a_restart_goes_on_where_it_was():
    before, manifest = running()
    workload, found, notes = adopted(RUNNING, before, manifest)
    assert (workload, found, notes) == (before, manifest, [])


@pytest.mark.parametrize(
    ("window", "since_s"),
    [
        #   rows since 10 s, watermark at 90 s
        pytest.param("[WINDOW 8 s]", 80, id="with the newest window that has closed"),
        pytest.param("[WINDOW 80 s SLIDE 40 s]", 10, id="unless that began before the first row"),
    ],
)
def test_a_new_query_over_panes_that_are_there_answers_at_once(window: str, since_s: int):
    before, manifest = running()
    total = f"SELECT COUNT(*) AS n FROM packets {window}"
    workload, found, notes = adopted({**RUNNING, "all": total}, before, manifest)
    assert workload.kept.keys() == before.kept.keys()
    assert complete_since(workload, "all", found.coverage) is None
    assert found.queries["all"].since_us == since_s * SECOND_US
    assert notes == [f"query 'all' is new: {AT_ONCE}"]
    assert found.queries["count"] == manifest.queries["count"]


@pytest.mark.parametrize(
    ("name", "sql", "stream"),
    [
        pytest.param("most", MOST, "packets", id="a measure that was not kept"),
        pytest.param("fine", FINE, "packets", id="panes shorter than were kept"),
        pytest.param("other", OTHER, "packets", id="keys that were not kept"),
        pytest.param("ports", FLOW.replace("src", "dst"), "flows", id="keys of the stream that is ahead"),
    ],
)
def test_a_new_query_that_needs_more_begins_after_what_was_seen(name: str, sql: str, stream: str):
    before, manifest = running()
    workload, found, notes = adopted({**RUNNING, name: sql}, before, manifest)
    assert found.queries[name].since_us == seen_us(manifest, stream)
    assert notes == [f"query '{name}' is new: {AFTER}"]
    for old in RUNNING:
        assert found.queries[old] == manifest.queries[old]
        assert complete_since(workload, old, found.coverage) is None, "the others miss nothing"


def test_panes_that_are_gone_are_not_promised():
    before, manifest = running()
    coverage = {id_: forget(c, 88 * SECOND_US, 3.0) for id_, c in manifest.coverage.items()}
    _, found, notes = adopted(
        {**RUNNING, "twin": COUNT.replace("4 s", "8 s")}, before, replace(manifest, coverage=coverage)
    )
    assert found.queries["twin"].since_us == 88 * SECOND_US
    assert notes == [f"query 'twin' is new: {AT_ONCE}"]


def test_a_changed_query_starts_anew():
    before, manifest = running()
    _, found, notes = adopted({**RUNNING, "count": MOST}, before, manifest)
    state = found.queries["count"]
    assert (state.sql, state.since_us, state.answered_us, state.rows) == (MOST, seen_us(manifest, "packets"), None, 0)
    assert notes == [f"query 'count' has changed and starts anew: {AFTER}"]
    _, found, notes = adopted({**RUNNING, "count": COUNT.replace("4 s", "8 s")}, before, manifest)
    assert notes == [f"query 'count' has changed and starts anew: {AT_ONCE}"]


@pytest.mark.parametrize(
    ("state", "note"),
    [
        pytest.param(QueryState(COUNT, failed="division by zero"), "had failed (division by zero)", id="it failed"),
        pytest.param(QueryState(COUNT, ended=True), "had ended", id="its lifetime had ended"),
    ],
)
def test_a_query_that_stopped_starts_anew(state: QueryState, note: str):
    before, manifest = running(count=state)
    # What only it needed went when it stopped.
    part = before.only(["flow"])
    coverage = {id_: manifest.coverage[id_] for id_ in part.kept}
    _, found, notes = adopted(RUNNING, part, replace(manifest, coverage=coverage))
    assert (found.queries["count"].runs, found.queries["count"].since_us) == (True, seen_us(manifest, "packets"))
    assert notes == [f"query 'count' {note} and starts anew: {AFTER}"]


def test_a_query_that_is_gone_takes_along_what_only_it_needed():
    before, manifest = running()
    workload, found, notes = adopted({"flow": FLOW}, before, manifest)
    assert list(found.queries) == ["flow"]
    assert found.coverage.keys() == workload.kept.keys() == {workload.plans["flow"].main}
    assert notes == ["query 'count' is gone: what only it needed goes with the next epoch"]


def test_a_query_that_is_refused_now_is_not_gone():
    before, manifest = running()
    workload = planned({"flow": FLOW}, before, manifest)
    refused = {"count": QueryState(COUNT, failed="no such column")}
    notes: list[str] = []
    found = carry_over(manifest, workload, refused, notes.append)
    assert (found.queries["count"], notes) == (refused["count"], [])


def test_a_measure_is_complete_since_the_latest_of_its_parts():
    queries = {name: RICH[name] for name in ("p80", "p443", "web")}
    before, manifest = running(queries)
    late = replace(manifest.coverage[before.plans["p443"].main], since_us=42)
    coverage: dict[str, Coverage] = {**manifest.coverage, before.plans["p443"].main: late}
    assert before.sources_of("web") == tuple(s.synopsis for s in before.supplies[before.plans["web"].main].suppliers)
    assert complete_since(before, "web", coverage) == 42
    assert complete_since(before, "p80", coverage) is None


def test_before_the_first_row_nothing_is_missed():
    before, manifest = running()
    quiet = replace(manifest, clocks={"packets": StreamClock(), "flows": StreamClock()})
    _, found, _ = adopted({**RUNNING, "other": OTHER}, before, quiet)
    assert found.queries["other"].since_us is None


@pytest.mark.parametrize(
    ("added", "gone"),
    [
        pytest.param([], [], id="nothing was added"),
        pytest.param(["a", "b", "on"], [], id="as many as are kept"),
        pytest.param(["a", "b", "on", "c"], ["a"], id="the oldest of those that are over goes"),
        pytest.param(["on", "c", "b", "a"], ["c"], id="in the order in which they came"),
        pytest.param(["a", "dropped", "b"], [], id="what is gone already does not count"),
    ],
)
def test_of_queries_added_to_a_run_that_are_over_the_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch, added: list[str], gone: list[str]
):
    monkeypatch.setattr(workload_module, "KEPT_OVER", 2)
    states = {
        "a": QueryState("x", ended=True),
        "b": QueryState("x", failed="why"),
        "c": QueryState("x", ended=True),
        "on": QueryState("x"),
        "of the file": QueryState("x", ended=True),
    }
    assert forgettable(states, added) == gone
