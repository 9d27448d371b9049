"""What rows take: a fixed part, a part for every row that is used, and one for every row that is skipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from headrace.policies.shedding.amounts import Array

__all__ = ["Line"]

# A sample counts half after 23 more: machines and data change within a minute.
MEMORY = 0.97
# Of epochs that are all alike, this part of their time is taken to be fixed.
GUESSED_FIXED = 0.5
# How much that guess weighs beside the epochs: it decides where the rows of these differ by less than 2 per cent, which
# is less than times differ that stand for the same work.
GUESS = 3e-4
# How much the guess weighs that skipped rows take as long as others. It has to be outweighed where after a long
# overload only small differences between epochs are remembered.
GUESS_ALIKE = 1e-5
# Clocks, and what else goes on, make times below this all alike.
LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class Line:
    """`seconds = fixed + per_row * rows + per_skipped * skipped` by least squares over fading sums, no part negative.

    Errors are relative, because long epochs are further off in seconds than short ones that say as much. What epochs
    do not tell apart is guessed: half of the time is fixed, and a skipped row takes as long as any.

    >>> line = Line()
    >>> for rows, skipped in ((100, 0), (300, 0), (200, 800), (200, 100)):
    ...     line = line.learn(rows, 0.5 + 0.01 * rows + 0.001 * skipped, skipped)
    >>> round(line.fixed, 1), round(line.per_row, 3), round(line.per_skipped, 3)
    (0.5, 0.01, 0.001)
    """

    weight: float = 0.0
    rows: float = 0.0
    squares: float = 0.0
    seconds: float = 0.0
    products: float = 0.0
    off: float = 0.0  # sum of squared relative errors of predictions
    samples: int = 0
    skipped: float = 0.0
    both: float = 0.0
    skipped_squares: float = 0.0
    skipped_products: float = 0.0

    def learn(self, rows: float, seconds: float, skipped: float = 0.0) -> Line:
        """The line with one more sample."""
        scale, predicted = max(seconds, LEAST_SECONDS), self.predict(rows, skipped)
        off = 0.0 if self.samples < 2 else min(4.0, ((seconds - predicted) / max(scale, predicted)) ** 2)
        w = 1 / scale**2
        return Line(
            MEMORY * self.weight + w,
            MEMORY * self.rows + w * rows,
            MEMORY * self.squares + w * rows * rows,
            MEMORY * self.seconds + w * seconds,
            MEMORY * self.products + w * rows * seconds,
            MEMORY * self.off + off,
            self.samples + 1,
            MEMORY * self.skipped + w * skipped,
            MEMORY * self.both + w * rows * skipped,
            MEMORY * self.skipped_squares + w * skipped * skipped,
            MEMORY * self.skipped_products + w * skipped * seconds,
        )

    def predict(self, rows: float, skipped: float = 0.0) -> float:
        """Seconds that so many used and skipped rows take, the fixed part included."""
        fixed, per_row, per_skipped = self.parts
        return fixed + per_row * rows + per_skipped * skipped

    @property
    def fixed(self) -> float:
        """Seconds without any rows."""
        return self.parts[0]

    @property
    def per_row(self) -> float:
        """Seconds that one used row more takes."""
        return self.parts[1]

    @property
    def per_skipped(self) -> float:
        """Seconds that one skipped row more takes, no more than a used one."""
        _, per_row, per_skipped = self.parts
        return min(per_row, per_skipped)

    @property
    def error(self) -> float:
        """The usual error of a prediction, relative to it; infinite before the third sample."""
        effective = min(self.samples - 2, 1 / (1 - MEMORY))
        return math.inf if effective < 1 else math.sqrt(self.off / effective)

    @cached_property
    def parts(self) -> tuple[float, float, float]:
        """The fixed part, that of a used row and that of a skipped row."""
        if not self.weight or not self.rows + self.skipped:
            return (self.seconds / self.weight if self.weight else 0.0), 0.0, 0.0
        # In seconds of an epoch with as many rows as epochs have on average, so that all parts are of one size.
        mean_rows, mean_s = (self.rows + self.skipped) / self.weight, self.seconds / self.weight
        scale = np.array([1.0, 1 / mean_rows, 1 / mean_rows])
        matrix = np.array(
            [
                [self.weight, self.rows, self.skipped],
                [self.rows, self.squares, self.both],
                [self.skipped, self.both, self.skipped_squares],
            ]
        )
        matrix = matrix * scale[:, None] * scale[None, :] / self.weight
        wanted = np.array([self.seconds, self.products, self.skipped_products]) * scale / self.weight
        alike = np.array([0.0, 1.0, -1.0])
        matrix += GUESS_ALIKE * np.outer(alike, alike) + np.diag([GUESS, 0.0, 0.0])
        wanted[0] += GUESS * GUESSED_FIXED * mean_s
        fixed, per_row, per_skipped = (_least_squares(matrix, wanted) * scale).tolist()
        return fixed, per_row, per_skipped


def _least_squares(matrix: Array, wanted: Array) -> Array:
    """The minimum of x'Mx - 2w'x among x without a negative part: the best of those with some parts 0."""
    best, least = np.linalg.lstsq(matrix, wanted, rcond=None)[0], 0.0
    if (best >= 0).all():
        return best
    best = np.zeros(len(wanted))
    for count in range(1, len(wanted)):
        for chosen in combinations(range(len(wanted)), count):
            free = list(chosen)
            found = np.zeros(len(wanted))
            found[free] = np.linalg.lstsq(matrix[np.ix_(free, free)], wanted[free], rcond=None)[0]
            value = float(found @ matrix @ found - 2 * wanted @ found)
            if (found >= 0).all() and value < least:
                best, least = found, value
    return best
