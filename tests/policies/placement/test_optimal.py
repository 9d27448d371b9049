"""The optimum is what trying every placement finds; strategies cost at least as much, and order as in the paper."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from placements import anyhow, binary_tree, judge_all, on_a_plane, small_problem

from headrace.policies.placement import STRATEGIES, Infeasible, Placement, Problem, optimal, warehouse
from headrace.policies.placement.forest import forest_of, is_forest
from headrace.policies.placement.fronts import best_within

CLOSE = 1e-7


def variants(rng: random.Random, problem: Problem, share: float | None = None) -> Iterator[Problem]:
    """With and without a latency bound and capacities; the bound binds, or is that share of what can be kept."""
    judged = judge_all(problem)
    least, cheapest = judged.latency_ms.min(), judged.latency_ms[judged.cost.argmin()]
    bound = least + (cheapest - least) * rng.choice((0.0, rng.random())) if share is None else least * share
    full = {site: rng.choice((0.0, 1.0, 2.0, 3.0, 4.0)) for site in problem.network.sites if rng.random() < 0.6}
    for max_latency_ms in (None, bound):
        for capacity in ({}, full):
            yield replace(problem, max_latency_ms=max_latency_ms, capacity=capacity)


def assert_best(problem: Problem, found: Placement | Infeasible) -> None:
    """Equal to the best of all placements, or infeasible with the best latency if there is none."""
    judged = judge_all(problem)
    least = judged.least_cost(problem.max_latency_ms)
    if least is None:
        assert isinstance(found, Infeasible)
        best = judged.least_latency_ms()
        if problem.max_latency_ms is None or best is None:
            assert found.best_latency_ms is None
        else:
            assert found.best_latency_ms == pytest.approx(best, rel=CLOSE, abs=CLOSE)
    else:
        assert isinstance(found, Placement), found.reason
        assert problem.faults_of(found.sites) == ()
        assert found.cost == pytest.approx(least, rel=CLOSE, abs=CLOSE)
        assert found.cost == problem.cost_of(found.sites)
        assert found.latency_ms == problem.latency_of(found.sites)


# Three hundred in all; several tests, so that a failure names its thirty seeds.
@pytest.mark.parametrize("tens", range(10))
def test_the_optimum_is_what_trying_everything_finds(tens: int):
    for seed in range(30 * tens, 30 * tens + 30):
        rng = random.Random(seed)
        for problem in variants(rng, small_problem(rng)):
            assert_best(problem, optimal(problem))


def test_a_bound_below_the_best_latency_is_refused_with_that_latency():
    for seed in range(40):
        rng = random.Random(seed)
        for problem in variants(rng, small_problem(rng, shared=seed % 2 == 1), share=0.9):
            assert_best(problem, optimal(problem))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "optimal"])
def test_no_strategy_breaks_a_rule_or_beats_the_optimum(name: str):
    placed = 0
    for seed in range(24):
        rng = random.Random(seed)
        for problem in variants(rng, small_problem(rng, shared=seed % 2 == 1)):
            found, least = STRATEGIES[name](problem), judge_all(problem).least_cost(problem.max_latency_ms)
            if isinstance(found, Placement):
                placed += 1
                assert least is not None
                assert problem.faults_of(found.sites) == ()
                assert found.cost >= least * (1 - CLOSE) - CLOSE
    assert placed > 40


@pytest.mark.parametrize(
    ("clustered", "stretch"),
    [
        pytest.param(False, None, id="sources anywhere"),
        pytest.param(False, 1.2, id="sources anywhere, within a bound"),
        pytest.param(True, None, id="sources near each other"),
        pytest.param(True, 1.2, id="sources near each other, within a bound"),
    ],
)
def test_strategies_cost_what_the_paper_orders_them_by(clustered: bool, stretch: float | None):
    costs: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for seed in range(12):
        rng = random.Random(seed)
        problem = binary_tree(rng, on_a_plane(rng, 40), 3 + seed % 3, clustered)
        if stretch is not None:
            straight = warehouse(problem)
            assert isinstance(straight, Placement)
            problem = replace(problem, max_latency_ms=stretch * straight.latency_ms)
        for name, strategy in STRATEGIES.items():
            found = strategy(problem)
            assert isinstance(found, Placement)
            costs[name].append(found.cost)
    over_optimum = {name: np.array(found) / np.array(costs["optimal"]) for name, found in costs.items()}
    assert min(ratios.min() for ratios in over_optimum.values()) >= 1 - CLOSE
    mean = {name: float(ratios.mean()) for name, ratios in over_optimum.items()}
    assert mean["in-network"] <= mean["edge+"] < mean["edge"] < mean["warehouse"], mean


@pytest.mark.parametrize("seed", range(8))
def test_ruling_sites_out_does_not_change_the_optimum_within_a_bound(seed: int):
    rng = random.Random(seed)
    network = anyhow(rng, 14) if seed % 4 == 3 else on_a_plane(rng, 14)
    problem = binary_tree(rng, network, 3, clustered=seed % 2 == 1)
    arrays = problem.arrays
    forest = forest_of(arrays, arrays.everywhere())
    cheapest = arrays.latency(forest.sites(forest.best(forest.inside())))
    quickest = problem.best_latency_ms
    assert quickest is not None
    for share in (0.0, 0.1, 0.4, 0.8):
        bound = quickest + share * (cheapest - quickest)
        whole, ruled_out = best_within(forest, bound, few_columns=10**9), best_within(forest, bound, few_columns=0)
        assert whole is not None
        assert ruled_out is not None
        assert forest.cost(ruled_out) == pytest.approx(forest.cost(whole), rel=CLOSE)
        assert arrays.keeps(forest.sites(ruled_out), bound)


def test_a_bound_that_nothing_keeps_is_said_to_be_so_with_the_best_latency():
    rng = random.Random(5)
    problem = binary_tree(rng, on_a_plane(rng, 20), 3)
    straight = warehouse(problem)
    assert isinstance(straight, Placement)
    for name, strategy in STRATEGIES.items():
        found = strategy(replace(problem, max_latency_ms=straight.latency_ms * 0.99))
        assert isinstance(found, Infeasible), name
        # Where distances keep to the triangle inequality, nothing is quicker than the straight way.
        assert found.best_latency_ms == pytest.approx(straight.latency_ms)
        assert "the best latency there could be is" in found.reason


def test_hundreds_of_sites_and_thirty_one_operators_are_one_pass():
    rng = random.Random(1)
    problem = binary_tree(rng, on_a_plane(rng, 200), 5)
    assert is_forest(problem.arrays, problem.arrays.everywhere())
    found = optimal(problem)
    assert isinstance(found, Placement)
    assert found.reason == "one pass over the operators: the least cost there is"
    for site in rng.sample(problem.network.sites, 10):
        for operator in rng.sample(sorted(part.name for part in problem.parts if part.home is None), 10):
            assert problem.cost_of({**found.sites, operator: site}) >= found.cost * (1 - CLOSE)
