"""A cost with a fixed part and a part per row, learned from epochs of different sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Line"]

# A sample counts half after 23 more: machines and data change within a minute.
MEMORY = 0.97
# While epochs differ by less than this, relatively, nobody can tell the fixed part from the part per row.
LEAST_VARIATION = 0.03
# Of epochs that are all alike, this part of their time is taken to be fixed.
GUESSED_FIXED = 0.5
# Clocks, and what else goes on, make times below this all alike.
LEAST_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class Line:
    """`seconds = fixed + per_row * rows` by least squares over fading sums; neither part is negative.

    Errors are relative, because long epochs are further off in seconds than short ones that say as much.

    >>> line = Line()
    >>> for rows in (100, 300, 200):
    ...     line = line.learn(rows, 0.5 + 0.01 * rows)
    >>> round(line.fixed, 6), round(line.per_row, 6), line.samples
    (0.5, 0.01, 3)
    """

    weight: float = 0.0
    rows: float = 0.0
    squares: float = 0.0
    seconds: float = 0.0
    products: float = 0.0
    off: float = 0.0  # sum of squared relative errors of predictions
    samples: int = 0

    def learn(self, rows: float, seconds: float) -> Line:
        """The line with one more sample."""
        predicted = self.predict(rows)
        scale = max(seconds, LEAST_SECONDS)
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
        )

    def predict(self, rows: float) -> float:
        """Seconds that so many rows take, the fixed part included."""
        fixed, per_row = self._parts
        return fixed + per_row * rows

    @property
    def fixed(self) -> float:
        """Seconds without any rows."""
        return self._parts[0]

    @property
    def per_row(self) -> float:
        """Seconds that one row more takes."""
        return self._parts[1]

    @property
    def error(self) -> float:
        """The usual error of a prediction, relative to it; infinite before the third sample."""
        effective = min(self.samples - 2, 1 / (1 - MEMORY))
        return math.inf if effective < 1 else math.sqrt(self.off / effective)

    @property
    def _parts(self) -> tuple[float, float]:
        if not self.weight:
            return 0.0, 0.0
        mean_rows, mean_s = self.rows / self.weight, self.seconds / self.weight
        if not mean_rows:
            return mean_s, 0.0
        variance = self.squares / self.weight - mean_rows**2
        if variance <= (LEAST_VARIATION * mean_rows) ** 2:
            return GUESSED_FIXED * mean_s, (1 - GUESSED_FIXED) * mean_s / mean_rows
        per_row = (self.products / self.weight - mean_rows * mean_s) / variance
        if per_row < 0:
            return mean_s, 0.0
        fixed = mean_s - per_row * mean_rows
        return (fixed, per_row) if fixed >= 0 else (0.0, self.products / self.squares)
