"""The clauses a SELECT may have; every other one is refused with its own sentence."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from headrace.language.report import Fault

__all__ = ["check_clauses"]

_KNOWN = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct", "with_"})
_REASONS = {
    "laterals": ("LATERAL VIEW makes several rows out of one", "unfold rows before they enter the stream"),
    "hint": ("hints are not accepted", "the engine chooses how a query runs"),
    "into": ("SELECT INTO is not accepted", "name a sink in the pipeline file"),
    "offset": ("OFFSET is not accepted", "use ORDER BY with LIMIT"),
    "qualify": ("QUALIFY is not accepted", "use HAVING, or ORDER BY with LIMIT"),
    "windows": (
        "a WINDOW clause defines windows for OVER, which is not accepted",
        "write FROM s [WINDOW 10 min SLIDE 2 min]",
    ),
    "sort": ("SORT BY is not accepted", "use ORDER BY"),
    "cluster": ("CLUSTER BY is not accepted", "use GROUP BY"),
    "distribute": ("DISTRIBUTE BY is not accepted", "the engine chooses how rows are spread"),
    "pivots": ("PIVOT is not supported", "write one SUM(...) FILTER (WHERE ...) per column"),
    "sample": ("TABLESAMPLE picks rows at random", "filter on a hash of the row"),
    "match": ("MATCH_RECOGNIZE is not supported", "a join with [RANGE ..] finds pairs of events"),
    "locks": ("FOR UPDATE is not accepted", "a query only reads"),
    "kind": ("SELECT AS STRUCT and the like are not accepted", "use struct(a, b)"),
    "group": ("GROUP BY cannot stand here", "aggregate in the outermost SELECT"),
    "having": ("HAVING cannot stand here", "use WHERE, or aggregate in the outermost SELECT"),
    "order": ("ORDER BY cannot stand here", "order the results of the outermost SELECT"),
    "limit": ("LIMIT cannot stand here", "limit the results of the outermost SELECT"),
    "distinct": ("DISTINCT cannot stand here", "use GROUP BY or DISTINCT in the outermost SELECT"),
}


def check_clauses(
    select: exp.Select, refused: Collection[str] = (), why: str | None = None, remedy: str | None = None
) -> None:
    """Raise Fault for the first clause that a SELECT must not have at this place; with what to do instead, if given."""
    for name, value in select.args.items():
        if not value or (name in _KNOWN and name not in refused):
            continue
        message, hint = _REASONS.get(name, (f"{name.upper().strip('_')} is not accepted", "remove it"))
        at = value[0] if isinstance(value, list) else value
        place = at if isinstance(at, exp.Expr) else select
        if name in refused:
            hint = "; ".join(part for part in (why, remedy or hint) if part)
        raise Fault(message, place, hint)
    if (select.args.get("with_") or exp.With()).args.get("recursive"):
        raise Fault("WITH RECURSIVE is not accepted", select.args["with_"], "join the stream with itself")
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise Fault("DISTINCT ON is not accepted", distinct, "use GROUP BY")
