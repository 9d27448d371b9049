"""Every place for itself: a fair scheduler that takes rows of all inputs in turn, and drops rows it has no time for.

Rows 0 to 2 of the paper's Table 1 assume such a scheduler. Taking in turn means equal rates for all inputs, except for
inputs that ask for less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.policies.shedding.amounts import Amount
from headrace.policies.shedding.network import Network, Place, Port, rate_at
from headrace.policies.shedding.plan import PlacePlan, Plan, load_of, place_plan

__all__ = ["plan_uncoordinated", "take_in_turn"]


def take_in_turn(place: Place, rates: Sequence[Amount]) -> PlacePlan:
    """What a place keeps if it takes equally many rows of every input, or all of an input that has fewer.

    >>> from headrace.policies.shedding.network import Branch, Input
    >>> top, low = Input("a", (Branch("p", 1, queries=("p",)),)), Input("b", (Branch("q", 2, queries=("q",)),))
    >>> [str(rate) for rate in take_in_turn(Place("A", (top, low)), (1, 1)).taken]
    ['1/3', '1/3']
    """
    arriving = tuple(rates)
    per_row = [each.cost + sum(branch.cost for branch in each.branches) for each in place.inputs]
    left, taken = place.capacity, list(arriving)
    waiting = sorted(range(len(arriving)), key=lambda number: arriving[number])
    while waiting:
        asked = sum(per_row[number] for number in waiting)
        first = waiting[0]
        if arriving[first] * asked > left:
            for number in waiting:
                taken[number] = left / asked
            break
        left -= arriving[first] * per_row[first]
        waiting.pop(0)
    load = float(load_of(place, arriving, [arriving[number] for number, _ in place.branches]))
    turns = f"rows in turn at {float(taken[waiting[0]]):.3g} rows/s" if waiting else "all rows fit"
    reason = f"{turns}: load {load:.3g} of {float(place.capacity):.3g}"
    return place_plan(place, arriving, [taken[number] for number, _ in place.branches], reason)


def plan_uncoordinated(network: Network, rates: Mapping[Port, Amount]) -> Plan:
    """What every place keeps if no place knows of the others."""
    arriving: dict[Port, Amount] = {port: rate_at(rates, port) for port in network.sources}
    plans: dict[str, PlacePlan] = {}
    for name in network.in_order:
        place = network.by_name[name]
        plans[name] = take_in_turn(place, [arriving[Port(name, each.name)] for each in place.inputs])
        for (_, branch), rate in zip(place.branches, plans[name].branches, strict=True):
            if branch.child is not None:
                arriving[branch.child] = rate * branch.selectivity
    return Plan("uncoordinated", plans, "every place takes rows of all inputs in turn")
