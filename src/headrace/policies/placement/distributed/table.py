"""What an operator costs at each place: an entry of the paper's "operators mapped" table (section 4.1.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.policies.placement.arrays import Floats, Ints

__all__ = ["Configuration", "Table"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run an operator and everything below it: its place, its inputs' places, and what that costs.

    `delays_ms` is the delay list of section 4.5: for every input the longest path from a source through it to `place`.
    Without a latency bound there is none.
    """

    place: str
    cost: float
    inputs: tuple[str, ...] = ()
    delays_ms: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Table(Mapping[str, Configuration]):
    """The best configuration of an operator at each place; where the cost is infinite there is none.

    `inputs` has a row for every input, with the position of its place by that of the operator's; so has `delays_ms`.

    >>> table = Table.fixed("paris")
    >>> list(table), table["paris"].cost, "rome" in table
    (['paris'], 0.0, False)
    """

    places: tuple[str, ...]
    cost: Floats
    inputs: Ints
    delays_ms: Floats

    @classmethod
    def fixed(cls, place: str) -> Table:
        """The table of a source: it is at one place, and costs nothing there."""
        return cls((place,), np.zeros(1), np.zeros((0, 1), dtype=np.intp), np.zeros((0, 1)))

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {place: number for number, place in enumerate(self.places)}

    @cached_property
    def longest_ms(self) -> Floats:
        """By place the longest path from a source to it."""
        found: Floats = self.delays_ms.max(axis=0, initial=0.0)
        return found

    def over(self, places: Sequence[str]) -> tuple[Floats, Floats]:
        """Cost and longest path at some places, in their order."""
        if places == self.places:
            return self.cost, self.longest_ms
        cost, longest = np.full(len(places), math.inf), np.zeros(len(places))
        shared = [(number, self.position[place]) for number, place in enumerate(places) if place in self.position]
        if shared:
            here, there = np.array(shared).T
            cost[here], longest[here] = self.cost[there], self.longest_ms[there]
        return cost, longest

    def __getitem__(self, place: str) -> Configuration:
        number = self.position[place]
        if math.isinf(self.cost[number]):
            raise KeyError(place)
        inputs = tuple(self.places[at] for at in self.inputs[:, number])
        return Configuration(place, float(self.cost[number]), inputs, tuple(self.delays_ms[:, number].tolist()))

    def __iter__(self) -> Iterator[str]:
        return (place for place, cost in zip(self.places, self.cost.tolist(), strict=True) if not math.isinf(cost))

    def __len__(self) -> int:
        return int(np.isfinite(self.cost).sum())
