"""Means and sums of powers of deviations, as measures that merge (Chan, Golub, LeVeque 1979; Pébay 2008).

    moments     n, mean, m2                          deviation and variance
    shape       n, mean, m2, m3, m4                  skewness and kurtosis
    comoments   n, mean, m2, mean_y, m2_y, c         covariance, correlation, regression; x and y of a pair

They are stable where sums of powers are not: all are about the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace.kernels.trees import Part
from headrace.model import PAIR

__all__ = ["MOMENTS", "columns_of_moments", "merge_parts", "merged_moments", "moments_of", "moments_of_row"]

# Kind of measure -> its columns, of which the first counts values and the others are numbers.
MOMENTS: dict[str, tuple[str, ...]] = {
    "moments": ("n", "mean", "m2"),
    "shape": ("n", "mean", "m2", "m3", "m4"),
    "comoments": ("n", "mean", "m2", "mean_y", "m2_y", "c"),
}


def columns_of_moments(name: str, kind: str) -> tuple[str, ...]:
    """The columns of one measure."""
    return tuple(f"{name}_{part}" for part in MOMENTS[kind])


def _pair(column: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """x and y of the pairs that have both: SQL names y first."""
    y, x = (column.struct.field(field).cast(pl.Float64) for field in PAIR)
    both = x.is_not_null() & y.is_not_null()
    return pl.when(both).then(x), pl.when(both).then(y)


def _mean(x: pl.Expr) -> pl.Expr:
    """The mean of values; of equal ones it is that value, to the last bit."""
    return pl.when(x.min() == x.max()).then(x.min()).otherwise(x.mean())


def moments_of(column: pl.Expr, name: str, kind: str) -> list[pl.Expr]:
    """The columns of a measure over the rows of a group."""
    if kind == "moments":
        x = column.cast(pl.Float64)
        found = [x.count(), x.mean(), x.var(ddof=0) * x.count()]
    elif kind == "shape":
        x = column.cast(pl.Float64)
        found = [x.count(), _mean(x), *(_sum(x, (x - _mean(x)) ** power) for power in (2, 3, 4))]
    else:
        x, y = _pair(column)
        dx, dy = x - _mean(x), y - _mean(y)
        found = [x.count(), _mean(x), _sum(x, dx**2), _mean(y), _sum(x, dy**2), _sum(x, dx * dy)]
    return _named([found[0].cast(pl.Int64), *found[1:]], name, kind)


def _sum(x: pl.Expr, of: pl.Expr) -> pl.Expr:
    return pl.when(x.count() > 0).then(of.sum())


def moments_of_row(column: pl.Expr, name: str, kind: str) -> list[pl.Expr]:
    """The columns of a measure over each row by itself."""
    x, y = _pair(column) if kind == "comoments" else (column.cast(pl.Float64), pl.lit(None))
    # What is infinite or no number has no deviation either.
    zero, zero_y = (x * 0.0).abs(), (y * 0.0).abs()
    parts = {"mean": x, "mean_y": y, "m2_y": zero_y, "c": zero + zero_y}
    known = x.is_not_null().cast(pl.Int64)
    return _named([known, *(parts.get(part, zero) for part in MOMENTS[kind][1:])], name, kind)


def merged_moments(name: str, kind: str) -> list[pl.Expr]:
    """The columns of a measure over the parts of a group."""
    n, *rest = (pl.col(column) for column in columns_of_moments(name, kind))
    part = dict(zip(MOMENTS[kind][1:], rest, strict=True))
    mean, m2 = part["mean"], part["m2"]
    center = _center(n, mean, exact=kind != "moments")
    d = mean - center
    found = {"mean": center, "m2": m2.sum() + (n * d**2).sum()}
    if kind == "shape":
        found["m3"] = (part["m3"] + 3 * d * m2 + n * d**3).sum()
        found["m4"] = (part["m4"] + 4 * d * part["m3"] + 6 * d**2 * m2 + n * d**4).sum()
    elif kind == "comoments":
        center_y = _center(n, part["mean_y"], exact=True)
        e = part["mean_y"] - center_y
        found |= {"mean_y": center_y, "m2_y": (part["m2_y"] + n * e**2).sum(), "c": (part["c"] + n * d * e).sum()}
    values = [found[column] for column in MOMENTS[kind][1:]]
    if kind != "moments":
        values = [pl.when(n.sum() > 0).then(value) for value in values]
    return _named([n.sum(), *values], name, kind)


def _center(n: pl.Expr, mean: pl.Expr, exact: bool) -> pl.Expr:
    center = (n * mean).sum() / n.sum()
    if exact:
        center = pl.when(mean.min() == mean.max()).then(mean.min()).otherwise(center)
    return pl.when(n.sum() > 0).then(center)


def _named(values: Sequence[pl.Expr], name: str, kind: str) -> list[pl.Expr]:
    return [value.alias(column) for value, column in zip(values, columns_of_moments(name, kind), strict=True)]


def merge_parts(kind: str, a: Part, b: Part) -> Part:
    """The measure of two sets together, each a count and numbers that are 0 where it counts nothing."""
    one, other = dict(zip(MOMENTS[kind], a, strict=True)), dict(zip(MOMENTS[kind], b, strict=True))
    n = one["n"] + other["n"]
    size = np.maximum(n, 1)
    share = other["n"] / size
    either = (one["n"] == 0) | (other["n"] == 0)
    d = other["mean"] - one["mean"]
    found: dict[str, NDArray[Any]] = {"n": n, "mean": _middle(one, other, "mean", share)}

    def joined(column: str, extra: NDArray[Any]) -> None:
        found[column] = one[column] + other[column] + np.where(either, 0.0, extra)

    joined("m2", d * d * one["n"] * share)
    if kind == "shape":
        p, q = one["n"], other["n"]
        joined("m3", d**3 * p * share * (p - q) / size + 3 * d * (p * other["m2"] - q * one["m2"]) / size)
        fourth = d**4 * p * share * (p * p - p * q + q * q) / size**2
        second = 6 * d * d * (p * p * other["m2"] + q * q * one["m2"]) / size**2
        joined("m4", fourth + second + 4 * d * (p * other["m3"] - q * one["m3"]) / size)
    elif kind == "comoments":
        e = other["mean_y"] - one["mean_y"]
        found["mean_y"] = _middle(one, other, "mean_y", share)
        joined("m2_y", e * e * one["n"] * share)
        joined("c", d * e * one["n"] * share)
    return tuple(found[column] for column in MOMENTS[kind])


def _middle(one: dict[str, Any], other: dict[str, Any], column: str, share: NDArray[Any]) -> NDArray[Any]:
    apart = other[column] - one[column]
    between = np.where(one["n"] == 0, other[column], one[column] + apart * share)
    found: NDArray[Any] = np.where(other["n"] == 0, one[column], between)
    return found
