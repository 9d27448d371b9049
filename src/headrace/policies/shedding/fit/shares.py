"""A place with several parents grants each a share, and each parent plans with its part of the place's table.

Without shares each parent would plan as if it were the only one (section 4 of the paper, "generalized server
topologies"). The parents report what they could send. The place looks the reports up in its table and grants what it
would use (`grant`). Each parent gets the part of the table that its share leaves (`share_of`). Rows that a parent was
granted but cannot send show in its next report, and go to the other parents (`agree_on_shares` in `agree.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from headrace.policies.shedding.amounts import Amount, Array, amount, are_exact, as_array, slack
from headrace.policies.shedding.fit.build import Prepared
from headrace.policies.shedding.fit.grid import Grid
from headrace.policies.shedding.fit.look_up import look_up
from headrace.policies.shedding.fit.table import Table

__all__ = ["cap_table", "grant", "share_of"]

# Stands for the capacity that is left where none is: fewer rows than this part of a row per second fit.
NOTHING = Fraction(1, 10**12)


def grant(prepared: Prepared, reports: Mapping[str, Amount]) -> dict[str, Amount]:
    """What a place would use of each input if all parents sent what they report, in rows per second."""
    names = prepared.table.inputs
    return dict(zip(names, look_up(prepared, [reports[name] for name in names]).taken, strict=True))


def share_of(table: Table, mine: Sequence[str], granted: Mapping[str, Amount], *, additive: bool = True) -> Table:
    """The part of a table that one parent sees: its inputs up to their shares, the other inputs at theirs.

    If `additive`, worth and scores count from what the other inputs bring by themselves, so that the parts of all
    parents add up; the worth of a fair objective does not add up. A parent that keeps to its part keeps the place
    feasible, because no input gets more rows than were granted.
    """
    found = _part(table, mine, granted)
    if not additive:
        return found
    return replace(found, worth=found.worth - found.worth[0], scores=found.scores - found.scores[0])


def cap_table(table: Table, most: Mapping[str, Amount]) -> Table:
    """The table of a place that takes no more of each input than given, and nothing of inputs that are not named."""
    return _part(table, table.inputs, {name: most.get(name, Fraction(0)) for name in table.inputs})


def _part(table: Table, mine: Sequence[str], granted: Mapping[str, Amount]) -> Table:
    exact = table.exact and are_exact(granted[name] for name in table.inputs)
    table = table if exact else table.in_floats()
    own = [axis for axis, name in enumerate(table.inputs) if name in mine]
    rates = as_array([amount(granted[name], f"the share of '{name}'") for name in table.inputs], exact)
    rates = np.minimum(rates, as_array(table.grid.most, exact))
    spreads, steps = [], []
    for axis in own:
        ratio = rates[axis] / table.grid.spreads[axis]
        count = max(1, math.ceil(ratio - slack(ratio, exact)))
        # A share of nothing has one step, at whose end nothing more is used.
        spreads.append(rates[axis] / count if rates[axis] > 0 else table.grid.spreads[axis])
        steps.append(count)
    grid = Grid(tuple(spreads), tuple(steps))
    points = np.tile(rates, (grid.size, 1))
    points[:, own] = np.minimum(grid.points, rates[own])
    around = table.grid.around(points)
    return Table(
        table.place,
        tuple(table.inputs[axis] for axis in own),
        table.queries,
        grid,
        np.minimum(around.blend(table.needs)[:, own], points[:, own]),
        around.blend(table.worth),
        around.blend(table.scores),
        _limits(table, own, rates, exact),
        tuple(table.gains[axis] for axis in own),
        # The optimum depends on the shares of the other parents, of which a part of a table knows nothing.
        None,
        tuple(table.never[axis] for axis in own),
    )


def _limits(table: Table, own: Sequence[int], rates: Array, exact: bool) -> Array:
    """When a parent's rows need no shedding: what the others leave of each capacity, and the parent's share."""
    others = [axis for axis in range(len(table.inputs)) if axis not in own]
    nothing = as_array([NOTHING], exact)[0]
    left = np.maximum(1 - table.limits[:, others] @ rates[others], nothing)
    share = np.diag(1 / np.maximum(rates[own], nothing))
    return np.concatenate([table.limits[:, own] / left[:, None], share])
