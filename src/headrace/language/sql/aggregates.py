"""Reads aggregate calls: COUNT(DISTINCT x) FILTER (WHERE y), PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x), ...

What aggregates there are, and what each takes, is in `model/aggregates.py`. A call that is an expression over other
aggregates, as an array of percentiles is, is unfolded into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.language.sql.report import Fault
from headrace.model import PAIR, SPELLINGS, AggregateFunction, DataType, Kind, result_type

__all__ = ["AggregateCall", "aggregate_type", "is_aggregate", "read_aggregate", "unfolded"]

# Spark's own bound for the accuracy of approx_percentile and for approx_top_k's items.
_MOST_ACCURACY = 2**31 - 1
_MOST_ITEMS = 1_000_000
# Texts of a group put together; in SQL alone, for they are an array to everybody else.
_JOINED = frozenset({"listagg", "string_agg"})


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate as the model names it, over expressions still to be computed by the input.

    Of two values, or of several that are counted together, the argument is a struct.
    """

    function: str
    argument: exp.Expr | None
    distinct: bool = False
    filter: exp.Expr | None = None
    parameters: tuple[float, ...] = ()
    takes: str = "any"
    parts: tuple[exp.Expr, ...] = ()


def is_aggregate(node: exp.Expr) -> bool:
    """Whether this very node is an aggregate call, with its FILTER or WITHIN GROUP if it has one.

    >>> is_aggregate(exp.Anonymous(this="sum", expressions=[exp.column("x")])), is_aggregate(exp.column("x"))
    (True, False)
    """
    call = _call(node)
    return call is not None and (call.name.lower() in SPELLINGS or call.name.lower() in _JOINED)


def _call(node: exp.Expr) -> exp.Anonymous | None:
    while isinstance(node, (exp.Filter, exp.WithinGroup)):
        node = node.this
    return node if isinstance(node, exp.Anonymous) else None


def unfolded(node: exp.Expr) -> exp.Expr | None:
    """The expression over other aggregates that a call is, if it is one; raises Fault.

    >>> from headrace.language.sql.spark_text import spark_text
    >>> halves = exp.Anonymous(this="array", expressions=[exp.Literal.number(0.5)])
    >>> spark_text(unfolded(exp.Anonymous(this="percentile", expressions=[exp.column("x"), halves])))
    'CASE WHEN NOT (PERCENTILE(x, 0.5) IS NULL) THEN ARRAY(PERCENTILE(x, 0.5)) END'
    """
    call = _call(node)
    assert call is not None
    if call.name.lower() in _JOINED:
        return _joined(node, call)
    entry = SPELLINGS[call.name.lower()]
    place = 0 if "within" in entry.takes else 1
    if "fraction" not in entry.literals or len(call.expressions) <= place:
        return None
    several = call.expressions[place]
    if not (isinstance(several, exp.Anonymous) and several.name.lower() == "array"):
        return None
    if not several.expressions:
        raise Fault("an array of percentages holds at least one", several, "write array(0.5, 0.95)")
    each = [_with_argument(node, place, fraction) for fraction in several.expressions]
    known = exp.Not(this=exp.Paren(this=exp.Is(this=each[0].copy(), expression=exp.Null())))
    return _where(known, exp.Anonymous(this="array", expressions=each))


def _joined(node: exp.Expr, call: exp.Anonymous) -> exp.Expr:
    """The texts of a group in their own order; Spark, too, has NULL for no text at all."""
    inner = node
    while isinstance(inner, exp.Filter):
        inner = inner.this
    arguments, distinct = _written(call)
    if not 1 <= len(arguments) <= 2:
        raise Fault(f"{call.name.lower()} takes 1 to 2 arguments, not {len(arguments)}", call)
    text = arguments[0]
    if isinstance(inner, exp.WithinGroup) and _within(inner) != text:
        raise Fault(f"{call.name.lower()} joins texts in their own order", node, "order by what is joined")
    delimiter = arguments[1] if len(arguments) == 2 else exp.Literal.string("")
    if not isinstance(delimiter, exp.Literal) or not delimiter.is_string:
        raise Fault("the delimiter must be a text written in the query", delimiter, "write listagg(x, ', ')")
    listed: exp.Expr = exp.Anonymous(
        this="collect_set" if distinct else "collect_list", expressions=[exp.cast(text.copy(), "STRING", copy=False)]
    )
    if isinstance(node, exp.Filter):
        listed = exp.Filter(this=listed, expression=node.expression.copy())
    size = exp.Anonymous(this="size", expressions=[listed.copy()])
    found = exp.GT(this=size, expression=exp.Literal.number(0))
    joined = exp.Anonymous(this="array_join", expressions=[listed, delimiter.copy()])
    return exp.cast(_where(found, joined), "STRING", copy=False)


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _with_argument(node: exp.Expr, place: int, argument: exp.Expr) -> exp.Expr:
    """A copy of an aggregate with another argument at a place."""
    made = node.copy()
    call = _call(made)
    assert call is not None
    call.set("expressions", [*call.expressions[:place], argument.copy(), *call.expressions[place + 1 :]])
    return made


