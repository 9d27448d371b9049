"""What becomes of mini-partitions: they move, stay, are shared or are left alone."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Isolate", "Move", "Split", "Stay"]


@dataclass(frozen=True, slots=True)
class Move:
    """A mini-partition, with its state, goes from one bin to another."""

    mini: int
    source: int
    target: int
    state_bytes: int
    reason: str

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ValueError(f"mini-partition {self.mini} is in bin {self.source} already")


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing moves."""

    reason: str


@dataclass(frozen=True, slots=True)
class Split:
    """Several bins share the work of one mini-partition; the first of them owns it."""

    mini: int
    bins: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        if len(set(self.bins)) != len(self.bins) or len(self.bins) < 2:
            raise ValueError(f"work is shared by two or more different bins, not by {self.bins}")


@dataclass(frozen=True, slots=True)
class Isolate:
    """A mini-partition that no bin can keep up with has a bin to itself."""

    mini: int
    bin: int
    reason: str
