"""Several queries: what they share is paid once, and placing them together never costs more than one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from placements import judge_all, on_a_plane, small_problem

from headrace.model import Network
from headrace.policies.placement import Flow, Infeasible, Part, Placement, Problem, one_by_one, optimal, together
from headrace.policies.placement import least_cost as deciding
from headrace.policies.placement.integer import Verdict, least_cost

CLOSE = 1e-7


def shared_problems(count: int) -> list[tuple[int, Problem]]:
    """Small problems with a part that several read, by seed."""
    found: list[tuple[int, Problem]] = []
    for seed in range(10 * count):
        problem = small_problem(random.Random(seed), shared=True)
        if not problem.is_tree:
            found.append((seed, problem))
    return found[:count]


def with_bounds(seed: int, problem: Problem) -> Problem:
    """The same with a latency bound, capacities, both or neither, by turns."""
    rng, judged = random.Random(seed), judge_all(problem)
    least, cheapest = judged.latency_ms.min(), judged.latency_ms[judged.cost.argmin()]
    if seed % 4 in (1, 3):
        problem = replace(problem, max_latency_ms=least + (cheapest - least) * rng.random())
    if seed % 4 in (2, 3):
        full = {site: rng.choice((1.0, 2.0, 3.0)) for site in problem.network.sites if rng.random() < 0.6}
        problem = replace(problem, capacity=full)
    return problem


def test_one_hundred_small_problems_are_placed_as_trying_everything_and_the_integer_program_would():
    better = 0
    for seed, plain in shared_problems(100):
        problem = with_bounds(seed, plain)
        arrays = problem.arrays
        least = judge_all(problem).least_cost(problem.max_latency_ms)
        found, apart = together(problem), one_by_one(problem)
        program = least_cost(arrays, arrays.everywhere(), problem.max_latency_ms)
        if least is None:
            assert program.verdict is Verdict.NONE
            assert isinstance(found, Infeasible)
            assert isinstance(apart, Infeasible)
            continue
        assert program.at is not None
        assert program.verdict is Verdict.PROVED
        assert isinstance(found, Placement)
        assert problem.faults_of(found.sites) == ()
        assert found.cost == pytest.approx(least, rel=CLOSE, abs=CLOSE)
        assert found.cost == pytest.approx(arrays.cost(program.at), rel=CLOSE, abs=CLOSE)
        if isinstance(apart, Placement):
            assert problem.faults_of(apart.sites) == ()
            assert found.cost <= apart.cost * (1 + CLOSE) + CLOSE
            better += found.cost < apart.cost * 0.999
    assert better > 5


def many_queries(rng: random.Random, sites: int, queries: int) -> Problem:
    """Filters at a few sites, each read by several queries that merge what they read, some of it after a partial."""
    network = on_a_plane(rng, sites)
    parts, flows, filters = list[Part](), list[Flow](), list[tuple[str, float]]()
    for number in range(5):
        rate = rng.uniform(10, 100)
        parts += [Part(f"source{number}", rng.choice(network.sites)), Part(f"filter{number}", load=1.0)]
        flows.append(Flow(f"source{number}", f"filter{number}", rate))
        filters.append((f"filter{number}", rate * rng.uniform(0.2, 1)))
    for query in range(queries):
        parts += [Part(f"merge{query}", load=1.0), Part(f"answers{query}", network.sites[0])]
        # The first queries read every filter, so that none is left over.
        wanted = filters if query == 0 else rng.sample(filters, 3)
        for number, (name, rate) in enumerate(wanted):
            if rng.random() < 0.5:
                parts.append(Part(f"partial{query}.{number}", load=1.0))
                flows.append(Flow(name, f"partial{query}.{number}", rate))
                name, rate = f"partial{query}.{number}", rate * rng.uniform(0, 0.5)
            flows.append(Flow(name, f"merge{query}", rate))
        flows.append(Flow(f"merge{query}", f"answers{query}", rng.uniform(1, 20)))
    return Problem(tuple(parts), tuple(flows), network)


@pytest.mark.parametrize("small", [pytest.param(0, id="by search alone"), pytest.param(400, id="refined by programs")])
@pytest.mark.parametrize("bounded", [pytest.param(False, id="free"), pytest.param(True, id="bounded and full")])
def test_a_search_is_never_worse_than_one_by_one(small: int, bounded: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deciding, "SMALL", small)
    better = 0
    for seed in range(3):
        problem = many_queries(random.Random(seed), 8, 4)
        if bounded:
            longest = max(map(max, problem.network.latency_ms))
            problem = replace(problem, max_latency_ms=1.5 * longest, capacity=dict.fromkeys(problem.network.sites, 4.0))
        found, apart = together(problem), one_by_one(problem)
        assert isinstance(found, Placement)
        assert problem.faults_of(found.sites) == ()
        assert found.reason == "a search from the best of several placements: the least cost found"
        if isinstance(apart, Placement):
            assert found.cost <= apart.cost * (1 + CLOSE)
            better += found.cost < apart.cost * 0.999
    assert better > 0


NET = Network(("a", "b", "hub"), ((0.0, 10.0, 100.0), (10.0, 0.0, 100.0), (100.0, 100.0, 0.0)))


def two_readers(widths: tuple[float, float]) -> Problem:
    """One source at a; two operators that read it, and whose answers are wanted at the hub."""
    return Problem(
        (Part("s", "a"), Part("x"), Part("y"), Part("ax", "hub"), Part("ay", "hub")),
        (Flow("s", "x", widths[0]), Flow("s", "y", widths[1]), Flow("x", "ax", 60.0), Flow("y", "ay", 60.0)),
        NET,
    )


def test_two_operators_go_together_where_each_alone_would_stay():
    """Alone, each saves by staying at the source: 60 instead of 100 travel. Together they share the 100."""
    problem = two_readers((100.0, 100.0))
    apart, found = one_by_one(problem), together(problem)
    assert isinstance(apart, Placement)
    assert isinstance(found, Placement)
    assert (apart.sites["x"], apart.sites["y"], apart.cost) == ("a", "a", 12_000.0)
    assert (found.sites["x"], found.sites["y"], found.cost) == ("hub", "hub", 10_000.0)
    assert found.reason == "an integer program: the least cost there is"


def test_of_two_flows_to_one_site_the_wider_is_paid():
    problem = two_readers((100.0, 110.0))
    at_hub = {"s": "a", "x": "hub", "y": "hub", "ax": "hub", "ay": "hub"}
    assert problem.cost_of(at_hub) == 11_000.0
    found = together(problem)
    assert isinstance(found, Placement)
    assert found.cost == 11_000.0


def test_a_query_that_cannot_be_placed_after_others_is_named():
    problem = replace(two_readers((100.0, 100.0)), max_latency_ms=50.0)
    found = one_by_one(problem)
    assert isinstance(found, Infeasible)
    assert found.reason.startswith("answers 'ax', placed after others: no placement")
    assert found.best_latency_ms == 100.0


def test_several_queries_without_common_parts_are_one_pass():
    problem = two_readers((100.0, 100.0))
    parts = (*(part for part in problem.parts if part.name != "s"), Part("s", "a"), Part("t", "b"))
    flows = tuple(replace(flow, source="t") if flow.target == "y" else flow for flow in problem.flows)
    found = optimal(replace(problem, parts=parts, flows=flows))
    assert isinstance(found, Placement)
    assert found.cost == 12_000.0
    assert found.reason == "one pass over the operators: the least cost there is"
