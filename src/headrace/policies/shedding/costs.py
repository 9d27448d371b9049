"""What rows cost on this machine, learned from the epochs that took them.

Tasks measure what they spend on reading each stream and on each edge. These task-seconds per row say how costs differ
from edge to edge. How many seconds of an epoch a task-second stands for, and what an epoch costs without any rows, is
learned by least squares over epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.model import Estimate
from headrace.policies.schedule.costs import CostModel, CostSample, learn
from headrace.policies.schedule.groups import Costs

__all__ = ["RowCosts", "RowSample", "learn_row_costs"]

# Before anything is known: an epoch costs about 0.3 s, and two tasks run side by side.
FIRST_EPOCH = Costs(fixed=0.3, per_pane=0.5e-3, per_answer=0.0)
# Fewer rows than this say more about the clock than about rows.
LEAST_ROWS = 100
# Costs by which rows may be shed rest on so many epochs: the first of a run are slow for reasons of their own.
LEAST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class RowSample:
    """One epoch: by stream and by edge its rows and the task-seconds they took, and the seconds of the epoch.

    Rows of an edge are those that came along it (`offered`) and those that it kept. `seconds` leaves out the answers of
    aggregates, whose cost does not depend on the epoch's rows.
    """

    rows: Mapping[str, int]
    read_s: Mapping[str, float]
    offered: Mapping[str, int]
    kept: Mapping[str, int]
    edge_s: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class RowCosts:
    """Task-seconds per row read by stream and per row kept by edge, and the share of a stream's rows on each edge.

    `epoch` turns them into seconds of an epoch: `fixed` is an epoch without rows, `per_pane` a task-millisecond.
    """

    read: Mapping[str, Estimate] = field(default_factory=dict)
    keep: Mapping[str, Estimate] = field(default_factory=dict)
    selectivity: Mapping[str, Estimate] = field(default_factory=dict)
    epoch: CostModel = field(default_factory=lambda: CostModel(FIRST_EPOCH))

    @property
    def are_known(self) -> bool:
        """Whether enough epochs were measured to shed by these costs."""
        return self.epoch.samples >= LEAST_SAMPLES and bool(self.keep)

    @property
    def fixed_s(self) -> float:
        """Seconds of an epoch that do not depend on its rows."""
        return self.epoch.costs.fixed

    def read_s(self, stream: str) -> float:
        """Seconds of an epoch per row of a stream, kept or not."""
        return self._seconds(self.read.get(stream), self.read)

    def keep_s(self, edge: str) -> float:
        """Seconds of an epoch per row that an edge keeps; of an edge not measured yet, the mean of the others."""
        return self._seconds(self.keep.get(edge), self.keep)

    def error_s(self, edge: str) -> float:
        """One standard error of `keep_s`; infinite where nothing was measured."""
        known = self.keep.get(edge)
        return float("inf") if known is None else known.error * self._wall

    def share_of(self, edge: str) -> float:
        """The part of its stream's rows that goes along an edge, 0 to 1; 1 where nothing was measured."""
        known = self.selectivity.get(edge)
        return 1.0 if known is None else min(1.0, max(0.0, known.mean))

    @property
    def _wall(self) -> float:
        """Seconds of an epoch per task-second."""
        return self.epoch.costs.per_pane * 1e3

    def _seconds(self, known: Estimate | None, others: Mapping[str, Estimate]) -> float:
        if known is None:
            known_means = [each.mean for each in others.values()]
            return self._wall * (sum(known_means) / len(known_means) if known_means else 0.0)
        return self._wall * known.mean


def learn_row_costs(costs: RowCosts, sample: RowSample) -> RowCosts:
    """The costs after one more epoch; what has no rows in it stays as it was known.

    >>> epoch = RowSample({"s": 1000}, {"s": 0.1}, {"s>a": 1000}, {"s>a": 500}, {"s>a": 0.4}, 0.55)
    >>> costs = learn_row_costs(RowCosts(), epoch)
    >>> round(costs.keep["s>a"].mean, 6), costs.share_of("s>a"), costs.are_known
    (0.0008, 1.0, False)
    """
    read, keep, share = dict(costs.read), dict(costs.keep), dict(costs.selectivity)
    for stream, rows in sample.rows.items():
        if rows >= LEAST_ROWS:
            read[stream] = _learned(read.get(stream), sample.read_s.get(stream, 0.0) / rows)
    for edge, offered in sample.offered.items():
        rows = sample.rows.get(edge.partition(">")[0], 0)
        if rows >= LEAST_ROWS:
            share[edge] = _learned(share.get(edge), offered / rows)
        if sample.kept.get(edge, 0) >= LEAST_ROWS:
            keep[edge] = _learned(keep.get(edge), sample.edge_s.get(edge, 0.0) / sample.kept[edge])
    spent_ms = round(1e3 * (sum(sample.read_s.values()) + sum(sample.edge_s.values())))
    epoch = learn(costs.epoch, [CostSample(1, spent_ms, 0, sample.seconds)]) if any(sample.rows.values()) else None
    there = sample.offered.keys()
    return replace(
        costs,
        read={name: each for name, each in read.items() if name in sample.rows},
        keep={edge: each for edge, each in keep.items() if edge in there},
        selectivity={edge: each for edge, each in share.items() if edge in there},
        epoch=epoch or costs.epoch,
    )


def _learned(known: Estimate | None, sample: float) -> Estimate:
    return (known or Estimate.guess(sample)).learn(sample)
