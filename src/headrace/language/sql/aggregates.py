"""Reads aggregate calls: COUNT(DISTINCT x) FILTER (WHERE y), PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x), ..."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.language.sql.report import Fault
from headrace.model import DataType, Kind, result_type

__all__ = ["AggregateCall", "aggregate_type", "is_aggregate", "read_aggregate"]

# Spark's name -> the model's name.
_NAMES = {
    "count": "count", "count_if": "count_if", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max",
    "stddev": "stddev_samp", "std": "stddev_samp", "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop",
    "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop",
    "bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "any": "bool_or",
    "median": "median", "percentile": "percentile", "percentile_cont": "percentile",
    "percentile_disc": "percentile_disc",
    "approx_percentile": "approx_percentile", "percentile_approx": "approx_percentile",
    "approx_count_distinct": "approx_count_distinct", "approx_top_k": "approx_top_k",
}  # fmt: skip
# Least and most arguments in parentheses.
_ARGUMENTS = {
    "percentile": (2, 2), "percentile_cont": (1, 1), "percentile_disc": (1, 1), "approx_percentile": (2, 3),
    "percentile_approx": (2, 3), "approx_count_distinct": (1, 2), "approx_top_k": (1, 3),
}  # fmt: skip
_DISTINCT = frozenset({"count", "sum", "avg", "min", "max"})
# Spark's own bound for the accuracy of approx_percentile and for approx_top_k's items.
_MOST_ACCURACY = 2**31 - 1
_MOST_ITEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate as the model names it, over expressions still to be computed by the input."""

    function: str
    argument: exp.Expr | None
    distinct: bool = False
    filter: exp.Expr | None = None
    parameters: tuple[float, ...] = ()
    of_condition: bool = False


def is_aggregate(node: exp.Expr) -> bool:
    """Whether this very node is an aggregate call, with its FILTER or WITHIN GROUP if it has one.

    >>> is_aggregate(exp.Anonymous(this="sum", expressions=[exp.column("x")])), is_aggregate(exp.column("x"))
    (True, False)
    """
    while isinstance(node, (exp.Filter, exp.WithinGroup)):
        node = node.this
    return isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES


