"""Spark DDL to columns: `ts TIMESTAMP, tags ARRAY<STRING>, s STRUCT<a: INT>`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.language.suggest import nearest
from headrace.model import Column, DataType, Kind

__all__ = ["parse_schema", "parse_type"]

# A schema longer or deeper than this is an accident or an attack, not a stream.
MOST_CHARACTERS = 100_000
MOST_LEVELS = 50

_SIMPLE = {
    "BOOLEAN": Kind.BOOLEAN, "TINYINT": Kind.TINYINT, "BYTE": Kind.TINYINT, "SMALLINT": Kind.SMALLINT,
    "SHORT": Kind.SMALLINT, "INT": Kind.INT, "INTEGER": Kind.INT, "BIGINT": Kind.BIGINT, "LONG": Kind.BIGINT,
    "FLOAT": Kind.FLOAT, "REAL": Kind.FLOAT, "DOUBLE": Kind.DOUBLE, "STRING": Kind.STRING, "BINARY": Kind.BINARY,
    "DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP, "TIMESTAMP_LTZ": Kind.TIMESTAMP,
    "TIMESTAMP_NTZ": Kind.TIMESTAMP_NTZ, "VOID": Kind.NULL, "VARIANT": Kind.UNKNOWN,
}  # fmt: skip
_PARAMETRIC = ("DECIMAL", "DEC", "NUMERIC", "VARCHAR", "CHAR", "ARRAY", "MAP", "STRUCT", "INTERVAL")
_INTERVAL_WORDS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO"})
_WORD = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<word>\w+)|(?P<sign>[<>(),:]))")


class _Reader:
    """Tokens of a DDL text, one ahead."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a schema of {len(text)} characters; the most is {MOST_CHARACTERS}")
        self.text = text
        self._items = list(self._scan())
        self._next = 0

    def _scan(self) -> Iterator[tuple[str, str]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _WORD.match(self.text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"unexpected {self.text[position:].strip()[:20]!r} in the schema")
            yield match.lastgroup, match.group(match.lastgroup)
            position = match.end()

    @property
    def peek(self) -> str:
        return self._items[self._next][1] if self._next < len(self._items) else ""

    @property
    def peek_kind(self) -> str:
        return self._items[self._next][0] if self._next < len(self._items) else ""

    def take(self) -> str:
        value = self.peek
        self._next += 1
        return value

    def accept(self, word: str) -> bool:
        if self.peek.upper() != word or self.peek_kind == "quoted":
            return False
        self._next += 1
        return True

    def expect(self, sign: str, after: str) -> None:
        if not self.accept(sign):
            raise ValueError(f"expected '{sign}' after {after}, found {self.peek or 'the end'!r}")


def _name(reader: _Reader) -> str:
    kind, value = reader.peek_kind, reader.take()
    if kind == "quoted":
        if "``" in value:
            raise ValueError(f"a column name cannot hold a backquote: {value}")
        return value[1:-1]
    if kind != "word":
        raise ValueError(f"expected a column name, found {value or 'the end'!r}; write 'name TYPE, name TYPE'")
    return value


def _decimal(reader: _Reader) -> DataType:
    if not reader.accept("("):
        return DataType(Kind.DECIMAL, 10, 0)
    numbers = [reader.take()]
    while reader.accept(","):
        numbers.append(reader.take())
    reader.expect(")", "the precision of DECIMAL")
    if len(numbers) > 2 or not all(number.isdecimal() and len(number) <= 2 for number in numbers):
        raise ValueError(f"DECIMAL({','.join(numbers)}) is not a decimal type; write DECIMAL(precision, scale)")
    return DataType(Kind.DECIMAL, int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 0)


def _type(reader: _Reader, owner: str, level: int = 0) -> DataType:
    if level > MOST_LEVELS:
        raise ValueError(f"{owner}: types nested deeper than {MOST_LEVELS} levels")
    word = reader.take()
    upper = word.upper()
    if upper in _SIMPLE:
        return DataType(_SIMPLE[upper])
    match upper:
        case "DECIMAL" | "DEC" | "NUMERIC":
            return _decimal(reader)
        case "VARCHAR" | "CHAR":
            reader.expect("(", upper)
            reader.take()
            reader.expect(")", upper)
            return DataType(Kind.STRING)
        case "INTERVAL":
            while reader.peek.upper() in _INTERVAL_WORDS:
                reader.take()
            return DataType(Kind.INTERVAL)
        case "ARRAY":
            reader.expect("<", "ARRAY")
            element = _type(reader, owner, level + 1)
            reader.expect(">", "the element type of ARRAY")
            return DataType(Kind.ARRAY, fields=(Column("element", element),))
        case "MAP":
            reader.expect("<", "MAP")
            key = _type(reader, owner, level + 1)
            reader.expect(",", "the key type of MAP")
            value = _type(reader, owner, level + 1)
            reader.expect(">", "the value type of MAP")
            return DataType(Kind.MAP, fields=(Column("key", key), Column("value", value)))
        case "STRUCT":
            reader.expect("<", "STRUCT")
            fields = () if reader.peek == ">" else _fields(reader, level + 1)
            reader.expect(">", "the fields of STRUCT")
            return DataType(Kind.STRUCT, fields=fields)
    if not word:
        raise ValueError(f"{owner} has no type; write '{owner} STRING'")
    raise ValueError(f"{owner}: unknown type '{word}'; {nearest(word, (*_SIMPLE, *_PARAMETRIC))}")


def _fields(reader: _Reader, level: int) -> tuple[Column, ...]:
    columns: list[Column] = []
    while True:
        name = _name(reader)
        reader.accept(":")
        columns.append(Column(name, _type(reader, name, level)))
        if reader.accept("NOT"):
            reader.expect("NULL", "NOT")
        if reader.accept("COMMENT"):
            reader.take()
        if not reader.accept(","):
            break
    seen: dict[str, str] = {}
    for column in columns:
        if column.name.lower() in seen:
            raise ValueError(f"column '{column.name}' is declared twice; Spark ignores case in names")
        seen[column.name.lower()] = column.name
    return tuple(columns)


def parse_type(text: str) -> DataType:
    """One Spark type; raises ValueError.

    >>> str(parse_type("map<string, array<decimal(10,2)>>"))
    'MAP<STRING,ARRAY<DECIMAL(10,2)>>'
    """
    reader = _Reader(text)
    found = _type(reader, "the type")
    if reader.peek:
        raise ValueError(f"unexpected {reader.peek!r} after the type {found}")
    return found


def parse_schema(text: str) -> tuple[Column, ...]:
    """Columns of a Spark DDL schema; raises ValueError with what was expected.

    >>> [f"{c.name} {c.type}" for c in parse_schema("ts TIMESTAMP, s STRUCT<a: INT>, amount DECIMAL(10,2) NOT NULL")]
    ['ts TIMESTAMP', 's STRUCT<a: INT>', 'amount DECIMAL(10,2)']
    >>> parse_schema("a INTT")
    Traceback (most recent call last):
    ...
    ValueError: a: unknown type 'INTT'; did you mean 'INT'? (BOOLEAN, TINYINT, BYTE, SMALLINT, SHORT, INT, INTEGER, \
BIGINT, LONG, FLOAT, REAL, DOUBLE and 17 more)
    """
    reader = _Reader(text)
    if not reader.peek:
        raise ValueError("the schema is empty; write 'name TYPE, name TYPE'")
    columns = _fields(reader, 0)
    if reader.peek:
        raise ValueError(
            f"unexpected {reader.peek!r} after column '{columns[-1].name}'; columns are separated by commas"
        )
    return columns
