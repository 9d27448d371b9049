"""A better placement near a known one, for parts that are shared or sites that are full; never a worse one.

Three kinds of step, until none helps: one part to another site; all readers of a part to one site, where they share
what it sends; and a block of parts at once, chosen so that their costs form a forest, which is then solved exactly with
all other parts where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.policies.placement.arrays import SLACK, Arrays, Floats, Ints
from headrace.policies.placement.forest import forest_of, is_forest
from headrace.policies.placement.fronts import best_within

__all__ = ["Charges", "improved", "repaired", "total_cost"]

Charges = Sequence[Floats | None] | None

# A round that helps is followed by another; problems of a hundred parts settle after three or four.
_MOST_ROUNDS = 20


def total_cost(arrays: Arrays, at: Sequence[int], charges: Charges = None) -> float:
    """The cost of a placement with what its sites are charged for."""
    extra = 0.0
    for part, charge in enumerate(charges or ()):
        extra += 0.0 if charge is None else float(charge[at[part]])
    return arrays.cost(at) + extra


def improved(
    arrays: Arrays, choices: Sequence[Ints], start: Sequence[int], bound: float | None, charges: Charges = None
) -> list[int]:
    """A placement that costs at most what `start` does and keeps to the bound and the capacities if `start` does."""
    at = list(start)
    cost = total_cost(arrays, at, charges)
    blocks = _blocks(arrays, choices)
    for _ in range(_MOST_ROUNDS):
        before = cost
        for step in _steps(arrays, choices, at, bound, charges, blocks):
            if arrays.keeps(step, bound) and (lower := total_cost(arrays, step, charges)) < cost * (1 - SLACK):
                at[:], cost = step, lower
        if cost >= before:
            break
    return at


def _steps(
    arrays: Arrays,
    choices: Sequence[Ints],
    at: list[int],
    bound: float | None,
    charges: Charges,
    blocks: Sequence[frozenset[int]],
) -> Iterator[list[int]]:
    """Placements worth a look; `at` may change between two of them."""
    for part in range(len(at)):
        if len(choices[part]) > 1:
            yield _one_moved(arrays, choices, at, part, bound, charges)
    for part, readers in enumerate(arrays.readers):
        moving = [reader for reader, _ in readers if len(choices[reader]) > 1]
        if len(moving) > 1:
            yield from _together(arrays, at, moving, bound, charges, choices)
            yield from _together(arrays, at, [part, *moving], bound, charges, choices)
    for block in blocks:
        found = _block_moved(arrays, choices, at, block, bound, charges)
        if found is not None:
            yield found


def _one_moved(
    arrays: Arrays, choices: Sequence[Ints], at: Sequence[int], part: int, bound: float | None, charges: Charges
) -> list[int]:
    """The placement with one part at its best site, all others where they are."""
    sites = choices[part]
    cost = _cost_by_site(arrays, at, part)[sites]
    if charges is not None and (charge := charges[part]) is not None:
        cost = cost + charge[sites]
    allowed = np.ones(len(sites), dtype=bool)
    if bound is not None:
        arrival, remaining = arrays.arrivals(at), arrays.remaining(at)
        before = [arrival[source] + arrays.delay[at[source], sites] for source, _ in arrays.inputs[part]]
        after = [remaining[reader] + arrays.delay[sites, at[reader]] for reader, _ in arrays.readers[part]]
        allowed &= np.max(before, axis=0) + np.max(after, axis=0) <= bound * (1 + SLACK)
    if not arrays.is_roomy:
        loads = arrays.loads(at)
        loads[at[part]] -= arrays.load[part]
        allowed &= loads[sites] + arrays.load[part] <= arrays.room[sites] * (1 + SLACK)
    moved = list(at)
    if allowed.any():
        moved[part] = int(sites[np.where(allowed, cost, np.inf).argmin()])
    return moved


def _cost_by_site(arrays: Arrays, at: Sequence[int], part: int) -> Floats:
    """By site what the flows of a part cost there."""
    total = np.zeros(len(arrays.sites))
    for site, rate in arrays.sent(arrays.readers[part], at).items():
        total += rate * arrays.delay[:, site]
    for source, rate in arrays.inputs[part]:
        there = arrays.sent([reader for reader in arrays.readers[source] if reader[0] != part], at)
        rates = np.full(len(total), rate)
        for site, other in there.items():
            rates[site] = max(0.0, rate - other)
        total += rates * arrays.delay[at[source]]
    return total


def _together(
    arrays: Arrays,
    at: Sequence[int],
    parts: Sequence[int],
    bound: float | None,
    charges: Charges,
    choices: Sequence[Ints],
) -> Iterator[list[int]]:
    """The best placements with these parts at one site."""
    free = [part for part in parts if len(choices[part]) > 1]
    sites = choices[free[0]]
    for part in free[1:]:
        sites = np.intersect1d(sites, choices[part])
    many = np.tile(np.asarray(at, dtype=np.intp), (len(sites), 1))
    many[:, free] = sites[:, None]
    costs = arrays.costs(many)
    for part in free:
        if charges is not None and (charge := charges[part]) is not None:
            costs += charge[sites]
    # With bounds the cheapest site may not do; a few more are tried.
    count = 1 if bound is None and arrays.is_roomy else 5
    for row in np.argsort(costs, kind="stable")[:count]:
        yield [int(site) for site in many[row]]


def _block_moved(
    arrays: Arrays,
    choices: Sequence[Ints],
    at: Sequence[int],
    block: frozenset[int],
    bound: float | None,
    charges: Charges,
) -> list[int] | None:
    """The best placement of a block's parts, all others where they are; capacities are left to the caller."""
    inside = [sites if part in block else np.array([at[part]]) for part, sites in enumerate(choices)]
    forest = forest_of(arrays, inside, charges)
    columns = forest.best(forest.inside()) if bound is None else best_within(forest, bound)
    return None if columns is None else forest.sites(columns)


