"""Forms of SQL that are another spelling of a plainer one, respelled before anybody else reads them.

    position(x IN y), substring(x FROM 2 FOR 3), overlay(x PLACING y FROM 2)     calls with commas
    r'a\\d'                                                                       'a\\\\d'
    x LIKE ANY ('a%', 'b%'), x NOT LIKE ALL (...)                                x LIKE 'a%' OR x LIKE 'b%'
    (a, b) IN ((1, 2), (3, 4))                                                   structs of the same names
    first(x) IGNORE NULLS                                                        first(x, true)

What only one spelling has is refused here, everything else where the plain form is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType, exp

from headrace.language.sql.report import Fault
from headrace.model import SPELLINGS

__all__ = ["respelled_tokens", "respelled_tree"]

# Calls whose arguments words may part.
_PARTED = {
    "POSITION": ("IN",),
    "SUBSTRING": ("FROM", "FOR"),
    "SUBSTR": ("FROM", "FOR"),
    "OVERLAY": ("PLACING", "FROM", "FOR"),
}


def respelled_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Raw strings as strings, and commas for the words that part the arguments of a call.

    >>> from sqlglot.dialects.spark import Spark
    >>> [token.text for token in respelled_tokens(Spark().tokenize("position('a' IN b)"))]
    ['position', '(', 'a', ',', 'b', ')']
    """
    found: list[Token] = []
    # For each open parenthesis the words that part what is in it.
    words: list[tuple[str, ...]] = []
    for index, token in enumerate(tokens):
        kind, text = token.token_type, token.text
        if kind is TokenType.L_PAREN:
            before = tokens[index - 1] if index else None
            named = before is not None and before.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            words.append(_PARTED.get(before.text.upper(), ()) if before is not None and named else ())
        elif kind is TokenType.R_PAREN and words:
            words.pop()
        elif kind is TokenType.RAW_STRING:
            kind = TokenType.STRING
        elif words and kind is not TokenType.STRING and text.upper() in words[-1]:
            kind, text = TokenType.COMMA, ","
        changed = kind is not token.token_type
        found.append(Token(kind, text, token.line, token.col, token.start, token.end) if changed else token)
    return found


def respelled_tree(tree: exp.Expr) -> exp.Expr:
    """LIKE over several patterns as several LIKEs, rows of values in IN as structs, and so on; raises Fault.

    >>> like = exp.Like(this=exp.column("x"), expression=exp.All(this=exp.Paren(this=exp.Literal.string("a%"))))
    >>> respelled_tree(like).sql("spark")
    "(x LIKE 'a%')"
    """
    return tree.transform(_respelled, copy=False)


def _respelled(node: exp.Expr) -> exp.Expr:
    if isinstance(node, (exp.Like, exp.ILike)):
        patterns = _patterns(node.expression)
        return node if patterns is None else _each(node, *patterns)
    if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)) and _may_ignore(node.this):
        call: exp.Expr = node.this
        call.append("expressions", exp.Boolean(this=isinstance(node, exp.IgnoreNulls)))
        return call
    if isinstance(node, exp.Grouping):
        return exp.Anonymous(this="grouping", expressions=node.expressions)
    if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.expressions:
        width = len(node.this.expressions)
        for row in node.expressions:
            if not isinstance(row, exp.Tuple) or len(row.expressions) != width:
                raise Fault(
                    f"a row of {width} values is in a list of such rows", row, "write (a, b) IN ((1, 2), (3, 4))"
                )
        node.set("this", _struct(node.this))
        node.set("expressions", [_struct(row) for row in node.expressions])
    return node


def _may_ignore(call: exp.Expr) -> bool:
    entry = SPELLINGS.get(call.name.lower()) if isinstance(call, exp.Anonymous) else None
    return entry is not None and "[ignores]" in entry.literals


def _patterns(node: exp.Expr) -> tuple[list[exp.Expr], bool] | None:
    """The patterns after LIKE ANY or LIKE ALL, and whether it is ALL; None for a pattern alone."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("any", "some"):
        return list(node.expressions), False
    if isinstance(node, (exp.Any, exp.All)):
        inner = node.this
        several = inner.expressions if isinstance(inner, exp.Tuple) else [inner.unnest()]
        return several, isinstance(node, exp.All)
    return None


def _each(node: exp.Like | exp.ILike, patterns: list[exp.Expr], every: bool) -> exp.Expr:
    if not patterns:
        raise Fault("LIKE ANY and LIKE ALL take patterns", node, "write x LIKE ANY ('a%', 'b%')")
    if isinstance(node.parent, exp.Escape):
        raise Fault("LIKE ANY and LIKE ALL take no ESCAPE", node, "write one LIKE per pattern")
    negate = node.args.get("negate")
    single = [type(node)(this=node.this.copy(), expression=pattern, negate=negate) for pattern in patterns]
    return exp.Paren(this=_joined(single, exp.And if every else exp.Or))


def _joined(parts: Sequence[exp.Expr], by: type[exp.Connector]) -> exp.Expr:
    """Conditions joined in a tree that is as low as it can be."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return by(this=_joined(parts[:half], by), expression=exp.Paren(this=_joined(parts[half:], by)))


def _struct(row: exp.Tuple) -> exp.Expr:
    named = [part for i, v in enumerate(row.expressions, 1) for part in (exp.Literal.string(f"col{i}"), v)]
    made = exp.Anonymous(this="named_struct", expressions=named)
    made.meta.update(row.meta)
    return made
