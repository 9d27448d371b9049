"""A join whose pairs are the results themselves."""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import Columns
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition
from headrace.language.sql.names import Scope, bind_names
from headrace.language.sql.outputs import check_names
from headrace.language.sql.relation import lower
from headrace.language.sql.report import Report
from headrace.language.sql.select_list import select_items
from headrace.model import Finish, Operator, Output

__all__ = ["bind_joined"]


def bind_joined(select: exp.Select, source: Source, report: Report) -> tuple[Operator, Finish]:
    """Operator and finish of a join without aggregates; notes problems, raises Fault."""
    refuse_clauses(select, ("order", "limit", "distinct", "having"), "the results of a join never end")
    scope = Scope(source.relation.columns)
    columns = Columns(scope)
    where = None
    with report.catching():
        where = bind_condition(select.args.get("where"), scope, "WHERE")
    items = select_items(select, scope)
    outputs: list[Output] = []
    for item in items:
        with report.catching():
            column = columns.column(bind_names(item.node, scope))
            outputs.append(Output(item.name, emit(column, columns.types), columns.types["", column.name]))
    check_names(items, report)
    report.stop_if_wrong()
    return lower(source.relation, columns.takes, where), Finish(tuple(outputs))