def read_aggregate(node: exp.Expr) -> AggregateCall:
    """What an aggregate call asks for; raises Fault.

    >>> read_aggregate(exp.Anonymous(this="count", expressions=[exp.Star()]))
    AggregateCall(function='count', argument=None, distinct=False, filter=None, parameters=(), of_condition=False)
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
    arguments, distinct = _arguments(call, name)
    if any(
        is_aggregate(inner) for part in (*arguments, within, condition) if part is not None for inner in part.walk()
    ):
        raise Fault(
            f"an aggregate inside {name.upper()}", node, "aggregate in one query and read its output as a stream"
        )
    return _read(name, arguments, distinct, condition, within, node)


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


def _arguments(call: exp.Anonymous, name: str) -> tuple[list[exp.Expr], bool]:
    arguments, distinct = list(call.expressions), False
    if arguments and isinstance(arguments[0], exp.Distinct):
        if name == "count" and len(arguments[0].expressions) > 1:
            raise Fault(
                "COUNT(DISTINCT a, b) is not accepted",
                call,
                "write COUNT(DISTINCT concat(length(a), ':', a, b))",
            )
        arguments, distinct = [*arguments[0].expressions, *arguments[1:]], True
        if _NAMES[name] not in _DISTINCT:
            raise Fault(f"{name} does not take DISTINCT", call, "DISTINCT goes with COUNT, SUM and AVG")
    least, most = _ARGUMENTS.get(name, (1, 1))
    if not least <= len(arguments) <= most:
        takes = f"{least}" if least == most else f"{least} to {most}"
        raise Fault(f"{name} takes {takes} argument{'s' * (most > 1)}, not {len(arguments)}", call)
    return arguments, distinct


def _read(
    name: str,
    arguments: list[exp.Expr],
    distinct: bool,
    condition: exp.Expr | None,
    within: exp.Expr | None,
    at: exp.Expr,
) -> AggregateCall:
    function, first = _NAMES[name], arguments[0]
    ordered = name in ("percentile_cont", "percentile_disc")
    if ordered != (within is not None):
        form = f"{name.upper()}(0.5) WITHIN GROUP (ORDER BY x)"
        raise Fault(
            f"{name} {'needs' if ordered else 'does not take'} WITHIN GROUP", at, f"write {form}" if ordered else None
        )
    match function:
        case "count":
            star = isinstance(first, exp.Star)
            if star and distinct:
                raise Fault("COUNT(DISTINCT *) is not accepted", at, "name one column")
            constant = isinstance(first, (exp.Literal, exp.Boolean)) and not distinct
            return AggregateCall("count", None if star or constant else first, distinct, condition)
        case "count_if":
            both = (
                first
                if condition is None
                else exp.And(this=exp.Paren(this=condition), expression=exp.Paren(this=first))
            )
            return AggregateCall("count", None, filter=both)
        case "bool_and" | "bool_or":
            return AggregateCall("min" if function == "bool_and" else "max", first, False, condition, of_condition=True)
        case "median":
            return AggregateCall("percentile", first, False, condition, (0.5,))
        case "percentile" | "percentile_disc":
            argument, fraction = (within, first) if within is not None else (first, arguments[1])
            return AggregateCall(function, argument, False, condition, (_fraction(fraction),))
        case "approx_percentile":
            accuracy = tuple(_whole(item, "accuracy", _MOST_ACCURACY) for item in arguments[2:])
            return AggregateCall(function, first, False, condition, (_fraction(arguments[1]), *accuracy))
        case "approx_count_distinct":
            return AggregateCall(function, first, False, condition, tuple(_deviation(item) for item in arguments[1:]))
        case "approx_top_k":
            numbers = tuple(_whole(item, "k", _MOST_ITEMS) for item in arguments[1:])
            if len(numbers) == 2 and numbers[0] > numbers[1]:
                raise Fault("approx_top_k: k is greater than the number of items tracked", at, "track at least k items")
            return AggregateCall(function, first, False, condition, numbers)
    return AggregateCall(function, first, distinct, condition)


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
    if isinstance(node, (exp.Array, exp.Tuple)) or (isinstance(node, exp.Anonymous) and node.name.lower() == "array"):
        raise Fault(
            "an array of percentages is not accepted", node, "write one call per percentage; they share their work"
        )
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


def aggregate_type(call: AggregateCall, argument: DataType | None, at: exp.Expr) -> DataType:
    """Type of an aggregate's result, as Spark has it; raises Fault when the argument does not fit."""
    if call.function in ("count", "approx_count_distinct"):
        if argument is not None and (call.distinct or call.function != "count"):
            _atomic(argument, f"{call.function.upper()}(DISTINCT)" if call.distinct else call.function, at)
        return DataType(Kind.BIGINT)
    assert argument is not None
    if call.distinct or call.function in ("min", "max", "approx_top_k"):
        _atomic(argument, call.function.upper(), at)
    if call.of_condition and argument.kind not in (Kind.BOOLEAN, Kind.UNKNOWN, Kind.NULL):
        raise Fault(f"bool_and and bool_or take a condition, not {argument}", at, "compare the value with something")
    if call.function in ("min", "max", "approx_top_k"):
        return result_type(call.function, argument)
    if argument.is_known and not argument.is_numeric and argument.kind not in (Kind.NULL, Kind.STRING):
        if call.function == "approx_percentile" and argument.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
            return argument
        raise Fault(f"{call.function.upper()} of {argument} is not a number", at, "CAST it to a numeric type")
    return result_type(call.function, argument)


def _atomic(type_: DataType, what: str, at: exp.Expr) -> None:
    if type_.is_nested or type_.kind is Kind.INTERVAL:
        raise Fault(f"{what} takes plain values, not {type_}", at, "use a field, an element or to_json(...)")
