"""Which synopses answer which queries, and how to say so."""

from headrace.planning.admission import columns_in_use, plan_admissions
from headrace.planning.coverage import Coverage, cover, forget
from headrace.planning.drawing import draw_mermaid
from headrace.planning.ending import ends_below, latest
from headrace.planning.explain import explain, explain_text, plan_pipeline
from headrace.planning.flow import Derived, FlowPlan, NodePlan, RowFeed, RowStore
from headrace.planning.graph import build_graph
from headrace.planning.graph_drawing import draw_graph, graph_json
from headrace.planning.join import LEFT, PAIR_TIME, RIGHT, JoinPlan, plan_join
from headrace.planning.map_svg import draw_svg
from headrace.planning.placed import Placed, place
from headrace.planning.placing import placement_problem
from headrace.planning.plan import plan_query
from headrace.planning.rates import KnownRates
from headrace.planning.row_window import RowsPlan, StepPlan, plan_rows, plan_step
from headrace.planning.scheduling import QueryTimes, Schedule, Scheduled, groups_of, subgroup_of
from headrace.planning.sharing import (
    Kept,
    Known,
    Source,
    Supply,
    Workload,
    assemble_workload,
    nodes_of,
    share,
    streams_read,
)
from headrace.planning.synopsis import AggregateSource, AnswerPlan, Demand, plan_answer

__all__ = [
    "LEFT",
    "PAIR_TIME",
    "RIGHT",
    "AggregateSource",
    "AnswerPlan",
    "Coverage",
    "Demand",
    "Derived",
    "FlowPlan",
    "JoinPlan",
    "Kept",
    "Known",
    "KnownRates",
    "NodePlan",
    "Placed",
    "QueryTimes",
    "RowFeed",
    "RowStore",
    "RowsPlan",
    "Schedule",
    "Scheduled",
    "Source",
    "StepPlan",
    "Supply",
    "Workload",
    "assemble_workload",
    "build_graph",
    "columns_in_use",
    "cover",
    "draw_graph",
    "draw_mermaid",
    "draw_svg",
    "ends_below",
    "explain",
    "explain_text",
    "forget",
    "graph_json",
    "groups_of",
    "latest",
    "nodes_of",
    "place",
    "placement_problem",
    "plan_admissions",
    "plan_answer",
    "plan_join",
    "plan_pipeline",
    "plan_query",
    "plan_rows",
    "plan_step",
    "share",
    "streams_read",
    "subgroup_of",
]
