"""From the rates that arrive to what is kept: a look-up that reads one point more than the place has inputs.

Section 3.4 of the paper. The paper's look-up takes the best entry below the rates (`best_entry`), and loses the rows
between two points. `look_up` blends the plans of the points around the rates so that they add up to the rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, Array, amount
from headrace.policies.shedding.fit.build import Prepared
from headrace.policies.shedding.fit.table import Table
from headrace.policies.shedding.network import Place
from headrace.policies.shedding.plan import PlacePlan, load_of, place_plan

__all__ = ["Entry", "EntryIndex", "best_entry", "index_entries", "look_up"]

# A flow that differs from the arriving rate by rounding only is the arriving rate.
NEARLY = 1 - FLOAT_SLACK


def look_up(prepared: Prepared, rates: Sequence[Amount]) -> PlacePlan:
    """What a place keeps of rows that arrive at these rates, in rows per second, in the order of its inputs."""
    place, table = prepared.place, prepared.table
    arriving = tuple(amount(rate, "a rate") for rate in rates)
    if len(arriving) != len(place.inputs):
        raise ValueError(f"place '{place.name}' has {len(place.inputs)} inputs, not {len(arriving)}")
    everything = [arriving[number] for number, _ in place.branches]
    needed = load_of(place, arriving, everything)
    if table.fits(arriving):
        reason = f"all rows fit: load {float(needed):.3g} of {float(place.capacity):.3g}"
        return place_plan(place, arriving, everything, reason)
    mixed: list[Amount] = [0] * len(everything)
    for number, weight in table.grid.points_around(arriving):
        mixed = [total + flow * weight for total, flow in zip(mixed, prepared.rows[number], strict=True)]
    nearly = 1 if table.exact else NEARLY
    flows = [
        rate if never or flow >= rate * nearly else flow
        for flow, rate, never in zip(mixed, everything, prepared.never, strict=True)
    ]
    _use_spare_capacity(prepared, arriving, flows)
    return place_plan(place, arriving, flows, _reason(place, arriving, flows, needed))


def _use_spare_capacity(prepared: Prepared, arriving: Sequence[Amount], flows: list[Amount]) -> None:
    """Raises flows as far as blending has left capacity: to answers, and to children that can take all their rows."""
    place = prepared.place
    taken = [max(flows[start:stop]) for start, stop in place.spans]
    left = place.capacity - load_of(place, taken, flows)
    if not prepared.spare or left <= place.capacity * FLOAT_SLACK:
        return
    is_open = [branch.child is None for _, branch in place.branches]
    for child in prepared.children:
        rows = [arriving[number] * part for number, part in zip(child.inputs, child.selectivity, strict=True)]
        if child.table.fits(rows):
            for number in child.branches:
                is_open[number] = True
    for number in filter(is_open.__getitem__, prepared.spare):
        of, branch = place.branches[number]
        # First rows that other branches of the input take anyway, then rows that are taken for this branch alone.
        for most, cost in ((taken[of], branch.cost), (arriving[of], branch.cost + place.inputs[of].cost)):
            room = most - flows[number]
            if room > 0 and left > 0:
                more = min(room, left / cost) if cost else room
                flows[number] += more
                left -= more * cost
        taken[of] = max(taken[of], flows[number])


def _reason(place: Place, arriving: Sequence[Amount], flows: Sequence[Amount], needed: Amount) -> str:
    """Why rows are shed, and what is kept of each input, and of each branch that loses more than its input."""
    room, load, parts = float(place.capacity), 0.0, list[str]()
    for each, rate, (start, stop) in zip(place.inputs, arriving, place.spans, strict=True):
        mine = flows[start:stop]
        taken = max(mine)
        load += float(taken * each.cost)
        if taken < rate:
            parts.append(f"{float(taken / rate):.0%} of {each.name}")
        for branch, flow in zip(each.branches, mine, strict=True):
            load += float(flow * branch.cost)
            if flow < taken:
                parts.append(f"{float(flow / taken):.0%} of {each.name}.{branch.name}")
    if load > room * (1 + FLOAT_SLACK):
        return f"rows that must not be shed take {load:.3g} of {room:.3g} by themselves"
    why = f"load would be {float(needed):.3g} of {room:.3g}" if needed > room else "children cannot take all rows"
    return f"{why}: keeps {', '.join(parts)}" if parts else f"{why} by the table, but its plan keeps all rows"


@dataclass(frozen=True, slots=True)
class Entry:
    """A point that a place takes as it stands: its rates, its worth, and its scores by query."""

    rates: tuple[Amount, ...]
    worth: Amount
    scores: tuple[Amount, ...]


@dataclass(frozen=True, eq=False)
class EntryIndex:
    """A table and, for each of its points, the number of the best entry at or below it."""

    table: Table
    best: Array


def index_entries(table: Table) -> EntryIndex:
    """The index that `best_entry` reads."""
    worth = np.where(table.is_entry, table.worth, -1)
    return EntryIndex(table, table.grid.best_below(worth[None, :], table.never)[0])


def best_entry(index: EntryIndex, rates: Sequence[Amount]) -> Entry:
    """The entry of the highest worth that exceeds no rate; reads one point, whatever the size of the table."""
    table = index.table
    found = int(index.best[table.grid.point_below(rates)])
    return Entry(tuple(table.needs[found]), table.worth[found], tuple(table.scores[found]))
