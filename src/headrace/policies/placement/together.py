"""Several queries at once: operators that queries share are placed and paid once.

The parts of all queries are one problem. It is solved exactly, by an integer program, when small; beyond that the
placement that comes of placing query after query is improved step by step (search.py), so that it never gets worse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.policies.placement.arrays import Arrays
from headrace.policies.placement.forest import is_forest
from headrace.policies.placement.least_cost import place_at_least_cost
from headrace.policies.placement.problem import Infeasible, Placement, Problem

__all__ = ["one_by_one", "together"]


def together(problem: Problem) -> Placement | Infeasible:
    """Places the operators of all queries such that their common cost is least."""
    known = Infeasible("not tried") if is_forest(problem.arrays, problem.arrays.everywhere()) else one_by_one(problem)
    if isinstance(known, Infeasible):
        return place_at_least_cost(problem)
    return place_at_least_cost(problem, [problem.positions(known.sites)])


def one_by_one(
    problem: Problem, strategy: Callable[[Problem], Placement | Infeasible] = place_at_least_cost
) -> Placement | Infeasible:
    """Places one query after the other, in the order of their answers; what earlier ones have placed stays.

    Later queries may read what is there, and what is sent to a site anyway costs them nothing.
    """
    arrays = problem.arrays
    placed = {part.name: part.home for part in problem.parts if part.home is not None}
    seen = set[str]()
    for end in arrays.ends:
        seen |= {arrays.names[part] for part in _feeding(arrays, end)}
        here = seen | placed.keys()
        parts = tuple(replace(part, home=placed.get(part.name)) for part in problem.parts if part.name in here)
        flows = tuple(flow for flow in problem.flows if flow.source in seen and flow.target in seen)
        found = strategy(replace(problem, parts=parts, flows=flows))
        if isinstance(found, Infeasible):
            return replace(found, reason=f"answers '{arrays.names[end]}', placed after others: {found.reason}")
        placed |= found.sites
    return problem.placed(placed, "each query by itself, one after the other")


def _feeding(arrays: Arrays, end: int) -> set[int]:
    """A part and all that feeds it."""
    found, waiting = {end}, [end]
    while waiting:
        for source, _ in arrays.inputs[waiting.pop()]:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found
