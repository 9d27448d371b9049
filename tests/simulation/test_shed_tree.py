"""A tree of places under a burst: rows are kept as planned, capacities hold, and what is sent arrives later."""

from __future__ import annotations

import random

import pytest

from headrace.policies.shedding import Throughput, load_of, outcome, plan_centrally
from headrace.simulation.shed_tree import Burst, judged, levels_of, pass_rows, play_burst, shedding_tree

BURST = Burst(at_s=0.5, until_s=2.0)


def test_nothing_is_shed_before_the_burst():
    network, rates = shedding_tree(random.Random(1), 3, 2)
    assert len(network.places) == 15
    assert max(levels_of(network).values()) == 3
    plan = plan_centrally(network, rates, Throughput())
    found = outcome(network, rates, plan, Throughput())
    assert judged(network, rates, plan) == pytest.approx(float(found.worth))
    assert all(0.39 < float(found.loads[place.name]) / float(place.capacity) < 0.91 for place in network.places)


def test_a_place_carries_no_more_than_its_capacity_whatever_its_plan_keeps():
    network, rates = shedding_tree(random.Random(2), 1, 2)
    root = network.by_name["p"]
    arriving = [5 * rates[port] for port in network.sources]
    flows = pass_rows(root, arriving, None)
    taken = [max(flows[start:stop]) for start, stop in root.spans]
    assert float(load_of(root, taken, flows)) == pytest.approx(float(root.capacity))


def test_answers_change_one_latency_per_level_after_the_burst():
    network, rates = shedding_tree(random.Random(3), 2, 2)
    seconds = play_burst(network, rates, BURST, lambda place, arriving, now: None)
    changed = next(second.at_s for second in seconds if abs(second.worth - seconds[0].worth) > 1e-6)
    assert changed == pytest.approx(BURST.at_s + 2 * BURST.latency_s)


def test_a_plan_for_the_burst_reaches_the_optimum():
    network, rates = shedding_tree(random.Random(4), 2, 2)
    loud = {port: BURST.times * rate for port, rate in rates.items()}
    plan = plan_centrally(network, loud, Throughput())
    seconds = play_burst(network, rates, BURST, lambda place, arriving, now: plan.places[place.name])
    assert plan.bound is not None
    assert seconds[-1].worth == pytest.approx(float(plan.bound), rel=1e-6)
