"""How a query is run, by the kind of its root."""

from __future__ import annotations

from headrace.model import Join, Query, RowsAggregate, Step, WindowAggregate
from headrace.planning.flow import FlowPlan
from headrace.planning.join import plan_aggregate_over_join, plan_join
from headrace.planning.row_window import plan_rows, plan_step
from headrace.planning.synopsis import AnswerPlan, plan_answer

__all__ = ["plan_query"]


def plan_query(query: Query) -> AnswerPlan | FlowPlan:
    """The plan of a query; SpecError if it cannot be run by this version."""
    match query.root:
        case Join():
            return plan_join(query)
        case WindowAggregate(input=Join()):
            return plan_aggregate_over_join(query)
        case RowsAggregate():
            return plan_rows(query)
        case Step():
            return plan_step(query)
        case _:
            return plan_answer(query)
