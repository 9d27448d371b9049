"""Aggregates over a window of event time, in the papers' form and in Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import Columns, refuse_void
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import Source, bind_condition
from headrace.language.sql.infer import infer
from headrace.language.sql.levels import GroupedLevel, Level, levels_of, null_of
from headrace.language.sql.names import HIDDEN_TIME, Scope, bind_names
from headrace.language.sql.outputs import check_names, keeps_ties, read_limit
from headrace.language.sql.over import OverBinder, Overs, has_over
from headrace.language.sql.relation import has_pairs, is_time, lower, time_of
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.select_list import SelectItem, bind_items, select_items
from headrace.language.sql.spark_text import key_of, leaf, rebuilt, spark_text
from headrace.language.sql.window_calls import hopping, is_window_call, window_call, without_calls
from headrace.model import (
    CumulativeWindow,
    DataType,
    Finish,
    HoppingWindow,
    Kind,
    OrderKey,
    Output,
    Over,
    SlidingWindow,
    WindowAggregate,
)

__all__ = ["WINDOW_SQL", "bind_levels", "bind_windowed"]

TIMESTAMP = DataType(Kind.TIMESTAMP)
START, END = leaf("", "window_start"), leaf("", "window_end")
_EDGES = {"window_start": START, "window_end": END}
_CALLED = "window__"
_STRUCT = exp.Anonymous(
    this="named_struct",
    expressions=[exp.Literal.string("start"), START.copy(), exp.Literal.string("end"), END.copy()],
)

# How a result column says that it is the window.
WINDOW_SQL = emit(_STRUCT, {key_of(edge): TIMESTAMP for edge in (START, END)})


def bind_windowed(select: exp.Select, source: Source, report: Report) -> tuple[WindowAggregate, Finish]:
    """Operator and finish of an aggregate over a window of time; notes problems, raises Fault."""
    return _Windowed(select, source, report).bind()


def bind_levels(select: exp.Select, source: Source, report: Report) -> list[tuple[WindowAggregate, Finish, bool]]:
    """Operator and finish of each level of a SELECT that is grouped at several, and whether another is finer.

    Notes problems, raises Fault.
    """
    if isinstance(source.window, SlidingWindow):
        raise Fault("ROLLUP, CUBE and GROUPING SETS are answered level by level, and when [WINDOW ..] answers "
                    "depends on the schedule", select.args["group"],
                    "write GROUP BY window(ts, '10 minutes', '2 minutes'), ROLLUP (a, b)")  # fmt: skip
    if has_over(select):
        raise Fault("OVER is about the rows of one level of GROUP BY", select.args["group"],
                    "rank the results of one level")  # fmt: skip
    refuse_clauses(
        select,
        ("order", "limit", "offset", "distinct"),
        "ROLLUP, CUBE and GROUPING SETS are answered level by level",
        "order and limit the results where they are read",
    )
    levels = levels_of(select, lambda node: is_window_call(node, select), source.window is not None)
    return [(*_Windowed(level.select, source, report, level).bind(), level.coarse) for level in levels]


class _Windowed:
    def __init__(self, select: exp.Select, source: Source, report: Report, level: Level | None = None) -> None:
        self.report, self.level, self.grouped = report, level, GroupedLevel()
        self.source = source
        call = window_call(select)
        self.window: SlidingWindow | HoppingWindow
        if call is None:
            assert isinstance(source.window, SlidingWindow | CumulativeWindow)
            self.window = source.window
        else:
            if source.window is not None:
                raise Fault("two windows: one in brackets, one in GROUP BY", call, "keep one of them")
            self.window = hopping(call)
        specials: dict[str, exp.Expr] = dict(_EDGES)
        if isinstance(self.window, HoppingWindow):
            specials |= {"window": _STRUCT, "window.start": START, "window.end": END}
        # A column called `window`, of a subquery's windows, is not the window that its rows are grouped by.
        taken = any(column.lower() == "window" for _, column in source.relation.columns)
        name = "window" if not taken else _CALLED
        specials |= {dotted.replace("window", name, 1): node for dotted, node in specials.items()} if taken else {}
        self.overs = Overs(without_calls(select, call, name))
        self.select = self.overs.select
        self.scope = Scope(source.relation.columns, {**specials, **self.overs.specials})
        self.columns = Columns(self.scope, time_of(source.relation))
        self.columns.types.update({key_of(edge): TIMESTAMP for edge in (START, END)})
        self.keys: dict[str, str] = {}
        # Only a node of a key's own kind can be that key: most texts need not be written to find out.
        self.key_kinds: set[type[exp.Expr]] = set()
        self.time = None if call is None else self._time(call)

    def _time(self, call: exp.Anonymous) -> str | None:
        """Checks window(ts, ...); over joins, the name of the column that holds the time it names."""
        relation, time = self.source.relation, call.expressions[0]
        of_window = isinstance(time, exp.Anonymous) and time.name.lower() == "window_time"
        if of_window and len(time.expressions) == 1:
            time = time.expressions[0]
        bound = bind_names(time, self.scope)
        type_ = self.scope.columns.get(key_of(bound)) if isinstance(bound, exp.Column) else None
        if not is_time(relation, bound) or (of_window and type_ == TIMESTAMP):
            raise Fault(f"window() takes the time of its rows, not {spark_text(bound)}", call,
                        "the column that `time:` of the stream names, or `window` of a subquery that groups by "
                        "window(..)")  # fmt: skip
        if not has_pairs(relation):
            return None
        assert isinstance(bound, exp.Column)
        if type_ != TIMESTAMP:
            bound = leaf(bound.table, HIDDEN_TIME)
        return self.columns.column(bound).name

    def bind(self) -> tuple[WindowAggregate, Finish]:
        where = None
        with self.report.catching():
            where = bind_condition(self.select.args.get("where"), Scope(self.scope.columns), "WHERE")
        items = select_items(self.select, self.scope, stars=False)
        bound = bind_items(items, self.scope, self.report)
        aliases = {
            item.name.lower(): node
            for item, node in zip(items, bound, strict=True)
            if item.aliased and node is not None
        }
        distinct = self._bind_keys(items, bound, aliases)
        over = self._over(aliases)
        finish = replace(self._finish(items, bound, aliases, distinct), over=over)
        self.report.stop_if_wrong()
        child = lower(self.source.relation, self.columns.takes, where)
        keys = tuple(dict.fromkeys(self.keys.values()))
        return WindowAggregate(child, self.window, keys, self.columns.aggregates, self.time), finish

    def _over(self, aliases: dict[str, exp.Expr]) -> tuple[Over, ...]:
        """What OVER makes of the groups of a window, which their keys tell apart."""
        scope = Scope(self.scope.columns, self.scope.specials, aliases)
        binder = OverBinder(
            lambda node: bind_names(node, scope),
            lambda node: self._rewrite(node).unnest(),
            self.columns.types,
            lambda node: node in (_STRUCT, END) or (node == START and not isinstance(self.window, CumulativeWindow)),
            END.name,
            named=isinstance(self.window, HoppingWindow),
        )
        over: list[Over] = []
        with self.report.catching():
            types, made = binder.bind(self.overs.calls)
            self.columns.types.update({("", name): type_ for name, type_ in types.items()})
            over = made(("", key) for key in dict.fromkeys(self.keys.values()))
        return tuple(over)

    def _bind_keys(self, items: list[SelectItem], bound: list[exp.Expr | None], aliases: dict[str, exp.Expr]) -> bool:
        """Name the group keys; whether results must be made distinct afterwards."""
        group, distinct = self.select.args.get("group"), self.select.args.get("distinct") is not None
        known = [node for node in bound if node is not None and not self.overs.within(node)]
        plain = [node for node in known if not any(is_aggregate(part) for part in node.walk())]
        if group is None:
            grouped = distinct and len(plain) == len(bound)
            having = self.select.args.get("having")
            if not distinct and len(plain) == len(bound) and having is None:
                raise Fault(
                    "a window without an aggregate", self.select, "add GROUP BY, or an aggregate such as COUNT(*)"
                )
            for node in plain if grouped else ():
                self._add_key(node)
            return distinct and not grouped
        if group.args.get("all"):
            for node in plain:
                self._add_key(node)
        scope = Scope(self.scope.columns, self.scope.specials, aliases)
        for node in group.expressions:
            with self.report.catching():
                self._add_key(self._key(node, items, bound, scope))
        if self.level is not None:
            self.grouped = self._grouped(self.level, lambda node: self._key(node, items, bound, scope).unnest())
        return distinct

    def _grouped(self, level: Level, bind: Callable[[exp.Expr], exp.Expr]) -> GroupedLevel:
        """What the columns mean that this level is not grouped by."""
        absent: dict[str, exp.Expr] = {}
        for node in level.absent:
            with self.report.catching():
                bare = bind(node)
                self._check_key(bare)
                absent[spark_text(bare)] = null_of(infer(bare, self.scope.columns), node)
        order = tuple(None if node is None else spark_text(bind(node)) for node in level.order)
        return GroupedLevel({text: null for text, null in absent.items() if text not in self.keys}, order)

    def _key(self, node: exp.Expr, items: list[SelectItem], bound: list[exp.Expr | None], scope: Scope) -> exp.Expr:
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.this) if node.this.isdecimal() and len(node.this) < 6 else 0
            if not 1 <= place <= len(items):
                raise Fault(
                    f"GROUP BY {node.this}: there is no such column in SELECT",
                    node,
                    f"positions go from 1 to {len(items)}",
                )
            found = bound[place - 1]
            return found.copy() if found is not None else exp.Null()
        if isinstance(node, exp.Tuple):
            raise Fault("GROUP BY takes plain expressions", node, "leave the parentheses out, or write GROUPING SETS")
        return bind_names(node, scope)

    def _add_key(self, node: exp.Expr) -> None:
        bare = node.unnest()
        self._check_key(bare)
        if bare == _STRUCT or (isinstance(bare, exp.Column) and bare.name in _EDGES and not bare.table):
            return
        self.keys[spark_text(bare)] = self.columns.column(bare).name
        self.key_kinds.add(type(bare))

    def _check_key(self, bare: exp.Expr) -> None:
        if any(is_aggregate(part) for part in bare.walk()):
            raise Fault("an aggregate cannot be a group key", bare, "group by columns, and filter with HAVING")
        if self.overs.within(bare):
            raise Fault("OVER cannot be a group key", bare, "group by it in a SELECT around this one")
        if bare == _STRUCT or (isinstance(bare, exp.Column) and bare.name in _EDGES and not bare.table):
            return
        type_ = infer(bare, {**self.scope.columns, **self.columns.types})
        if type_.is_nested or type_.kind is Kind.INTERVAL:
            raise Fault(
                f"a group key must be a plain value, not {type_}", bare, "use a field, an element or to_json(...)"
            )

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        """A bound expression over keys, aggregates and window edges; raises Fault for a column that is neither."""
        key = self.keys.get(spark_text(node)) if type(node) in self.key_kinds else None
        if key is not None:
            return leaf("", key)
        if (constant := self.grouped.value(node)) is not None:
            return constant
        if is_aggregate(node):
            if self.overs.within(node):
                raise Fault("OVER comes after the aggregates", node, "aggregate its values in a SELECT around this one")
            return self.columns.aggregate(node)
        if isinstance(node, exp.Column):
            if not node.table:
                return node.copy()
            raise Fault(
                f"column '{node.name}' is neither grouped nor aggregated",
                node,
                f"add it to GROUP BY, or use MIN({node.name})",
            )
        return rebuilt(node, self._rewrite)

    def _final(self, node: exp.Expr, check: Callable[[DataType], None] | None = None) -> tuple[str, DataType]:
        rewritten = self._rewrite(node).unnest()
        type_ = infer(rewritten, self.columns.types)
        if check is not None:
            check(type_)
        return emit(rewritten, self.columns.types), type_

    def _finish(
        self, items: list[SelectItem], bound: list[exp.Expr | None], aliases: dict[str, exp.Expr], distinct: bool
    ) -> Finish:
        outputs: list[Output] = []
        for item, node in zip(items, bound, strict=True):
            if node is not None:
                with self.report.catching():
                    text, type_ = self._final(node)
                    refuse_void(type_, node)
                    _refuse_other_edge(item.name, text, node)
                    outputs.append(Output(item.name, text, type_))
        check_names(items, self.report)
        scope = Scope(self.scope.columns, self.scope.specials, aliases, aliases_first=True)
        having: str | None = None
        if self.select.args.get("having") is not None:
            with self.report.catching():
                having = self._having(replace(scope, grouped={*self.keys, *self.grouped.absent}))
        order = self._order(scope, outputs)
        limit: int | None = None
        offset = 0
        with self.report.catching():
            limit, offset = read_limit(self.select)
        if limit is not None and not order and not self.report.problems:
            self.report.add("LIMIT without ORDER BY keeps arbitrary rows", self.select.args["limit"], "add ORDER BY")
        taken = {output.name.lower() for output in outputs}
        edges = [Output(name, name, TIMESTAMP) for name in _EDGES if name not in taken]
        shown = {output.sql for output in (*edges, *outputs)}
        if distinct and any(key.sql not in shown for key in order) and not self.report.problems:
            self.report.add(
                "SELECT DISTINCT has no order by what it does not show",
                self.select.args["order"],
                "order by columns of the SELECT list",
            )
        # What ties do without an order is a problem that is told above.
        ties = limit is not None and bool(order) and keeps_ties(self.select)
        return Finish((*edges, *outputs), having, order, limit, distinct, ties, offset)

    def _having(self, scope: Scope) -> str:
        clause = self.select.args["having"]

        def condition(type_: DataType) -> None:
            if type_.kind not in (Kind.BOOLEAN, Kind.UNKNOWN, Kind.NULL):
                raise Fault(f"HAVING needs a condition, not {type_}", clause, "compare the value with something")

        bound = bind_names(clause.this, scope)
        if self.overs.within(bound):
            raise Fault("HAVING comes before OVER", clause, "filter with WHERE in a SELECT around this one")
        text, type_ = self._final(bound, condition)
        # HAVING NULL keeps no row; Spark's filters want it to have a type.
        return "CAST(NULL AS BOOLEAN)" if type_.kind is Kind.NULL else text

    def _order(self, scope: Scope, outputs: list[Output]) -> tuple[OrderKey, ...]:
        clause = self.select.args.get("order")
        keys: list[OrderKey] = []
        for term in clause.expressions if clause is not None else ():
            with self.report.catching():
                sql = self._order_text(term.this, scope, outputs)
                descending = bool(term.args.get("desc"))
                keys.append(OrderKey(sql, descending, bool(term.args.get("nulls_first", not descending))))
        return tuple(keys)

    def _order_text(self, node: exp.Expr, scope: Scope, outputs: list[Output]) -> str:
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.this) if node.this.isdecimal() and len(node.this) < 6 else 0
            if not 1 <= place <= len(outputs):
                raise Fault(
                    f"ORDER BY {node.this}: there is no such column in SELECT",
                    node,
                    f"positions go from 1 to {len(outputs)}",
                )
            return outputs[place - 1].sql
        text, type_ = self._final(bind_names(node, scope))
        if type_.kind in (Kind.MAP, Kind.INTERVAL):
            raise Fault(f"cannot order by {type_}", node)
        return text


def _refuse_other_edge(name: str, text: str, node: exp.Expr) -> None:
    """Raise Fault for a result that would take the place of the window's start or end."""
    if name.lower() in _EDGES and text.strip("`").lower() != name.lower():
        what = f"every result row has the column {name.lower()} of its window, and this would be another of that name"
        raise Fault(what, node, "give it another alias")
