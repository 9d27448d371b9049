"""Where each operator runs: one strategy per file, judged by the optimum."""

from headrace.policies.placement.edge import edge
from headrace.policies.placement.edge_plus import edge_plus
from headrace.policies.placement.handing_over import HandOver, LinkMark, end_way, hand_over, mark_of
from headrace.policies.placement.in_network import in_network
from headrace.policies.placement.optimal import optimal
from headrace.policies.placement.problem import Flow, Infeasible, Part, Placement, Problem
from headrace.policies.placement.reconsider import Change, Reluctance, Wait, reconsider
from headrace.policies.placement.strategies import STRATEGIES, Strategy
from headrace.policies.placement.together import one_by_one, together
from headrace.policies.placement.warehouse import warehouse

__all__ = [
    "STRATEGIES",
    "Change",
    "Flow",
    "HandOver",
    "Infeasible",
    "LinkMark",
    "Part",
    "Placement",
    "Problem",
    "Reluctance",
    "Strategy",
    "Wait",
    "edge",
    "edge_plus",
    "end_way",
    "hand_over",
    "in_network",
    "mark_of",
    "one_by_one",
    "optimal",
    "reconsider",
    "together",
    "warehouse",
]
