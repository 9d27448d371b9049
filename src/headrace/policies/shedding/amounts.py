"""Rates, costs and scores: fractions in worked examples, floats where numbers were measured.

A computation uses one of the two throughout. Fractions make a table exact; floats let numpy do the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOAT_SLACK", "Amount", "Array", "amount", "are_exact", "as_array", "from_json", "slack", "to_json"]

Amount: TypeAlias = Fraction | float
# Of floats, integers, booleans, or of objects that are fractions.
Array: TypeAlias = NDArray[Any]

# Rounding changes a sum of floats by less than this share of its size; no rate is measured as precisely.
FLOAT_SLACK = 1e-9


def amount(value: Amount | int, what: str, *, positive: bool = False) -> Amount:
    """Returns the value, integers as fractions; ValueError if it is negative, infinite, or 0 where `positive`.

    >>> amount(3, "a cost"), amount(0.5, "a cost")
    (Fraction(3, 1), 0.5)
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{what} is a finite number, not {value}")
    else:
        value = Fraction(value)
    if value < 0 or (positive and value == 0):
        raise ValueError(f"{what} is {'more than 0' if positive else '0 or more'}, not {value}")
    return value


def are_exact(values: Iterable[Amount]) -> bool:
    """Whether all values are fractions."""
    return all(isinstance(value, Fraction) for value in values)


def as_array(values: Iterable[Any], exact: bool) -> Array:
    """An array of fractions if `exact`, else of floats."""
    found = list(values)
    if not exact:
        return np.asarray(found, dtype=float)
    array = np.empty(len(found), dtype=object)
    array[:] = [Fraction(value) for value in found]
    return array


def slack(scale: Amount, exact: bool) -> Amount:
    """How much rounding may change a sum of this size; 0 for fractions."""
    return Fraction(0) if exact else FLOAT_SLACK * abs(float(scale))


def to_json(value: Any) -> Any:
    """A float as a number and a fraction as text, the inverse of `from_json`.

    >>> to_json(Fraction(1, 3)), to_json(0.5), from_json("1/3")
    ('1/3', 0.5, Fraction(1, 3))
    """
    return f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else float(value)


def from_json(value: Any) -> Amount:
    """A fraction from text, a float from a number."""
    return Fraction(value) if isinstance(value, str) else float(value)
