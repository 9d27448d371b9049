"""A number that is learned, and how far it may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Estimate"]

# What the newest sample counts for once there are many: rates drift, so some tens of epochs are remembered.
NEWEST = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of samples of late, their variance, and how many there were; without samples it is a guess.

    >>> known = Estimate.guess(50.0).learn(100.0).learn(110.0)
    >>> known.mean, known.samples, round(known.error, 2)
    (105.0, 2, 3.54)
    """

    mean: float
    variance: float = 0.0
    samples: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean) or not math.isfinite(self.variance) or self.variance < 0 or self.samples < 0:
            raise ValueError(f"an estimate has a finite mean and a variance of 0 or more, not {self}")

    @classmethod
    def guess(cls, value: float) -> Estimate:
        """What is assumed before anything was measured."""
        return cls(value)

    @property
    def is_guess(self) -> bool:
        return self.samples == 0

    @property
    def error(self) -> float:
        """One standard error of the mean; infinite for a guess, of which nothing is known."""
        if self.is_guess:
            return math.inf
        return math.sqrt(self.variance / min(self.samples, 2 / NEWEST - 1))

    def learn(self, sample: float) -> Estimate:
        """The estimate with one more sample; a plain mean of the first ones, then the newest count most."""
        if self.is_guess:
            return Estimate(sample, 0.0, 1)
        weight = max(1 / (self.samples + 1), NEWEST)
        off = sample - self.mean
        return Estimate(self.mean + weight * off, (1 - weight) * (self.variance + weight * off * off), self.samples + 1)
