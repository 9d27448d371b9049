"""The best latency there could be."""

from __future__ import annotations

from headrace.policies.placement.arrays import Arrays
from headrace.policies.placement.forest import forest_of, is_forest
from headrace.policies.placement.fronts import least_bound
from headrace.policies.placement.integer import Verdict, least_latency, size_of

__all__ = ["SMALL", "best_latency"]

# Pairs of sites up to which an integer program takes seconds; twice as many, with bounds and capacities, take minutes.
SMALL = 20_000


def best_latency(arrays: Arrays) -> float | None:
    """The least longest path of all placements, in milliseconds; None if none fits into the capacities.

    Exact for forests and for small problems; for large ones that are neither it is the least found, and capacities are
    left out of account.
    """
    choices = arrays.everywhere()
    if arrays.is_roomy and is_forest(arrays, choices):
        return _of_forest(arrays)
    if size_of(arrays, choices) <= SMALL:
        outcome = least_latency(arrays, choices)
        if outcome.verdict is Verdict.NONE:
            return None
        if outcome.at is not None:
            return arrays.latency(outcome.at)
    return min(arrays.latency(at) for at in _at_one_site(arrays))


def _of_forest(arrays: Arrays) -> float:
    forest = forest_of(arrays, arrays.everywhere())
    return max(least_bound(forest), forest.settled_ms)


def _at_one_site(arrays: Arrays) -> list[list[int]]:
    """All that can move where answers are wanted, for each such place."""
    homes = sorted({home for end in arrays.ends if (home := arrays.home[end]) is not None})
    return [[site if home is None else home for home in arrays.home] for site in homes]
