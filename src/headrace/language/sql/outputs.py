"""Checks on result columns and LIMIT that all kinds of query share."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.language.sql.report import Fault, Report
from headrace.language.sql.select_list import SelectItem

__all__ = ["check_names", "keeps_ties", "read_limit"]


def check_names(items: Sequence[SelectItem], report: Report) -> None:
    """Note every result column whose name is taken already, or could not be quoted."""
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            report.add(f"two result columns are called '{item.name}'", item.at, "give one an alias")
        seen.add(item.name.lower())
        if "`" in item.name or not item.name.isprintable():
            report.add(
                f"a result column cannot be called {item.name!r}",
                item.at,
                "leave out backquotes and control characters",
            )


def read_limit(select: exp.Select) -> tuple[int | None, int]:
    """How many rows LIMIT and OFFSET reach, and how many of these OFFSET leaves out; raises Fault."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    if offset is not None and (limit is None or keeps_ties(select)):
        raise Fault("OFFSET goes with ORDER BY and LIMIT, without TIES", offset, "write ORDER BY n LIMIT 10 OFFSET 10")
    if limit is None:
        return None, 0
    skipped = 0 if offset is None else _whole(offset, "OFFSET")
    return _whole(limit, "LIMIT") + skipped, skipped


def _whole(clause: exp.Expr, name: str) -> int:
    value = clause.expression if isinstance(clause, (exp.Limit, exp.Offset)) else None
    if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdecimal() or len(value.this) > 9:
        raise Fault(f"{name} takes a whole number", clause, f"write {name} 10")
    return int(value.this)


def keeps_ties(select: exp.Select) -> bool:
    """Whether LIMIT keeps all rows that equal the last within it: `LIMIT 3 WITH TIES`."""
    options = (select.args.get("limit") or exp.Limit()).args.get("limit_options")
    return options is not None and bool(options.args.get("with_ties"))
