"""Clauses that a SELECT has at some places only, each refused elsewhere with its own sentence."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from headrace.language.sql.report import Fault

__all__ = ["refuse_clauses"]

_REASONS = {
    "group": ("GROUP BY cannot stand here", "aggregate in the outermost SELECT"),
    "having": ("HAVING cannot stand here", "use WHERE, or aggregate in the outermost SELECT"),
    "order": ("ORDER BY cannot stand here", "order the results of the outermost SELECT"),
    "limit": ("LIMIT cannot stand here", "limit the results of the outermost SELECT"),
    "offset": ("OFFSET cannot stand here", "limit the results of the outermost SELECT"),
    "distinct": ("DISTINCT cannot stand here", "use GROUP BY or DISTINCT in the outermost SELECT"),
}


def refuse_clauses(select: exp.Select, names: Iterable[str], why: str, remedy: str | None = None) -> None:
    """Raise Fault for the first of the clauses that a SELECT must not have at this place; with why, and what to do."""
    for name in names:
        clause = select.args.get(name)
        if clause is not None:
            message, hint = _REASONS[name]
            raise Fault(message, clause, f"{why}; {remedy or hint}")
