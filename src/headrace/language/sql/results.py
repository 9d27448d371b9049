"""Subqueries that aggregate: their results are the rows of a stream to the query around them.

An answer of a window is dated as Spark's `window_time` dates it, one microsecond before its end, so that the answers of
all minutes of an hour are in that hour; the result of a row window is dated as its row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from headrace.language.sql.brackets import RowsClause
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import Columns, refuse_void
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition
from headrace.language.sql.infer import infer
from headrace.language.sql.levels import has_levels
from headrace.language.sql.names import HIDDEN_TIME, Scope, bind_names
from headrace.language.sql.outputs import check_names
from headrace.language.sql.over import OverBinder, Overs, has_over
from headrace.language.sql.over_rows import is_over_rows, over_rows
from headrace.language.sql.relation import Relation, ResultsRelation, is_time, is_window, lower, time_of
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.rows import bind_rows
from headrace.language.sql.select_list import bind_items, select_items
from headrace.language.sql.spark_text import leaves, rebuilt
from headrace.language.sql.window_calls import window_call
from headrace.language.sql.windowed import WINDOW_SQL, bind_levels, bind_windowed
from headrace.model import (
    CumulativeWindow,
    DataType,
    Finish,
    Kind,
    Output,
    Results,
    RowsAggregate,
    Scan,
    SlidingWindow,
    WindowAggregate,
)

__all__ = ["bind_all_levels", "bind_over_answers", "bind_results"]

_WINDOW_TIME = Output(HIDDEN_TIME, "timestamp_micros(unix_micros(window_end) - 1)", DataType(Kind.TIMESTAMP))


def bind_results(select: exp.Select, source: Source, report: Report) -> tuple[ResultsRelation, ...]:
    """The results of a subquery, of each of its levels; none if it has no windows. Notes problems, raises Fault."""
    if has_levels(select):
        return bind_all_levels(select, source, report, edges=False)
    if isinstance(source.window, SlidingWindow):
        raise Fault("when [WINDOW ..] answers depends on the schedule, so that nothing can be said about its answers",
                    select, "group by window(ts, '10 minutes', '2 minutes') in the subquery, or write [WINDOW ..] "
                    "after its alias")  # fmt: skip
    if is_over_rows(select, source):
        select, source = over_rows(select, source)
    if isinstance(source.window, RowsClause):
        root, finish = bind_rows(select, source, report, None, dated=True)
        assert isinstance(root, RowsAggregate)
        return (ResultsRelation(Results(root, finish, HIDDEN_TIME), _named(finish, {finish.outputs[-1].sql})),)
    if window_call(select) is not None or isinstance(source.window, CumulativeWindow):
        return (_answers(*bind_windowed(select, source, report), len(select.expressions)),)
    if has_over(select) and select.args.get("group") is None:
        return (bind_over_answers(select, source, report),)
    return ()


def bind_all_levels(
    select: exp.Select, source: Source, report: Report, edges: bool = True
) -> tuple[ResultsRelation, ...]:
    """The answers at each level of GROUP BY, with the edges of their windows or without; raises Fault."""
    return tuple(
        _answers(root, finish, len(finish.outputs) if edges else len(select.expressions), coarse)
        for root, finish, coarse in bind_levels(select, source, report)
    )


def _answers(root: WindowAggregate, finish: Finish, selected: int, coarse: bool = False) -> ResultsRelation:
    """The answers of aligned windows as rows, with the last columns of their SELECT list.

    The edges of the window are columns of a query's results; those of a subquery are what it selects.
    """
    finish = replace(finish, outputs=(*finish.outputs[-selected:], _WINDOW_TIME))
    windows = _named(finish, {WINDOW_SQL})
    edges = {HIDDEN_TIME, *_named(finish, {"window_end"}), *windows, *(f"{name}.end" for name in windows)}
    if not isinstance(root.window, CumulativeWindow):
        edges |= {*_named(finish, {"window_start"}), *(f"{name}.start" for name in windows)}
    return ResultsRelation(Results(root, finish, HIDDEN_TIME, coarse), windows, frozenset(edges))


def _named(finish: Finish, sqls: Collection[str]) -> frozenset[str]:
    return frozenset(output.name for output in finish.outputs if output.sql in sqls)


def bind_over_answers(select: exp.Select, source: Source, report: Report) -> ResultsRelation:
    """A SELECT with OVER over the answers of aligned windows; notes problems, raises Fault."""
    relation = source.relation
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
        frozenset({HIDDEN_TIME, *_edges(plain, relation)}),
    )


def _edges(columns: Iterable[tuple[str, exp.Expr]], relation: Relation) -> Iterator[str]:
    """The columns, and fields of these, that tell the windows of answers apart."""
    for name, node in columns:
        if is_window(relation, node):
            yield name
            fields = (exp.Dot(this=node.copy(), expression=exp.to_identifier(field)) for field in ("start", "end"))
            yield from (f"{name}.{field.expression.name}" for field in fields if is_window(relation, field))


def _over_columns(node: exp.Expr, overs: Overs, columns: Columns) -> exp.Expr:
    """The values of OVER and the largest expressions without one, each as a column."""
    if isinstance(node, exp.Column) and overs.within(node):
        return node.copy()
    if not overs.within(node):
        return columns.column(node) if leaves(node) else node.copy()
    return rebuilt(node, lambda part: _over_columns(part, overs, columns))
