"""What is remembered of epochs after they ran, on Spark or in simulated time, and what of it outlives each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model import (
    SCHEDULE,
    SHEDDING,
    AnswersState,
    Entry,
    EpochDecision,
    JoinState,
    KeyedState,
    LookupState,
    Observed,
    TablesState,
)
from headrace.planning.scheduling import Schedule
from headrace.planning.shedding import Shedding
from headrace.policies import StreamClock

__all__ = ["NodeState", "Recorded", "RecordedEpoch"]

NodeState = AnswersState | JoinState | KeyedState | LookupState | Schedule | Shedding | TablesState


@dataclass(frozen=True)
class RecordedEpoch:
    """One epoch: what was decided for it, and what was true after it.

    `ledger` counts rows since the beginning. By query, `answered_us` is its last answered window end, and `behind_us`
    how far it is behind what was due.
    """

    decision: EpochDecision
    clocks: Mapping[str, StreamClock] = field(default_factory=dict)
    ledger: Mapping[str, Entry] = field(default_factory=dict)
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    answered_us: Mapping[str, int | None] = field(default_factory=dict)
    behind_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def schedule(self) -> Schedule:
        """What is remembered of all aggregates' executions."""
        found = self.nodes.get(SCHEDULE)
        return found if isinstance(found, Schedule) else Schedule()

    @property
    def shedding(self) -> Shedding:
        """What is remembered of costs, and of overload."""
        found = self.nodes.get(SHEDDING)
        return found if isinstance(found, Shedding) else Shedding()


@dataclass(frozen=True)
class Recorded:
    """The last epochs of a run, oldest first, and the number of bins that its state is kept in."""

    epochs: tuple[RecordedEpoch, ...]
    bins: int

    def __post_init__(self) -> None:
        if not self.epochs:
            raise ValueError("a record has at least one epoch")

    @property
    def last(self) -> RecordedEpoch:
        return self.epochs[-1]

    @property
    def hosts(self) -> int:
        """Tasks that ran at a time: as joins and keyed state have them, else twice the bins, as a start chooses."""
        for state in self.last.nodes.values():
            if isinstance(state, JoinState):
                return len(state.speeds)
            if isinstance(state, KeyedState):
                return len(state.residence)
        return max(1, 2 * self.bins)
