"""Row windows and functions in simulated time: bins at work on the rows of their mini-partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import KeyedDecision, KeyedMeasures, KeyedState
from headrace.policies import KeyedEpoch
from headrace.simulation.whatif.machine import INSTALLED_PER_S, Keyed

__all__ = ["KeyedWorld", "PlayedKeyed"]


@dataclass(frozen=True)
class PlayedKeyed:
    """What bins measured in an epoch, for the policies and for the record, and the rows that got their results."""

    measured: KeyedEpoch
    measures: KeyedMeasures
    rows: float


@dataclass
class KeyedWorld:
    """One node: how its rows are spread over mini-partitions, what it costs, and rows that wait while state moves."""

    costs: Keyed
    shares: Sequence[float]
    state_bytes: Sequence[int]
    memory_bytes: int
    waiting: list[float]

    @classmethod
    def of(cls, costs: Keyed, state: KeyedState) -> KeyedWorld:
        """A node whose mini-partitions are as warm as they were; all alike where nothing came yet."""
        minis, warm = len(state.owners), sum(state.warmth)
        shares = [each / warm for each in state.warmth] if warm > 0 else [1 / minis] * minis
        return cls(costs, shares, state.state_bytes, min(state.memory_bytes), [0.0] * minis)

    def play(self, decision: KeyedDecision, rows: float, speeds: Sequence[float]) -> PlayedKeyed:
        """An epoch that brings so many rows."""
        minis, waits = len(decision.owners), frozenset(decision.waits)
        came = [rows * share for share in self.shares]
        due = [0.0 if m in waits else came[m] + self.waiting[m] for m in range(minis)]
        self.waiting = [self.waiting[m] + came[m] if m in waits else 0.0 for m in range(minis)]
        helpers = {each.mini: each.bins for each in decision.splits}
        busy, load = [0.0] * decision.bins, [0.0] * decision.bins
        for mini, count in enumerate(due):
            bins = helpers.get(mini, (decision.owners[mini],))
            for bin_ in bins:
                busy[bin_] += self.costs.row_s * count / len(bins) / speeds[bin_]
        moved = [move for move in decision.moves if move.mini not in {m.move.mini for m in decision.moving}]
        for move in moved:
            load[move.target] += self.state_bytes[move.mini] / INSTALLED_PER_S / speeds[move.target]
        seconds = self.costs.step_s + max(b + w for b, w in zip(busy, load, strict=True))
        size = tuple(self.state_bytes)
        measured = KeyedEpoch(
            seconds,
            tuple(busy),
            tuple(load),
            (self.memory_bytes,) * decision.bins,
            tuple(round(each) for each in due),
            tuple(round(each) for each in came),
            tuple(None if mini in waits else size[mini] for mini in range(minis)),
        )
        measures = KeyedMeasures(
            round(seconds, 4),
            tuple(round(each, 4) for each in busy),
            (None,) * decision.bins,
            sum(move.state_bytes for move in moved),
            tuple(sorted(move.mini for move in moved)),
            sum(measured.rows),
            len(waits),
            sum(size),
        )
        return PlayedKeyed(measured, measures, sum(due))