def _blocks(arrays: Arrays, choices: Sequence[Ints]) -> tuple[frozenset[int], ...]:
    """Sets of parts whose costs form a forest: grown from every reader of a shared part, and from each answer."""
    free = [part for part in reversed(arrays.order) if len(choices[part]) > 1]
    seeds: list[list[int]] = [[part] for end in arrays.ends for part, _ in arrays.inputs[end] if part in free]
    for part, readers in enumerate(arrays.readers):
        moving = [reader for reader, _ in readers if len(choices[reader]) > 1]
        if len(moving) > 1:
            seeds += [[reader, part] if part in free else [reader] for reader in moving]
    return tuple(dict.fromkeys(_grown(arrays, choices, seed, free) for seed in seeds))


def _grown(arrays: Arrays, choices: Sequence[Ints], seed: Sequence[int], free: Sequence[int]) -> frozenset[int]:
    block = set[int]()
    for part in (*seed, *(part for part in free if part not in seed)):
        # Only how many sites a part may choose from matters here.
        trial = [sites if other in block or other == part else sites[:1] for other, sites in enumerate(choices)]
        if is_forest(arrays, trial):
            block.add(part)
    return frozenset(block)


def repaired(
    arrays: Arrays, choices: Sequence[Ints], start: Sequence[int], bound: float | None, charges: Charges = None
) -> list[int] | None:
    """A placement within the capacities: parts leave full sites, what costs least per load first; None if stuck."""
    at = list(start)
    for _ in range(len(at)):
        loads = arrays.loads(at)
        full = np.flatnonzero(loads > arrays.room * (1 + SLACK))
        if len(full) == 0:
            return at if arrays.keeps(at, bound) else None
        cost = total_cost(arrays, at, charges)
        leaving: tuple[float, list[int]] | None = None
        for part, site in enumerate(at):
            if site in full and len(choices[part]) > 1 and arrays.load[part] > 0:
                moved = _one_moved(arrays, choices, at, part, bound, charges)
                if moved[part] != site:
                    dearer = (total_cost(arrays, moved, charges) - cost) / float(arrays.load[part])
                    if leaving is None or dearer < leaving[0]:
                        leaving = (dearer, moved)
        if leaving is None:
            return None
        at = leaving[1]
    return None
