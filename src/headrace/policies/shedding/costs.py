"""What rows cost on this machine, learned from the epochs that took them.

Tasks measure what they spend on reading each stream and on each edge. Each is a line over rows: a task costs something
without rows, and what the epoch's rows do not change must not count as theirs. The lines say how costs differ from edge
to edge; how many seconds of an epoch a second of its tasks stands for, and what an epoch costs besides, is one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model import Estimate
from headrace.policies.shedding.line import LEAST_SECONDS, Line

__all__ = ["RowCosts", "RowSample", "learn_row_costs"]

# Fewer rows than this say more about the clock than about rows.
LEAST_ROWS = 100
# Costs by which rows may be shed rest on so many epochs: the first of a run are slow for reasons of their own.
LEAST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class RowSample:
    """One epoch: by stream and by edge its rows and the task-seconds they took, and the seconds of the epoch.

    Rows of an edge are those that came along it (`offered`) and those that it kept. Of the rows of a stream those that
    no edge can keep are only read; on the others, which are `evaluated` (by default all), the queries' expressions are.
    `seconds` leaves out the answers of aggregates, whose cost does not depend on the epoch's rows.
    """

    rows: Mapping[str, int]
    read_s: Mapping[str, float]
    offered: Mapping[str, int]
    kept: Mapping[str, int]
    edge_s: Mapping[str, float]
    seconds: float
    evaluated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RowCosts:
    """Task-seconds over rows read by stream and over rows kept by edge, and the share of a stream's rows on each edge.

    `epoch` are seconds of an epoch over all seconds of its tasks.
    """

    read: Mapping[str, Line] = field(default_factory=dict)
    keep: Mapping[str, Line] = field(default_factory=dict)
    selectivity: Mapping[str, Estimate] = field(default_factory=dict)
    epoch: Line = field(default_factory=Line)

    @property
    def are_known(self) -> bool:
        """Whether enough epochs were measured to shed by these costs."""
        return self.epoch.samples >= LEAST_SAMPLES and bool(self.keep)

    @property
    def fixed_s(self) -> float:
        """Seconds of an epoch that do not depend on its rows."""
        tasks_s = sum(each.fixed for each in self.read.values()) + sum(each.fixed for each in self.keep.values())
        return self.epoch.fixed + self.epoch.per_row * tasks_s

    def read_s(self, stream: str) -> float:
        """Seconds of an epoch per row of a stream that is read and evaluated, before any edge takes it."""
        return self.epoch.per_row * _mean(each.per_row for each in self._reading(stream))

    def skip_s(self, stream: str) -> float:
        """Seconds of an epoch per row of a stream that no edge keeps; until rows were shed those of any row."""
        return self.epoch.per_row * _mean(each.per_skipped for each in self._reading(stream))

    def _reading(self, stream: str) -> tuple[Line, ...]:
        """What reading a stream takes; of a stream that was not measured yet what reading the others does."""
        return (self.read[stream],) if stream in self.read else tuple(self.read.values())

    def keep_s(self, edge: str) -> float:
        """Seconds of an epoch per row that an edge keeps; of an edge not measured yet, the mean of the others."""
        known = (self.keep[edge],) if edge in self.keep else tuple(self.keep.values())
        return self.epoch.per_row * _mean(each.per_row for each in known)

    def error_s(self, edge: str) -> float:
        """How far `keep_s` is usually off; infinite where nothing was measured."""
        known = self.keep.get(edge)
        return float("inf") if known is None else known.error * self.keep_s(edge)

    def over(self, sample: RowSample) -> float:
        """By which part of its time an epoch was longer than expected; 0 if it was not."""
        tasks_s = 0.0
        for stream, rows in sample.rows.items():
            evaluated = min(rows, sample.evaluated.get(stream, rows))
            tasks_s += self.read[stream].predict(evaluated, rows - evaluated) if stream in self.read else 0.0
        tasks_s += sum(self.keep[edge].predict(rows) for edge, rows in sample.kept.items() if edge in self.keep)
        expected = self.epoch.predict(tasks_s)
        return max(0.0, sample.seconds - expected) / max(sample.seconds, LEAST_SECONDS)

    def share_of(self, edge: str) -> float:
        """The part of its stream's rows that goes along an edge, 0 to 1; 1 where nothing was measured."""
        known = self.selectivity.get(edge)
        return 1.0 if known is None else min(1.0, max(0.0, known.mean))


def _mean(values: Iterable[float]) -> float:
    found = tuple(values)
    return sum(found) / len(found) if found else 0.0


def learn_row_costs(costs: RowCosts, sample: RowSample) -> RowCosts:
    """The costs after one more epoch; what has no rows in it stays as it was known.

    >>> costs = RowCosts()
    >>> for n in (1000, 3000, 2000):
    ...     made = RowSample({"s": n}, {"s": 0.1}, {"s>a": n}, {"s>a": n}, {"s>a": n * 1e-4}, 0.3 + n * 0.5e-4)
    ...     costs = learn_row_costs(costs, made)
    >>> round(costs.keep_s("s>a") * 1e6), round(costs.read_s("s"), 7), round(costs.fixed_s, 3), costs.are_known
    (50, 0.0, 0.3, True)
    """
    if not any(rows >= LEAST_ROWS for rows in sample.rows.values()):
        return costs
    read, keep, share = dict(costs.read), dict(costs.keep), dict(costs.selectivity)
    for stream, rows in sample.rows.items():
        if rows >= LEAST_ROWS:
            evaluated = min(rows, sample.evaluated.get(stream, rows))
            read[stream] = read.get(stream, Line()).learn(evaluated, sample.read_s.get(stream, 0.0), rows - evaluated)
    for edge, offered in sample.offered.items():
        rows = sample.rows.get(edge.partition(">")[0], 0)
        if rows >= LEAST_ROWS:
            share[edge] = (share.get(edge) or Estimate.guess(offered / rows)).learn(offered / rows)
        if sample.kept.get(edge, 0) >= LEAST_ROWS:
            keep[edge] = keep.get(edge, Line()).learn(sample.kept[edge], sample.edge_s.get(edge, 0.0))
    spent_s = sum(sample.read_s.values()) + sum(sample.edge_s.values())
    there = sample.offered.keys()
    return replace(
        costs,
        read={name: each for name, each in read.items() if name in sample.rows},
        keep={edge: each for edge, each in keep.items() if edge in there},
        selectivity={edge: each for edge, each in share.items() if edge in there},
        epoch=costs.epoch.learn(spent_s, sample.seconds),
    )
