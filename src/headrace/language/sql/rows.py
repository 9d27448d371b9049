"""Statistics over the last rows of each key: `FROM s [PARTITION BY k ROWS 100]`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.brackets import RowsClause
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import Columns, refuse_void
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition
from headrace.language.sql.infer import infer
from headrace.language.sql.names import HIDDEN_TIME, Scope, bind_names
from headrace.language.sql.outputs import check_names
from headrace.language.sql.reading import read_expression
from headrace.language.sql.relation import has_pairs, is_time, lower, time_of
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.select_list import SelectItem, bind_items, select_items
from headrace.language.sql.spark_text import leaves, rebuilt
from headrace.model import Finish, Kind, Output, RowsAggregate, RowsWindow, Step, StepFunction

__all__ = ["bind_rows"]


def bind_rows(
    select: exp.Select, source: Source, report: Report, step: StepFunction | None, dated: bool = False
) -> tuple[RowsAggregate | Step, Finish]:
    """Operator and finish of a row window, or of user-defined state; notes problems, raises Fault.

    With `dated` the last result column is the time of the row.
    """
    clause = source.window
    assert isinstance(clause, RowsClause)
    _refuse(select, clause, step)
    scope = Scope(source.relation.columns)
    columns = Columns(scope, time_of(source.relation))
    where = None
    with report.catching():
        where = bind_condition(select.args.get("where"), scope, "WHERE")
    written = (key if isinstance(key, exp.Expr) else read_expression(key, report.sql) for key in clause.keys)
    bound_keys = [_key(bind_names(key, scope), columns, scope) for key in written]
    keys = tuple(dict.fromkeys(bound_keys))
    items = select_items(select, scope)
    outputs: list[Output] = []
    for item, node in zip(items, bind_items(items, scope, report), strict=True):
        with report.catching():
            if node is not None:
                outputs.append(_output(item.name, node, columns, step is not None))
    check_names(items, report)
    if dated:
        outputs.append(_dated(items, source, columns, scope))
    report.stop_if_wrong()
    if step is not None:
        if columns.aggregates:
            raise Fault("a function gets rows, not aggregates", select, "select plain columns and expressions")
        child = lower(source.relation, columns.takes, where)
        rows = tuple((output.name, output.sql.strip("`")) for output in outputs)
        finish = Finish(tuple(Output(c.name, f"`{c.name}`", c.type) for c in step.results))
        return Step(child, keys, rows, step), finish
    if not columns.aggregates:
        raise Fault("a row window without an aggregate", select, "add one, such as AVG(x)")
    assert clause.rows is not None
    child = lower(source.relation, columns.takes, where)
    return RowsAggregate(child, RowsWindow(keys, clause.rows), columns.aggregates), Finish(tuple(outputs))


def _refuse(select: exp.Select, clause: RowsClause, step: StepFunction | None) -> None:
    """Raises Fault for what neither a row window nor a function has."""
    if step is None and clause.rows is None:
        raise Fault(
            "PARTITION BY needs ROWS, or a function",
            select.args["from_"],
            "write [PARTITION BY k ROWS 100], or give the query a `function:`",
        )
    if step is not None and clause.rows is not None:
        raise Fault("a function keeps what it likes of its rows", select.args["from_"], "leave ROWS out")
    refuse_clauses(
        select,
        ("group", "having", "order", "limit", "offset", "distinct"),
        "a row window answers on every row" if step is None else "a function's results are what it returns",
        "filter, order and aggregate the results where they are read",
    )


def _output(name: str, node: exp.Expr, columns: Columns, for_function: bool) -> Output:
    # A function's rows have columns, each expression one of them, a constant too.
    plain = for_function and not any(is_aggregate(part) for part in node.walk())
    bound = columns.column(node) if plain else _rewrite(node, columns)
    type_ = infer(bound, columns.types)
    refuse_void(type_, node)
    return Output(name, emit(bound, columns.types), type_)


def _dated(items: Sequence[SelectItem], source: Source, columns: Columns, scope: Scope) -> Output:
    """The time of a row as a result column; the one that the query selects, if it does."""
    time = time_of(source.relation)
    if not has_pairs(source.relation):
        plain = (bind_names(item.node, scope) for item in items if isinstance(item.node, exp.Column))
        time = next((node for node in plain if is_time(source.relation, node)), time)
    column = columns.column(time)
    return Output(HIDDEN_TIME, emit(column, columns.types), columns.types["", column.name])


def _key(node: exp.Expr, columns: Columns, scope: Scope) -> str:
    type_ = infer(node, scope.columns)
    if type_.is_nested or type_.kind is Kind.INTERVAL:
        raise Fault(f"PARTITION BY takes plain values, not {type_}", node, "use a field, an element or to_json(...)")
    return columns.column(node).name


def _rewrite(node: exp.Expr, columns: Columns) -> exp.Expr:
    """Aggregates and the largest expressions without one, each as a column."""
    if is_aggregate(node):
        return columns.aggregate(node)
    if not any(is_aggregate(part) for part in node.walk()):
        # A constant is no column to keep: it stands where it is, as the arguments that must be constants do.
        return columns.column(node) if leaves(node) else node.copy()
    return rebuilt(node, lambda part: _rewrite(part, columns))
