"""Values of rows as files of cases write them, by the types of their columns."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from headrace.language.pipeline.yaml_nodes import Value
from headrace.model import DataType, Kind

__all__ = ["read_value"]

_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
# How values are written for which YAML has no type.
_FORMS = {
    Kind.DECIMAL: "a number that fits {type}",
    Kind.DATE: "a date such as 2026-01-05",
    Kind.BINARY: "bytes in base64",
    Kind.TIMESTAMP: "a time such as 2026-01-05 12:00:00, in UTC unless it says otherwise",
    Kind.TIMESTAMP_NTZ: "a time such as 2026-01-05 12:00:00, without a zone",
}


class _Other(Exception):
    """A value is not of its column's type; says what is."""


def read_value(value: Value, type_: DataType) -> object:
    """The value as Python has it; None for null, and after noting a problem."""
    if value.content is None:
        return None
    try:
        return _scalar(value, type_) if not type_.is_nested else _nested(value, type_)
    except _Other as other:
        value.wrong(str(other))
        return None


def _scalar(value: Value, type_: DataType) -> object:
    content, kind = value.content, type_.kind
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    if kind in _BITS:
        most = 2 ** (_BITS[kind] - 1)
        return value.whole(-most, most - 1)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        if not is_number:
            raise _Other("a number")
        return float(value.written.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if kind is Kind.BOOLEAN:
        if not isinstance(content, bool):
            raise _Other("true or false")
        return content
    if kind is Kind.STRING:
        return value.scalar_text()
    if not (is_number or isinstance(content, str)):
        raise _Other(_FORMS.get(kind, "a text or a number").format(type=type_))
    # What only Spark knows the type of is compared as it is written.
    return _from_text(value.written, type_) if kind in _FORMS else content


def _from_text(text: str, type_: DataType) -> object:
    try:
        match type_.kind:
            case Kind.DECIMAL:
                return _decimal(text, type_)
            case Kind.DATE:
                return date.fromisoformat(text)
            case Kind.BINARY:
                return base64.b64decode(text, validate=True)
            case Kind.TIMESTAMP:
                when = datetime.fromisoformat(text)
                return when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC)
            case _:
                when = datetime.fromisoformat(text)
                if when.tzinfo is not None:
                    raise ValueError(text)
                return when
    except (ValueError, OverflowError, InvalidOperation, binascii.Error):
        raise _Other(_FORMS[type_.kind].format(type=type_)) from None


def _decimal(text: str, type_: DataType) -> Decimal:
    """A number with no more digits than its type has; ValueError if it has more."""
    number = Decimal(text)
    if not number.is_finite() or abs(number) >= Decimal(10) ** (type_.precision - type_.scale):
        raise ValueError(text)
    step = Decimal(1).scaleb(-type_.scale)
    if number % step:
        raise ValueError(text)
    return number.quantize(step)


def _nested(value: Value, type_: DataType) -> object:
    parts = [field.type for field in type_.fields]
    if type_.kind is Kind.ARRAY:
        if not isinstance(value.content, list):
            raise _Other("a list")
        return [read_value(item, parts[0]) for item in value.content]
    if type_.kind is Kind.STRUCT:
        entries = value.mapping({field.name: str(field.type) for field in type_.fields})
        return {f.name: read_value(entries[f.name], f.type) if f.name in entries else None for f in type_.fields}
    if parts[0].kind is not Kind.STRING:
        raise _Other(f"null: cases have no way to write {type_}, only maps with texts for keys")
    return [(name, read_value(item, parts[1])) for name, item in value.mapping().items()]
