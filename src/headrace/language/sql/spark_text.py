"""Syntax trees back to Spark SQL, and the small tree surgery that keeps their meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.language.sql.report import Fault
from headrace.language.words import words

__all__ = [
    "Key",
    "all_of",
    "conjuncts",
    "key_of",
    "leaf",
    "leaves",
    "quoted",
    "rebuilt",
    "spark_text",
    "substitute",
    "wrapped",
]

# (table alias, column): how every bound column is known.
Key = tuple[str, str]

# A query may repeat a subquery's expression; beyond this many nodes the repetition is an attack.
MOST_NODES = 20_000

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that Spark's ANSI mode or its grammar reserves; a column of that name needs backquotes.
_RESERVED = words("""
    all and anti any array as authorization between both by case cast check collate column constraint create cross
    cube current_date current_time current_timestamp current_user date distinct div drop else end escape except
    exists false fetch filter for foreign from full grant group grouping having in inner intersect interval into is
    join lateral leading left like limit map minus natural not null offset on only or order outer overlaps pivot
    primary references right rlike select semi session_user set some struct table then time timestamp to trailing
    transform true union unique unknown unpivot user using values when where window with within
""")
_ATOMS = (
    exp.Column, exp.Literal, exp.Anonymous, exp.Dot, exp.Bracket, exp.Paren, exp.Cast, exp.Boolean, exp.Null,
    exp.Extract, exp.Trim, exp.Case,
)  # fmt: skip
_ENCLOSING = (exp.Anonymous, exp.Paren, exp.Alias, exp.Cast, exp.Filter, exp.Where, exp.Lambda, exp.Ordered, exp.If)


def quoted(name: str) -> str:
    """A name as it may stand in Spark SQL.

    >>> quoted("length"), quoted("order"), quoted("id.orig_h")
    ('length', '`order`', '`id.orig_h`')
    """
    plain = _PLAIN.match(name) and name.lower() not in _RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def leaf(table: str, column: str) -> exp.Column:
    """A bound column; an empty table is a column of the operator below."""
    names = [exp.Identifier(this=name, quoted=quoted(name) != name) if name else None for name in (column, table)]
    return exp.Column(this=names[0], table=names[1]) if table else exp.Column(this=names[0])


def key_of(column: exp.Column) -> Key:
    """The key that `leaf` was called with."""
    return column.table, column.name


def leaves(*nodes: exp.Expr | None) -> list[Key]:
    """The bound columns below some nodes, each once, in order of appearance."""
    found = (key_of(column) for node in nodes if node is not None for column in node.find_all(exp.Column, bfs=False))
    return list(dict.fromkeys(found))


def spark_text(node: exp.Expr) -> str:
    """Spark SQL of an expression.

    >>> spark_text(exp.and_(exp.condition("a > 1"), exp.condition("b")))
    'a > 1 AND b'
    """
    try:
        return node.sql(dialect="spark", comments=False)
    except (SqlglotError, ValueError, TypeError) as exc:
        raise Fault(f"this expression cannot be written as Spark SQL: {exc}", node) from exc


def wrapped(node: exp.Expr) -> exp.Expr:
    """A copy that can stand under any operator."""
    return node.copy() if isinstance(node, _ATOMS) else exp.Paren(this=node.copy())


def substitute(node: exp.Expr, mapping: Mapping[Key, exp.Expr]) -> exp.Expr:
    """A copy of `node` whose columns are replaced by what they stand for.

    >>> product = exp.Mul(this=leaf("x", "c"), expression=leaf("x", "d"))
    >>> spark_text(substitute(product, {("x", "c"): exp.condition("a + 1")}))
    '(a + 1) * x.d'
    """

    def replace(found: exp.Expr) -> exp.Expr:
        value = mapping.get(key_of(found)) if isinstance(found, exp.Column) else None
        if value is None:
            return found
        enclosed = found.parent is None or isinstance(found.parent, _ENCLOSING)
        return value.copy() if enclosed else wrapped(value)

    result = node.copy().transform(replace, copy=False)
    if sum(_weight(part) for part in result.walk()) > MOST_NODES:
        raise Fault(
            f"the expression grows beyond {MOST_NODES} terms once subqueries are unfolded", hint="write it flatter"
        )
    return result


def _weight(node: exp.Expr) -> int:
    """A long text weighs as much as many terms: it would be repeated as often."""
    return 1 + (len(node.this) // 20 if isinstance(node, exp.Literal) else 0)


def rebuilt(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """The same node over changed children; the node itself is left as it is."""
    args = {
        name: change(value)
        if isinstance(value, exp.Expr)
        else [change(part) if isinstance(part, exp.Expr) else part for part in value]
        if isinstance(value, list)
        else value
        for name, value in node.args.items()
    }
    result = type(node)(**args)
    result.meta.update(node.meta)
    return result


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND joins.

    >>> [spark_text(part) for part in conjuncts(exp.condition("a = 1 AND (b = 2 AND c = 3)"))]
    ['a = 1', 'b = 2', 'c = 3']
    """
    if node is None:
        return []
    bare = node.unnest()
    if isinstance(bare, exp.And):
        return [*conjuncts(bare.this), *conjuncts(bare.expression)]
    return [node]


def all_of(parts: Iterable[exp.Expr]) -> exp.Expr | None:
    """Conditions joined by AND, each in parentheses where it needs them; None for none."""
    result: exp.Expr | None = None
    for part in parts:
        safe = exp.Paren(this=part.copy()) if isinstance(part, exp.Or) else part.copy()
        result = safe if result is None else exp.And(this=result, expression=safe)
    return result
