"""How far sites are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Network"]


@dataclass(frozen=True, slots=True)
class Network:
    """Sites and the one-way milliseconds between each two of them, along the shortest path.

    >>> Network(("paris", "hub"), ((0.0, 12.0), (12.0, 0.0))).distance_ms("paris", "hub")
    12.0
    """

    sites: tuple[str, ...]
    latency_ms: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if len(set(self.sites)) != len(self.sites):
            raise ValueError("two sites have the same name")
        if len(self.latency_ms) != len(self.sites) or any(len(row) != len(self.sites) for row in self.latency_ms):
            raise ValueError(f"latencies of {len(self.sites)} sites are as many rows of as many numbers")
        for site, row in zip(self.sites, self.latency_ms, strict=True):
            wrong = next((ms for ms in row if not (math.isfinite(ms) and ms >= 0)), None)
            if wrong is not None:
                raise ValueError(f"a latency of site '{site}' is {wrong}; it must be 0 or more")

    def position(self, site: str) -> int:
        """Where a site stands among all of them; KeyError if there is none of that name."""
        try:
            return self.sites.index(site)
        except ValueError:
            raise KeyError(site) from None

    def distance_ms(self, a: str, b: str) -> float:
        return self.latency_ms[self.position(a)][self.position(b)]

    def path_ms(self, route: Sequence[str]) -> float:
        """The time from the first site of a route to its last."""
        return sum(self.distance_ms(a, b) for a, b in pairwise(route))
