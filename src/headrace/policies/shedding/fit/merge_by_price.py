"""Merging children for throughput: what a place keeps at every point of its grid, at a common price of its capacity.

Merging is a cross product of the children's entries (section 3.3 of the paper). This rule thins the product: it looks
at combinations at a common price only. At price p every child picks, of its entries below what can arrive, the entry
of the highest worth less p times the load that its rows are here; branches to answers do likewise. At a high price few
rows are kept, at a low price many. The place mixes the combinations at the lowest price that fits its capacity and at
the next lower one, which does not, so that the capacity is used up.

A price also bounds what was possible: no combination is worth more than the capacity at price p plus the net worth of
all parts at p. The distance from that bound is the error of the thinning.

The prices depend on costs here and on the most that rows can gain, but on no point of a child's table. So when one
child changes, what the others pick stays valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, Array, as_array
from headrace.policies.shedding.fit.grid import Around, Grid
from headrace.policies.shedding.fit.outlets import Child, Outlets
from headrace.policies.shedding.fit.table import same

__all__ = ["Menu", "Merged", "merge_by_price", "root_cluster"]

# Rows of an input gain less and less. Rows that gain this part of what the first gain are hardly ever the last to fit.
LEAST_GAIN = Fraction(1, 50)


@dataclass(frozen=True, eq=False)
class Menu:
    """What one child picks at each price and point, with its worth and the load of its rows here.

    `picks` has a number of a point of the child's table for each price and each point there. `around` are the points
    of that table around the rows that can arrive at each point here. `worth` and `load` are by price and point here.
    """

    child: Child
    grid: Grid
    prices: Array
    around: Around
    picks: Array
    worth: Array
    load: Array

    def flows(self, prices: Array, points: Array) -> Array:
        """Rows per second into the branches to this child if it picks at these prices, by number, at these points."""
        picks = self.picks[prices, self.around.numbers[:, points]]
        return Around(picks, self.around.weights[:, points]).blend(self.child.table.needs) * self.child.rows_per_row

    def is_for(self, child: Child, grid: Grid, prices: Array) -> bool:
        """Whether this menu is what `_menu` makes of these arguments."""
        return (
            self.child.table is child.table
            and self.grid == grid
            and same(self.prices, prices)
            and all(same(getattr(self.child, name), getattr(child, name)) for name in ("inputs", "selectivity", "cost"))
        )


@dataclass(frozen=True, eq=False)
class Merged:
    """Rows per second into each branch, one row per point; the most that each point can be worth; menus by child."""

    flows: Array
    bound: Array
    menus: Mapping[str, Menu]


def merge_by_price(outlets: Outlets, grid: Grid, count: int, known: Mapping[str, Menu]) -> Merged:
    """What a place keeps at every point of its grid for the highest worth.

    `count` is how many prices are tried, beside those at which a branch to answers begins to pay. Of the `known` menus,
    those that are still right are used again.
    """
    points, prices = grid.points, _prices(outlets, count)
    menus: list[Menu] = []
    for child in outlets.children:
        menu = known.get(child.table.place)
        menus.append(menu if menu and menu.is_for(child, grid, prices) else _menu(child, grid, prices))
    cost, gain = outlets.cost[outlets.direct], outlets.gain[outlets.direct]
    pays = np.asarray(gain >= prices[:, None] * cost, dtype=bool) | outlets.never[outlets.direct]
    arriving = points[:, outlets.input_of[outlets.direct]]
    worth, load = (pays * gain) @ arriving.T, (pays * cost) @ arriving.T + points @ outlets.before
    for menu in menus:
        worth, load = worth + menu.worth, load + menu.load
    chosen = grid.best_below(worth - prices[:, None] * load, outlets.never_input)
    worth, load = np.take_along_axis(worth, chosen, axis=1), np.take_along_axis(load, chosen, axis=1)
    bound = (prices[:, None] * (outlets.capacity - load) + worth).min(axis=0)

    def flows_at(number: Array) -> Array:
        at = chosen[number, np.arange(len(points))]
        flows = np.empty((len(points), len(outlets.input_of)), dtype=points.dtype)
        flows[:, outlets.direct] = np.where(pays[number], arriving[at], points[0, 0])
        for menu in menus:
            flows[:, menu.child.branches] = menu.flows(number, at)
        return flows

    # The last price is 0, at which everything is kept: it only bounds the worth of points that fit.
    low, high, part = outlets.fill(load[:-1])
    flows = flows_at(low) * (1 - part)[:, None] + flows_at(high) * part[:, None]
    return Merged(flows, bound, {menu.child.table.place: menu for menu in menus})


def _menu(child: Child, grid: Grid, prices: Array) -> Menu:
    table = child.table
    load = table.needs @ (child.rows_per_row * child.cost)
    picks = table.grid.best_below(table.worth - prices[:, None] * load, table.never)
    around = table.grid.around(grid.points[:, child.inputs] * child.selectivity)
    both = around.blend(np.concatenate([table.worth[picks], load[picks]]).T)
    return Menu(child, grid, prices, around, picks, both[:, : len(prices)].T, both[:, len(prices) :].T)


def _prices(outlets: Outlets, count: int) -> Array:
    """Prices in falling order: one at which nothing pays, those at which something may begin to pay, and 0."""
    found: set[Amount] = {outlets.gain[n] / outlets.cost[n] for n in outlets.direct if outlets.cost[n]}
    for number in range(len(outlets.before)):
        gain, cost = root_cluster(outlets, number)
        found |= {gain / cost} if cost else set()
    for child in outlets.children:
        gains = outlets.gain[child.branches]
        found |= {gain / cost for gain, cost in zip(gains, child.cost, strict=True) if cost}
    highest = max(found, default=Fraction(1)) or Fraction(1)
    found = {price for price in found if price > highest * FLOAT_SLACK} or {highest}
    if outlets.children:
        lowest = float(min(found) * LEAST_GAIN / highest)
        ladder = [lowest ** (n / (count - 1)) for n in range(count)]
        # Exact prices have short denominators, to keep the fractions computed from them short.
        found |= {highest * (Fraction(step).limit_denominator(1000) if outlets.exact else step) for step in ladder}
        found.discard(Fraction(0))
    # Just below its gain per load a part pays, even if that quotient was rounded.
    less = 1 if outlets.exact else 1 - FLOAT_SLACK
    falling = sorted((price * less for price in found), reverse=True)
    return as_array([2 * falling[0], *falling, 0], outlets.exact)


def root_cluster(outlets: Outlets, number: int) -> tuple[Amount, Amount]:
    """Gain and cost per row of an input together with those of its branches that are dropped only with the input.

    A branch whose gain per cost is less than that of the input with all better branches is dropped before any row is
    dropped at the input. The paper's extended load constraint leaves such branches out.
    """
    mine = np.flatnonzero(outlets.input_of == number).tolist()
    free = [n for n in mine if not outlets.cost[n]]
    gain: Amount = sum((outlets.gain[n] for n in free), Fraction(0))
    cost: Amount = outlets.before[number]
    for n in sorted(set(mine) - set(free), key=lambda n: outlets.gain[n] / outlets.cost[n], reverse=True):
        if cost and outlets.gain[n] * cost <= gain * outlets.cost[n]:
            break
        gain, cost = gain + outlets.gain[n], cost + outlets.cost[n]
    return gain, cost
