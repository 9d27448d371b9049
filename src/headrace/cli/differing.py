"""What is different between rows that were expected and rows that were found, as lines to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from headrace.model import Row

__all__ = ["difference"]

# Of floats: sums in another order differ in their last digits.
_CLOSE = 1e-9
# Rows that differ in so many lines tell no more than the first of them.
MOST_LINES = 40


def difference(expected: Sequence[Row], found: Sequence[Row]) -> list[str]:
    """Lines that say which rows are missing (-) and which nobody expected (+), each pair together; none if equal.

    Rows are compared in any order, by the columns that expected rows name; without any, no row is expected.

    >>> expected, found = [{"k": "a", "n": 2}, {"k": "b", "n": 1}], [{"k": "b", "n": 1}, {"k": "a", "n": 3}]
    >>> print("\\n".join(difference(expected, found)))
      k  n
    - a  2
    + a  3
    """
    columns = list(expected[0]) if expected else list(found[0]) if found else []
    missing, extra = list(expected), [{name: row[name] for name in columns} for row in found]
    for row in expected:
        same = next((other for other in extra if all(_same(row[name], other[name]) for name in columns)), None)
        if same is not None:
            # By identity: rows may be equal, and NaN is not equal to itself.
            missing = [each for each in missing if each is not row]
            extra = [each for each in extra if each is not same]
    lines: list[tuple[str, Row]] = []
    for row in missing:
        lines.append(("-", row))
        likest = max(extra, key=lambda other: _likeness(row, other), default=None)
        if likest is not None and _likeness(row, likest):
            lines.append(("+", likest))
            extra = [each for each in extra if each is not likest]
    lines += [("+", row) for row in extra]
    return _table(columns, lines) if lines else []


def _likeness(a: Row, b: Row) -> int:
    """How many columns of two rows are the same."""
    return sum(_same(a[name], b[name]) for name in a)


def _same(a: Any, b: Any) -> bool:
    match a, b:
        case (bool(), _) | (_, bool()):
            return a is b
        case float(), float():
            return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE)
        case int() | float() | Decimal(), int() | float() | Decimal():
            return a == b or (not isinstance(a, type(b)) and math.isclose(a, b, rel_tol=_CLOSE))
        case (list(), list()) | (tuple(), tuple()):
            return len(a) == len(b) and all(map(_same, a, b))
        case dict(), dict():
            return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    return bool(a == b)


def _table(columns: Sequence[str], lines: Sequence[tuple[str, Row]]) -> list[str]:
    """Rows below the names of their columns, each after its sign."""
    cells = [[" ", *columns], *([sign, *(_text(row[name]) for name in columns)] for sign, row in lines[:MOST_LINES])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True)) for row in cells]
    shown = [f"{row[0]} {text}".rstrip() for row, text in zip(cells, texts, strict=True)]
    return shown if len(lines) <= MOST_LINES else [*shown, f"and {len(lines) - MOST_LINES} lines more"]


def _text(value: object) -> str:
    """A value as a file of cases writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case datetime():
            return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000")
        case Mapping():
            return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)
