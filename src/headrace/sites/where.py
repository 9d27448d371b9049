"""What a placement means for a cut: where queries have their answers, and what is done to rows where they are born."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace import errors
from headrace.errors import SpecError
from headrace.model import Crossing, Pipeline, SitePlan
from headrace.planning import Placed, place, plan_pipeline
from headrace.policies.placement import Infeasible, Placement, Problem

__all__ = ["Where", "where_placed"]


@dataclass(frozen=True)
class Where:
    """By query the site of its answers, and the births, as stream and site, whose rows are filtered before they travel.

    At `partial` births all aggregates over the stream are begun. `plan` is what the placement has sites send.
    """

    queries: Mapping[str, str]
    filtered: frozenset[tuple[str, str]] = frozenset()
    partial: frozenset[tuple[str, str]] = frozenset()
    plan: SitePlan = field(default_factory=SitePlan)


def where_placed(pipeline: Pipeline) -> Where:
    """What the placement of a pipeline means for its queries and births."""
    workload, refused = plan_pipeline(pipeline)
    if refused:
        raise SpecError(errors.Problem(why, query=name) for name, why in refused.items())
    placed = place(pipeline, workload)
    if isinstance(placed.found, Infeasible):
        raise SpecError(f"there is no placement: {placed.found.reason}")
    sites, problem = placed.found.sites, placed.problem
    roots = {flow.target: flow.source for flow in problem.flows if flow.target.startswith("answers of ")}
    queries = {query.name: sites[roots[f"answers of {query.name}"]] for query in pipeline.queries}
    births = [(stream.name, site) for stream in pipeline.streams for site in pipeline.birthplaces(stream.name)]
    filtered = frozenset(
        (stream, site)
        for stream, site in births
        if any(part.startswith(f"{stream}@{site} ") and at == site for part, at in sites.items())
    )
    partial = frozenset(birth for birth in births if _is_partial(placed.found, problem, *birth))
    return Where(queries, filtered, partial, plan_of(placed))


def plan_of(placed: Placed) -> SitePlan:
    """What a placement has sites send to each other."""
    if isinstance(placed.found, Infeasible):
        return SitePlan(placed.strategy, placed.found.reason)
    network, links = placed.problem.network, placed.problem.links_of(placed.found.sites)
    crossings = (Crossing(a, b, rate, network.distance_ms(a, b)) for (a, b), rate in sorted(links.items()))
    return SitePlan(placed.strategy, placed.found.reason, tuple(crossings), dict(placed.found.sites))


def _is_partial(found: Placement, problem: Problem, stream: str, site: str) -> bool:
    """Whether all aggregates over the rows of a birth begin there."""
    begun = [part for part in found.sites if part.startswith("partial ")]
    names = [part for part in begun if part.removesuffix(", again").endswith(f" at {stream}@{site}")]
    rows = [f for f in problem.flows if f.source.startswith(f"{stream}@{site} ") and f.target.startswith("merge ")]
    return bool(names) and not rows and all(found.sites[name] == site for name in names)
