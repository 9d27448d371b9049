"""Merging children for throughput: what a place keeps at every point of its grid, at a common price of its capacity.

Merging is a cross product of the children's entries (section 3.3 of the paper). This rule thins the product: it looks
at combinations at a common price only. At price p every child picks, of its entries below what can arrive, the entry
of the highest worth less p times the load that its rows are here; branches to answers do likewise. At a high price few
rows are kept, at a low price many. The place mixes the combinations at the lowest price that fits its capacity and at
the next lower one, which does not, so that the capacity is used up.

A price also bounds what was possible: no combination is worth more than the capacity at price p plus the net worth of
all parts at p. The distance from that bound is the error of the thinning.

The prices depend on costs here and on the most that rows can gain, but on no point of a child's table. So when one
child changes, what the others pick stays valid. Where only the child's worth changes, and not what it needs, what the
place keeps mostly stays as it is, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from operator import matmul

import numpy as np

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, Array, as_array
from headrace.policies.shedding.fit.grid import Around, Grid
from headrace.policies.shedding.fit.outlets import Child, Filled, Outlets, fill
from headrace.policies.shedding.fit.steps import Steps

__all__ = ["Merged", "merge_by_price", "root_cluster"]

# Rows of an input gain less and less. Rows that gain this part of what the first gain are hardly ever the last to fit.
LEAST_GAIN = Fraction(1, 50)


@dataclass(frozen=True, eq=False)
class _Menu:
    """What one child picks at each price and point, with its worth and the load of its rows here.

    `picks` has a number of a point of the child's table for each price and each point there. `around` are the points
    of that table around the rows that can arrive at each point here. `worth` and `load` are by price and point here.
    """

    child: Child
    around: Around
    picks: Array
    worth: Array
    load: Array


@dataclass(frozen=True, eq=False)
class Merged:
    """Rows per second into each branch, one row per point, and the most that each point can be worth."""

    flows: Array
    bound: Array


def merge_by_price(outlets: Outlets, grid: Grid, count: int, steps: Steps) -> Merged:
    """What a place keeps at every point of its grid for the highest worth.

    `count` is how many prices are tried, beside those at which a branch to answers begins to pay.
    """
    direct, given = outlets.direct, (outlets.place, outlets.gain, outlets.direct, count)
    prices = steps.do("prices", lambda *_: _prices(outlets, count), *given)
    menus = [_menu(child, grid, prices, steps) for child in outlets.children]
    arriving = steps.do("arriving", _arriving, grid, outlets.input_of[direct])
    pays = np.asarray(outlets.gain[direct] >= prices[:, None] * outlets.cost[direct], dtype=bool)
    pays |= outlets.never[direct]
    own = steps.do("own worth", _summed, pays, outlets.gain[direct], arriving, 0)
    worth = steps.do("worth", _total, own, *(menu.worth for menu in menus))
    own = steps.do("own load", _summed, pays, outlets.cost[direct], arriving, grid.points @ outlets.before)
    load = steps.do("load", _total, own, *(menu.load for menu in menus))
    chosen = steps.do("chosen", _best_at, grid, worth, load, prices, outlets.never_input)
    worth = np.take_along_axis(worth, chosen, axis=1)
    load = steps.do("chosen load", _taken, load, chosen)
    bound = (prices[:, None] * (outlets.capacity - load) + worth).min(axis=0)
    # The last price is 0, at which everything is kept: it only bounds the worth of points that fit.
    filled = steps.do("filled", fill, load[:-1], outlets.capacity, outlets.exact)
    into = tuple(
        (menu.child.branches, menu.around, menu.picks, menu.child.table.needs, menu.child.rows_per_row)
        for menu in menus
    )
    return Merged(steps.do("flows", _flows, filled, chosen, direct, pays, arriving, into), bound)


def _menu(child: Child, grid: Grid, prices: Array, steps: Steps) -> _Menu:
    table, name = child.table, child.table.place
    needed = steps.do((name, "needed"), matmul, table.needs, child.rows_per_row * child.cost)
    picks = steps.do((name, "picks"), _best_at, table.grid, table.worth, needed, prices, table.never)
    around = steps.do((name, "around"), _around, table.grid, grid, child.inputs, child.selectivity)
    worth = steps.do((name, "worth"), _picked, around, picks, table.worth)
    return _Menu(child, around, picks, worth, steps.do((name, "load"), _picked, around, picks, needed))


def _arriving(grid: Grid, inputs: Array) -> Array:
    return grid.points[:, inputs]


def _best_at(grid: Grid, worth: Array, load: Array, prices: Array, fixed: Array | tuple[bool, ...]) -> Array:
    """By price and point the best point at or below, of points whose load is paid for."""
    return grid.best_below(worth - prices[:, None] * load, fixed)


def _around(there: Grid, here: Grid, inputs: Array, selectivity: Array) -> Around:
    return there.around(here.points[:, inputs] * selectivity)


def _picked(around: Around, picks: Array, values: Array) -> Array:
    return around.blend(values[picks].T).T


def _summed(pays: Array, each: Array, arriving: Array, more: Array | int) -> Array:
    return np.asarray((pays * each) @ arriving.T + more)


def _total(own: Array, *others: Array) -> Array:
    for other in others:
        own = own + other
    return own


def _taken(values: Array, chosen: Array) -> Array:
    return np.take_along_axis(values, chosen, axis=1)


# Of a child the branches to it, what can arrive there, its picks, what its points need, and rows here per row there.
_Into = tuple[Array, Around, Array, Array, Array]


def _flows(
    filled: Filled, chosen: Array, direct: Array, pays: Array, arriving: Array, children: tuple[_Into, ...]
) -> Array:
    """Rows per second into each branch, by point: at two prices, mixed so that the capacity is used up."""
    low, high, part = filled
    count = len(part)
    number, at = np.concatenate([low, high]), np.tile(np.arange(count), 2)
    point = chosen[number, at]
    flows = np.empty((2 * count, len(direct) + sum(len(each[0]) for each in children)), dtype=arriving.dtype)
    flows[:, direct] = pays[number] * arriving[point]
    for branches, around, picks, needs, rows_per_row in children:
        met = Around(picks[number, around.numbers[:, point]], around.weights[:, point])
        flows[:, branches] = met.blend(needs) * rows_per_row
    return np.asarray(flows[:count] * (1 - part)[:, None] + flows[count:] * part[:, None])


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
