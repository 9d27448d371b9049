"""The points of a table: whole steps along every input, as far apart as an error or a table size allows.

Section 3.2 of the paper, "Determining Spread". A point is identified by its integer steps: adding a spread repeatedly
would lose points to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headrace.policies.shedding.amounts import (
    FLOAT_SLACK,
    Amount,
    Array,
    amount,
    are_exact,
    as_array,
    from_json,
    to_json,
)
from headrace.policies.shedding.fit.steps import same

__all__ = ["Around", "Grid", "spread_by_error", "spread_by_size"]

# A table with more points takes seconds to build and hundreds of megabytes to send.
LARGEST = 1_000_000
# Up to so many points along an input, numpy finds a running maximum faster slice by slice.
MOST_SLICES = 64


@dataclass(frozen=True, eq=False)
class Around:
    """For many rows of rates: the numbers of the points around each, and their weights, one column per row of rates."""

    numbers: Array
    weights: Array

    def blend(self, values: Array) -> Array:
        """Interpolates values that are given per point: one row of results per row of rates."""
        if values.ndim == 1:
            return np.asarray((values[self.numbers] * self.weights).sum(axis=0))
        if values.dtype == object:
            return np.asarray((values[self.numbers] * self.weights[:, :, None]).sum(axis=0))
        return np.asarray(self._matrix(len(values)) @ values)

    def _matrix(self, points: int) -> Any:
        """The weights as a sparse matrix over so many points, made once."""
        # SciPy takes a quarter of a second to import; most commands and runs never shed.
        from scipy.sparse import csr_array

        known = self.__dict__.get("matrix")
        if known is None or known.shape[1] != points:
            each, count = self.numbers.shape
            starts = np.arange(0, each * count + 1, each)
            known = csr_array((self.weights.T.ravel(), self.numbers.T.ravel(), starts), shape=(count, points))
            self.__dict__["matrix"] = known
        return known

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Around):
            return NotImplemented
        return same(self.numbers, other.numbers) and same(self.weights, other.weights)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Grid:
    """Along each input, rates 0, spread, 2 * spread, ... up to a number of steps, in rows per second.

    Points are numbered row by row: the last input varies fastest.
    """

    spreads: tuple[Amount, ...]
    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        spreads = tuple(amount(spread, "a spread", positive=True) for spread in self.spreads)
        object.__setattr__(self, "spreads", spreads)
        object.__setattr__(self, "steps", tuple(self.steps))
        whole = all(isinstance(count, int) and count > 0 for count in self.steps)
        if len(self.spreads) != len(self.steps) or not self.steps or not whole:
            raise ValueError(f"a grid has one step or more along each of its inputs, not {self.steps}")

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Points along each input."""
        return tuple(steps + 1 for steps in self.steps)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How much the number of a point grows with one step along each input."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @cached_property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(self.shape)

    @cached_property
    def exact(self) -> bool:
        """Whether the spreads are fractions."""
        return are_exact(self.spreads)

    @cached_property
    def most(self) -> tuple[Amount, ...]:
        """The highest rate along each input."""
        return tuple(spread * steps for spread, steps in zip(self.spreads, self.steps, strict=True))

    @cached_property
    def falls(self) -> tuple[bool, ...]:
        """Along which inputs the diagonal falls that cuts cells into simplices; along the others it rises.

        Inputs compete for capacity, so points that have more of one input and less of another are worth the most.
        """
        return tuple(axis % 2 == 1 for axis in range(len(self.steps)))

    @cached_property
    def points(self) -> Array:
        """The rates of all points, one row per point."""
        numbers: Array = np.indices(self.shape).reshape(len(self.shape), -1).T
        found = (numbers.astype(object) if self.exact else numbers) * as_array(self.spreads, self.exact)
        found.setflags(write=False)
        return np.asarray(found)

    def around(self, rates: Array) -> Around:
        """For each row of rates the points around it, and the weights with which these points add up to the rates.

        Each cell is cut into simplices along one diagonal (Kuhn's triangulation), so one point more than there are
        inputs is enough. Rates beyond the grid count as its edge.
        """
        exact = rates.dtype == object and self.exact
        scaled = np.minimum(rates / as_array(self.spreads, exact), as_array(self.steps, exact))
        if not exact:
            scaled = scaled.astype(float)
            near = np.rint(scaled)
            # Rates that differ from a point by rounding only are that point.
            scaled = np.where(np.abs(scaled - near) <= FLOAT_SLACK * np.maximum(1.0, near), near, scaled)
        low = np.minimum(np.floor(scaled).astype(int), np.asarray(self.steps) - 1)
        falls, strides = np.asarray(self.falls), np.asarray(self.strides)
        part = scaled - low.astype(scaled.dtype)
        part = np.where(falls, 1 - part, part)
        order = np.argsort(-part, axis=1, kind="stable")
        part = np.take_along_axis(part, order, axis=1)
        numbers = np.empty((len(strides) + 1, len(rates)), dtype=int)
        numbers[0] = low @ strides + strides[falls].sum()
        numbers[1:] = numbers[0] + np.cumsum(np.where(falls, -strides, strides)[order], axis=1).T
        weights = np.empty(numbers.shape, dtype=part.dtype)
        weights[0] = 1 - part[:, 0]
        weights[1:-1] = (part[:, :-1] - part[:, 1:]).T
        weights[-1] = part[:, -1]
        return Around(numbers, weights)

    def points_around(self, rates: Sequence[Amount]) -> list[tuple[int, Amount]]:
        """The points around one row of rates and their weights, as `around`, faster for a single row."""
        number, way = 0, list[tuple[Amount, int]]()
        for rate, spread, steps, stride, falls in zip(
            rates, self.spreads, self.steps, self.strides, self.falls, strict=True
        ):
            scaled = _snapped(min(rate / spread, steps))
            low = min(math.floor(scaled), steps - 1)
            part = scaled - low
            number += (low + falls) * stride
            way.append((1 - part, -stride) if falls else (part, stride))
        way.sort(reverse=True)
        found: list[tuple[int, Amount]] = []
        left: Amount = 1
        for part, stride in [*way, (0, 0)]:
            if left > part:
                found.append((number, left - part))
            number, left = number + stride, part
        return found

    def point_below(self, rates: Sequence[Amount]) -> int:
        """The number of the highest point that exceeds no rate."""
        given = zip(rates, self.spreads, self.steps, self.strides, strict=True)
        return sum(min(math.floor(_snapped(rate / spread)), steps) * stride for rate, spread, steps, stride in given)

    def best_below(self, values: Array, fixed: Sequence[bool] | Array = ()) -> Array:
        """For every point the number of the best point at or below it, for several rows of values at once.

        Along inputs that are `fixed` only points with the same rate count. Of equal points the one with the most
        rows is taken. A running maximum along one input after the other finds all of them.

        >>> Grid((1.0,), (3,)).best_below(np.array([[0.0, 5.0, 1.0, 3.0]])).tolist()
        [[0, 1, 1, 1]]
        """
        bits = (self.size - 1).bit_length()
        ranks = _ranks(values, bits)
        best = (ranks | np.arange(self.size, dtype=ranks.dtype)).reshape(len(values), *self.shape)
        for axis, count in enumerate(self.shape):
            if axis < len(fixed) and fixed[axis]:
                continue
            if count > MOST_SLICES:
                np.maximum.accumulate(best, axis=axis + 1, out=best)
                continue
            slices = np.moveaxis(best, axis + 1, 0)
            for step in range(1, count):
                np.maximum(slices[step], slices[step - 1], out=slices[step])
        return np.asarray((best & ((1 << bits) - 1)).reshape(len(values), -1), dtype=int)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        return {"spreads": [to_json(spread) for spread in self.spreads], "steps": list(self.steps)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Grid:
        """
        >>> Grid.from_json(Grid((0.5,), (4,)).to_json())
        Grid(spreads=(0.5,), steps=(4,))
        """
        return cls(tuple(map(from_json, value["spreads"])), tuple(value["steps"]))


def _ranks(values: Array, bits: int) -> Array:
    """Integers in the order of each row of values, whose lowest bits are 0 and free for the number of a point.

    Fractions are brought to a common denominator. Floats of 0 or more are in the order of their bit patterns; a million
    points leave 32 bits of their mantissa.
    """
    if values.dtype == object:
        return np.stack([_numerators(row) << bits for row in values])
    positive = np.asarray(values, dtype=float) - values.min(axis=1, keepdims=True)
    return np.asarray(positive.view(np.int64) >> bits << bits)


def _numerators(row: Array) -> Array:
    common = math.lcm(*(value.denominator for value in row))
    return np.array([value.numerator * (common // value.denominator) for value in row], dtype=object)


def _snapped(scaled: Amount) -> Amount:
    """A number of steps; a float that differs from a whole number by rounding only becomes that number."""
    if not isinstance(scaled, float):
        return scaled
    near = round(scaled)
    return near if abs(scaled - near) <= FLOAT_SLACK * max(1, near) else scaled


def spread_by_error(most: Sequence[Amount], gains: Sequence[Amount], error: Amount) -> Grid:
    """Points so close that no rates are worth more than the point below them by more than an error.

    `most` is the highest useful rate of each input, `gains` the most that a row of it adds to the worth. Every input
    gets an equal part of the error, so the spread of an input is error / (inputs * gain).

    >>> from fractions import Fraction as F
    >>> spread_by_error((F(1, 3), F(1)), (F(1, 2), F(1)), F(1, 10)).spreads
    (Fraction(1, 10), Fraction(1, 20))
    """
    error = amount(error, "the largest error of a table", positive=True)
    spreads = [error / (len(most) * gain) if gain else high for high, gain in zip(most, gains, strict=True)]
    steps = [max(1, math.ceil(high / spread)) for high, spread in zip(most, spreads, strict=True)]
    if (size := math.prod(count + 1 for count in steps)) > LARGEST:
        raise ValueError(
            f"an error of {float(error):.3g} takes a table of {size:.3g} points, more than {LARGEST}; "
            "ask for a larger error or for a table size"
        )
    return Grid(tuple(spreads), tuple(steps))


def spread_by_size(most: Sequence[Amount], gains: Sequence[Amount], size: int) -> Grid:
    """At most `size` points, with errors along the inputs as equal as whole steps allow.

    An input that gains anything has two steps or more, if there is room for them: with one step, a table would not show
    that the first rows of an input gain more than the last.

    >>> spread_by_size((1.0, 1.0), (1.0, 3.0), 100).steps
    (5, 15)
    """
    if size < 2 ** len(most):
        raise ValueError(f"a table of {len(most)} inputs has {2 ** len(most)} points or more, not {size}")
    errors = [float(high * gain) for high, gain in zip(most, gains, strict=True)]

    fewest = [2 if each and size >= 3 ** len(errors) else 1 for each in errors]

    def steps_at(error: float) -> list[int]:
        return [max(least, int(each / error)) for least, each in zip(fewest, errors, strict=True)]

    # The error of a step lies between that of a table with `size` steps along one input and that of one step each.
    high = max(errors) or 1.0
    low = high / size
    while high > low * (1 + 0.1 / size):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if math.prod(n + 1 for n in steps_at(middle)) <= size else (middle, high)
    steps = steps_at(high)
    while True:
        # Rounding down leaves room for more points: they go where the error is largest.
        room = [n for n in range(len(steps)) if math.prod(s + 1 + (n == k) for k, s in enumerate(steps)) <= size]
        room = [n for n in room if errors[n] > 0]
        if not room:
            break
        steps[max(room, key=lambda n: (errors[n] / steps[n], -n))] += 1
    return Grid(tuple(high / count for high, count in zip(most, steps, strict=True)), tuple(steps))
