"""OVER with a frame of ROWS over rows that never end: a row window in the words of SQL.

`SUM(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)` is what `[PARTITION BY k ROWS 10]`
says of SUM(x): every such call of a SELECT list has the same rows, and becomes an aggregate of them.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.brackets import MOST_ROWS, RowsClause
from headrace.language.sql.from_clause import Source
from headrace.language.sql.names import Scope, bind_names
from headrace.language.sql.over import has_over
from headrace.language.sql.relation import Relation, answers_in, is_time, is_window
from headrace.language.sql.report import Fault
from headrace.language.sql.select_list import default_name
from headrace.language.sql.spark_text import spark_text

__all__ = ["is_over_rows", "over_rows"]

_FORM = "PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"
_GROUPS = "or group by window(ts, '1 minute') here or in a subquery"


def is_over_rows(select: exp.Select, source: Source) -> bool:
    """Whether a SELECT has OVER, and over rows that never end: of answers, over those of many windows."""
    if source.window is not None or select.args.get("group") is not None or not has_over(select):
        return False
    relation = source.relation
    if answers_in(relation) is None:
        return True
    scope, calls = Scope(relation.columns), [over for item in select.expressions for over in item.find_all(exp.Window)]
    return all(_by_time(over, relation, scope) and not _in_windows(over, relation, scope) for over in calls)


def _by_time(over: exp.Window, relation: Relation, scope: Scope) -> bool:
    """Whether a call goes by the time of rows, forwards."""
    order = over.args.get("order")
    terms = order.expressions if order is not None else []
    return len(terms) == 1 and not terms[0].args.get("desc") and is_time(relation, bind_names(terms[0].this, scope))


def _in_windows(over: exp.Window, relation: Relation, scope: Scope) -> bool:
    """Whether a call is about the rows of one window."""
    return any(is_window(relation, bind_names(key, scope).unnest()) for key in over.args.get("partition_by") or ())


def over_rows(select: exp.Select, source: Source) -> tuple[exp.Select, Source]:
    """The SELECT with aggregates in the place of OVER, and the source with their rows; raises Fault."""
    made, frames = select.copy(), list[tuple[exp.Window, tuple[str, ...], int]]()
    scope = Scope(source.relation.columns)

    def aggregate(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window):
            return node
        frames.append(_frame(node, source, scope))
        call: exp.Expr = node.this
        return call

    items = []
    for item in made.expressions:
        alone = (part for part in item.walk() if is_aggregate(part) and part.find_ancestor(exp.Window) is None)
        if (plain := next(alone, None)) is not None:
            raise Fault("an aggregate without OVER, beside one with it", plain, f"write it OVER ({_FORM})")
        named = item if isinstance(item, exp.Alias) else exp.alias_(item, default_name(item), quoted=True)
        items.append(named.transform(aggregate) if item.find(exp.Window) is not None else item)
    made.set("expressions", items)
    first, keys, rows = frames[0]
    other = next((at for at, *frame in frames if frame != [keys, rows]), None)
    if other is not None:
        raise Fault("two frames of rows in one query", other, "write a query for each, or the same frame in both")
    return made, Source(source.relation, RowsClause(tuple(first.args.get("partition_by") or ()), rows))


def _frame(over: exp.Window, source: Source, scope: Scope) -> tuple[exp.Window, tuple[str, ...], int]:
    """The keys and the number of the rows that a call is over; raises Fault for what no row window is."""
    call = over.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else call.key
    if not is_aggregate(call):
        raise Fault(f"{name} OVER is about the rows of one window's answer, and a stream never ends", over,
                    f"write an aggregate OVER ({_FORM}), {_GROUPS}")  # fmt: skip
    keys = tuple(spark_text(bind_names(key, scope)) for key in over.args.get("partition_by") or ())
    if not keys:
        raise Fault("OVER rows that never end needs PARTITION BY", over, f"write OVER ({_FORM}), {_GROUPS}")
    if not _by_time(over, source.relation, scope):
        raise Fault("OVER rows that never end goes by their event time", over, f"write OVER ({_FORM}), {_GROUPS}")
    return over, keys, _rows(over)


def _rows(over: exp.Window) -> int:
    spec = over.args.get("spec")
    start = None if spec is None else spec.args.get("start")
    whole = isinstance(start, exp.Literal) and not start.is_string and start.this.isdecimal()
    if (
        spec is None
        or str(spec.args.get("kind")).upper() != "ROWS"
        or not (whole or start == "CURRENT ROW")
        or (whole and spec.args.get("start_side") != "PRECEDING")
        or spec.args.get("end") not in (None, "CURRENT ROW")
    ):
        raise Fault("OVER rows that never end needs a frame of so many rows", over, f"write OVER ({_FORM}), {_GROUPS}")
    rows = 1 + (int(start.this) if isinstance(start, exp.Literal) else 0)
    if rows > MOST_ROWS:
        raise Fault(f"a frame of {rows} rows; the most is {MOST_ROWS}", over, "use a window of time")
    return rows
