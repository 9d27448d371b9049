"""What a placement has sites send to each other, as far as those who watch them need it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Crossing", "SitePlan"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bytes per second of event time that one site is to send to another, so many milliseconds away."""

    sender: str
    receiver: str
    bytes_per_s: float
    distance_ms: float

    def __post_init__(self) -> None:
        for number in (self.bytes_per_s, self.distance_ms):
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"what crosses from {self.sender} to {self.receiver} is 0 or more, not {number}")


@dataclass(frozen=True, slots=True)
class SitePlan:
    """The placement that sites were cut by: its strategy, why it is this one, what it has them send, who runs where.

    >>> SitePlan("optimal", crossings=(Crossing("rome", "hub", 80.0, 25.0),)).cost
    2000.0
    """

    strategy: str = ""
    reason: str = ""
    crossings: tuple[Crossing, ...] = ()
    sites: Mapping[str, str] = field(default_factory=dict)  # by part of the placement problem

    @property
    def cost(self) -> float:
        """Bytes per second times milliseconds."""
        return sum(each.bytes_per_s * each.distance_ms for each in self.crossings)
