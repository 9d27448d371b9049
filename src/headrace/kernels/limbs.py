"""Sums of wide decimals in two limbs, so that no sum on the way to an answer can overflow.

The digits of a DECIMAL(38, s) fill the 128 bits that hold them: the sum of two such values may already wrap. Split as
`hi * 10^19 + lo`, with `0 <= lo < 10^19`, each limb of the sum of 10^18 values still fits, whatever the values are and
in whatever order they are added, subtracted and merged:

    9999...9 (38 digits)      hi 9999999999999999999    lo 9999999999999999999
    -7                        hi                  -1    lo 9999999999999999993
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

__all__ = ["columns_of_limbs", "fits", "split", "total", "unscaled"]

_BASE = 10**19
_LIMB = pl.Decimal(38, 0)
# A tenth of what 38 digits hold: what is compared with it is rounded to 28 digits.
_ROOM = 10**37


def columns_of_limbs(name: str) -> tuple[str, str]:
    """The columns that hold the limbs of a measure."""
    return f"{name}_hi", f"{name}_lo"


def _base() -> pl.Expr:
    return pl.lit(_BASE, pl.Int128)


def split(column: pl.Expr, name: str) -> list[pl.Expr]:
    """The limbs of each value of a decimal column, as columns of a measure."""
    digits = column.to_physical().cast(pl.Int128)
    hi, lo = columns_of_limbs(name)
    return [(digits // _base()).cast(_LIMB).alias(hi), (digits % _base()).cast(_LIMB).alias(lo)]


def fits(values: pl.Series) -> bool:
    """Whether any sum of these decimals fits, so that they may be added up before they are split."""
    extremes: list[Any] = [values.max(), values.min()]
    scale = getattr(values.dtype, "scale", 0)
    return all(v is None or abs(v).scaleb(scale) * len(values) < _ROOM for v in extremes)


def total(name: str, scale: int) -> pl.Expr:
    """The sum that limbs stand for, as DECIMAL(38, scale); NULL where it has more than 38 digits."""
    high, low = (pl.col(column).cast(pl.Int128) for column in columns_of_limbs(name))
    hi, lo = high + low // _base(), low % _base()
    room = (hi < _BASE) & ((hi > -_BASE) | ((hi == -_BASE) & (lo > 0)))
    digits = pl.when(room).then(hi * _base() + lo).cast(_LIMB)
    return digits.map_batches(lambda found: _scaled(found, scale), return_dtype=pl.Decimal(38, scale))


def _scaled(digits: pl.Series, scale: int) -> pl.Series:
    """The same digits with the point elsewhere."""
    array = digits.to_arrow(compat_level=pl.CompatLevel.oldest())
    moved = pa.Array.from_buffers(pa.decimal128(38, scale), len(array), array.buffers(), offset=array.offset)
    found = pl.from_arrow(moved)
    assert isinstance(found, pl.Series)
    return found.alias(digits.name)


def unscaled(hi: int, lo: int) -> int:
    """The digits of a sum, however many.

    >>> unscaled(-1, 10**19 - 7)
    -7
    """
    return int(hi) * _BASE + int(lo)
