"""A case of a pipeline's tests: rows that come in, and the results that are expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Case", "Row"]

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """What one test of a pipeline says; values are of Python's types for the columns' SQL types, NULL is None.

    rows     by stream its epochs, each the rows that come in it, and by table all its rows, as one
    expected by query its results, in any order; only the columns that they name are compared
    """

    name: str
    rows: Mapping[str, tuple[tuple[Row, ...], ...]]
    expected: Mapping[str, tuple[Row, ...]]
