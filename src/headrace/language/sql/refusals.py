"""Nodes that no expression of a query may hold, each refused with its own sentence."""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.denied import DENIED
from headrace.language.sql.report import Fault

__all__ = ["refusal"]

_SUBQUERY = ("a subquery inside an expression is not accepted", "join the stream with [RANGE ..] instead")
_OVER = (
    "it stands in the SELECT list of a query that groups by window(ts, '1 minute'), or of one over such a query; "
    "filter its values with WHERE in a SELECT around it"
)


def refusal(node: exp.Expr) -> Fault | None:
    """Why this very node is refused wherever it stands; None when the rest of the binder may judge it.

    >>> refusal(exp.Anonymous(this="reflect", expressions=[])).message
    'reflect calls Java code by name'
    """
    if isinstance(node, exp.Func):
        name = node.name.lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()
        if name in DENIED:
            reason, hint = DENIED[name]
            return Fault(f"{name} {reason}", node, hint)
    match node:
        case exp.Window():
            return Fault("OVER is not accepted here", node, _OVER)
        case exp.Query() | exp.Exists():
            return Fault(_SUBQUERY[0], node, _SUBQUERY[1])
        case exp.Placeholder() | exp.Parameter():
            return Fault("parameters are not accepted", node, "write the value")
        case exp.Tuple():
            return Fault(
                "a row of several values is not accepted", node, "compare column by column, or use struct(a, b)"
            )
        case exp.IgnoreNulls() | exp.RespectNulls():
            return Fault("IGNORE NULLS goes with first and last", node, "write first(x) IGNORE NULLS")
    return None
