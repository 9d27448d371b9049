"""What a parent plans with while the table of a child is stale or missing.

    table of the child             the parent plans
    at most `max_age_s` old        with this table
    older                          with this table, but sends no more rows than last time
    missing                        as if the child took all rows, each worth 1

No fallback can overload a child, because every place sheds for itself what its parents should not have sent. A stale
table is capped at what was sent, because the child was seen to take that much. Without any table there is no such
number, and to drop rows upstream on a guess would lose rows that the child might have used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headrace.policies.shedding.amounts import Amount, amount, are_exact, as_array
from headrace.policies.shedding.fit.grid import Grid
from headrace.policies.shedding.fit.shares import cap_table
from headrace.policies.shedding.fit.table import Table

__all__ = ["Assumed", "Received", "assume"]


@dataclass(frozen=True)
class Received:
    """A table that came from a child, and the time at which the child made it, in seconds."""

    table: Table
    made_s: float


@dataclass(frozen=True)
class Assumed:
    """The table to plan with, whether it is the child's own, and why."""

    table: Table
    is_known: bool
    reason: str


def assume(
    place: str,
    received: Received | None,
    now_s: float,
    max_age_s: float,
    sent: Mapping[str, Amount],
    most: Mapping[str, Amount],
    *,
    fair: bool = False,
) -> Assumed:
    """The table to plan with for a child.

    `sent` is what was last sent to each input of the child, and `most` the most that could be sent, in rows per second.
    For a `fair` objective, rows sent to a child without a table count as a share of `most`.
    """
    if received is None:
        return Assumed(
            _open_table(place, {name: amount(rate, "a rate", positive=True) for name, rate in most.items()}, fair),
            False,
            f"no table of '{place}' has come: it is sent all rows and sheds for itself",
        )
    age_s = now_s - received.made_s
    if age_s <= max_age_s:
        return Assumed(received.table, True, f"the table of '{place}' is {age_s:.3g} s old")
    held = ", ".join(f"{float(sent.get(name, 0)):.4g} rows/s of {name}" for name in received.table.inputs)
    reason = f"the table of '{place}' is {age_s:.3g} s old, more than {max_age_s:.3g} s: no more than {held}, as before"
    return Assumed(cap_table(received.table, sent), False, reason)


def _open_table(place: str, most: Mapping[str, Amount], fair: bool) -> Table:
    """A table that takes all rows, each worth 1, for a query whose name is unknown."""
    highest = as_array(most.values(), are_exact(most.values()))
    grid = Grid(tuple(highest), (1,) * len(most))
    points = grid.points
    rows = points.sum(axis=1)
    worth = (points / highest).min(axis=1) if fair else rows
    gains = tuple(1 / highest) if fair else (Fraction(1) if grid.exact else 1.0,) * len(most)
    limits, never = np.diag(1 / highest), (False,) * len(most)
    return Table(place, tuple(most), (f"{place}?",), grid, points, worth, rows[:, None], limits, gains, None, never)
