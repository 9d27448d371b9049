"""A SELECT without a window: every admitted row, or every pair of a join, is a result by itself."""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.columns import Columns
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition
from headrace.language.sql.names import HIDDEN_TIME, Scope
from headrace.language.sql.outputs import check_names
from headrace.language.sql.relation import Relation, Take, lower
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.select_list import bind_items, select_items
from headrace.language.sql.spark_text import leaf
from headrace.model import Finish, Operator, Output

__all__ = ["bind_selected", "selected_all"]

_WINDOW = "give it a window: [WINDOW 10 min SLIDE 2 min] after the stream or the subquery, or window(ts, '10 minutes')"
_UNBOUNDED = {
    "having": ("HAVING is about groups, and a SELECT without a window has none", "use WHERE"),
    "distinct": ("DISTINCT would have to remember every row of a stream that never ends", _WINDOW),
    "order": ("ORDER BY would have to wait for the end of a stream that never ends", _WINDOW),
    "offset": ("OFFSET over a stream that never ends leaves out the first rows alone", _WINDOW),
    "limit": ("LIMIT over a stream that never ends has no rows to choose from but the first", _WINDOW),
}


def bind_selected(select: exp.Select, source: Source, report: Report) -> tuple[Operator, Finish]:
    """Operator and finish of a SELECT without windows and aggregates; notes problems, raises Fault."""
    for name, (why, hint) in _UNBOUNDED.items():
        if (clause := select.args.get(name)) is not None:
            raise Fault(why, clause, hint)
    scope = Scope(source.relation.columns)
    columns = Columns(scope)
    where = None
    with report.catching():
        where = bind_condition(select.args.get("where"), scope, "WHERE")
    items = select_items(select, scope)
    outputs: list[Output] = []
    for item, node in zip(items, bind_items(items, scope, report), strict=True):
        with report.catching():
            if node is None:
                continue
            column = columns.column(node)
            outputs.append(Output(item.name, emit(column, columns.types), columns.types["", column.name]))
    check_names(items, report)
    report.stop_if_wrong()
    return lower(source.relation, columns.takes, where), Finish(tuple(outputs))


def selected_all(relation: Relation) -> tuple[Operator, Finish]:
    """Operator and finish of `SELECT *` of a relation under one alias."""
    shown = [(key, type_) for key, type_ in relation.columns.items() if key[1] != HIDDEN_TIME]
    takes = [Take(f"c{number}", leaf(*key), type_) for number, (key, type_) in enumerate(shown)]
    outputs = (Output(key[1], take.name, take.type) for (key, _), take in zip(shown, takes, strict=True))
    return lower(relation, takes), Finish(tuple(outputs))
