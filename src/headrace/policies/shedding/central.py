"""The exact optimum of a network, as a linear program: the strategy `central`, and the yardstick of the tables.

One variable per input (rows taken) and one per branch (rows that enter it), all in rows per second. An input takes no
more rows than arrive, a branch no more than its input takes, and no load exceeds its capacity. This is the paper's
centralized approach (section 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headrace.policies.shedding.amounts import Amount, Array
from headrace.policies.shedding.network import Network, Port, offered
from headrace.policies.shedding.objective import Fair, Objective
from headrace.policies.shedding.plan import PlacePlan, Plan, outcome, place_plan

__all__ = ["plan_centrally"]

# Solvers round, so the second of two programs may fall short of the first by this part.
TIE = 1e-7


def plan_centrally(network: Network, rates: Mapping[Port, Amount], objective: Objective) -> Plan:
    """The plan of the highest worth for the whole network.

    If the rows that must not be shed exceed a capacity by themselves, they are kept and all others are shed.
    """
    program = _Program(network, rates)
    flows = program.fairest(objective) if isinstance(objective, Fair) else program.solve(program.worths(objective))
    if flows is None:
        reason = "rows that must not be shed exceed a capacity by themselves: all others are shed"
        return Plan("central", program.plans(np.zeros(program.width)), reason)
    plan = Plan("central", program.plans(flows), "the optimum of the linear program over all places")
    return replace(plan, bound=outcome(network, rates, plan, objective).worth)


class _Program:
    """The constraints and variables of the linear program, and the plans that its solutions stand for."""

    def __init__(self, network: Network, rates: Mapping[Port, Amount]) -> None:
        self.network = network
        self.offered = offered(network, rates)
        self.input_at: dict[Port, int] = {}
        self.branch_at: dict[tuple[str, int], int] = {}
        for place in network.places:
            for each in place.inputs:
                self.input_at[Port(place.name, each.name)] = self.width
            for number in range(len(place.branches)):
                self.branch_at[place.name, number] = self.width
        self.entries: list[tuple[int, int, float]] = []
        self.limits: list[float] = []
        self.least = np.zeros(self.width)
        self.most = np.full(self.width, np.inf)
        self._constrain(rates)

    @property
    def width(self) -> int:
        return len(self.input_at) + len(self.branch_at)

    def _constrain(self, rates: Mapping[Port, Amount]) -> None:
        for place in self.network.places:
            loads: dict[int, float] = {}
            for each in place.inputs:
                port = Port(place.name, each.name)
                taken = self.input_at[port]
                loads[taken] = float(each.cost)
                if port in self.network.feeders:
                    feeder, number = self.network.feeders[port]
                    branch = self.network.by_name[feeder].branches[number][1]
                    self._row({taken: 1.0, self.branch_at[feeder, number]: -float(branch.selectivity)}, 0.0)
                else:
                    self.most[taken] = float(rates[port])
            for number, (of, branch) in enumerate(place.branches):
                port, column = Port(place.name, place.inputs[of].name), self.branch_at[place.name, number]
                loads[column] = float(branch.cost)
                self._row({column: 1.0, self.input_at[port]: -1.0}, 0.0)
                if (place.name, number) in self.network.never:
                    self.least[column] = float(self.offered[port])
            self._row(loads, float(place.capacity))

    def _row(self, coefficients: Mapping[int, float], limit: float) -> None:
        row = len(self.limits)
        self.entries += [(row, column, value) for column, value in coefficients.items()]
        self.limits.append(limit)

    def worths(self, objective: Objective) -> Array:
        """What one row per second of each variable adds to the weighted throughput."""
        assert not isinstance(objective, Fair)
        found = np.zeros(self.width)
        for place in self.network.places:
            for number, (of, branch) in enumerate(place.branches):
                worth = objective.row_worth(branch.queries, place.inputs[of].stream) * branch.selectivity
                found[self.branch_at[place.name, number]] = float(worth)
        return found

    def solve(self, worths: Array) -> Array | None:
        """The flows of the highest worth; None if the rows that must be kept do not fit."""
        rows, columns, values = zip(*self.entries, strict=True)
        width = len(worths)
        # SciPy takes a quarter of a second to import; most commands and runs never shed.
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        matrix = coo_array((values, (rows, columns)), shape=(len(self.limits), width)).tocsr()
        # Solvers round, so rows that must be kept may fall short by a last digit.
        least = np.append(self.least * (1 - TIE), np.zeros(width - self.width))
        bounds = np.stack([least, np.append(self.most, np.full(width - self.width, np.inf))], axis=1)
        found = linprog(-worths, A_ub=matrix, b_ub=self.limits, bounds=bounds, method="highs")
        return np.asarray(found.x) if found.success else None

    def fairest(self, objective: Fair) -> Array | None:
        """The flows of the largest least share, and among them those with the largest sum of shares."""
        level = self.width
        shares = np.zeros(self.width + 1)
        for place in self.network.places:
            for number, (of, branch) in enumerate(place.branches):
                full = float(self.offered[Port(place.name, place.inputs[of].name)])
                if branch.queries and full:
                    column = self.branch_at[place.name, number]
                    self._row({level: full * float(objective.weight(branch.queries)), column: -1.0}, 0.0)
                    shares[column] = 1 / full
        if not shares.any():
            return self.solve(np.zeros(self.width))
        highest = self.solve(np.append(np.zeros(self.width), 1.0))
        if highest is None:
            return None
        self._row({level: -1.0}, -float(highest[level]) * (1 - TIE))
        flows = self.solve(shares)
        return None if flows is None else flows[: self.width]

    def plans(self, flows: Array) -> Mapping[str, PlacePlan]:
        """What every place keeps under a solution."""
        arriving: dict[Port, float] = {port: self.most[self.input_at[port]] for port in self.network.sources}
        found: dict[str, PlacePlan] = {}
        for name in self.network.in_order:
            place = self.network.by_name[name]
            ports = [Port(name, each.name) for each in place.inputs]
            comes = tuple(float(arriving[port]) for port in ports)
            branches: list[Amount] = []
            for number, (of, branch) in enumerate(place.branches):
                solved = min(max(float(flows[self.branch_at[name, number]]), 0.0), comes[of])
                flow = comes[of] if (name, number) in self.network.never else solved
                branches.append(flow)
                if branch.child is not None:
                    arriving[branch.child] = flow * float(branch.selectivity)
            plan = place_plan(place, comes, branches, "")
            reason = f"the optimum of the whole network takes {sum(plan.taken):.4g} of {sum(comes):.4g} rows/s here"
            found[name] = replace(plan, reason=reason)
        return found
