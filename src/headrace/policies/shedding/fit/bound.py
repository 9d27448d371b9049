"""How much more could be had where places have several parents: an upper bound from tables and prices.

The network is cut in front of every place with several parents. A row that crosses a cut is worth its price to the
sender and costs its price to the receiver. At any prices, the parts together are worth at least the optimum of the
whole network: there, both sides of a cut have the same rows, and the prices cancel out. The bound is close if the
senders want to send what the receivers want to take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headrace.policies.shedding.amounts import Amount
from headrace.policies.shedding.fit.build import Prepared
from headrace.policies.shedding.fit.look_up import look_up
from headrace.policies.shedding.fit.propagate import Tables, Terms, update_tables
from headrace.policies.shedding.network import Network, Port, rate_at
from headrace.policies.shedding.objective import Fair

__all__ = ["bound_worth", "share_prices"]

# Later rounds change the bounds of random graphs by about 1 % each; the errors of tables are larger.
ROUNDS = 6
# A price at which one side wants nothing changes by half in the first round, and by less in each later round.
FIRST_STEP, LATER = 0.5, 0.7


def share_prices(tables: Tables) -> dict[Port, Amount]:
    """What one more row per second of each share is worth to the place that grants it, by its table."""
    found: dict[Port, Amount] = {}
    for name in {port.place for port in tables.shares}:
        table = tables.places[name].table
        at = np.array([float(tables.shares[Port(name, each)]) for each in table.inputs])
        for axis, each in enumerate(table.inputs):
            step = np.zeros(len(at))
            step[axis] = float(table.grid.spreads[axis])
            low = np.maximum(at - step, 0.0)
            before, after = float(table.worth_at(low.tolist())), float(table.worth_at((low + step).tolist()))
            found[Port(name, each)] = max(after - before, 0.0) / step[axis]
    return found


def bound_worth(
    network: Network, rates: Mapping[Port, Amount], terms: Terms, prices: Mapping[Port, Amount], rounds: int = ROUNDS
) -> float:
    """The most that any plan can be worth, errors of tables included; rates must not exceed the `most` of the terms.

    The result is the least bound of some rounds. The first round uses the given prices, each later one adjusts them.
    """
    if isinstance(terms.objective, Fair):
        raise ValueError("prices bound a throughput; they do not bound the least share of a fair objective")
    cut = [port for port in network.feeders if port.place in network.shared]
    now = {port: float(prices[port]) for port in cut}
    best, step, tables = math.inf, FIRST_STEP, Tables({}, terms)
    for _ in range(rounds):
        tables = update_tables(tables, network, replace(terms, row_prices=now, reports={}))
        found = _Parts(network, rates, tables)
        best = min(best, found.worth)
        now = {port: price * math.exp(step * found.wanted_more(port)) for port, price in now.items()}
        step *= LATER
    return best


class _Parts:
    """The parts of a cut network at given prices: their worth with errors, and rows wanted and sent over each cut."""

    def __init__(self, network: Network, rates: Mapping[Port, Amount], tables: Tables) -> None:
        self.worth = 0.0
        self.wanted: dict[Port, float] = {}
        self.sent: dict[Port, float] = {}
        arriving: dict[Port, Amount] = {port: rate_at(rates, port) for port in network.sources}
        for name in network.in_order:
            prepared = tables.places[name]
            if name in network.shared or not network.parents[name]:
                arriving |= self._begin(prepared, arriving, tables.terms.row_prices)
            plan = look_up(prepared, [arriving[Port(name, each)] for each in prepared.table.inputs])
            for (_, branch), rate in zip(prepared.place.branches, plan.branches, strict=True):
                if branch.child is None:
                    continue
                if branch.child in tables.terms.row_prices:
                    self.sent[branch.child] = float(rate * branch.selectivity)
                else:
                    arriving[branch.child] = rate * branch.selectivity

    def _begin(
        self, prepared: Prepared, given: Mapping[Port, Amount], prices: Mapping[Port, Amount]
    ) -> dict[Port, Amount]:
        """What the first place of a part wants over the cuts, given the rates from outside."""
        table = prepared.table
        ports = [Port(table.place, each) for each in table.inputs]
        points = table.grid.points.astype(float)
        for axis, port in enumerate(ports):
            if port not in prices:
                points[:, axis] = float(given[port])
        around = table.grid.around(points)
        needs = around.blend(table.needs).astype(float)
        paid = needs @ np.array([float(prices.get(port, 0)) for port in ports])
        values = around.blend(table.worth).astype(float) - paid
        best = int(np.argmax(values))
        assert table.error is not None
        self.worth += float(values[best]) + float(table.error)
        taken = {port: float(needs[best, axis]) for axis, port in enumerate(ports) if port in prices}
        self.wanted |= taken
        return dict(taken)

    def wanted_more(self, port: Port) -> float:
        """How many more rows are wanted over a cut than are sent, from -1 (none is wanted) to 1 (none is sent)."""
        both = self.wanted[port] + self.sent[port]
        return (self.wanted[port] - self.sent[port]) / both if both else 0.0
