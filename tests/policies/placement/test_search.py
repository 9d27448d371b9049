"""What helps where sites are full or parts are shared: fewer sites to weigh, and steps that never make it worse."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from placements import binary_tree, on_a_plane, small_problem

from headrace.policies.placement import Placement, Problem, optimal
from headrace.policies.placement import least_cost as deciding
from headrace.policies.placement.forest import forest_of
from headrace.policies.placement.integer import Verdict, least_cost
from headrace.policies.placement.narrow import worthwhile
from headrace.policies.placement.search import improved, repaired, total_cost

CLOSE = 1e-7


def crowded(seed: int, room: float) -> Problem:
    """Seven operators that would like to share sites that have little room."""
    rng = random.Random(seed)
    network = on_a_plane(rng, 10)
    return replace(binary_tree(rng, network, 3, clustered=True), capacity=dict.fromkeys(network.sites, room))


@pytest.mark.parametrize("room", [1.0, 2.0])
def test_sites_that_are_ruled_out_are_not_in_the_best_placement(room: float):
    kept = 0
    for seed in range(3):
        problem = crowded(seed, room)
        arrays = problem.arrays
        whole = least_cost(arrays, arrays.everywhere(), None)
        assert whole.at is not None
        sites = worthwhile(arrays, forest_of(arrays, arrays.everywhere()), arrays.cost(whole.at))
        assert all(site in choices for site, choices in zip(whole.at, sites, strict=True))
        fewer = least_cost(arrays, sites, None)
        assert fewer.verdict is Verdict.PROVED
        assert fewer.at is not None
        assert arrays.cost(fewer.at) == pytest.approx(arrays.cost(whole.at), rel=CLOSE)
        kept += sum(len(sites[part]) for part in arrays.free)
    # Of 210 pairs of an operator and a site.
    assert kept < 190


def test_a_large_problem_with_full_sites_is_exact_once_sites_are_ruled_out(monkeypatch: pytest.MonkeyPatch):
    exact = 0
    for seed in range(3):
        problem = crowded(seed, 2.0)
        whole = optimal(problem)
        with monkeypatch.context() as patched:
            # Too few for all ten sites of each operator, enough for those that are left.
            patched.setattr(deciding, "SMALL", 500)
            fewer = optimal(problem)
        assert isinstance(whole, Placement)
        assert isinstance(fewer, Placement)
        assert problem.faults_of(fewer.sites) == ()
        assert fewer.cost >= whole.cost * (1 - CLOSE)
        if fewer.reason == whole.reason:
            exact += 1
            assert fewer.cost == pytest.approx(whole.cost, rel=CLOSE)
    assert exact > 0


@pytest.mark.parametrize("bounded", [False, True])
def test_a_step_never_makes_it_worse_or_breaks_a_rule(bounded: bool):
    better = 0
    for seed in range(40):
        rng = random.Random(seed)
        problem = small_problem(rng, shared=True)
        arrays = problem.arrays
        start = [rng.randrange(len(arrays.sites)) if home is None else home for home in arrays.home]
        bound = arrays.latency(start) if bounded else None
        room = dict(zip(arrays.sites, arrays.loads(start).tolist(), strict=True)) if bounded else {}
        problem = replace(problem, max_latency_ms=bound, capacity=room)
        charges = [np.array([rng.uniform(0, 50) for _ in arrays.sites]) for _ in arrays.names]
        found = improved(problem.arrays, arrays.everywhere(), start, bound, charges)
        assert problem.faults_of(arrays.named(found)) == ()
        assert total_cost(arrays, found, charges) <= total_cost(arrays, start, charges)
        better += found != start
    assert better > 10


@pytest.mark.parametrize(
    "room", [pytest.param(None, id="with room anywhere"), pytest.param(1.0, id="with little room")]
)
def test_in_the_end_no_part_alone_has_a_better_site(room: float | None):
    for seed in range(80):
        rng = random.Random(seed)
        problem = small_problem(rng, shared=True)
        arrays = problem.arrays
        start = [rng.randrange(len(arrays.sites)) if home is None else home for home in arrays.home]
        if room is not None:
            left = {site: load + room for site, load in zip(arrays.sites, arrays.loads(start).tolist(), strict=True)}
            arrays = replace(problem, capacity=left).arrays
        found = improved(arrays, arrays.everywhere(), start, None)
        for part in arrays.free:
            for site in range(len(arrays.sites)):
                moved = [site if other == part else at for other, at in enumerate(found)]
                assert arrays.cost(moved) >= arrays.cost(found) * (1 - CLOSE) or not arrays.keeps(moved, None)


def test_parts_leave_full_sites():
    found = 0
    for seed in range(10):
        problem = crowded(seed, 1.0)
        arrays = problem.arrays
        hub = problem.network.position(problem.part("answers").home or "")
        start = [hub if home is None else home for home in arrays.home]
        at = repaired(arrays, arrays.everywhere(), start, None)
        if at is not None:
            found += 1
            assert problem.faults_of(arrays.named(at)) == ()
    assert found == 10


def test_a_problem_that_fits_nowhere_is_not_repaired():
    problem = crowded(0, 0.5)
    start = [0 if home is None else home for home in problem.arrays.home]
    assert repaired(problem.arrays, problem.arrays.everywhere(), start, None) is None
