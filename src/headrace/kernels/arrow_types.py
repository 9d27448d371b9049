"""SQL types as Arrow types, the way Spark writes them."""

from __future__ import annotations

import pyarrow as pa

from headrace.model import DataType, Kind

__all__ = ["arrow_type"]

_SIMPLE = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """
    >>> arrow_type(DataType(Kind.DECIMAL, 10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    if type_.kind in _SIMPLE:
        return _SIMPLE[type_.kind]
    match type_.kind:
        case Kind.DECIMAL:
            return pa.decimal128(type_.precision, type_.scale)
        case Kind.ARRAY:
            return pa.list_(arrow_type(type_.fields[0].type))
        case Kind.STRUCT:
            return pa.struct([(field.name, arrow_type(field.type)) for field in type_.fields])
        case Kind.MAP:
            return pa.map_(*(arrow_type(field.type) for field in type_.fields))
        case _:
            raise ValueError(f"a result cannot have the type {type_}")
