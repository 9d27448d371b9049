"""The placement of least cost: exact for forests and for small problems (least_cost.py says how)."""

from __future__ import annotations

from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.policies.placement.together import together

__all__ = ["optimal"]


def optimal(problem: Problem) -> Placement | Infeasible:
    """Places all operators, of one query or of several, such that bytes times distance are least.

    >>> from headrace.model import Network
    >>> from headrace.policies.placement.problem import Flow, Part
    >>> net = Network(("paris", "hub"), ((0.0, 12.0), (12.0, 0.0)))
    >>> parts = (Part("packets", "paris"), Part("count"), Part("answers", "hub"))
    >>> optimal(Problem(parts, (Flow("packets", "count", 800.0), Flow("count", "answers", 5.0)), net)).sites["count"]
    'paris'
    """
    return together(problem)
