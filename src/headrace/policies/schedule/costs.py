"""What executions cost on this machine, learned while running from the time they took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from headrace.policies.schedule.groups import Costs

__all__ = ["CostModel", "CostSample", "learn"]

# A sample counts half after 68 more: load and data change within minutes, one odd epoch should not matter.
MEMORY = 0.99
# With predictions off by half, a sample counts half after 12.
FORGETTING = 0.2
# A sample further off than so many times the usual error is taken to be that far off only: pauses are not costs.
MOST_ERRORS = 3.0
# The usual error is not known before so many samples.
FIRST_SAMPLES = 5
# How strongly costs stay what they were, relative to the samples: decides where these say nothing, as when all agree.
INERTIA = 1e-3
# Clocks, and what else goes on, make times below this all alike.
LEAST_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class CostSample:
    """What was executed in a measured epoch: executions, panes and answers in all, and the seconds it took."""

    executions: int
    panes: int
    answers: int
    seconds: float

    def __post_init__(self) -> None:
        if min(self.executions, self.panes, self.answers) < 0:
            raise ValueError(f"counts cannot be negative: {self}")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"an epoch takes some time, not {self.seconds} s")


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs learned so far, none negative, and sums over the samples that fade as new ones come.

    `squares` holds the products of counts with counts row by row, `products` those of counts with seconds, and `error`
    the usual distance of a sample from its prediction, relative to it.
    """

    costs: Costs
    squares: tuple[float, ...] = (0.0,) * 9
    products: tuple[float, ...] = (0.0,) * 3
    error: float = 0.0
    samples: int = 0

    def predict(self, executions: int, panes: int, answers: int) -> float:
        """Seconds that so many executions, panes and answers take together."""
        return self.costs.fixed * executions + self.costs.per_pane * panes + self.costs.per_answer * answers


def learn(model: CostModel, samples: Iterable[CostSample]) -> CostModel:
    """The model after more samples: least squares that forgets, without negative costs, little moved by outliers.

    >>> model = learn(CostModel(Costs(0, 0, 0)), [CostSample(1, 10, 0, 0.3), CostSample(2, 10, 0, 0.5)] * 50)
    >>> round(model.costs.fixed, 3), round(model.costs.per_pane, 3)
    (0.2, 0.01)
    """
    for sample in samples:
        if sample.executions or sample.panes or sample.answers:
            model = _learn_one(model, sample)
    return model


def _learn_one(model: CostModel, sample: CostSample) -> CostModel:
    known = model.samples >= FIRST_SAMPLES
    predicted = model.predict(sample.executions, sample.panes, sample.answers)
    # Long epochs are further off in seconds than short ones, which say as much: errors are relative.
    scale = max(predicted if known else sample.seconds, LEAST_SECONDS)
    counts = (sample.executions / scale, sample.panes / scale, sample.answers / scale)
    off = abs(sample.seconds - predicted) / scale
    # The error may grow again by any factor, step by step, so that lasting changes are followed.
    most = MOST_ERRORS * model.error if known and model.error > 0 else off
    weight = min(1.0, most / off) if off > 0 else 1.0
    # Predictions that have been far off for some time are those of another time: forget faster.
    memory = MEMORY - FORGETTING * min(1.0, model.error) ** 2 if known else 1.0
    squares = tuple(
        memory * old + weight * counts[position // 3] * counts[position % 3]
        for position, old in enumerate(model.squares)
    )
    products = tuple(
        memory * old + weight * count * sample.seconds / scale
        for count, old in zip(counts, model.products, strict=True)
    )
    # Errors fade faster than samples: an average over about ten.
    share = 0.1 if known else 1 / (model.samples + 1)
    error = (1 - share) * model.error + share * min(off, most)
    before = [max(0.0, cost) for cost in (model.costs.fixed, model.costs.per_pane, model.costs.per_answer)]
    fixed, per_pane, per_answer = _least_squares(squares, products, before)
    return CostModel(Costs(fixed, per_pane, per_answer), squares, products, error, model.samples + 1)


def _least_squares(squares: Sequence[float], products: Sequence[float], before: Sequence[float]) -> list[float]:
    """Non-negative costs that fit best and, where many fit alike, are near those `before`.

    With three unknowns each way of holding some at zero can be tried.
    """
    matrix = [[squares[3 * row + column] for column in range(3)] for row in range(3)]
    wanted = list(products)
    for i in range(3):
        pull = INERTIA * matrix[i][i] or 1.0
        matrix[i][i] += pull
        wanted[i] += pull * before[i]
    best, least = list(before), math.inf
    for size in range(3, -1, -1):
        for free in combinations(range(3), size):
            found = _solve([[matrix[i][j] for j in free] for i in free], [wanted[i] for i in free])
            if any(value < 0 for value in found):
                continue
            costs = [0.0, 0.0, 0.0]
            for i, value in zip(free, found, strict=True):
                costs[i] = value
            # At such a point the squared error differs from that of others by the products only.
            error = -sum(cost * want for cost, want in zip(costs, wanted, strict=True))
            if error < least:
                best, least = costs, error
    return best


def _solve(matrix: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Solves a small symmetric positive definite system by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, wanted, strict=True)]
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            for column in range(i, len(row)):
                row[column] -= factor * pivot[column]
    found: list[float] = []
    for i, row in reversed(list(enumerate(rows))):
        known = sum(a * b for a, b in zip(row[i + 1 : -1], found, strict=True))
        found.insert(0, (row[-1] - known) / row[i])
    return found
