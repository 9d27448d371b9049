"""The strategies a pipeline file may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.policies.placement.edge import edge
from headrace.policies.placement.edge_plus import edge_plus
from headrace.policies.placement.in_network import in_network
from headrace.policies.placement.optimal import optimal
from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.policies.placement.warehouse import warehouse

__all__ = ["STRATEGIES", "Strategy"]

Strategy = Callable[[Problem], Placement | Infeasible]

STRATEGIES: Mapping[str, Strategy] = {
    "warehouse": warehouse,
    "edge": edge,
    "edge+": edge_plus,
    "in-network": in_network,
    "optimal": optimal,
}
