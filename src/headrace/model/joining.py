"""What is decided for a join, what is remembered of it, and what an epoch measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.model.remembered import Remembered

__all__ = ["JoinDecision", "JoinMeasures", "JoinSample", "JoinState", "JoinWay", "SideSample"]


@dataclass(frozen=True)
class JoinWay:
    """How a join runs from an epoch on; `split` is the side whose rows (or whose hot rows) are dealt out.

    `costs_s` are seconds of an epoch for the busiest host by way, `keep` the share of rows that fit the memory.
    """

    way: str
    split: str | None
    hot: tuple[int, ...]
    hosts: tuple[int, ...]
    reason: str
    costs_s: Mapping[str, float] = field(default_factory=dict)
    keep: float = 1.0

    @property
    def cut_by(self) -> tuple[int, ...] | None:
        """What decides of which kind a key's rows become: the hot keys, or nothing of the key at all (None)."""
        return None if self.way in ("split", "biclique") else self.hot


@dataclass(frozen=True)
class JoinDecision:
    """How a join runs in one epoch.

    `sampled` says that the way was chosen anew from what was sampled, `guess` that there was nothing to choose by;
    `mixed` that a key may be in blocks of both kinds.
    """

    KIND: ClassVar[str] = "join"

    way: JoinWay
    slices: int
    speeds: tuple[float, ...]
    sampled: bool
    guess: bool
    mixed: bool

    def __post_init__(self) -> None:
        if self.slices < 1 or len(self.way.hosts) != self.slices:
            raise ValueError(f"a join has a host for each of its {self.slices} slices, not {len(self.way.hosts)}")

    @property
    def reason(self) -> str:
        return self.way.reason


@dataclass(frozen=True)
class SideSample:
    """One side of a join over some epochs: rows, and of the sampled ones how many had each of the heaviest hashes.

    `window_rows` is the most that a window held, with `row_bytes` each; None where nobody counted.
    """

    rows: int = 0
    sampled: int = 0
    heavy: Mapping[int, int] = field(default_factory=dict)
    window_rows: int | None = None
    row_bytes: float | None = None


@dataclass(frozen=True)
class JoinSample:
    """Both sides over so many epochs, in which event time went on by so much."""

    epochs: int = 0
    advance_us: int = 0
    left: SideSample = field(default_factory=SideSample)
    right: SideSample = field(default_factory=SideSample)

    def side(self, role: str) -> SideSample:
        return self.left if role == "left" else self.right


@dataclass(frozen=True)
class JoinState(Remembered):
    """What is remembered of a join from epoch to epoch.

    `until` has per side the last row that was cut otherwise than now; `forms` what its stored rows are like; `shed` how
    many rows did not fit the memory so far.
    """

    KIND: ClassVar[str] = "join"

    way: JoinWay
    slices: int
    guess: bool
    forms: tuple[str, ...]
    until: Mapping[str, int] | None
    sample: JoinSample
    shed: int
    speeds: tuple[float, ...]


@dataclass(frozen=True)
class JoinMeasures:
    """What hosts did in an epoch: rows received and held of each side, and seconds, by host; and pairs in all."""

    KIND: ClassVar[str] = "join"

    received: tuple[tuple[int, ...], ...]
    held: tuple[tuple[int, ...], ...]
    seconds: tuple[float, ...]
    pairs: int
