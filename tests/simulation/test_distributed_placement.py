"""Placement by coordinators: what the central version would decide, whatever befalls messages and coordinators."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from random_trees import bounded, plane, random_tree, uniform_tree

from headrace.model import Network
from headrace.policies.placement.distributed import Variant
from headrace.policies.placement.edge import edge
from headrace.policies.placement.optimal import optimal
from headrace.policies.placement.problem import Flow, Infeasible, Part, Placement, Problem
from headrace.simulation.distributed_placement import DistributedResult, place_distributed
from headrace.simulation.overlay import Faults, Overlay

INSTANCES = 200
VARIANTS: tuple[Variant, ...] = ("edge", "edge+", "in-network")
ROUGH = Faults(loss=0.2, jitter_ms=120.0, crashes=3, crash_share=0.1)


def instance(seed: int, *, is_bounded: bool) -> tuple[Problem, int]:
    """A small tree on a small network, and how many levels of operators its zones have."""
    rng = random.Random(seed)
    network = plane(rng, rng.randint(4, 12))
    problem = random_tree(rng, network, rng.randint(2, 10))
    return (bounded(problem, rng) if is_bounded else problem), rng.randint(1, 3)


def placed(result: DistributedResult) -> Placement:
    assert isinstance(result.placement, Placement), result.placement.reason
    return result.placement


@pytest.mark.parametrize("is_bounded", [pytest.param(False, id="no bound"), pytest.param(True, id="a bound on paths")])
def test_distributed_edge_costs_what_central_edge_costs(is_bounded: bool):
    remapped = 0
    for seed in range(INSTANCES):
        problem, zones = instance(seed, is_bounded=is_bounded)
        central = edge(problem)
        assert isinstance(central, Placement)
        result = place_distributed(problem, "edge", rng=random.Random(seed), zones=zones)
        assert placed(result).cost == pytest.approx(central.cost), f"seed {seed}"
        assert problem.faults_of(placed(result).sites) == ()
        remapped += result.messages.get("OPERATOR_REMAPPED", 0)
    assert remapped > INSTANCES / 4, "backtracking is part of what agrees"


@pytest.mark.parametrize("is_bounded", [pytest.param(False, id="no bound"), pytest.param(True, id="a bound on paths")])
def test_distributed_edge_agrees_although_messages_are_lost_and_overtake_each_other_and_coordinators_fail(
    is_bounded: bool,
):
    lost = crashed = 0
    for seed in range(INSTANCES):
        problem, zones = instance(seed, is_bounded=is_bounded)
        central = edge(problem)
        assert isinstance(central, Placement)
        result = place_distributed(problem, "edge", rng=random.Random(seed), zones=zones, faults=ROUGH)
        assert placed(result).cost == pytest.approx(central.cost), f"seed {seed}"
        lost += result.lost
        crashed += len(result.crashed)
    assert lost > 10 * INSTANCES
    assert crashed > INSTANCES / 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(jitter_ms=500.0), id="messages are late"),
        pytest.param(Faults(loss=0.6), id="most messages are lost"),
        pytest.param(Faults(crashes=9, crash_share=0.3), id="nearly all coordinators fail"),
        pytest.param(replace(ROUGH, crashes=9), id="everything at once"),
    ],
)
def test_faults_change_no_placement(variant: Variant, faults: Faults):
    for seed in range(12):
        problem, zones = instance(1000 + seed, is_bounded=seed % 2 == 1)
        calm = place_distributed(problem, variant, rng=random.Random(seed), zones=zones)
        rough = place_distributed(problem, variant, rng=random.Random(seed), zones=zones, faults=faults)
        assert rough.placement == calm.placement, f"seed {seed}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_is_a_function_of_its_seed(variant: Variant):
    problem, _ = instance(7, is_bounded=True)
    runs = [place_distributed(problem, variant, rng=random.Random(seed), faults=ROUGH) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# --- what is counted (section 5) ---


def summands(fanout: int, height: int, levels: int) -> list[int]:
    """(d - 1) d^(2(h - jt)) for j = 1 to h/t, the terms of the paper's sum; j = 1 is the proxy's zone."""
    return [(fanout - 1) * fanout ** (2 * (height - j * levels)) for j in range(1, height // levels + 1)]


def test_the_sum_of_the_paper():
    assert sum(summands(2, 5, 1)) == 341


SHAPES = [
    pytest.param(2, 5, 1, id="d = 2, h = 5, t = 1"),
    pytest.param(2, 4, 1, id="d = 2, h = 4, t = 1"),
    pytest.param(2, 4, 2, id="d = 2, h = 4, t = 2"),
    pytest.param(2, 6, 2, id="d = 2, h = 6, t = 2"),
    pytest.param(2, 6, 3, id="d = 2, h = 6, t = 3"),
    pytest.param(3, 3, 1, id="d = 3, h = 3, t = 1"),
    pytest.param(3, 2, 2, id="d = 3, h = 2, t = 2"),
    pytest.param(4, 2, 1, id="d = 4, h = 2, t = 1"),
]


@pytest.mark.parametrize(("fanout", "height", "levels"), SHAPES)
def test_distances_gathered_on_the_way_to_the_root_are_the_sum_of_section_5(fanout: int, height: int, levels: int):
    """The sum has one coordinator per level of zones: those that one leaf's MAP passes on its way to the proxy.

    What a coordinator gathers for the operators at its zone's boundary is one summand, whichever way the MAP takes.
    """
    problem = uniform_tree(random.Random(1), plane(random.Random(2), 100), fanout, height)
    result = place_distributed(problem, "edge+", rng=random.Random(0), zones=levels)
    for leaf in range(fanout**height):
        depths = [j * levels - 1 for j in range(1, height // levels + 1)]
        passed = [f"o{depth}.{leaf // fanout ** (height - depth)}" for depth in depths]
        assert [result.gathered[operator] for operator in passed] == summands(fanout, height, levels)


@pytest.mark.parametrize(("fanout", "height", "levels"), SHAPES)
def test_all_messages_of_a_tree(fanout: int, height: int, levels: int):
    problem = uniform_tree(random.Random(1), plane(random.Random(2), 100), fanout, height)
    result = place_distributed(problem, "edge+", rng=random.Random(0), zones=levels)
    leaves, operators = fanout**height, sum(fanout**depth for depth in range(height))
    zones = sum(fanout**depth for depth in range(0, height, levels))
    remapped = result.messages.get("INVALIDATE_MAP", 0)
    assert result.messages["ADD_SUBTREE"] == zones == len(result.coordinators)
    # The proxy starts every source, which forwards; every zone but the proxy's own then forwards once.
    assert result.messages["MAP"] == 2 * leaves + zones - 1
    assert result.messages["OPERATOR_MAPPED"] == leaves + operators + remapped
    # Every operator compares the places below its anchor with those below its other inputs.
    everything = sum(fanout**j * fanout ** (2 * (height - j - 1)) for j in range(height)) * (fanout - 1)
    assert result.messages["MEASURE"] == sum(result.gathered.values()) == everything
    assert result.hops >= result.messages["ADD_SUBTREE"] - 1


def test_edge_without_a_bound_gathers_no_distances():
    problem = uniform_tree(random.Random(1), plane(random.Random(2), 40), 2, 4)
    assert "MEASURE" not in place_distributed(problem, "edge", rng=random.Random(0)).messages


def test_larger_zones_send_fewer_messages():
    problem = uniform_tree(random.Random(1), plane(random.Random(2), 40), 2, 4)
    counts = [
        sum(place_distributed(problem, "edge", rng=random.Random(0), zones=levels).messages.values())
        for levels in (1, 2, 4)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2]


# --- the variants against each other ---


def test_variants_keep_to_the_problem_cost_no_less_than_the_optimum_and_gain_by_knowing_more():
    network = plane(random.Random(5), 60)
    overlay, ratios = Overlay(network), dict.fromkeys(VARIANTS, 0.0)
    for seed in range(10):
        problem = uniform_tree(random.Random(seed), network, 2, 4)
        if seed % 2:
            problem = bounded(problem, random.Random(seed))
        best = optimal(problem)
        assert isinstance(best, Placement)
        for variant in VARIANTS:
            found = placed(place_distributed(problem, variant, rng=random.Random(0), overlay=overlay))
            assert problem.faults_of(found.sites) == ()
            assert found.cost >= best.cost * (1 - 1e-9)
            ratios[variant] += found.cost / best.cost
    assert ratios["in-network"] <= ratios["edge+"] < ratios["edge"]


def test_in_network_uses_sites_that_are_neither_sources_nor_the_proxy():
    network = plane(random.Random(5), 300)
    inside = 0
    for seed in range(8):
        problem = uniform_tree(random.Random(seed), network, 2, 4)
        homes = {part.home for part in problem.parts}
        found = placed(place_distributed(problem, "in-network", rng=random.Random(0)))
        inside += sum(site not in homes for site in found.sites.values())
    assert inside > 0


# --- corners ---

NEAR = Network(("paris", "rome", "hub"), ((0.0, 30.0, 12.0), (30.0, 0.0, 25.0), (12.0, 25.0, 0.0)))


def two_streams(max_latency_ms: float | None = None) -> Problem:
    parts = (Part("a", "paris"), Part("b", "rome"), Part("join"), Part("answers", "hub"))
    flows = (Flow("a", "join", 100.0), Flow("b", "join", 10.0), Flow("join", "answers", 1.0))
    return Problem(parts, flows, NEAR, max_latency_ms)


def test_a_worked_case():
    result = place_distributed(two_streams(), "edge", rng=random.Random(0))
    assert placed(result).sites == {"a": "paris", "b": "rome", "join": "paris", "answers": "hub"}
    assert placed(result).cost == 10.0 * 30.0 + 1.0 * 12.0
    assert result.messages == {"ADD_SUBTREE": 1, "OPERATOR_MAPPED": 3, "MAP": 4}
    assert result.coordinators == {"answers": "hub"}


def test_a_bound_keeps_the_join_from_the_detour():
    assert placed(place_distributed(two_streams(41.9), "edge", rng=random.Random(0))).sites["join"] == "hub"
    assert placed(place_distributed(two_streams(42.0), "edge", rng=random.Random(0))).sites["join"] == "paris"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bound_that_nothing_keeps_is_refused_with_what_could_be_had(variant: Variant):
    result = place_distributed(two_streams(24.0), variant, rng=random.Random(0))
    assert isinstance(result.placement, Infeasible)
    assert result.placement == edge(two_streams(24.0))
    assert result.placement.best_latency_ms == 25.0
    assert result.messages == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_operator_with_a_home_stays_there(variant: Variant):
    parts = (Part("a", "paris"), Part("clean"), Part("join", "rome"), Part("late"), Part("answers", "hub"))
    flows = (
        Flow("a", "clean", 100.0),
        Flow("clean", "join", 10.0),
        Flow("join", "late", 8.0),
        Flow("late", "answers", 1.0),
    )
    for bound in (None, 62.0):
        problem = Problem(parts, flows, NEAR, bound)
        found = placed(place_distributed(problem, variant, rng=random.Random(0), faults=ROUGH))
        assert problem.faults_of(found.sites) == ()
        assert found.sites["clean"] == "paris"
        assert found.sites["late"] == "rome"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stream_without_operators_goes_straight_to_the_answers(variant: Variant):
    problem = Problem((Part("a", "paris"), Part("answers", "hub")), (Flow("a", "answers", 2.0),), NEAR, 20.0)
    result = place_distributed(problem, variant, rng=random.Random(0))
    assert placed(result).sites == {"a": "paris", "answers": "hub"}
    assert result.messages == {"ADD_SUBTREE": 1, "OPERATOR_MAPPED": 1, "MAP": 2}


def test_the_overlay_of_another_network_is_refused():
    with pytest.raises(ValueError, match="their sites differ"):
        place_distributed(two_streams(), "edge", rng=random.Random(0), overlay=Overlay(plane(random.Random(0), 3)))


def test_without_faults_chance_plays_no_part():
    problem, _ = instance(3, is_bounded=True)
    first, second = (place_distributed(problem, "in-network", rng=random.Random(seed)) for seed in (1, 2))
    assert first == second
