"""What an expression may cost per row: refused where nothing in the query bounds it.

Every part of an expression has a size: how many times the row's own texts and lists it can be (`times`), and how often
they are multiplied with each other (`degree`). Calls that repeat, pad, replace or loop make it grow; their counts and
patterns have to be written in the query, where they can be checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.language.sql.functions import FUNCTIONS
from headrace.language.sql.infer import infer
from headrace.language.sql.patterns import like_trouble, regex_trouble
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key
from headrace.language.words import words
from headrace.model import DataType, Kind

__all__ = ["check_costs"]

# A row of a kilobyte may become ten megabytes on its way through one expression, and no more.
MOST_TIMES = 10_000
# Every element with every element, such as exists(tags, t -> contains(src, t)); not with every third one, too.
MOST_DEGREE = 2
# Digits after the point: a DOUBLE has at most 308 before it, and Spark makes room for as many as are asked for.
MOST_DIGITS = 308
# Letters of a literal that weigh as much as one of the row's own texts.
LETTERS = 100
# An XPath of more steps into all descendants, or of more conditions, visits a document over and over.
MOST_STEPS = 2

_SHORT = "write the pattern in the query, without a repetition inside another"
# Call -> which argument says how often.
_COUNTS = {"repeat": 1, "array_repeat": 1, "space": 0, "lpad": 1, "rpad": 1, "array_insert": 1, "format_number": 1}
_DIGITS = words("round bround ceil ceiling floor")
# Call -> how much longer its result can be than its argument.
_GROWS = {"hex": 2, "base64": 2, "quote": 2, "url_encode": 3, "encode": 4, "to_json": 6, "to_csv": 6}
# Call -> which arguments are regular expressions.
_REGEXES = {
    "rlike": (1,), "regexp": (1,), "regexp_like": (1,), "regexp_count": (1,), "regexp_instr": (1,), "split": (1,),
    "regexp_extract": (1,), "regexp_extract_all": (1,), "regexp_replace": (1,), "regexp_substr": (1,),
    "str_to_map": (1, 2), "parse_url": (2,), "try_parse_url": (2,),
}  # fmt: skip
_LIKES = words("like ilike")
_XPATHS = words("""
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
""")
_CHOICES = words("coalesce ifnull nvl nvl2 if nullif greatest least")
_LOOPS = words("aggregate reduce")
# Kinds whose values take as much room whatever the row is.
_FIXED = words("BOOLEAN INT BIGINT SMALLINT TINYINT FLOAT DOUBLE DATE TIMESTAMP TIMESTAMP_NTZ INTERVAL")
_FIXED_NODES = (
    exp.Predicate, exp.Connector, exp.Not, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg,
    exp.Extract, exp.Interval, exp.Between, exp.In, exp.Is,
)  # fmt: skip
_FORMAT = re.compile(r"%(?:\d+\$)?[-#+ 0,(<]*(\d*)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Size:
    """A value of at most `times` the row's texts and lists to the power of `degree`.

    To make it, `effort` times the row's texts and lists are gone through, to the power of `work`.
    """

    times: float = 1
    degree: int = 0
    effort: float = 1
    work: int = 0


def check_costs(node: exp.Expr, env: Mapping[Key, DataType]) -> None:
    """Raise Fault for the first part of an expression whose cost the query does not bound."""
    _size(node, env)


def _size(node: exp.Expr, env: Mapping[Key, DataType]) -> Size:
    found = _measured(node, env)
    times, power = max(found.times, found.effort), max(found.degree, found.work)
    if times > MOST_TIMES:
        raise Fault(
            f"this makes or goes through values {times:.3g} times as large as its row; the most is {MOST_TIMES}",
            node,
            "use smaller numbers, or fewer calls inside each other",
        )
    if power > MOST_DEGREE:
        raise Fault(
            f"this goes over the row's values {power} times inside each other",
            node,
            f"go over them at most {MOST_DEGREE} times inside each other",
        )
    return found


def _measured(node: exp.Expr, env: Mapping[Key, DataType]) -> Size:
    match node:
        case exp.Column():
            return Size(degree=1, work=1)
        case exp.Literal():
            return Size(max(1.0, len(node.this) / LETTERS))
        case exp.Anonymous():
            return _call(node, env)
        case exp.Like() | exp.ILike():
            _check_like(node.expression)
        case exp.RegexpLike():
            _check_regex(node.expression)
    parts = [_size(part, env) for part in node.iter_expressions()]
    if isinstance(node, (exp.Case, exp.If)):
        return _largest(parts)
    return _fixed(parts) if isinstance(node, _FIXED_NODES) else _together(parts)


def _together(parts: list[Size]) -> Size:
    """All of them side by side."""
    return _sized(parts, max(1.0, sum(part.times for part in parts)))


def _largest(parts: list[Size]) -> Size:
    return _sized(parts, max((part.times for part in parts), default=1.0))


def _fixed(parts: list[Size]) -> Size:
    return replace(_sized(parts, 1.0), degree=0)


def _sized(parts: list[Size], times: float) -> Size:
    return Size(
        times,
        max((part.degree for part in parts), default=0),
        max((max(part.times, part.effort) for part in parts), default=1.0),
        max((part.work for part in parts), default=0),
    )


def _call(node: exp.Anonymous, env: Mapping[Key, DataType]) -> Size:
    name, arguments = node.name.lower(), node.expressions
    _check_patterns(name, arguments)
    if any(isinstance(argument, exp.Lambda) for argument in arguments):
        return _loop(node, name, env)
    parts = [_size(argument, env) for argument in arguments]
    if name in _DIGITS and len(arguments) > 1:
        _count(arguments[1], name, MOST_DIGITS)
    if name in _COUNTS and not (name == "format_number" and _text(arguments[1]) is not None):
        place = _COUNTS[name]
        times = _count(arguments[place], name, MOST_TIMES)
        beside = _together(parts[:place] + parts[place + 1 :])
        return replace(beside, times=max(1, times) * beside.times)
    if name == "sequence":
        return Size(_sequence(node))
    if name in ("format_string", "printf"):
        return _formatted(node, parts)
    if name in ("replace", "regexp_replace", "array_join") and len(parts) > 1:
        # What is put in may come as often as there are letters.
        inside = arguments[2] if name != "array_join" and len(arguments) > 2 else arguments[1]
        whole, put = parts[0], _size(inside, env)
        letters = len(_text(inside) or "x")
        degree = whole.degree + put.degree
        return Size(whole.times * max(1, letters, put.times), degree, whole.effort, degree)
    if name == "levenshtein":
        # Every letter of one text is compared with every letter of the other.
        return Size(effort=math.prod(max(p.times, p.effort) for p in parts[:2]), work=sum(p.degree for p in parts[:2]))
    if name in _GROWS:
        beside = _together(parts)
        return replace(beside, times=_GROWS[name] * beside.times)
    if name in _CHOICES:
        return _largest(parts)
    known = FUNCTIONS.get(name)
    return _fixed(parts) if known is not None and known.rule in _FIXED else _together(parts)


def _loop(node: exp.Anonymous, name: str, env: Mapping[Key, DataType]) -> Size:
    """A call of a lambda: what the lambda makes, once per element."""
    lists = [_size(part, env) for part in node.expressions if not isinstance(part, exp.Lambda)]
    made = [_size(part.this, env) for part in node.expressions if isinstance(part, exp.Lambda)]
    if name in _LOOPS:
        _check_accumulator(node, env)
    over, body = _together(lists[:1] if name in _LOOPS else lists), _largest(made)
    effort = max(over.effort, over.times * max(body.times, body.effort))
    work = max(over.work, over.degree + body.work)
    if name in (*_LOOPS, "exists", "forall"):
        return Size(effort=effort, work=work)
    return Size(over.times * body.times, over.degree + body.degree, effort, work)


def _check_accumulator(node: exp.Anonymous, env: Mapping[Key, DataType]) -> None:
    start = node.expressions[1]
    type_ = infer(start, env)
    if not _has_fixed_size(type_):
        raise Fault(
            f"{node.name.lower()} gathers {type_ if type_.is_known else 'a value of unknown type'}, which can double "
            "with every element",
            start,
            "gather numbers, such as CAST(0 AS BIGINT) or named_struct('n', 0); join texts with array_join",
        )


def _has_fixed_size(type_: DataType) -> bool:
    if type_.kind is Kind.STRUCT:
        return all(_has_fixed_size(field.type) for field in type_.fields)
    return type_.kind.value in _FIXED or type_.kind is Kind.DECIMAL


def _count(node: exp.Expr, name: str, most: int) -> int:
    """The number a call takes, written in the query or bounded by least(n, 100)."""
    bare = node.unnest()
    if isinstance(bare, exp.Neg):
        bare = bare.this
    if isinstance(bare, exp.Anonymous) and bare.name.lower() == "least":
        bare = next((part for part in bare.expressions if _whole(part) is not None), bare)
    value = _whole(bare)
    if value is None:
        raise Fault(
            f"{name} takes a number from the row, so nothing bounds its cost",
            node,
            "write a number, or least(n, 100)",
        )
    if value > most:
        raise Fault(f"{name} with {value}; the most is {most}", node, "use a smaller number")
    return value


def _whole(node: exp.Expr) -> int | None:
    bare = node.unnest()
    if isinstance(bare, exp.Literal) and not bare.is_string and bare.this.isdecimal():
        return int(bare.this[:12])
    return None


def _sequence(node: exp.Anonymous) -> int:
    signed: list[int] = []
    for part in node.expressions:
        bare = part.unnest()
        value = _whole(bare.this if isinstance(bare, exp.Neg) else bare)
        if value is None:
            raise Fault(
                "sequence takes its ends from the row, so nothing bounds its cost",
                part,
                "write whole numbers, such as sequence(1, 24)",
            )
        signed.append(-value if isinstance(bare, exp.Neg) else value)
    step = max(1, abs(signed[2])) if len(signed) > 2 else 1
    return abs(signed[1] - signed[0]) // step + 1


def _formatted(node: exp.Anonymous, parts: list[Size]) -> Size:
    text = _text(node.expressions[0])
    if text is None:
        raise Fault(f"{node.name.lower()} takes its format from the row", node, "write the format in the query")
    fields = [max(int(n[:9] or 0) for n in (w, p or "0")) for w, p in _FORMAT.findall(text)]
    beside = _together(parts)
    return replace(beside, times=beside.times * max(1, len(fields)) + sum(fields))


def _text(node: exp.Expr) -> str | None:
    bare = node.unnest()
    return bare.this if isinstance(bare, exp.Literal) and bare.is_string else None


def _check_patterns(name: str, arguments: list[exp.Expr]) -> None:
    for place in _REGEXES.get(name, ()):
        if place < len(arguments):
            _check_regex(arguments[place])
    if name in _LIKES:
        _check_like(arguments[1])
    if name in _XPATHS:
        text = _text(arguments[1])
        if text is None or text.count("//") > MOST_STEPS or text.count("[") > MOST_STEPS:
            raise Fault(
                f"an XPath is written in the query, with at most {MOST_STEPS} of // and of [",
                arguments[1],
                "name the steps, such as /a/b",
            )


def _check_regex(node: exp.Expr) -> None:
    text = _text(node)
    if text is None:
        raise Fault("a pattern from the row can take for ever", node, _SHORT)
    trouble = regex_trouble(text)
    if trouble is not None:
        raise Fault(trouble, node, _SHORT)


def _check_like(node: exp.Expr) -> None:
    text = _text(node)
    if text is None:
        raise Fault("a LIKE pattern from the row can take for ever", node, "use contains(a, b) or startswith(a, b)")
    trouble = like_trouble(text)
    if trouble is not None:
        raise Fault(trouble, node, "use fewer of them, or several LIKEs")
