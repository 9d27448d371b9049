"""Merging children for fairness: what a place keeps at every point of its grid so that the least share is largest.

At a level every branch to answers gets that share of the rows offered to it, or all that arrive. Every child picks the
cheapest of its entries that reach the level, or its best entry if none does. The place mixes the highest level that
fits its capacity and the next level, so that the capacity is used up. Above the last level all arriving rows are kept.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, Array, as_array
from headrace.policies.shedding.fit.grid import Grid
from headrace.policies.shedding.fit.outlets import Child, Outlets, fill

__all__ = ["merge_by_level"]


def merge_by_level(outlets: Outlets, grid: Grid, count: int) -> Array:
    """Rows per second into each branch, one row per point; shares are raised in `count` levels."""
    points = grid.points
    highest = _highest_share(outlets)
    levels = [highest * n / count for n in range(count + 1)]
    flows = np.empty((count + 2, len(points), len(outlets.input_of)), dtype=points.dtype)
    for number in outlets.direct:
        arriving = points[:, outlets.input_of[number]]
        for n, level in enumerate(levels):
            is_kept = outlets.never[number]
            flows[n, :, number] = arriving if is_kept else np.minimum(arriving, level * outlets.full[number])
        flows[-1, :, number] = arriving
    for child in outlets.children:
        flows[:, :, child.branches] = _flows_to(outlets, child, points, levels)
    low, high, part = fill(np.stack([outlets.load(each) for each in flows]), outlets.capacity, outlets.exact)
    column, part = np.arange(len(points)), part[:, None]
    return np.asarray(flows[low, column] * (1 - part) + flows[high, column] * part)


def _highest_share(outlets: Outlets) -> Amount:
    """The share at which every branch, here and at descendants, has all its rows."""
    shares: list[Amount] = [child.table.worth.max() for child in outlets.children]
    highest = max([*shares, outlets.highest_share]) or Fraction(1)
    return highest if outlets.exact else float(highest)


def _flows_to(outlets: Outlets, child: Child, points: Array, levels: list[Amount]) -> Array:
    """Rows per second into the branches to a child, by level and point; last, as many rows as the child can use.

    A part of a point's rows is worth at least that part of the point, so a point above the level is scaled down to it.
    """
    table, grid = child.table, child.table.grid
    # If rows cost nothing here, the fewest rows are the cheapest.
    least = as_array([0 if outlets.exact else FLOAT_SLACK], outlets.exact)
    cost = table.needs @ (child.rows_per_row * (child.cost + outlets.before[child.inputs] + least))
    dear = cost.max() + 1
    # Of points that are worth the same, the cheapest is the best.
    little = Fraction(1, 10**9) if table.exact else FLOAT_SLACK
    best = grid.best_below((table.worth - cost / dear * little)[None, :], table.never)[0]
    around = grid.around(points[:, child.inputs] * child.selectivity)
    found = []
    for level in levels:
        reaches = np.asarray(table.worth >= level, dtype=bool)
        is_scaled = reaches & np.asarray(table.worth > 0, dtype=bool) & (not any(table.never))
        scale = np.where(is_scaled, level / np.where(is_scaled, table.worth, 1), 1)
        cheapest = grid.best_below(-np.where(reaches, cost * scale, dear)[None, :], table.never)[0]
        reached = table.needs[cheapest] * scale[cheapest][:, None]
        found.append(around.blend(np.where(reaches[cheapest][:, None], reached, table.needs[best])))
    found.append(around.blend(table.needs))
    return np.stack(found) * child.rows_per_row
