"""Spark's ANSI rules for types that meet: in arithmetic, in comparisons, in CASE."""

from __future__ import annotations

from headrace.model import DataType, Kind

__all__ = ["arithmetic_type", "common_type", "comparable", "decimal_of"]

_ORDER = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
# Digits that every value of an integer type fits in.
_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 20}
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
UNKNOWN = DataType(Kind.UNKNOWN)
DOUBLE = DataType(Kind.DOUBLE)
# Spark gives up digits after the point down to this many before it lets the integral part overflow.
_LEAST_SCALE = 6


def decimal_of(type_: DataType) -> DataType:
    """The decimal that holds every value of an integer or decimal type.

    >>> str(decimal_of(DataType(Kind.INT)))
    'DECIMAL(10,0)'
    """
    return type_ if type_.kind is Kind.DECIMAL else DataType(Kind.DECIMAL, _DIGITS[type_.kind], 0)


def _bounded(precision: int, scale: int) -> DataType:
    if precision <= 38:
        return DataType(Kind.DECIMAL, precision, scale)
    integral = precision - scale
    return DataType(Kind.DECIMAL, 38, max(38 - integral, min(scale, _LEAST_SCALE)))


def _decimal_result(operator: str, a: DataType, b: DataType) -> DataType:
    whole = max(a.precision - a.scale, b.precision - b.scale)
    scale = max(a.scale, b.scale)
    match operator:
        case "+" | "-":
            return _bounded(whole + scale + 1, scale)
        case "*":
            return _bounded(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            fraction = max(_LEAST_SCALE, a.scale + b.precision + 1)
            return _bounded(a.precision - a.scale + b.scale + fraction, fraction)
        case _:
            return _bounded(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def arithmetic_type(operator: str, a: DataType, b: DataType) -> DataType | None:
    """Type of `a operator b` for numbers; None when Spark refuses it.

    >>> str(arithmetic_type("/", DataType(Kind.INT), DataType(Kind.INT)))
    'DOUBLE'
    >>> str(arithmetic_type("*", DataType(Kind.DECIMAL, 10, 2), DataType(Kind.INT)))
    'DECIMAL(21,2)'
    """
    if not (a.is_known and b.is_known):
        return UNKNOWN
    if Kind.NULL in (a.kind, b.kind):
        return b if a.kind is Kind.NULL else a
    if Kind.STRING in (a.kind, b.kind):
        # ANSI casts the string to the other side: a whole number to BIGINT, anything else to DOUBLE.
        other = b if a.kind is Kind.STRING else a
        if other.kind is Kind.STRING or not other.is_numeric:
            return DOUBLE if other.kind is Kind.STRING else None
        text = DataType(Kind.BIGINT) if other.is_integer and operator != "/" else DOUBLE
        return arithmetic_type(operator, other, text)
    if not (a.is_numeric and b.is_numeric):
        return None
    if operator == "div":
        return DataType(Kind.BIGINT)
    if a.is_float or b.is_float:
        floats = a.kind is b.kind is Kind.FLOAT and operator != "/"
        return DataType(Kind.FLOAT) if floats else DOUBLE
    if Kind.DECIMAL in (a.kind, b.kind):
        return _decimal_result(operator, decimal_of(a), decimal_of(b))
    return DOUBLE if operator == "/" else max(a, b, key=lambda t: _ORDER.index(t.kind))


def common_type(a: DataType, b: DataType) -> DataType | None:
    """The type both values take in CASE, COALESCE, UNION ALL; None when there is none.

    >>> str(common_type(DataType(Kind.INT), DataType(Kind.DECIMAL, 5, 2)))
    'DECIMAL(12,2)'
    """
    if not (a.is_known and b.is_known):
        return UNKNOWN
    if a == b or b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    if a.is_numeric and b.is_numeric:
        return _common_number(a, b)
    kinds = {a.kind, b.kind}
    if kinds <= _TIMES:
        return DataType(Kind.TIMESTAMP if Kind.TIMESTAMP in kinds else Kind.TIMESTAMP_NTZ)
    if Kind.STRING in kinds and not (a.is_nested or b.is_nested):
        return _common_with_string(b if a.kind is Kind.STRING else a)
    return UNKNOWN if a.kind is b.kind else None


def _common_number(a: DataType, b: DataType) -> DataType:
    if a.is_float or b.is_float:
        return DataType(Kind.FLOAT) if {a.kind, b.kind} == {Kind.FLOAT} else DOUBLE
    if Kind.DECIMAL in (a.kind, b.kind):
        x, y = decimal_of(a), decimal_of(b)
        scale = max(x.scale, y.scale)
        return _bounded(max(x.precision - x.scale, y.precision - y.scale) + scale, scale)
    return max(a, b, key=lambda t: _ORDER.index(t.kind))


def _common_with_string(other: DataType) -> DataType:
    if other.is_integer:
        return DataType(Kind.BIGINT)
    return DOUBLE if other.is_numeric else other


def comparable(a: DataType, b: DataType) -> bool:
    """Whether Spark compares values of the two types.

    >>> comparable(DataType(Kind.TIMESTAMP), DataType(Kind.STRING))
    True
    >>> comparable(DataType(Kind.INT), DataType(Kind.BOOLEAN))
    False
    """
    return common_type(a, b) is not None
