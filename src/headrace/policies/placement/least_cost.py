"""The placement of least cost.

    a forest                 one pass over its parts (forest.py)
    ... with a bound         Pareto fronts of cost and latency (fronts.py)
    ... with full sites      an integer program over the sites that can be part of the best placement (integer.py)
    shared parts             an integer program when small, else a search from known placements (search.py)

All but the search are exact, and the reason says which it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.policies.placement.arrays import SLACK, Arrays, Ints, within
from headrace.policies.placement.edge import edge
from headrace.policies.placement.edge_plus import edge_plus
from headrace.policies.placement.forest import Forest, forest_of, is_forest
from headrace.policies.placement.fronts import best_within
from headrace.policies.placement.in_network import in_network
from headrace.policies.placement.integer import Verdict, least_cost, size_of
from headrace.policies.placement.latency import SMALL
from headrace.policies.placement.narrow import worthwhile
from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.policies.placement.search import Charges, improved, repaired, total_cost
from headrace.policies.placement.warehouse import answer_sites, warehouse

__all__ = ["place_at_least_cost", "place_jointly"]

# The two best of known placements lead to different optima often enough, further ones hardly ever.
_IMPROVED = 2
# Each refinement is an integer program; the second seldom helps.
_MOST_REFINEMENTS = 3

_EXACT = "an integer program: the least cost there is"
_SEARCHED = "a search from the best of several placements: the least cost found"
_NOT_FOUND = "no placement found that keeps to the bound and the capacities; that there is none is not proved"


def place_at_least_cost(
    problem: Problem, known: Sequence[Sequence[int]] = (), charges: Charges = None
) -> Placement | Infeasible:
    """Places all operators such that bytes times distance are least.

    Where that takes a search, the outcome is never worse than `known`. `charges`, by part and by site of the network,
    are added to the cost of flows.
    """
    arrays = problem.arrays
    choices = arrays.everywhere()
    if not is_forest(arrays, choices):
        return place_jointly(problem, known, charges)
    forest = forest_of(arrays, choices, charges)
    columns = forest.best(forest.inside())
    how = "one pass over the operators: the least cost there is"
    if problem.max_latency_ms is not None:
        bounded = best_within(forest, problem.max_latency_ms)
        # A path without operators may be too long, too.
        if bounded is None or not within(arrays.latency(forest.sites(bounded)), problem.max_latency_ms):
            return problem.refused("of these operators")
        columns, how = bounded, f"the least cost of all placements within {problem.max_latency_ms:.6g} ms"
    at = forest.sites(columns)
    if arrays.fits(arrays.loads(at)):
        return problem.placed(arrays.named(at), how)
    return place_jointly(problem, [*known, at], charges, forest)


def place_jointly(
    problem: Problem,
    known: Sequence[Sequence[int]] = (),
    charges: Charges = None,
    relaxed: Forest | None = None,
) -> Placement | Infeasible:
    """The least cost of parts that share what they read, or sites: exact when small, else never worse than `known`.

    `relaxed` is the forest of the same parts without capacities, if there is one: it rules out sites.
    """
    arrays, bound = problem.arrays, problem.max_latency_ms
    choices = arrays.everywhere()
    found = _searched(problem, known, charges)
    if size_of(arrays, choices) > SMALL:
        found = _refined(problem, found, charges)
        if found and relaxed is not None:
            choices = worthwhile(arrays, relaxed, total_cost(arrays, found[0], charges))
    verdict = Verdict.UNKNOWN
    if size_of(arrays, choices) <= SMALL:
        outcome = least_cost(arrays, choices, bound, charges)
        verdict = outcome.verdict
        if outcome.at is not None:
            # The solver's tolerance may let a path be too long by a hair; nothing is proved then.
            verdict = verdict if arrays.keeps(outcome.at, bound) else Verdict.UNKNOWN
            sound = [at for at in (list(outcome.at), *found) if arrays.keeps(at, bound)]
            found = _cheapest_first(arrays, sound, charges)
    if found:
        return problem.placed(arrays.named(found[0]), _EXACT if verdict is Verdict.PROVED else _SEARCHED)
    return _why_none(problem) if verdict is Verdict.NONE else Infeasible(_NOT_FOUND)


def _refined(problem: Problem, found: list[list[int]], charges: Charges) -> list[list[int]]:
    """Known placements, cheapest first, and better ones by integer programs over the sites that they use."""
    arrays, bound = problem.arrays, problem.max_latency_ms
    for _ in range(_MOST_REFINEMENTS if found else 0):
        choices = _familiar(arrays, found)
        if size_of(arrays, choices) > SMALL:
            choices = _familiar(arrays, found[:1])
        if size_of(arrays, choices) > SMALL:
            break
        outcome = least_cost(arrays, choices, bound, charges)
        if outcome.at is None or not arrays.keeps(outcome.at, bound):
            break
        better = improved(arrays, arrays.everywhere(), outcome.at, bound, charges)
        if total_cost(arrays, better, charges) >= total_cost(arrays, found[0], charges) * (1 - SLACK):
            break
        found = [better, *found]
    return found


def _familiar(arrays: Arrays, found: Sequence[Sequence[int]]) -> tuple[Ints, ...]:
    """By part the sites of its own and of its neighbours in known placements."""
    choices = list(arrays.everywhere())
    for part in arrays.free:
        near = [part, *(other for other, _ in (*arrays.inputs[part], *arrays.readers[part]))]
        choices[part] = np.array(sorted({at[other] for at in found for other in near}))
    return tuple(choices)


def _why_none(problem: Problem) -> Infeasible:
    if problem.max_latency_ms is None:
        return Infeasible("the operators do not fit into the sites' capacities")
    return problem.refused("of these operators")


def _searched(problem: Problem, known: Sequence[Sequence[int]], charges: Charges) -> list[list[int]]:
    """Placements made of those that are known and of what other strategies make of the problem, cheapest first."""
    arrays, bound = problem.arrays, problem.max_latency_ms
    choices = arrays.everywhere()
    starts = [list(at) for at in known]
    for strategy in (warehouse, edge, edge_plus, in_network):
        made = strategy(problem)
        if isinstance(made, Placement):
            starts.append(problem.positions(made.sites))
    if not arrays.is_roomy:
        full = [at for at in (*starts, answer_sites(arrays)) if not arrays.fits(arrays.loads(at))]
        starts += [at for at in (repaired(arrays, choices, at, bound, charges) for at in full) if at is not None]
    sound = _cheapest_first(arrays, [at for at in starts if arrays.keeps(at, bound)], charges)
    ends = [improved(arrays, choices, at, bound, charges) for at in sound[:_IMPROVED]]
    return _cheapest_first(arrays, [*ends, *sound], charges)


def _cheapest_first(arrays: Arrays, found: list[list[int]], charges: Charges) -> list[list[int]]:
    return sorted(found, key=lambda at: total_cost(arrays, at, charges))