def read_aggregate(node: exp.Expr, time: exp.Expr | None = None) -> AggregateCall:
    """What an aggregate call over rows with such a time asks for; raises Fault.

    >>> read_aggregate(exp.Anonymous(this="count", expressions=[exp.Star()])).function
    'count'
    """
    condition: exp.Expr | None = None
    within: exp.Expr | None = None
    call = node
    while isinstance(call, (exp.Filter, exp.WithinGroup)):
        if isinstance(call, exp.Filter):
            condition = call.expression.this
        else:
            within = _within(call)
        call = call.this
    assert isinstance(call, exp.Anonymous)
    name = call.name.lower()
    arguments, distinct = _written(call)
    parts = (*arguments, within, condition)
    if any(is_aggregate(inner) for part in parts if part is not None for inner in part.walk()):
        raise Fault(
            f"an aggregate inside {name.upper()}", node, "aggregate in one query and read its output as a stream"
        )
    entry = SPELLINGS[name]
    several = name == "count" and distinct and len(arguments) > 1
    _check(entry, name, 1 if several else len(arguments), distinct, within, node)
    values, parameters = _read(entry, arguments, within)
    function, parameters = (
        (entry.name, parameters) if entry.means is None else (entry.means[0], (*entry.means[1], *parameters))
    )
    distinct &= entry.distinct == "counts"
    if name == "count_if":
        both = values[0]
        if condition is not None:
            both = exp.And(this=exp.Paren(this=condition), expression=exp.Paren(this=both))
        return AggregateCall("count", None, filter=both)
    if several:
        return AggregateCall("count", _together(arguments), True, condition, parts=tuple(arguments))
    if name == "count":
        return _count(values[0], distinct, condition, node)
    if function == "collect_list" and distinct:
        function, distinct = "collect_set", False
    if entry.second is not None:
        pair = _pair(entry, values, arguments[1:], time, node)
        return AggregateCall(function, _struct(pair), distinct, condition, (), entry.value, tuple(values))
    if function == "approx_top_k" and len(parameters) == 2 and parameters[0] > parameters[1]:
        raise Fault("approx_top_k: k is greater than the number of items tracked", node, "track at least k items")
    return AggregateCall(function, values[0], distinct, condition, parameters, entry.value)


def _within(node: exp.WithinGroup) -> exp.Expr:
    order = node.expression.expressions
    if len(order) != 1:
        raise Fault("WITHIN GROUP orders by one expression", node)
    if order[0].args.get("desc"):
        raise Fault(
            "WITHIN GROUP (ORDER BY ... DESC) is not accepted",
            node,
            "of numbers, write - percentile_disc(p) WITHIN GROUP (ORDER BY - x)",
        )
    found = order[0].this
    assert isinstance(found, exp.Expr)
    return found


def _written(call: exp.Anonymous) -> tuple[list[exp.Expr], bool]:
    """The arguments as they are written, and whether DISTINCT stands before them."""
    arguments = list(call.expressions)
    if arguments and isinstance(arguments[0], exp.Distinct):
        return [*arguments[0].expressions, *arguments[1:]], True
    return arguments, False


def _check(
    entry: AggregateFunction, name: str, count: int, distinct: bool, within: exp.Expr | None, at: exp.Expr
) -> None:
    """Raise Fault for another number of arguments than an aggregate takes, or a clause that it does not have."""
    if distinct and entry.distinct is None:
        raise Fault(f"{name} does not take DISTINCT", at, "DISTINCT goes with COUNT, SUM and AVG")
    ordered = "within" in entry.takes
    least = (not ordered) + (entry.second not in (None, "time")) + sum("[" not in w for w in entry.literals)
    most = least + sum("[" in word for word in entry.literals)
    if not least <= count <= most:
        takes = f"{least}" if least == most else f"{least} to {most}"
        raise Fault(f"{name} takes {takes} argument{'s' * (most > 1)}, not {count}", at)
    if ordered != (within is not None):
        form = f"{name.upper()}(0.5) WITHIN GROUP (ORDER BY x)"
        raise Fault(
            f"{name} {'needs' if ordered else 'does not take'} WITHIN GROUP", at, f"write {form}" if ordered else None
        )


def _read(
    entry: AggregateFunction, arguments: Sequence[exp.Expr], within: exp.Expr | None
) -> tuple[list[exp.Expr], tuple[float, ...]]:
    """The values that an aggregate is of, and its literals."""
    written = 0 if within is not None else 1 + (entry.second not in (None, "time"))
    values = [*arguments[:written], *([] if within is None else [within])]
    given = zip(entry.literals, arguments[written:], strict=False)
    return values, tuple(_LITERALS[word.strip("[]")](literal) for word, literal in given)


def _count(value: exp.Expr, distinct: bool, condition: exp.Expr | None, at: exp.Expr) -> AggregateCall:
    star = isinstance(value, exp.Star)
    if star and distinct:
        raise Fault("COUNT(DISTINCT *) is not accepted", at, "name one column")
    constant = isinstance(value, (exp.Literal, exp.Boolean)) and not distinct
    return AggregateCall("count", None if star or constant else value, distinct, condition)


