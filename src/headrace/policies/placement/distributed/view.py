"""What someone knows of the network: the distances between some places, as far as they were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headrace.policies.placement.arrays import Floats

__all__ = ["View", "completed"]


@dataclass(frozen=True, eq=False)
class View:
    """Milliseconds from each place to each other; infinite where nobody has measured.

    >>> paris = View.of({("paris", "hub"): 12.0, ("hub", "paris"): 12.0})
    >>> both = paris.merged([View.of({("rome", "hub"): 25.0, ("hub", "rome"): 25.0})])
    >>> both.over(["paris", "rome", "hub"]).tolist()
    [[0.0, inf, 12.0], [inf, 0.0, 25.0], [12.0, 25.0, 0.0]]
    """

    places: tuple[str, ...] = ()
    ms: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, distances: Mapping[tuple[str, str], float]) -> View:
        """The view of one who has measured these, each from its first place to its second."""
        places = tuple(dict.fromkeys(place for pair in distances for place in pair))
        position = {place: number for number, place in enumerate(places)}
        ms = _unknown(len(places))
        for (a, b), apart in distances.items():
            ms[position[a], position[b]] = apart
        return cls(places, ms)

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {place: number for number, place in enumerate(self.places)}

    def merged(self, others: Iterable[View]) -> View:
        """All that this view and others know."""
        views = [self, *others]
        position = dict(self.position)
        for view in views:
            for place in view.places:
                position.setdefault(place, len(position))
        ms = _unknown(len(position))
        for view in views:
            rows = np.array([position[place] for place in view.places], dtype=np.intp)
            cells = rows[:, None], rows
            ms[cells] = np.minimum(ms[cells], view.ms)
        return View(tuple(position), ms)

    def over(self, places: Sequence[str]) -> Floats:
        """The distances between some places, in their order."""
        ms = _unknown(len(places))
        known = [(number, self.position[place]) for number, place in enumerate(places) if place in self.position]
        if known:
            here, there = np.array(known).T
            ms[here[:, None], here] = self.ms[there[:, None], there]
        return ms


def _unknown(size: int) -> Floats:
    ms = np.full((size, size), math.inf)
    np.fill_diagonal(ms, 0.0)
    return ms


def completed(ms: Floats) -> Floats:
    """Distances with those that nobody has measured bounded by the shortest way over measured ones.

    >>> completed(np.array([[0.0, 12.0, np.inf], [12.0, 0.0, 25.0], [np.inf, 25.0, 0.0]])).tolist()
    [[0.0, 12.0, 37.0], [12.0, 0.0, 25.0], [37.0, 25.0, 0.0]]
    """
    unknown = np.isinf(ms)
    if not unknown.any():
        return ms
    shortest = ms.copy()
    for middle in range(len(ms)):
        np.minimum(shortest, shortest[:, middle, None] + shortest[middle], out=shortest)
    return np.where(unknown, shortest, ms)
