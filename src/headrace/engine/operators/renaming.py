"""Other names for the columns of an expression."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import TokenType
from sqlglot.dialects.dialect import Dialect

__all__ = ["renamed"]


def renamed(sql: str, names: Mapping[str, str]) -> str:
    """An expression with other names for its columns.

    >>> renamed("a0 / a1 > 'a0' AND s.a0 = `a0`", {"a0": "x", "a1": "y"})
    "x / y > 'a0' AND s.a0 = `x`"
    """
    text, at, before = "", 0, None
    for token in Dialect.get_or_raise("spark").tokenize(sql):
        quoted = token.token_type is TokenType.IDENTIFIER
        if token.text in names and (quoted or token.token_type is TokenType.VAR) and before is not TokenType.DOT:
            new = f"`{names[token.text]}`" if quoted else names[token.text]
            text, at = text + sql[at : token.start] + new, token.end + 1
        before = token.token_type
    return text + sql[at:]
