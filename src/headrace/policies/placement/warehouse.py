"""Everything where the answers are wanted: what people do, and what other strategies are measured by."""

from __future__ import annotations

from headrace.policies.placement.arrays import Arrays, within
from headrace.policies.placement.problem import Infeasible, Placement, Problem

__all__ = ["answer_sites", "warehouse"]


def warehouse(problem: Problem) -> Placement | Infeasible:
    """All streams travel to the site of their answers, and every operator runs there."""
    arrays = problem.arrays
    at = answer_sites(arrays)
    if not within(arrays.latency(at), problem.max_latency_ms):
        return problem.refused("with all operators where the answers are")
    if not arrays.fits(arrays.loads(at)):
        faults = "; ".join(problem.faults_of(arrays.named(at)))
        return Infeasible(f"the operators do not fit where the answers are: {faults}")
    return problem.placed(arrays.named(at), "all streams travel to where the answers are wanted")


def answer_sites(arrays: Arrays) -> list[int]:
    """By part its home, or the home of the answers it feeds: of several homes the one of most of these answers."""
    reached: list[set[int]] = [set() for _ in arrays.names]
    at = [0] * len(arrays.names)
    for part in reversed(arrays.order):
        home = arrays.home[part]
        if not arrays.readers[part]:
            reached[part] = {part}
        for reader, _ in arrays.readers[part]:
            reached[part] |= reached[reader]
        if home is None:
            homes = [arrays.home[end] or 0 for end in sorted(reached[part])]
            home = max(homes, key=homes.count)
        at[part] = home
    return at
