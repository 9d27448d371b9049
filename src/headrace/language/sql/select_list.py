"""The SELECT list: * unfolded, and the name each result column gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.language.sql.names import Scope, bind_names
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.spark_text import Key, leaf
from headrace.language.suggest import nearest

__all__ = ["SelectItem", "bind_items", "default_name", "select_items"]


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One result column: its name, whether the user gave it, its expression and where it stands."""

    name: str
    aliased: bool
    node: exp.Expr
    at: exp.Expr


def select_items(select: exp.Select, scope: Scope, stars: bool = True) -> list[SelectItem]:
    """Items of a SELECT list in order; raises Fault for a * where none may stand."""
    found: list[SelectItem] = []
    if not select.expressions:
        raise Fault("the SELECT list is empty", select, "name the columns you want")
    for item in select.expressions:
        star = isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
        if not star:
            found.append(_item(item))
            continue
        if not stars:
            raise Fault("SELECT * in an aggregate has no meaning", item, "name the keys and aggregates you want")
        found.extend(_unfolded(item, scope))
    return found


def bind_items(items: Iterable[SelectItem], scope: Scope, report: Report) -> list[exp.Expr | None]:
    """The items' expressions, bound; what is wrong is noted, and None. An alias is known to the items after its own."""
    found: list[exp.Expr | None] = []
    aliases: dict[str, exp.Expr] = {}
    for item in items:
        bound: exp.Expr | None = None
        with report.catching():
            bound = bind_names(item.node, replace(scope, aliases=aliases))
        found.append(bound)
        if item.aliased and bound is not None:
            aliases = {**aliases, item.name.lower(): bound}
    return found


def _unfolded(item: exp.Expr, scope: Scope) -> list[SelectItem]:
    """The columns * stands for; in a join, names that both sides have get their table's name in front."""
    table = item.table.lower() if isinstance(item, exp.Column) else None
    if table is not None and table not in (name.lower() for name in scope.tables):
        raise Fault(f"unknown table '{table}' before .*", item, f"known: {', '.join(scope.tables)}")
    keys = [key for key in scope.visible() if table is None or key[0].lower() == table]
    keys = _without(keys, item.this if isinstance(item, exp.Column) else item)
    names = Counter(name.lower() for _, name in scope.visible())
    return [
        SelectItem(f"{key[0]}_{key[1]}" if names[key[1].lower()] > 1 else key[1], False, leaf(*key), item)
        for key in keys
    ]


def _without(keys: list[Key], star: exp.Expr) -> list[Key]:
    """The columns that EXCEPT leaves of *."""
    left_out: set[Key] = set()
    for column in star.args.get("except_") or ():
        *table, name = (part.name.lower() for part in column.parts)
        found = {key for key in keys if key[1].lower() == name and table in ([], [key[0].lower()])}
        if not found:
            hint = nearest(column.name, [key[1] for key in keys])
            raise Fault(f"* has no column '{column.sql('spark')}' to leave out", column, hint)
        left_out |= found
    kept = [key for key in keys if key not in left_out]
    if not kept:
        raise Fault("* EXCEPT leaves no column", star, "name the columns you want")
    return kept


def _item(item: exp.Expr) -> SelectItem:
    if isinstance(item, exp.Alias):
        if not isinstance(item.args["alias"], exp.Identifier) or not item.alias:
            raise Fault("this alias is not a name", item)
        return SelectItem(item.alias, True, item.this, item)
    if isinstance(item, exp.Aliases):
        raise Fault("an expression takes one alias", item)
    return SelectItem(default_name(item), False, item, item)


def default_name(item: exp.Expr) -> str:
    """The name Spark would give, near enough: the last part of a column, or the expression in lower case."""
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, exp.Dot):
        return str(item.expression.name)
    if (
        isinstance(item, exp.Anonymous)
        and item.name == "count"
        and isinstance(next(iter(item.expressions), None), exp.Star)
    ):
        return "count(1)"
    return str(item.sql(dialect="spark", comments=False, normalize_functions="lower"))
