"""What can be said of filters without running them: which values of one column they let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

__all__ = ["ValueFilter", "disjoint_union", "value_filter"]

T = TypeVar("T")
# Up to here different integers are different doubles too, should the column be one.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class ValueFilter:
    """`rest AND column IN (values)`: rows pass exactly when the rest holds and the column has one of the values.

    Values are literals of one kind as SQL writes them, so different texts are different values.
    """

    rest: frozenset[str]
    column: str
    strings: bool
    values: frozenset[str]


@cache
def value_filter(where: str) -> tuple[ValueFilter, ...]:
    """The ways to read a filter as one over the values of a column, one per conjunct that is such.

    >>> [f.values == {"80", "443"} for f in value_filter("s.port IN (80, 443) AND s.ok")]
    [True]
    >>> value_filter("s.length > 5")
    ()
    """
    try:
        tree = sqlglot.parse_one(where, dialect="spark")
    except SqlglotError:
        return ()
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    texts = [part.sql("spark") for part in parts]
    found = []
    for i, part in enumerate(parts):
        named = _values(part.unnest())
        if named is not None:
            column, strings, values = named
            found.append(ValueFilter(frozenset(texts[:i] + texts[i + 1 :]), column, strings, values))
    return tuple(found)


def _values(node: exp.Expr) -> tuple[str, bool, frozenset[str]] | None:
    match node:
        case exp.EQ():
            column, literals = node.this, [node.expression]
        case exp.In() if not node.args.get("query"):
            column, literals = node.this, list(node.expressions)
        case exp.Or():
            sides = [_values(side.unnest()) for side in node.flatten()]
            known = [side for side in sides if side is not None]
            if len(known) < len(sides) or len({side[:2] for side in known}) > 1:
                return None
            return known[0][0], known[0][1], frozenset().union(*(side[2] for side in known))
        case _:
            return None
    if isinstance(column, exp.Literal) and len(literals) == 1:
        column, literals = literals[0], [column]
    if not isinstance(column, exp.Column) or not literals:
        return None
    if not all(isinstance(literal, exp.Literal) for literal in literals):
        return None
    strings = literals[0].is_string
    if any(literal.is_string != strings or (not strings and not literal.is_int) for literal in literals):
        return None
    if not strings and any(int(literal.name) > _EXACT for literal in literals):
        return None
    # Integers are compared as numbers whatever the column's type; 7 and 07 are the same one.
    texts = (literal.name if strings else str(int(literal.name)) for literal in literals)
    return column.sql("spark").lower(), strings, frozenset(texts)


def disjoint_union(wanted: str, offers: Sequence[tuple[str, T]], text_columns: Iterable[str]) -> tuple[T, ...] | None:
    """Offers (filter, what it stands for) no two of which pass the same row and which together pass what is wanted.

    String literals tell values apart only for columns of strings (`'7'` and `'07'` are the same integer).

    >>> disjoint_union("s.a IN (1, 2, 3)", [("s.a = 1", "x"), ("s.a = 2 OR s.a = 3", "y"), ("s.a = 3", "z")], ())
    ('y', 'x')
    """
    texts = {name.lower() for name in text_columns}
    for target in value_filter(wanted):
        if target.strings and target.column not in texts:
            continue
        fitting: list[tuple[frozenset[str], T]] = []
        for where, offer in offers:
            for found in value_filter(where):
                same = (found.rest, found.column, found.strings) == (target.rest, target.column, target.strings)
                if same and found.values < target.values:
                    fitting.append((found.values, offer))
        # Largest first: few parts make a cheap answer.
        chosen: list[T] = []
        left = set(target.values)
        for values, offer in sorted(fitting, key=lambda item: -len(item[0])):
            if values <= left:
                chosen.append(offer)
                left -= values
        if not left:
            return tuple(chosen)
    return None
