"""Which synopses answer which queries, and how to say so."""

from headrace.planning.coverage import Coverage, cover, forget
from headrace.planning.explain import explain, explain_text
from headrace.planning.flow import FlowPlan, RowFeed, RowStore
from headrace.planning.join import LEFT, PAIR_TIME, RIGHT, Derived, JoinPlan, plan_join
from headrace.planning.plan import plan_query
from headrace.planning.row_window import RowsPlan, StepPlan, plan_rows, plan_step
from headrace.planning.scheduling import QueryTimes, Schedule, Scheduled, Spent, groups_of, subgroup_of
from headrace.planning.sharing import Kept, Known, Source, Supply, Workload, owner, share, streams_read
from headrace.planning.synopsis import ROWS, AggregateSource, AnswerPlan, Demand, Feed, Measure, Synopsis, plan_answer

__all__ = [
    "LEFT",
    "PAIR_TIME",
    "RIGHT",
    "ROWS",
    "AggregateSource",
    "AnswerPlan",
    "Coverage",
    "Demand",
    "Derived",
    "Feed",
    "FlowPlan",
    "JoinPlan",
    "Kept",
    "Known",
    "Measure",
    "QueryTimes",
    "RowFeed",
    "RowStore",
    "RowsPlan",
    "Schedule",
    "Scheduled",
    "Source",
    "Spent",
    "StepPlan",
    "Supply",
    "Synopsis",
    "Workload",
    "cover",
    "explain",
    "explain_text",
    "forget",
    "groups_of",
    "owner",
    "plan_answer",
    "plan_join",
    "plan_query",
    "plan_rows",
    "plan_step",
    "share",
    "streams_read",
    "subgroup_of",
]
