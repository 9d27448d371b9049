"""Result types of aggregates, as Spark has them."""

from __future__ import annotations

from headrace.model.types import Column, DataType, Kind

__all__ = ["result_type"]

_BIGINT = DataType(Kind.BIGINT)
_DOUBLE = DataType(Kind.DOUBLE)


def result_type(function: str, argument: DataType) -> DataType:
    """
    >>> str(result_type("sum", DataType(Kind.DECIMAL, 10, 2))), str(result_type("avg", DataType(Kind.INT)))
    ('DECIMAL(20,2)', 'DOUBLE')
    """
    match function:
        case "count" | "approx_count_distinct":
            return _BIGINT
        case "min" | "max":
            return argument
        case "approx_percentile" if argument.is_numeric or not argument.is_known:
            return argument
        case "approx_top_k":
            item = DataType(Kind.STRUCT, fields=(Column("item", argument), Column("count", _BIGINT)))
            return DataType(Kind.ARRAY, fields=(Column("element", item),))
        case "sum" | "avg" if not argument.is_known:
            return argument
        case "sum" if argument.is_integer:
            return _BIGINT
        case "sum" if argument.kind is Kind.DECIMAL:
            return DataType(Kind.DECIMAL, min(38, argument.precision + 10), argument.scale)
        case "avg" if argument.kind is Kind.DECIMAL:
            return DataType(Kind.DECIMAL, min(38, argument.precision + 4), min(38, argument.scale + 4))
        case _:
            return _DOUBLE
