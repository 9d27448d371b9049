"""A pipeline with several sites as a placement problem, and what `explain` says of its solution."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.model import Network, Pipeline, PlacementSettings, Query, Site, SitePlan, Stream
from headrace.model.stream import Rate
from headrace.planning import KnownRates, explain, explain_text, place, placement_problem, plan_pipeline
from headrace.planning.partial import panes_name
from headrace.planning.rates import selectivity, stream_flow
from headrace.policies.placement import Infeasible, Placement, Problem

SUM = "SELECT src, SUM(length) AS bytes FROM packets [WINDOW 10 min SLIDE 2 min] WHERE port = 80 GROUP BY src"
MEDIAN = "SELECT MEDIAN(x) AS m FROM packets [WINDOW 1 min]"
JOIN = "SELECT p.src, f.x FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] ON p.src = f.src"
OVER = (
    "SELECT src, COUNT(*) AS n FROM (SELECT p.src AS src FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] "
    "ON p.src = f.src) [WINDOW 1 min] GROUP BY src"
)
ROWS = "SELECT src, AVG(length) AS a FROM packets [PARTITION BY src ROWS 100]"
#      paris ---12--- hub ---25--- rome
NETWORK = Network(("paris", "rome", "hub"), ((0.0, 30.0, 12.0), (30.0, 0.0, 25.0), (12.0, 25.0, 0.0)))
SITES = (Site("paris", ("packets", "flows")), Site("rome", ("packets",)), Site("hub", proxy=True))


@pytest.fixture(scope="module")
def pipeline_of(bind: Callable[..., Query], streams: dict[str, Stream]) -> Callable[..., Pipeline]:
    def made(rate: float = 1000.0, **queries: str) -> Pipeline:
        bound = tuple(bind(sql, name) for name, sql in queries.items())
        rated = tuple(replace(stream, rate=Rate(rows_per_s=rate)) for stream in streams.values())
        return Pipeline("p", rated, bound, sites=SITES, network=NETWORK)

    return made


def problem_of(pipeline: Pipeline, known: KnownRates | None = None) -> Problem:
    return placement_problem(pipeline, plan_pipeline(pipeline)[0], known)


def test_sources_are_at_home_where_they_are_born_and_answers_at_the_proxy(pipeline_of: Callable[..., Pipeline]):
    problem = problem_of(pipeline_of(q=SUM))
    homes = {part.name: part.home for part in problem.parts if part.home is not None}
    assert homes == {"packets@paris": "paris", "packets@rome": "rome", "answers of q": "hub"}


def test_partial_aggregates_are_made_for_each_birthplace_and_merged_once(pipeline_of: Callable[..., Pipeline]):
    problem = problem_of(pipeline_of(q=SUM))
    partials = [part.name for part in problem.parts if part.name.startswith("partial")]
    merges = [part.name for part in problem.parts if part.name.startswith("merge")]
    assert (len(partials), len(merges)) == (2, 1)
    rates = {(flow.source, flow.target): flow.bytes_per_s for flow in problem.flows}
    assert all(rates[partial, merges[0]] < 500 for partial in partials), "1000 groups in two minutes"


def test_where_panes_save_nothing_rows_travel(pipeline_of: Callable[..., Pipeline]):
    names = [part.name for part in problem_of(pipeline_of(q=MEDIAN)).parts]
    detail = [name for name in names if name.startswith("partial values")]
    assert not detail, "a median of doubles keeps every value"
    assert any(name.startswith("merge") for name in names)


def test_what_was_measured_takes_the_place_of_guesses(pipeline_of: Callable[..., Pipeline]):
    pipeline = pipeline_of(q=MEDIAN)
    workload, _ = plan_pipeline(pipeline)
    known = KnownRates({"packets": 500.0}, dict.fromkeys(workload.kept, 0.01))
    problem = placement_problem(pipeline, workload, known)
    sent = {flow.source: flow.bytes_per_s for flow in problem.flows if flow.source.startswith("packets@paris")}
    assert sent["packets@paris"] == 250 * stream_flow(pipeline.stream("packets"), known).row_bytes, "half is born there"
    assert any(part.name.startswith("partial") and "paris" in part.name for part in problem.parts)


def test_what_links_have_told_takes_the_place_of_guesses_at_each_site(pipeline_of: Callable[..., Pipeline]):
    pipeline = pipeline_of(q=SUM)
    (demand,) = plan_pipeline(pipeline)[0].plans["q"].demands
    name = panes_name(demand.synopsis, 0, demand.measures, 120_000_000)

    def flows(known: KnownRates | None) -> dict[str, float]:
        return {flow.source.partition(" [")[0]: flow.bytes_per_s for flow in problem_of(pipeline, known).flows}

    births = {("packets", "paris"): 500.0, ("packets", "rome"): 2000.0}
    partial = "partial groups for q at packets@rome"
    # As many panes as a row makes, each of so many bytes as files have for those of its types.
    few, packed = (KnownRates(births=births, sent_panes={name: 1e-3}, pane_packing={name: by}) for by in (1.0, 0.25))
    assert flows(few)[partial] == 4 * flows(packed)[partial]
    assert flows(few)[partial] == 4 * flows(few)[partial.replace("rome", "paris")]
    passed = KnownRates(births=births, travelled={("packets", "rome"): 0.5})
    rows = {f.target: f.bytes_per_s for f in problem_of(pipeline, passed).flows if f.target.startswith("partial")}
    assert rows[partial] == pytest.approx(4 * 5 * rows[partial.replace("rome", "paris")]), "a tenth is guessed"
    two = pipeline_of(q=SUM, n="SELECT src, COUNT(*) AS n FROM packets [WINDOW 1 min] WHERE port = 81 GROUP BY src")
    unknown = {f.target: f.bytes_per_s for f in problem_of(two, passed).flows if f.target == partial}
    assert unknown[partial] == pytest.approx(rows[partial] / 5), "rows of several filters tell of none"


@pytest.mark.parametrize(
    ("births", "strategy", "at_hub", "moves"),
    [
        pytest.param({}, "optimal", False, (), id="it runs as it was planned"),
        pytest.param({"rome": 100.0}, "optimal", False, (), id="other rates, and the same places"),
        pytest.param({"rome": 100.0}, "warehouse", True, (), id="a strategy is asked again"),
        pytest.param({}, "optimal", True, ("paris", "rome"), id="aggregates would begin where rows are born"),
        pytest.param({"paris": 0.01, "rome": 100.0}, "optimal", True, ("rome",), id="only where that saves anything"),
    ],
)
def test_what_runs_is_reconsidered_by_what_was_measured(
    pipeline_of: Callable[..., Pipeline],
    births: dict[str, float],
    strategy: str,
    at_hub: bool,
    moves: tuple[str, ...],
):
    pipeline = replace(pipeline_of(q=SUM), placement=PlacementSettings(strategy))
    planned = place(pipeline, plan_pipeline(pipeline)[0]).found
    assert isinstance(planned, Placement)
    sites = {name: "hub" if at_hub and name.startswith("partial") else site for name, site in planned.sites.items()}
    rates = {("packets", site): 1000.0 * births.get(site, 1.0) for site in ("paris", "rome")}
    known = KnownRates(births=rates, running=SitePlan(strategy, sites=sites))
    placed = place(pipeline, plan_pipeline(pipeline)[0], known)
    told = placed.to_json()["reconsidered"]
    assert told["moves"] == {f"partial groups for q at packets@{site}": site for site in moves}
    assert told["pays"] == bool(moves)
    said = "what runs is placed otherwise: moving saves" if moves else "what runs stays as it is: "
    assert said in placed.text()


def test_queries_that_share_a_synopsis_share_its_parts(pipeline_of: Callable[..., Pipeline]):
    problem = problem_of(pipeline_of(q=SUM, again=SUM.replace("SLIDE 2", "SLIDE 4")))
    words = [part.name.partition(" ")[0] for part in problem.parts]
    assert (words.count("partial"), words.count("merge"), words.count("answer")) == (2, 1, 2)
    assert "merge groups for q, again" in {part.name for part in problem.parts}


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        pytest.param(JOIN, "join q", id="a join"),
        pytest.param(OVER, "join below q", id="a join below an aggregate"),
        pytest.param(ROWS, "rows q", id="a row window"),
    ],
)
def test_flows_are_parts_that_may_run_anywhere(pipeline_of: Callable[..., Pipeline], sql: str, word: str):
    problem = problem_of(pipeline_of(q=sql))
    assert problem.part(word).home is None
    assert problem.part(word).load > 0


def test_answers_that_one_query_reads_twice_are_two_parts(pipeline_of: Callable[..., Pipeline]):
    minutes = "(SELECT src, COUNT(*) AS n FROM packets GROUP BY window(ts, '{} minute'), src)"
    sides = " JOIN ".join(f"{minutes.format(size)} AS m{size} [RANGE 1 min]" for size in (1, 2))
    problem = problem_of(pipeline_of(q=f"SELECT m1.n FROM {sides} ON m1.src = m2.src"))
    assert sum(part.name.startswith("answer below q") for part in problem.parts) == 2


def test_a_placement_beats_shipping_everything_and_says_by_how_much(pipeline_of: Callable[..., Pipeline]):
    pipeline = pipeline_of(q=SUM, m=MEDIAN, j=JOIN, r=ROWS)
    placed = place(pipeline, plan_pipeline(pipeline)[0])
    assert isinstance(placed.found, Placement)
    warehouse = placed.others["warehouse"]
    assert isinstance(warehouse, Placement)
    assert placed.found.cost < warehouse.cost
    assert placed.problem.faults_of(placed.found.sites) == ()
    text = explain_text(pipeline)
    assert "placement (optimal)" in text
    assert "from rome to " in text
    value = explain(pipeline)
    assert json.loads(json.dumps(value)) == value
    assert value["placement"]["sites"]["answers of q"] == "hub"


def test_a_bound_that_cannot_be_kept_is_said_to_be_impossible(pipeline_of: Callable[..., Pipeline]):
    bounded = replace(pipeline_of(q=SUM), placement=PlacementSettings(max_latency_us=20_000))
    placed = place(bounded, plan_pipeline(bounded)[0])
    assert isinstance(placed.found, Infeasible)
    assert placed.found.best_latency_ms == pytest.approx(25.0)
    assert "impossible" in placed.text()
    assert placed.to_json()["feasible"] is False


def test_a_pipeline_without_sites_has_no_placement(pipeline_of: Callable[..., Pipeline]):
    pipeline = replace(pipeline_of(q=SUM), sites=(), network=None)
    with pytest.raises(ValueError, match="has no sites"):
        problem_of(pipeline)
    assert "placement" not in explain(pipeline)


@pytest.mark.parametrize(
    ("where", "share"),
    [
        pytest.param(None, 1.0, id="no filter"),
        pytest.param("s.a = 1", 0.1, id="one value"),
        pytest.param("s.a = 1 OR s.b = 2", 0.19, id="either"),
        pytest.param("NOT (s.a = 1)", 0.9, id="the others"),
        pytest.param("s.a IN (1, 2, 3)", 0.3, id="some values"),
        pytest.param("s.a BETWEEN 1 AND 2", 1 / 3, id="a range"),
        pytest.param("s.a LIKE 'x%' AND s.b IS NULL", 0.005, id="a pattern and a NULL"),
        pytest.param("true", 1.0, id="always"),
        pytest.param("((((", 1 / 3, id="what cannot be read is guessed"),
    ],
)
def test_filters_are_guessed_by_their_form(where: str | None, share: float):
    assert selectivity(where) == pytest.approx(share)
