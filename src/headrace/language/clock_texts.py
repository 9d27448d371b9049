"""Texts that Spark turns into the wall clock: 'now', 'today' and their kin, wherever a time is wanted.

Spark replaces such a text when it is a typed literal, or when a constant expression of type STRING is cast to a time,
by the query or by Spark itself (`ts > 'now'`). A text that depends on a row is never replaced. So a special text may
stand only where nothing casts it, and a text computed from constants alone may stand nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from headrace.language.functions import FUNCTIONS
from headrace.language.infer import infer
from headrace.language.report import Fault
from headrace.language.spark_text import Key
from headrace.language.words import words
from headrace.model import DataType, Kind

__all__ = ["check_clock_texts", "is_clock_text"]

# Java trims every character up to a blank; a zone may follow the word.
_SPECIAL = re.compile(r"[\x00-\x20]*(?:epoch|now|today|tomorrow|yesterday)(?![a-z])", re.IGNORECASE)
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between, exp.Like,
    exp.ILike,
)  # fmt: skip
_CHOICES = words("coalesce ifnull nvl nvl2 if nullif")
# Calls that put constants together without changing them, and calls of unknown type that never give a text.
_CONSTRUCTORS = words("array map struct named_struct sequence")
_NO_TEXTS = words("""
    make_timestamp try_make_timestamp timestampadd dateadd date_add date_part datepart try_add try_divide try_multiply
    try_subtract nanvl zeroifnull to_number try_to_number try_make_interval ceil ceiling floor round bround mod pmod
    try_mod greatest least
""")
_VALUES = (exp.Anonymous, exp.Cast, exp.Case, exp.Bracket, exp.Dot, exp.DPipe, exp.Trim, exp.Escape)


def is_clock_text(text: str) -> bool:
    """Whether Spark would read a text as a moment of its own choosing.

    >>> is_clock_text(" Now "), is_clock_text("today Europe/Berlin"), is_clock_text("nowhere")
    (True, True, False)
    """
    return _SPECIAL.match(text) is not None


def check_clock_texts(node: exp.Expr, env: Mapping[Key, DataType]) -> None:
    """Raise Fault for the first text that could become the wall clock."""
    for part in node.walk():
        if isinstance(part, exp.Literal) and part.is_string and is_clock_text(part.this) and not _stays(part, env):
            raise Fault(
                f"'{part.this.strip()}' is the wall clock where a time is wanted, which a replay cannot repeat",
                part,
                "compare it with a column of type STRING, or write the time itself",
            )
    for part in node.walk():
        if isinstance(part, _VALUES) and _is_constant(part) and _may_be_text(part, env):
            raise Fault("a text computed from constants alone is not accepted", part, "write the text as it comes out")


def _stays(literal: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    """Whether a text stays a text: it is a whole column, or beside nothing but texts."""
    node, parent = literal, literal.parent
    while isinstance(parent, exp.Paren):
        node, parent = parent, parent.parent
    if parent is None:
        return True
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        parent = parent.parent
    if isinstance(parent, _COMPARISONS):
        return all(_is_text(other, env) for other in parent.iter_expressions() if other is not node)
    if isinstance(parent, exp.Case):
        return parent.this is None and _is_text(parent, env)
    return isinstance(parent, exp.Anonymous) and parent.name.lower() in _CHOICES and _is_text(parent, env)


def _is_text(node: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    return infer(node, env).kind is Kind.STRING


def _is_constant(node: exp.Expr) -> bool:
    """Whether Spark could evaluate an expression without a row."""
    if isinstance(node, exp.Column):
        return False
    if isinstance(node, exp.Identifier):
        # A variable of a lambda; names of fields, aliases and types are not values.
        return isinstance(node.parent, (exp.Dot, exp.Alias, exp.ColumnDef)) and node.parent.this is not node
    return all(_is_constant(child) for child in node.iter_expressions())


def _may_be_text(node: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    if isinstance(node, exp.Cast) and not (isinstance(node.this, exp.Literal) and node.this.is_string):
        inner = node.this.unnest()
        if isinstance(inner, (exp.Null, exp.Boolean)) or (isinstance(inner, exp.Literal) and not inner.is_string):
            return False
    kind = infer(node, env).kind
    if kind is Kind.UNKNOWN and isinstance(node, exp.Anonymous):
        name = node.name.lower()
        return name in FUNCTIONS and name not in _CONSTRUCTORS | _NO_TEXTS
    return kind in (Kind.STRING, Kind.BINARY, Kind.UNKNOWN)
