"""Subqueries that aggregate: their results are the rows of a stream to the query around them.

An answer of a window is dated as Spark's `window_time` dates it, one microsecond before its end, so that the answers of
all minutes of an hour are in that hour; the result of a row window is dated as its row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlglot import exp

from headrace.language.sql.brackets import RowsClause
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import Columns, refuse_void
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition, time_of
from headrace.language.sql.infer import infer
from headrace.language.sql.names import HIDDEN_TIME, Scope, bind_names
from headrace.language.sql.outputs import check_names
from headrace.language.sql.over import OverBinder, Overs, has_over
from headrace.language.sql.relation import ResultsRelation, answers_in, is_time, is_window, lower
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.rows import bind_rows
from headrace.language.sql.select_list import bind_items, select_items
from headrace.language.sql.spark_text import leaves, rebuilt
from headrace.language.sql.windowed import WINDOW_SQL, bind_windowed, window_call
from headrace.model import DataType, Finish, Kind, Output, Results, RowsAggregate, Scan, SlidingWindow, WindowAggregate

__all__ = ["bind_over_answers", "bind_results"]

_EDGES = frozenset({"window_start", "window_end", WINDOW_SQL})
_WINDOW_TIME = Output(HIDDEN_TIME, "timestamp_micros(unix_micros(window_end) - 1)", DataType(Kind.TIMESTAMP))


def bind_results(select: exp.Select, source: Source, report: Report) -> ResultsRelation | None:
    """The results of a subquery, None if it neither has windows nor is over rows; notes problems, raises Fault."""
    root: WindowAggregate | RowsAggregate
    if isinstance(source.window, SlidingWindow):
        raise Fault("when [WINDOW ..] answers depends on the schedule, so that nothing can be said about its answers",
                    select, "group by window(ts, '10 minutes', '2 minutes') in the subquery, or write [WINDOW ..] "
                    "after its alias")  # fmt: skip
    if isinstance(source.window, RowsClause):
        found, finish = bind_rows(select, source, report, None, dated=True)
        assert isinstance(found, RowsAggregate)
        root, time = found, finish.outputs[-1].sql
    elif window_call(select) is not None:
        root, finish = bind_windowed(select, source, report)
        # The edges of the window are columns of a query's results; those of a subquery are what it selects.
        selected = finish.outputs[-len(select.expressions) :]
        finish, time = replace(finish, outputs=(*selected, _WINDOW_TIME)), WINDOW_SQL
    elif has_over(select) and select.args.get("group") is None:
        return bind_over_answers(select, source, report)
    else:
        return None
    edges = _named(finish, _EDGES) if isinstance(root, WindowAggregate) else frozenset[str]()
    if isinstance(root, WindowAggregate):
        edges |= {HIDDEN_TIME}
    return ResultsRelation(Results(root, finish, HIDDEN_TIME), _named(finish, {time}), edges)


def _named(finish: Finish, sqls: Collection[str]) -> frozenset[str]:
    return frozenset(output.name for output in finish.outputs if output.sql in sqls)


def bind_over_answers(select: exp.Select, source: Source, report: Report) -> ResultsRelation:
    """A SELECT with OVER over the answers of aligned windows; notes problems, raises Fault."""
    relation = source.relation
    if answers_in(relation) is None:
        raise Fault("OVER is over the answers of aligned windows, not over rows that never end",
                    next(item for item in select.expressions if item.find(exp.Window) is not None),
                    "group by window(ts, '1 minute') here or in a subquery, or use [PARTITION BY k ROWS n] for a "
                    "statistic over the last rows of each key")  # fmt: skip
    refuse_clauses(
        select,
        ("group", "having", "order", "limit", "offset", "distinct"),
        "a SELECT with OVER over answers filters and projects them",
    )
    overs = Overs(select)
    scope = Scope(relation.columns, overs.specials)
    columns = Columns(scope)
    where = bind_condition(select.args.get("where"), Scope(relation.columns), "WHERE")
    items = select_items(overs.select, scope)
    check_names(items, report)
    bound = bind_items(items, scope, report)
    report.stop_if_wrong()
    nodes = [node for node in bound if node is not None]
    time = time_of(relation)
    window = columns.column(time)
    binder = OverBinder(
        lambda node: bind_names(node, Scope(relation.columns)),
        lambda node: columns.column(node) if leaves(node) else node,
        columns.types,
        lambda node: is_window(relation, node),
        window.name,
    )
    types, made = binder.bind(overs.calls)
    columns.types.update({("", name): type_ for name, type_ in types.items()})
    outputs = []
    for item, node in zip(items, nodes, strict=True):
        final = _over_columns(node, overs, columns)
        type_ = infer(final, columns.types)
        refuse_void(type_, node)
        outputs.append(Output(item.name, emit(final, columns.types), type_))
    dated = Output(HIDDEN_TIME, window.name, columns.types["", window.name])
    over = made(("", take.name) for take in columns.takes)
    root = lower(relation, columns.takes, where)
    assert isinstance(root, Scan)
    results = Results(root, Finish((*outputs, dated), over=tuple(over)), HIDDEN_TIME)
    plain = [(item.name, node) for item, node in zip(items, nodes, strict=True) if not overs.within(node)]
    return ResultsRelation(
        results,
        frozenset(name for name, node in plain if is_time(relation, node)),
        frozenset({HIDDEN_TIME, *(name for name, node in plain if is_window(relation, node))}),
    )


def _over_columns(node: exp.Expr, overs: Overs, columns: Columns) -> exp.Expr:
    """The values of OVER and the largest expressions without one, each as a column."""
    if isinstance(node, exp.Column) and overs.within(node):
        return node.copy()
    if not overs.within(node):
        return columns.column(node) if leaves(node) else node.copy()
    return rebuilt(node, lambda part: _over_columns(part, overs, columns))
