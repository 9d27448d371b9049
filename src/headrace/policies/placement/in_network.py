"""Operators anywhere in the network: In-Network, section 3.4 of the paper on network-aware placement."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

import numpy as np

from headrace.policies.placement.arrays import Ints
from headrace.policies.placement.bottom_up import Configuration, Draft, permutations, place_bottom_up
from headrace.policies.placement.edge_plus import edge_plus_cases
from headrace.policies.placement.problem import Infeasible, Placement, Problem

__all__ = ["candidates", "in_network", "in_network_cases"]

# Configurations weighed per operator, those of least separation: k in the paper, which gives no number.
RANKED = 64
# Around the places of an operator's children and reader, where no site lies between children.
_NEIGHBOURS = 4


def in_network(problem: Problem, ranked: int = RANKED) -> Placement | Infeasible:
    """Places each operator where bytes times distance are least, among sources, the proxy and sites between them."""
    return place_bottom_up(
        problem,
        problem.arrays.delay,
        partial(in_network_cases, ranked=ranked),
        "the least bytes times distance, at sources, the proxy or between them",
    )


def in_network_cases(draft: Draft, part: int, ranked: int) -> Iterator[Configuration]:
    """Edge+'s cases; the operator at each of its candidates; the `ranked` configurations of least separation."""
    yield from edge_plus_cases(draft, part)
    sites = candidates(draft, part)
    for site in sites:
        yield draft.configured(part, int(site))
    yield from _ranked(draft, part, sites, ranked)


def candidates(draft: Draft, part: int) -> Ints:
    """Sites nearer to the children's places than these are to each other; if there are none, sites near these places.

    Read as it stands, the paper's set is empty for an only child and for children at one site.
    """
    delay = draft.arrays.delay
    places = sorted({draft.at[child] for child, _ in draft.arrays.inputs[part]})
    between = np.full(len(draft.arrays.sites), len(places) > 1)
    for a, b in combinations(places, 2):
        between &= (delay[a] < delay[a, b]) & (delay[b] < delay[a, b])
    if between.any():
        return np.flatnonzero(between)
    near = {draft.proxy[reader] for reader, _ in draft.arrays.readers[part]} | set(places)
    return np.unique(np.concatenate([np.argsort(delay[place], kind="stable")[: _NEIGHBOURS + 1] for place in near]))


def _ranked(draft: Draft, part: int, sites: Ints, ranked: int) -> Iterator[Configuration]:
    """The configurations of least separation with the operator, and each child or its sources, among the candidates."""
    places: dict[int, Ints] = {}
    for child, _ in draft.arrays.inputs[part]:
        shared = len(draft.arrays.readers[child]) > 1
        anywhere = np.union1d(np.append(sites, draft.at[child]), sorted(draft.leaves[child]))
        anywhere = np.array([draft.at[child]]) if shared else anywhere
        places[child] = anywhere[np.isfinite(draft.gamma[child][anywhere])]
    # Two nearest lists of which four times as many pairs are made hold all pairs that can be ranked, but for a few.
    found = [permutations(draft, part, int(site), places, 4 * ranked) for site in sites]
    apart = np.concatenate([each[0] for each in found])
    cost = np.concatenate([each[1] for each in found])
    first = np.cumsum([0, *(len(each[0]) for each in found)])
    for number in np.lexsort((cost, apart))[:ranked]:
        which = int(np.searchsorted(first, number, side="right")) - 1
        yield found[which][2](int(number - first[which]))