def _pair(
    entry: AggregateFunction, values: Sequence[exp.Expr], literals: Sequence[exp.Expr], time: exp.Expr | None,
    at: exp.Expr,
) -> tuple[exp.Expr, exp.Expr]:  # fmt: skip
    """The two values of an aggregate that has two."""
    if entry.second == "number":
        return exp.cast(values[0].copy(), "DOUBLE"), exp.cast(values[1].copy(), "DOUBLE")
    if entry.second == "plain":
        return values[0], values[1]
    if time is None:
        raise Fault(f"{entry.name} needs rows that have a time", at, "use min_by or max_by")
    if literals and _LITERALS["ignores"](literals[0]):
        known = exp.Not(this=exp.Paren(this=exp.Is(this=exp.Paren(this=values[0].copy()), expression=exp.Null())))
        return values[0], _where(known, time.copy())
    return values[0], time.copy()


def _struct(pair: Sequence[exp.Expr]) -> exp.Expr:
    named = [part for name, value in zip(PAIR, pair, strict=True) for part in (exp.Literal.string(name), value.copy())]
    return exp.Anonymous(this="named_struct", expressions=named)


def _together(values: Sequence[exp.Expr]) -> exp.Expr:
    """Several values as one; as in SQL, rows where one of them is NULL do not count."""
    named = [part for i, v in enumerate(values) for part in (exp.Literal.string(f"v{i}"), v.copy())]
    known: exp.Expr | None = None
    for value in values:
        each = exp.Not(this=exp.Paren(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())))
        known = each if known is None else exp.And(this=known, expression=each)
    assert known is not None
    return _where(known, exp.Anonymous(this="named_struct", expressions=named))


def _number(node: exp.Expr) -> float | None:
    inner = node.this if isinstance(node, (exp.Paren, exp.Cast)) else node
    negative = isinstance(inner, exp.Neg)
    literal = inner.this if isinstance(inner, exp.Neg) else inner
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    try:
        return -float(literal.this) if negative else float(literal.this)
    except ValueError:
        return None


def _fraction(node: exp.Expr) -> float:
    value = _number(node)
    if value is None:
        raise Fault(
            "the percentage must be a number written in the query", node, "write a literal from 0 to 1, such as 0.95"
        )
    if not 0 <= value <= 1:
        raise Fault(f"the percentage {value:g} is not between 0 and 1", node, "write 0.95 for the 95th percentile")
    return value


def _whole(node: exp.Expr, what: str, most: int) -> float:
    value = _number(node)
    if value is None or value != value // 1 or not 1 <= value <= most:
        raise Fault(f"{what} must be a whole number from 1 to {most} written in the query", node)
    return value


def _deviation(node: exp.Expr) -> float:
    value = _number(node)
    if value is None or not 0 < value <= 0.39:
        raise Fault("the relative deviation must be a number above 0 and at most 0.39", node, "leave it out for 0.023")
    return value


def _ignores(node: exp.Expr) -> float:
    if not isinstance(node, exp.Boolean):
        raise Fault("whether NULLs are ignored is true or false", node, "write first(x, true)")
    return float(node.this)


_LITERALS: dict[str, Callable[[exp.Expr], float]] = {
    "fraction": _fraction,
    "accuracy": lambda node: _whole(node, "accuracy", _MOST_ACCURACY),
    "deviation": _deviation,
    "k": lambda node: _whole(node, "k", _MOST_ITEMS),
    "tracked": lambda node: _whole(node, "k", _MOST_ITEMS),
    "ignores": _ignores,
}


def aggregate_type(call: AggregateCall, argument: DataType | None, parts: Sequence[DataType], at: exp.Expr) -> DataType:
    """Type of an aggregate's result, as Spark has it; raises Fault when its argument, or a part, does not fit."""
    for part in parts or (argument,):
        if part is not None:
            _check_type(call, part, at)
    return DataType(Kind.BIGINT) if argument is None else result_type(call.function, argument)


def _check_type(call: AggregateCall, type_: DataType, at: exp.Expr) -> None:
    name = f"{call.function.upper()}(DISTINCT)" if call.distinct and call.function == "count" else call.function.upper()
    if call.distinct or call.takes in ("plain", "integer"):
        _atomic(type_, name, at)
    if not type_.is_known or type_.kind is Kind.NULL:
        return
    match call.takes:
        case "condition" if type_.kind is not Kind.BOOLEAN:
            raise Fault(f"bool_and and bool_or take a condition, not {type_}", at, "compare the value with something")
        case "integer" if not type_.is_integer:
            raise Fault(f"{name} combines the bits of whole numbers, not of {type_}", at, "CAST it to BIGINT")
        case "number" | "quantity" if not type_.is_numeric and type_.kind is not Kind.STRING:
            if call.takes == "quantity" and type_.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
                return
            raise Fault(f"{call.function.upper()} of {type_} is not a number", at, "CAST it to a numeric type")


def _atomic(type_: DataType, what: str, at: exp.Expr) -> None:
    if type_.is_nested or type_.kind is Kind.INTERVAL:
        raise Fault(f"{what} takes plain values, not {type_}", at, "use a field, an element or to_json(...)")
