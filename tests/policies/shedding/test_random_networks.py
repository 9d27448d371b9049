"""Tables against the optimum and against uncoordinated shedding, on random trees and graphs.

`HEADRACE_TREES=500 HEADRACE_GRAPHS=200` tries that many networks, and `-s` prints how plans compare to the optimum.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

import numpy as np

from headrace.policies.shedding import (
    Amount,
    Fair,
    Network,
    Outcome,
    Plan,
    Port,
    Throughput,
    expected,
    offered,
    outcome,
    plan_centrally,
    plan_uncoordinated,
)
from headrace.policies.shedding.fit import (
    Terms,
    agree_on_shares,
    bound_worth,
    build_tables,
    plan_by_tables,
    share_prices,
)
from policies.shedding.worlds import random_graph, random_tree

TREES = int(os.environ.get("HEADRACE_TREES", "16"))
GRAPHS = int(os.environ.get("HEADRACE_GRAPHS", "3"))
TOTAL = Throughput()


class Compared:
    """Worths over the optimum, of plans by tables and of uncoordinated plans, and the stated errors."""

    def __init__(self) -> None:
        self.by_tables: list[float] = []
        self.uncoordinated: list[float] = []
        self.stated: list[float] = []

    def add(self, seed: int, network: Network, rates: Mapping[Port, Amount], plan: Plan, bound: float) -> None:
        """Compares one plan; `bound` is the most that the tables say any plan can be worth."""

        def judged(each: Plan) -> Outcome:
            found = outcome(network, rates, each, TOTAL)
            assert (seed, each.strategy, found.problems) == (seed, each.strategy, ())
            return found

        found = float(judged(plan).worth)
        optimum = float(judged(plan_centrally(network, rates, TOTAL)).worth)
        alone = float(judged(plan_uncoordinated(network, rates)).worth)
        assert found <= optimum * (1 + 1e-6), seed
        # The distance from the optimum is within the stated error, which is that from the bound.
        assert optimum <= bound * (1 + 1e-6), seed
        assert found >= alone * (1 - 1e-9), seed
        self.by_tables.append(found / optimum)
        self.uncoordinated.append(alone / optimum)
        self.stated.append((bound - found) / optimum)

    def show(self, what: str) -> None:
        """Prints the distributions."""
        show(f"{what}: worth over the optimum", self.by_tables)
        show(f"{what}: uncoordinated worth over the optimum", self.uncoordinated)
        show(f"{what}: stated error over the optimum", self.stated)


def show(what: str, values: Sequence[float]) -> None:
    """Prints the mean and some percentiles."""
    marks = (0, 1, 5, 25, 50, 75, 100)
    found = ", ".join(f"{mark} %: {value:.4f}" for mark, value in zip(marks, np.percentile(values, marks), strict=True))
    print(f"\n{what}, {len(values)} networks: mean {np.mean(values):.4f}; {found}")


def expecting_twice(network: Network, rates: Mapping[Port, Amount]) -> Terms:
    """Terms under which the highest rates expected are twice the present rates."""
    return Terms(most=expected(network, {port: 2 * rate for port, rate in rates.items()}))


def test_plans_of_trees_are_feasible_within_the_stated_error_and_better_than_uncoordinated():
    compared = Compared()
    for seed in range(TREES):
        network, rates = random_tree(random.Random(seed))
        tables = build_tables(network, expecting_twice(network, rates))
        plan = plan_by_tables(network, tables, rates)
        worth, error = float(outcome(network, rates, plan, TOTAL).worth), float(tables.places["p0"].table.error)
        # The plan's bound counts from the worth that the table promises, which the plan may exceed.
        compared.add(seed, network, rates, plan, min(float(plan.bound), worth + error))
    compared.show("trees")
    assert np.mean(compared.by_tables) >= 0.99
    assert np.mean(compared.uncoordinated) < 0.8


def test_plans_of_graphs_with_shared_children_are_too():
    compared = Compared()
    for seed in range(GRAPHS):
        network, rates = random_graph(random.Random(seed))
        assert network.shared
        terms = expecting_twice(network, rates)
        agreed = agree_on_shares(network, rates, terms)
        compared.add(seed, network, rates, agreed.plan, bound_worth(network, rates, terms, share_prices(agreed.tables)))
    compared.show("graphs")
    assert np.mean(compared.by_tables) >= 0.98
    assert np.mean(compared.uncoordinated) < 0.85


def test_fair_plans_come_close_to_the_largest_least_share_and_plans_for_throughput_do_not():
    shares, unfair = [], []
    for seed in range(max(4, TREES // 10)):
        network, rates = (random_graph if seed % 4 == 3 else random_tree)(random.Random(seed), 10)
        fair = Fair(offered(network, rates))
        terms = Terms(objective=fair)
        if network.shared:
            plan = agree_on_shares(network, rates, terms).plan
        else:
            plan = plan_by_tables(network, build_tables(network, terms), rates)
        found = outcome(network, rates, plan, fair)
        best = outcome(network, rates, plan_centrally(network, rates, fair), fair)
        assert (seed, found.problems, best.problems) == (seed, (), ())
        assert found.worth <= best.worth * (1 + 1e-6), seed
        shares.append(float(found.worth / best.worth))
        unfair.append(float(outcome(network, rates, plan_centrally(network, rates, TOTAL), fair).worth / best.worth))
    show("least share over the largest possible", shares)
    show("the same of the optimum of throughput", unfair)
    assert np.mean(shares) >= 0.88
    assert np.mean(unfair) <= 0.5
