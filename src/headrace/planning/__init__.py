"""Which synopses answer which queries, and how to say so."""

from headrace.planning.admission import columns_in_use, plan_admissions
from headrace.planning.coverage import Coverage, cover, forget
from headrace.planning.crossings import Crossed, crossings_of
from headrace.planning.drawing import draw_mermaid
from headrace.planning.ending import ends_below, latest
from headrace.planning.explain import explain, explain_text, plan_pipeline
from headrace.planning.flow import Derived, FlowPlan, NodePlan, RowFeed, RowStore
from headrace.planning.graph import build_graph
from headrace.planning.graph_drawing import draw_graph, graph_json
from headrace.planning.join import LEFT, PAIR_TIME, RIGHT, JoinPlan, plan_join
from headrace.planning.joining import (
    JoinEpoch,
    SideEpoch,
    advance_us,
    closed_us,
    decide_join,
    expired_rows,
    host_rates,
    last_row_us,
    learn_join,
    may_shed_join,
    window_us,
)
from headrace.planning.lookup import LookupPlan, plan_lookup
from headrace.planning.map_svg import draw_svg
from headrace.planning.partial import PANE_TIMES, Partial, merged_columns, partial_of
from headrace.planning.parting import part_queries
from headrace.planning.placed import Placed, place
from headrace.planning.placing import placement_problem
from headrace.planning.plan import plan_query
from headrace.planning.rates import KnownRates, learned, row_bytes
from headrace.planning.recorded import NodeState, Recorded, RecordedEpoch
from headrace.planning.row_window import RowsPlan, StepPlan, plan_rows, plan_step
from headrace.planning.scheduling import QueryTimes, Schedule, Scheduled, groups_of, subgroup_of, unasked_share
from headrace.planning.select import SelectPlan, plan_select
from headrace.planning.sharing import (
    Kept,
    Known,
    Supplier,
    Supply,
    Workload,
    assemble_workload,
    nodes_of,
    share,
    streams_read,
)
from headrace.planning.shedding import (
    Asked,
    Part,
    Shedding,
    counted_edges,
    decide_shedding,
    edges_into,
    edges_of,
    epoch_seconds,
    even_spread_offers,
    parts_of,
    protected_edges,
    with_kept,
)
from headrace.planning.synopsis import AggregateColumns, AnswerPlan, Demand, is_scaled, plan_answer

__all__ = [
    "LEFT",
    "PAIR_TIME",
    "PANE_TIMES",
    "RIGHT",
    "AggregateColumns",
    "AnswerPlan",
    "Asked",
    "Coverage",
    "Crossed",
    "Demand",
    "Derived",
    "FlowPlan",
    "JoinEpoch",
    "JoinPlan",
    "Kept",
    "Known",
    "KnownRates",
    "LookupPlan",
    "NodePlan",
    "NodeState",
    "Part",
    "Partial",
    "Placed",
    "QueryTimes",
    "Recorded",
    "RecordedEpoch",
    "RowFeed",
    "RowStore",
    "RowsPlan",
    "Schedule",
    "Scheduled",
    "SelectPlan",
    "Shedding",
    "SideEpoch",
    "StepPlan",
    "Supplier",
    "Supply",
    "Workload",
    "advance_us",
    "assemble_workload",
    "build_graph",
    "closed_us",
    "columns_in_use",
    "counted_edges",
    "cover",
    "crossings_of",
    "decide_join",
    "decide_shedding",
    "draw_graph",
    "draw_mermaid",
    "draw_svg",
    "edges_into",
    "edges_of",
    "ends_below",
    "epoch_seconds",
    "even_spread_offers",
    "expired_rows",
    "explain",
    "explain_text",
    "forget",
    "graph_json",
    "groups_of",
    "host_rates",
    "is_scaled",
    "last_row_us",
    "latest",
    "learn_join",
    "learned",
    "may_shed_join",
    "merged_columns",
    "nodes_of",
    "part_queries",
    "partial_of",
    "parts_of",
    "place",
    "placement_problem",
    "plan_admissions",
    "plan_answer",
    "plan_join",
    "plan_lookup",
    "plan_pipeline",
    "plan_query",
    "plan_rows",
    "plan_select",
    "plan_step",
    "protected_edges",
    "row_bytes",
    "share",
    "streams_read",
    "subgroup_of",
    "unasked_share",
    "window_us",
    "with_kept",
]
