"""Texts that Spark turns into the wall clock: 'now', 'today', '12:05' and their kin, wherever a time is wanted.

Spark replaces such a text when it is a typed literal, or when a constant expression of type STRING is cast to a time,
by the query or by Spark itself (`ts > 'now'`). A text that depends on a row is never replaced. So a special text, and
a text computed from constants, may stand only where it stays a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from headrace.language.sql.infer import infer
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key
from headrace.language.words import words
from headrace.model import DataType, Kind

__all__ = ["check_clock_texts", "is_clock_text", "lacks_date"]

# Java trims every character up to a blank; a zone may follow the word.
_SPECIAL = re.compile(r"[\x00-\x20]*(?:epoch|now|today|tomorrow|yesterday)(?![a-z])", re.IGNORECASE)
# A time without a date is one of today, to Spark.
_DATELESS = re.compile(r"[\x00-\x20]*(?:[0-9]{1,2}:[0-9]|T[0-9]{1,2}(?![^\W_]))", re.ASCII)
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between, exp.Like,
    exp.ILike, exp.RegexpLike,
)  # fmt: skip
_CHOICES = words("coalesce ifnull nvl nvl2 if nullif")
# Calls that take texts as texts, whatever stands beside them.
_OF_TEXTS = words("""
    ascii base64 bit_length btrim char_length character_length concat concat_ws contains crc32 endswith find_in_set
    format_string get_json_object hash hex initcap instr isnotnull isnull lcase left len length levenshtein locate lower
    lpad ltrim md5 named_struct octet_length overlay position printf quote repeat replace reverse right rpad rtrim sha
    sha1 sha2 soundex split split_part startswith struct substr substring substring_index translate trim ucase unbase64
    unhex upper url_encode url_decode xxhash64 like ilike rlike regexp regexp_like regexp_count regexp_extract
    regexp_extract_all regexp_instr regexp_replace regexp_substr
""")
# Calls of unknown type that never give a text.
_NO_TEXTS = words("""
    make_timestamp try_make_timestamp timestampadd dateadd date_add date_part datepart try_add try_divide try_multiply
    try_subtract nanvl zeroifnull to_number try_to_number try_make_interval ceil ceiling floor round bround mod pmod
    try_mod greatest least sequence map struct named_struct array
""")
# Calls that read a text by the format in their second argument, where Spark puts in no date of its own.
_WITH_FORMAT = words("to_timestamp try_to_timestamp to_date try_to_date to_unix_timestamp unix_timestamp")
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.INTERVAL, Kind.UNKNOWN})
_VALUES = (exp.Anonymous, exp.Cast, exp.Case, exp.Bracket, exp.Dot, exp.DPipe, exp.Trim)
_HINT = "compare it with a column of type STRING, or write the time itself"


def is_clock_text(text: str) -> bool:
    """Whether Spark would read a text as a moment of its own choosing.

    >>> is_clock_text(" Now "), is_clock_text("today Europe/Berlin"), is_clock_text("nowhere")
    (True, True, False)
    """
    return _SPECIAL.match(text) is not None


def lacks_date(text: str) -> bool:
    """Whether Spark would read a text as a time of today.

    >>> lacks_date("12:05"), lacks_date("T10"), lacks_date("2026-01-05 12:05"), lacks_date("T1000 series")
    (True, True, False, False)
    """
    return _DATELESS.match(text) is not None


def check_clock_texts(node: exp.Expr, env: Mapping[Key, DataType]) -> None:
    """Raise Fault for the first text that could become the wall clock."""
    for part in node.walk():
        if isinstance(part, exp.Literal):
            if part.is_string and is_clock_text(part.this) and not _stays(part, env):
                what = f"'{part.this.strip()}' is the wall clock where a time is wanted, which a replay cannot repeat"
                raise Fault(what, part, _HINT)
            if part.is_string and lacks_date(part.this) and not _stays(part, env) and not _is_duration(part):
                what = f"'{part.this.strip()}' has no date: where a time is wanted it is one of the day of the run"
                raise Fault(what, part, "write the whole time, or ask for hour(ts)")
        elif isinstance(part, _VALUES) and _is_constant(part) and _may_be_text(part, env) and not _stays(part, env):
            what = "a text computed from constants alone could be the wall clock where a time is wanted"
            raise Fault(what, part, "write the text as it comes out")


def _is_duration(node: exp.Expr) -> bool:
    """Whether a text is the length of an interval, or has a format of its own beside it."""
    parent = node.parent
    if isinstance(parent, exp.Anonymous) and parent.name.lower() in _WITH_FORMAT:
        return len(parent.expressions) > 1
    return isinstance(parent, exp.Interval)


def _stays(node: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    """Whether a text stays a text: it is a whole column, or beside nothing but texts."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Alias)):
        node, parent = parent, parent.parent
    if parent is None:
        return True
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        parent = parent.parent
    match parent:
        case exp.DPipe() | exp.Trim() | exp.Escape():
            return True
        case exp.Cast():
            to = infer(parent, env)
            return not to.is_nested and to.kind not in _TIMES
        case exp.Case():
            return parent.this is None and _is_text(parent, env)
        case exp.Anonymous():
            return _stays_in_call(parent, env)
    others = (other for other in parent.iter_expressions() if other is not node)
    return isinstance(parent, _COMPARISONS) and all(_is_text(other, env) for other in others)


def _stays_in_call(call: exp.Anonymous, env: Mapping[Key, DataType]) -> bool:
    name = call.name.lower()
    if name in ("array", "map"):
        # A list of times makes times of all its elements.
        return all(field.type.kind is Kind.STRING or field.type.is_numeric for field in infer(call, env).fields)
    return name in _OF_TEXTS or (name in _CHOICES and _is_text(call, env))


def _is_text(node: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    return infer(node, env).kind is Kind.STRING


def _is_constant(node: exp.Expr) -> bool:
    """Whether Spark could evaluate an expression without a row."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "typeof":
        return True
    if isinstance(node, exp.Column):
        return False
    if isinstance(node, exp.Identifier):
        # A variable of a lambda; names of fields, aliases and types are not values.
        return isinstance(node.parent, (exp.Dot, exp.Alias, exp.ColumnDef)) and node.parent.this is not node
    return all(_is_constant(child) for child in node.iter_expressions())


def _may_be_text(node: exp.Expr, env: Mapping[Key, DataType]) -> bool:
    if isinstance(node, exp.Cast):
        inner = node.this.unnest()
        # The text of a number says nothing of a clock.
        if isinstance(inner, (exp.Null, exp.Boolean)) or (isinstance(inner, exp.Literal) and not inner.is_string):
            return False
    kind = infer(node, env).kind
    if kind is Kind.UNKNOWN and isinstance(node, exp.Anonymous):
        return node.name.lower() not in _NO_TEXTS
    return kind in (Kind.STRING, Kind.UNKNOWN)
