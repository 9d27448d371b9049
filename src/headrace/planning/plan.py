"""How a query is run, by the kind of its root."""

from __future__ import annotations

from headrace.model import Join, Query, WindowAggregate
from headrace.planning.flow import FlowPlan
from headrace.planning.join import plan_aggregate_over_join, plan_join
from headrace.planning.synopsis import AnswerPlan, plan_answer

__all__ = ["plan_query"]


def plan_query(query: Query) -> AnswerPlan | FlowPlan:
    """The plan of a query; SpecError if it cannot be run by this version."""
    root = query.root
    if isinstance(root, Join):
        return plan_join(query)
    if isinstance(root, WindowAggregate) and isinstance(root.input, Join):
        return plan_aggregate_over_join(query)
    return plan_answer(query)
