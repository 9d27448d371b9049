"""Operators whose results come with the rows: what they see of an epoch, and what they make of it.

An operator serves all queries of its kind (joins, row windows). The epoch calls it three times:

    decide   admit: what it will do, with the reason; logged before anything acts, and read again on replay
    cuts     absorb: how the rows of its stores are cut into the slices of this epoch's chunks
    step     flow: reads stores and rows, delivers results, makes state
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.engine.sinks.choose import Sink
from headrace.kernels.absorb import Absorbed, Cut
from headrace.kernels.chunks import Chunk
from headrace.model import (
    EpochDecision,
    JoinDecision,
    JoinMeasures,
    JoinState,
    KeyedDecision,
    KeyedMeasures,
    KeyedState,
)
from headrace.planning import FlowPlan, Kept, owner
from headrace.policies import StreamClock

__all__ = ["FlowOperator", "Moment", "Stepped", "remembered"]


@dataclass(frozen=True)
class Moment:
    """An epoch as an operator sees it: time before and after its rows, all state, its queries and their sinks.

    `chunks` were there before the epoch, `absorbed.chunks` came with its rows; `kept` are all synopses, of which an
    operator feeds those over streams that it makes; `state` is what operators left in the last manifest; `ending` are
    queries that this epoch is the last of.
    """

    decision: EpochDecision
    replay: bool
    flows: Mapping[str, FlowPlan]
    sinks: Mapping[str, Sink]
    kept: Mapping[str, Kept]
    chunks: tuple[Chunk, ...]
    absorbed: Absorbed
    before: Mapping[str, StreamClock]
    after: Mapping[str, StreamClock]
    state: Mapping[str, JoinState | KeyedState]
    ending: frozenset[str] = frozenset()

    def is_last(self, query: str) -> bool:
        """Whether nothing of a query's results may be put off to another epoch."""
        return self.decision.flush is not None or query in self.ending


@dataclass
class Stepped:
    """What an operator made of an epoch, by query, and of its stores.

    `answered` gives, where rows may wait, before which time they have their results, and how far that is behind.
    `expired` gives per store the time before which no row is needed any more: chunks that hold nothing newer go.
    `clocks` are those of streams it makes, `chunks` what it absorbed of them, or state of its own. `state` goes into
    the manifest as it is, and chunks that are kept apart stay as long as it names them.
    """

    rows: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    state: dict[str, JoinState | KeyedState] = field(default_factory=dict)
    expired: dict[str, int] = field(default_factory=dict)
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = ()
    observed: dict[str, JoinMeasures | KeyedMeasures] = field(default_factory=dict)
    answered: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, other: Stepped) -> None:
        """Takes what another operator made."""
        self.rows |= other.rows
        self.failed |= other.failed
        self.state |= other.state
        self.expired |= other.expired
        self.clocks |= other.clocks
        self.observed |= other.observed
        self.answered |= other.answered
        self.chunks += other.chunks


class FlowOperator(Protocol):
    """Runs all queries of one kind."""

    def serves(self, plan: FlowPlan) -> bool:
        """Whether a query is of its kind."""

    def decide(
        self, flows: Mapping[str, FlowPlan], state: Mapping[str, JoinState | KeyedState], epoch: int
    ) -> Mapping[str, JoinDecision | KeyedDecision]:
        """By flow what is decided for the coming epoch, with a reason."""

    def cuts(
        self, flows: Mapping[str, FlowPlan], decided: Mapping[str, JoinDecision | KeyedDecision]
    ) -> dict[str, Cut]:
        """By store how its rows are cut in an epoch for which this was decided."""

    def ends(self, plan: FlowPlan, clocks: Mapping[str, StreamClock]) -> int | None:
        """Where a flush moves the watermarks of a query's streams; None: they may stay where they are."""

    def step(self, moment: Moment) -> Stepped:
        """Makes results of the epoch's rows, and puts them where the sinks find them."""


def remembered(
    states: Mapping[str, JoinState | KeyedState], live: Collection[str], failed: Collection[str]
) -> dict[str, JoinState | KeyedState]:
    """Of what operators remember by flow what stays, when these queries run and those have failed."""
    return {n: s for n, s in states.items() if owner(n) in live or (n in failed and s.outlives_failure)}
