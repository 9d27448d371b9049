"""SQL types, as far as the engine must know them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["Column", "DataType", "Kind"]


class Kind(Enum):
    """The kinds of SQL type; UNKNOWN is one that only Spark can judge."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"
    INTERVAL = "INTERVAL"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    NULL = "VOID"
    UNKNOWN = "UNKNOWN"


_INTEGERS = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT})
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})
_NESTED = frozenset({Kind.ARRAY, Kind.MAP, Kind.STRUCT})


@dataclass(frozen=True, slots=True)
class DataType:
    """One SQL type; nested types list their parts in `fields` (an array's element is named 'element').

    >>> str(DataType(Kind.DECIMAL, 10, 2)), str(DataType(Kind.ARRAY, fields=(Column("element", DataType(Kind.INT)),)))
    ('DECIMAL(10,2)', 'ARRAY<INT>')
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    fields: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is Kind.DECIMAL and not 0 <= self.scale <= self.precision <= 38:
            raise ValueError(
                f"DECIMAL({self.precision},{self.scale}) is not a decimal type; 0 <= scale <= precision <= 38"
            )

    @property
    def is_integer(self) -> bool:
        return self.kind in _INTEGERS

    @property
    def is_float(self) -> bool:
        return self.kind in _FLOATS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.kind is Kind.DECIMAL

    @property
    def is_nested(self) -> bool:
        return self.kind in _NESTED

    @property
    def is_void(self) -> bool:
        """Whether it is the type of NULL alone, or holds it: no sink has a column for that."""
        return self.kind is Kind.NULL or any(field.type.is_void for field in self.fields)

    @property
    def is_known(self) -> bool:
        return self.kind is not Kind.UNKNOWN

    def __str__(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"DECIMAL({self.precision},{self.scale})"
            case Kind.ARRAY:
                return f"ARRAY<{self.fields[0].type}>"
            case Kind.MAP:
                return f"MAP<{self.fields[0].type},{self.fields[1].type}>"
            case Kind.STRUCT:
                return f"STRUCT<{','.join(f'{_quoted(field.name)}: {field.type}' for field in self.fields)}>"
            case _:
                return str(self.kind.value)


def _quoted(name: str) -> str:
    """A field's name as types write it: in backticks unless it is a plain word."""
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column."""

    name: str
    type: DataType
