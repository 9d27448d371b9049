"""A tree of places under a burst: rows are kept as planned, capacities hold, and what is sent arrives later."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    PlacePlan,
    Port,
    Throughput,
    load_of,
    outcome,
    plan_centrally,
    take_in_turn,
)
from headrace.policies.shedding.fit import TableSettings, Terms, build_table, build_tables, look_up
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


class TestFigure1:
    """The paper's Figure 1 under a row per second of each input: costs (1, 2) at A, then (3, 1) at B."""

    settings = TableSettings(error=0.01)

    def place(self, name: str, children: tuple[Port | None, Port | None] = (None, None)) -> Place:
        costs = {"A": (1.0, 2.0), "B": (3.0, 1.0)}[name]
        pairs = zip(("1", "2"), costs, children, strict=True)
        branches = ((each, Branch("on", cost, child=to, queries=() if to else (each,))) for each, cost, to in pairs)
        return Place(name, tuple(Input(each, (branch,)) for each, branch in branches))

    @pytest.mark.parametrize(
        ("knows", "reached"),
        [
            pytest.param("nothing", 1 / 2, id="plans 0 and 1: both take rows in turn"),
            pytest.param("itself", 1 / 3, id="plan 2: A keeps what is best for A"),
            pytest.param("tables", 3 / 5, id="plan 4: A has the table of B"),
        ],
    )
    def test_what_reaches_answers_depends_on_what_a_knows(self, knows: str, reached: float):
        network = Network((self.place("A", (Port("B", "1"), Port("B", "2"))), self.place("B")))
        alone = {"A": build_table(self.place("A"), {}, Throughput(), self.settings)}
        told = build_tables(network, Terms(settings=self.settings)).places

        def decide(place: Place, arriving: Sequence[float], now: float) -> PlacePlan:
            prepared = {"nothing": {}, "itself": alone, "tables": told}[knows].get(place.name)
            return take_in_turn(place, arriving) if prepared is None else look_up(prepared, arriving)

        # Ten times a tenth of a row per second.
        burst = Burst(at_s=0.5, times=10.0, until_s=2.0)
        seconds = play_burst(network, dict.fromkeys(network.sources, 0.1), burst, decide)
        assert seconds[-1].worth == pytest.approx(reached, rel=1e-6)
