"""What was decided for an epoch, and why, as it stands in the decisions log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["EpochDecision", "Flush", "Idle"]


@dataclass(frozen=True, slots=True)
class Idle:
    """A stream that has been silent for long: unless it speaks in this epoch, it does not hold the others back."""

    stream: str
    reason: str


@dataclass(frozen=True, slots=True)
class Flush:
    """The streams have ended for now: every window that holds rows is answered."""

    reason: str


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """All that epoch `epoch` needs beyond its rows, written before anything acts and re-read on replay.

    `wall_us` is the wall time rows are judged by, `seed` what shedding will hash with.
    """

    epoch: int
    batch: int
    wall_us: int
    seed: int
    queries: tuple[str, ...]
    idle: tuple[Idle, ...] = ()
    flush: Flush | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EpochDecision:
        """
        >>> d = EpochDecision(3, 2, 10, 7, ("q",), idle=(Idle("s", "silent for 60 s"),), flush=Flush("--flush"))
        >>> EpochDecision.from_json(d.to_json()) == d
        True
        """
        return cls(
            epoch=value["epoch"],
            batch=value["batch"],
            wall_us=value["wall_us"],
            seed=value["seed"],
            queries=tuple(value["queries"]),
            idle=tuple(Idle(**item) for item in value["idle"]),
            flush=Flush(**value["flush"]) if value["flush"] else None,
        )
