"""Conditions of a join that compare an expression of one side with an expression of the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.errors import SpecError
from headrace.language.sql.coercion import common_type
from headrace.language.sql.infer import infer
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, leaves
from headrace.model import DataType, Kind

__all__ = ["Separable", "separable"]

_OPERATORS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Values of these kinds compare in a kernel as they do in Spark when both sides have one kind.
_ALIKE = frozenset(
    {Kind.BOOLEAN, Kind.STRING, Kind.BINARY, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.DECIMAL}
)


@dataclass(frozen=True, slots=True)
class Separable:
    """`left operator right`, each an expression over one side only; both are compared as `type`."""

    left: exp.Expr
    operator: str
    right: exp.Expr
    type: DataType


def separable(
    parts: Sequence[exp.Expr], left: Mapping[Key, DataType], right: Mapping[Key, DataType]
) -> tuple[list[Separable], list[exp.Expr]]:
    """The conditions that compare one side with the other, and those that need both at once."""
    found: list[Separable] = []
    rest: list[exp.Expr] = []
    for part in parts:
        mine = [_compared(low, left, right) for low in _simple(part.unnest())]
        known = [item for item in mine if item is not None]
        if mine and len(known) == len(mine):
            found += known
        else:
            rest.append(part)
    return found, rest


def _simple(part: exp.Expr) -> list[exp.Expr]:
    """A comparison as it is, BETWEEN as two; nothing for any other condition."""
    if isinstance(part, exp.Between):
        low, high = part.args["low"], part.args["high"]
        return [exp.GTE(this=part.this, expression=low), exp.LTE(this=part.this, expression=high)]
    return [part] if type(part) in _OPERATORS else []


def _compared(part: exp.Expr, left: Mapping[Key, DataType], right: Mapping[Key, DataType]) -> Separable | None:
    a, b, operator = part.this, part.expression, _OPERATORS[type(part)]
    if _over(a, right) and _over(b, left):
        a, b, operator = b, a, _TURNED[operator]
    elif not (_over(a, left) and _over(b, right)):
        return None
    try:
        type_ = _type(infer(a, left), infer(b, right))
    except (Fault, SpecError):
        return None
    return None if type_ is None else Separable(a, operator, b, type_)


def _over(node: exp.Expr, columns: Collection[Key]) -> bool:
    keys = leaves(node)
    return bool(keys) and all(key in columns for key in keys)


def _type(a: DataType, b: DataType) -> DataType | None:
    """The type both are compared as, where a kernel and Spark mean the same by it."""
    if (a.is_integer and b.is_integer) or (a.is_float and b.is_float):
        return common_type(a, b)
    if (a.is_integer or a.is_float) and (b.is_integer or b.is_float):
        return DataType(Kind.DOUBLE)
    return a if a == b and a.kind in _ALIKE else None
