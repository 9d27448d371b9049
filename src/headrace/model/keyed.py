"""What is decided for the state of row windows and functions, what is remembered of it, and what an epoch measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.model.moves import Isolate, Move, Split
from headrace.model.remembered import Remembered

__all__ = [
    "LEAST_S",
    "Collected",
    "KeyedDecision",
    "KeyedMeasures",
    "KeyedState",
    "Moving",
    "Residence",
    "Rounds",
]

# Two or three epochs of the shortest kind: less says nothing about load.
LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Moving:
    """A move that takes more than one epoch, and the bytes that are still to be shipped."""

    move: Move
    left_bytes: int


@dataclass(frozen=True, slots=True)
class Residence:
    """Mini-partitions on disk, in the order of their turns, and those whose turn it is: these are processed too."""

    spilled: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()

    @property
    def waiting(self) -> frozenset[int]:
        """Mini-partitions whose rows wait."""
        return frozenset(self.spilled) - frozenset(self.turn)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Which round it is, for how many seconds it collects, the least it may, and who gave to whom of late."""

    number: int = 0
    collect_s: float = LEAST_S
    least_s: float = LEAST_S
    flows: tuple[tuple[int, int, int], ...] = ()  # (round, source, target)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a round has measured so far: seconds, in how many of them each bin worked, rows of each mini-partition."""

    seconds: float = 0.0
    busy_s: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()

    def plus(self, seconds: float, busy_s: Sequence[float], rows: Sequence[int]) -> Collected:
        """With the measurements of one more epoch."""
        return Collected(
            self.seconds + seconds,
            tuple(a + b for a, b in zip(self.busy_s, busy_s, strict=True)) if self.busy_s else tuple(busy_s),
            tuple(a + b for a, b in zip(self.rows, rows, strict=True)) if self.rows else tuple(rows),
        )


@dataclass(frozen=True)
class KeyedState(Remembered):
    """All that is remembered of a keyed operator between epochs; tuples by mini-partition or by bin.

    Results of rows before `done_us` are given. State is a snapshot, made after the epoch in `bases`, and all rows in
    the chunks of later epochs. `warmth` is rows that came of late, older ones counting less; `waiting` is how many came
    since a mini-partition has been waiting.
    """

    KIND: ClassVar[str] = "keyed"

    owners: tuple[int, ...]
    done_us: tuple[int | None, ...]
    bases: tuple[int, ...]
    snapshots: tuple[str | None, ...]
    state_bytes: tuple[int, ...]
    warmth: tuple[float, ...]
    waiting: tuple[int, ...]
    memory_bytes: tuple[int, ...]
    residence: tuple[Residence, ...]
    log: tuple[tuple[int, str], ...] = ()
    rounds: Rounds = field(default_factory=Rounds)
    collected: Collected = field(default_factory=Collected)
    splits: tuple[Split, ...] = ()
    isolated: tuple[Isolate, ...] = ()
    moving: tuple[Moving, ...] = ()
    round_moves: tuple[Move, ...] = ()  # of the round whose moves are under way
    moves_s: float = 0.0
    history: tuple[tuple[int, Move], ...] = ()
    moves: int = 0  # so far
    moved_bytes: int = 0
    schema: str = ""  # of state that a function keeps, with its version
    version: int = 0
    migrating: tuple[int, int] | None = None  # the epoch from which on state is written in another version, and that
    forms: tuple[str, ...] = ()  # of the rows that are kept
    reason: str = "nothing was measured yet"

    @property
    def outlives_failure(self) -> bool:
        """Whether a query that failed goes on from here: from what a function of the user's made, which nobody can make
        again. Rows that row windows keep would lack those of the time in between."""
        return bool(self.version)

    @property
    def chunks(self) -> tuple[str, ...]:
        """The chunks that hold nothing but this: snapshots, and rows since then."""
        return (*(name for name in self.snapshots if name is not None), *(name for _, name in self.log))


@dataclass(frozen=True)
class KeyedDecision:
    """What happens to a keyed operator's state in an epoch, before anything acts.

    `owners` is the map as it is in this epoch, moves done; `waits` are mini-partitions whose rows wait.
    """

    KIND: ClassVar[str] = "keyed"

    owners: tuple[int, ...]
    bins: int
    moves: tuple[Move, ...] = ()  # begun in this epoch
    moving: tuple[Moving, ...] = ()  # not ended in this epoch
    waits: tuple[int, ...] = ()
    residence: tuple[Residence, ...] = ()
    splits: tuple[Split, ...] = ()
    isolated: tuple[Isolate, ...] = ()
    ends_round: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        named = {*self.owners, *(bin_ for split in self.splits for bin_ in split.bins)}
        # Nobody would work on the rows of such a mini-partition, and nobody would miss them.
        if lost := sorted(bin_ for bin_ in named if not 0 <= bin_ < self.bins):
            raise ValueError(f"mini-partitions are given to bins {lost}; there are {self.bins}, from 0 on")


@dataclass(frozen=True)
class KeyedMeasures:
    """What an epoch did: seconds of the whole step, and by bin at work; where bins are; what was read of state.

    `loaded` are the mini-partitions whose state was read, `waiting` is how many had rows that wait.
    """

    KIND: ClassVar[str] = "keyed"

    step_s: float
    busy_s: tuple[float, ...]
    places: tuple[str | None, ...]
    loaded_bytes: int
    loaded: tuple[int, ...]
    rows: int
    waiting: int
    state_bytes: int
