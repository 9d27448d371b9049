"""Which synopses answer which queries, and how to say so."""

from headrace.planning.coverage import Coverage, cover, forget
from headrace.planning.explain import explain, explain_text
from headrace.planning.sharing import Kept, Known, Source, Supply, Workload, share
from headrace.planning.synopsis import ROWS, AggregateSource, AnswerPlan, Demand, Feed, Measure, Synopsis, plan_answer

__all__ = [
    "ROWS",
    "AggregateSource",
    "AnswerPlan",
    "Coverage",
    "Demand",
    "Feed",
    "Kept",
    "Known",
    "Measure",
    "Source",
    "Supply",
    "Synopsis",
    "Workload",
    "cover",
    "explain",
    "explain_text",
    "forget",
    "plan_answer",
    "share",
]
