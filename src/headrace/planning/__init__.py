"""Which synopses answer which queries, and how to say so."""

from headrace.planning.explain import explain, explain_text
from headrace.planning.synopsis import AggregateSource, AnswerPlan, Feed, Measure, Synopsis, plan_answer

__all__ = [
    "AggregateSource",
    "AnswerPlan",
    "Feed",
    "Measure",
    "Synopsis",
    "explain",
    "explain_text",
    "plan_answer",
]
