"""Ranges of rows combined in a few steps: what cannot be subtracted (minima, maxima, sums of floats, moments)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Integers", "Part", "Tree"]

Integers = NDArray[np.int64]
Part = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Tree:
    """Combined values of blocks of 1, 2, 4, ... neighbouring rows."""

    levels: tuple[Part, ...]
    combine: Callable[[Part, Part], Part]
    identity: tuple[Any, ...]

    @classmethod
    def over(cls, leaves: Part, combine: Callable[[Part, Part], Part], identity: tuple[Any, ...], longest: int) -> Tree:
        """A tree high enough for ranges of up to `longest` rows."""
        levels = [leaves]
        while (1 << len(levels)) <= longest:
            below = levels[-1]
            even = tuple(column[0 : len(column) // 2 * 2 : 2] for column in below)
            odd = tuple(column[1::2] for column in below)
            levels.append(combine(even, odd))
        return cls(tuple(levels), combine, identity)

    def ranges(self, low: Integers, high: Integers) -> Part:
        """The combined values of the rows `low <= row < high`, for each pair."""
        left, right = low.copy(), high.copy()
        found = tuple(
            np.full(len(low), value, column.dtype) for column, value in zip(self.levels[0], self.identity, strict=True)
        )
        for level in self.levels:
            self._take(found, level, left, (left & 1 == 1) & (left < right), after=1)
            self._take(found, level, right, (right & 1 == 1) & (left < right), after=-1)
            left >>= 1
            right >>= 1
        return found

    def _take(self, found: Part, level: Part, at: Integers, mask: NDArray[np.bool_], after: int) -> None:
        """Adds one block to the ranges in the mask: the one at `at`, or the one before it when going down."""
        (chosen,) = np.nonzero(mask)
        if not len(chosen):
            return
        if after < 0:
            at[chosen] -= 1
        blocks = tuple(column[at[chosen]] for column in level)
        if after > 0:
            at[chosen] += 1
        for column, value in zip(found, self.combine(tuple(column[chosen] for column in found), blocks), strict=True):
            column[chosen] = value
