"""Queries that would share synopses and are kept apart, since their weights differ enough to pay under overload.

A query that is kept `apart` demands synopses which only others that are apart share. It is decided when queries come. A
query that goes on stays as it is, whatever is edited, because its panes are where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.errors import SpecError
from headrace.model import EngineSettings, Query, QueryShedding, Synopsis
from headrace.planning.plan import plan_query
from headrace.planning.shedding import objective_of
from headrace.planning.synopsis import AnswerPlan
from headrace.policies.shedding import Fair, Sharer, part_sharers

__all__ = ["part_queries"]

# What a row costs in a synopsis, roughly: with a detail every value has a row of its own.
PLAIN, DETAILED = 1.0, 3.0


def part_queries(
    queries: Sequence[Query], settings: EngineSettings, going_on: Mapping[str, QueryShedding]
) -> tuple[Query, ...]:
    """The same queries, some of them apart; those that are `going_on` as they were."""
    decided = _parted(queries, settings) if settings.shedding != "off" else frozenset()
    found = []
    for query in queries:
        apart = going_on[query.name].apart if query.name in going_on else query.name in decided
        found.append(replace(query, shedding=replace(query.shedding, apart=apart)))
    return tuple(found)


def _parted(queries: Sequence[Query], settings: EngineSettings) -> frozenset[str]:
    objective = objective_of({}, {query.name: query for query in queries}, settings)
    fair = isinstance(objective, Fair)
    weights = objective.weights if isinstance(objective, Fair) else objective.queries
    sharers = []
    for query in queries:
        needed = _needed(query)
        if needed:
            costs = {each.id: DETAILED if each.detail is not None else PLAIN for each in needed}
            sharers.append(Sharer(query.name, float(weights[query.name]), costs))
    return frozenset(name for group in _sharing(sharers) for name in part_sharers(group, fair=fair))


def _needed(query: Query) -> tuple[Synopsis, ...]:
    """What a query that may be shed is answered from; nothing of others, and of those that no plan can answer."""
    if query.why_never_shed is not None:
        return ()
    try:
        plan = plan_query(replace(query, shedding=replace(query.shedding, apart=False)))
    except SpecError:
        return ()
    return tuple(d.synopsis for d in plan.demands) if isinstance(plan, AnswerPlan) and not plan.below else ()


def _sharing(sharers: Iterable[Sharer]) -> list[list[Sharer]]:
    """Those that share synopses, be it through others, together."""
    groups: list[list[Sharer]] = []
    for sharer in sharers:
        mine = [g for g in groups if any(each.costs.keys() & sharer.costs.keys() for each in g)]
        groups = [g for g in groups if not any(g is one for one in mine)]
        groups.append([*(each for g in mine for each in g), sharer])
    return groups
