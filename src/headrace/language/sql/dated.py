"""Texts become times only with their date: to a time without one Spark adds the day on which it runs.

A text that is cast to TIMESTAMP, by the query or by Spark itself in a comparison or a call, passes a guard, which makes
one without a date malformed: CAST fails its query, and TRY_CAST gives NULL. Where no guard can be put, in a cast of an
array say, the query is refused.
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

__all__ = ["with_dates"]

# As Spark's parser sees it: blanks and control characters are passed over, and a sign may come first.
_DATELESS = r"^[\x00-\x20\x7F-\x9F]*(?=[+-]?(T|[0-9]+:))"
_GUARD = [exp.Literal.string(_DATELESS), exp.Literal.string("no date: ")]
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between)
_CHOICES = words("coalesce ifnull nvl nvl2 if nullif greatest least array")
# By function, or function and number of arguments, those that Spark makes a TIMESTAMP of.
_OF_TIMES: dict[str | tuple[str, int], tuple[int, ...]] = {
    **dict.fromkeys(words("date_format hour minute second timestamp unix_micros unix_millis unix_seconds"), (0,)),
    **dict.fromkeys(words("from_utc_timestamp to_utc_timestamp"), (0,)),
    **dict.fromkeys(words("date_trunc date_part datepart"), (1,)),
    **{(name, 3): (2,) for name in words("timestampadd dateadd date_add")},
    **{(name, 3): (1, 2) for name in words("timestampdiff datediff date_diff")},
    ("months_between", 2): (0, 1),
    ("months_between", 3): (0, 1),
}
# Those that do so where no format is given.
_BY_FORMAT = words("to_timestamp try_to_timestamp to_timestamp_ltz unix_timestamp to_unix_timestamp")
_PARSERS = words("from_json from_csv from_xml")
# Calls whose type only Spark knows and that give no text.
_NO_TEXTS = words("""
    make_timestamp try_make_timestamp timestampadd dateadd date_add date_part datepart try_add try_divide try_multiply
    try_subtract nanvl zeroifnull to_number try_to_number try_make_interval ceil ceiling floor round bround mod pmod
    try_mod timestamp_seconds timestamp_millis timestamp_micros to_timestamp try_to_timestamp to_timestamp_ntz
    to_timestamp_ltz to_date try_to_date from_utc_timestamp to_utc_timestamp convert_timezone date_trunc window_time
""")
_INSTANT = re.compile(r"\btimestamp(_ltz)?\b", re.IGNORECASE)
Env = Mapping[Key, DataType]


def with_dates(node: exp.Expr, env: Env) -> exp.Expr:
    """A copy in which every text that Spark makes a TIMESTAMP of passes the guard; Fault where none can be put."""
    found = node.copy()
    for part in list(found.walk()):
        _refuse(part, env)
        for text in _made_times_of(part, env):
            if _is_text(text, env) and not _is_guard(text):
                text.replace(_guard(text.copy()))
    return found


def _guard(text: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="regexp_replace", expressions=[text, *_GUARD])


def _is_guard(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "regexp_replace" and node.expressions[1:] == _GUARD


def _made_times_of(node: exp.Expr, env: Env) -> list[exp.Expr]:
    """What Spark makes a TIMESTAMP of if it is a text."""
    match node:
        case exp.Cast():
            return [node.this] if _is_instant(infer(node, env)) else []
        case exp.Extract():
            return [node.expression]
        case exp.Anonymous() if (name := node.name.lower()) not in _CHOICES:
            count = len(node.expressions)
            places = (
                (0,) if name in _BY_FORMAT and count == 1 else _OF_TIMES.get((name, count), _OF_TIMES.get(name, ()))
            )
            return [node.expressions[place] for place in places if place < count]
    return [each for nodes in _beside(node) if any(_is_instant(infer(one, env)) for one in nodes) for each in nodes]


def _beside(node: exp.Expr) -> list[list[exp.Expr]]:
    """Parts of a node that Spark brings to one type."""
    match node:
        case exp.Anonymous():
            return [node.expressions[1:] if node.name.lower() in ("if", "nvl2") else node.expressions]
        case exp.Case():
            subject = [] if node.this is None else [node.this, *(branch.this for branch in node.args["ifs"])]
            default = node.args.get("default")
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return [subject, results if default is None else [*results, default]]
    return [list(node.iter_expressions())] if isinstance(node, _COMPARISONS) else []


def _refuse(node: exp.Expr, env: Env) -> None:
    if isinstance(node, exp.Cast):
        to, given = infer(node, env), infer(node.this, env)
        if to.is_nested and _has_instant(to) and (not given.is_known or _has_text(given)):
            raise Fault(
                "texts inside an array, a map or a struct cannot be cast to times together", node,
                "cast each: transform(a, x -> CAST(CAST(x AS STRING) AS TIMESTAMP))",
            )  # fmt: skip
    if isinstance(node, exp.Anonymous) and node.name.lower() in _PARSERS and _parses_instants(node.expressions):
        raise Fault(
            f"{node.name.lower()} takes a time without a date for one of the day of the run", node,
            "make the field a STRING and CAST it, or give the option timestampFormat",
        )  # fmt: skip
    if isinstance(node, (exp.Cast, *_COMPARISONS)) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in _CHOICES
    ):
        for part in _made_times_of(node, env):
            if not infer(part, env).is_known and _may_be_text(part):
                raise Fault(
                    "whether this is a text or a time only Spark knows", part, "write CAST(... AS STRING) around it"
                )


def _parses_instants(arguments: list[exp.Expr]) -> bool:
    """Whether a schema has a TIMESTAMP, and no option says how one is read."""
    schema, options = arguments[1:2], arguments[2:]
    instants = any(isinstance(each, exp.Literal) and _INSTANT.search(each.this) for each in schema)
    return instants and not any("timestampformat" in option.sql("spark").lower() for option in options)


def _is_instant(type_: DataType) -> bool:
    return type_.kind is Kind.TIMESTAMP


def _is_text(node: exp.Expr, env: Env) -> bool:
    """Whether this is a text that is not written in the query, where its date can be seen."""
    return infer(node, env).kind is Kind.STRING and not isinstance(node.unnest(), exp.Literal)


def _may_be_text(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Anonymous):
        return node.name.lower() not in _NO_TEXTS
    return not isinstance(node, (exp.Binary, exp.Interval, exp.Null)) or isinstance(node, exp.Dot)


def _has_instant(type_: DataType) -> bool:
    return _is_instant(type_) or any(_has_instant(field.type) for field in type_.fields)


def _has_text(type_: DataType) -> bool:
    return type_.kind in (Kind.STRING, Kind.UNKNOWN) or any(_has_text(field.type) for field in type_.fields)
