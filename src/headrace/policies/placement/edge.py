"""Operators at sources or at the proxy, by bytes alone: Edge, section 3.2 of the paper on network-aware placement."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.policies.placement.bottom_up import Configuration, Draft, place_bottom_up
from headrace.policies.placement.problem import Infeasible, Placement, Problem

__all__ = ["edge", "edge_cases"]


def edge(problem: Problem) -> Placement | Infeasible:
    """Places each operator where the fewest bytes cross the network, whatever the distance (equations 3 to 6)."""
    sites = len(problem.network.sites)
    return place_bottom_up(problem, 1.0 - np.eye(sites), edge_cases, "the fewest bytes cross, at sources or the proxy")


def edge_cases(draft: Draft, part: int) -> Iterator[Configuration]:
    """Where the most bytes come from; a location common to all children; the proxy (cases 1 to 3)."""
    busiest = draft.busiest(part)
    if busiest is not None:
        yield draft.configured(part, busiest)
    for site in draft.common(part):
        yield draft.configured(part, site)
    yield draft.configured(part, draft.proxy[part])
