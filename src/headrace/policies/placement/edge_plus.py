"""Operators at sources or at the proxy, by bytes and distance: Edge+, section 3.3 of the paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.policies.placement.arrays import SLACK
from headrace.policies.placement.bottom_up import Configuration, Draft, permutations, place_bottom_up
from headrace.policies.placement.edge import edge_cases
from headrace.policies.placement.problem import Infeasible, Placement, Problem

__all__ = ["edge_plus", "edge_plus_cases"]


def edge_plus(problem: Problem) -> Placement | Infeasible:
    """Places each operator where bytes times distance are least, among sources and the proxy."""
    return place_bottom_up(
        problem, problem.arrays.delay, edge_plus_cases, "the least bytes times distance, at sources or the proxy"
    )


def edge_plus_cases(draft: Draft, part: int) -> Iterator[Configuration]:
    """Edge's three cases, and children at other locations of their sources that are no farther from the operator.

    The paper leaves open where the operator stands then: at the location, among those of all sources below it, where
    the cost is least.
    """
    cases = list(edge_cases(draft, part))
    yield from cases
    first = min(cases, key=lambda each: each.cost)
    most = separation(draft, part, first) * (1 + SLACK)
    # A part that several read stays where it is.
    places = {child: _locations(draft, child) for child, _ in draft.arrays.inputs[part]}
    for site in sorted(draft.leaves[part]):
        apart, cost, configuration = permutations(draft, part, site, places)
        near = np.flatnonzero(apart <= most)
        if len(near):
            yield configuration(int(near[cost[near].argmin()]))


def _locations(draft: Draft, child: int) -> np.ndarray:
    if len(draft.arrays.readers[child]) > 1:
        return np.array([draft.at[child]])
    return np.array(sorted(draft.leaves[child]))


def separation(draft: Draft, part: int, chosen: Configuration) -> float:
    """The milliseconds from the places of an operator's children to its own, all together."""
    return sum(
        float(draft.arrays.delay[chosen.children.get(child, draft.at[child]), chosen.site])
        for child, _ in draft.arrays.inputs[part]
    )
