"""Where each operator runs: one strategy per file, judged by the optimum."""

from headrace.policies.placement.problem import Flow, Infeasible, Part, Placement, Problem

__all__ = ["Flow", "Infeasible", "Part", "Placement", "Problem"]
