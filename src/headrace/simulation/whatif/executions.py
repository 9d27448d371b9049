"""Executions in simulated time: which windows are due, what their scans read, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model import Due, Spent
from headrace.planning import QueryTimes, Scheduled, Workload
from headrace.planning.scheduling import GroupSize
from headrace.policies import StreamClock
from headrace.simulation.whatif.machine import Machine

__all__ = ["Scans", "distinct", "plan_due"]


def distinct(known: float, rows: float, times: float) -> float:
    """Groups among `times` as many rows, of which so many had this many groups; all groups are equally frequent.

    >>> round(distinct(100.0, 100_000.0, 5.0)), round(distinct(100.0, 100.0, 5.0))
    (100, 500)
    """
    if known <= 0 or rows <= 0 or known >= rows:
        return known * times
    low, high = known, known
    while _among(high, rows) < known and high < 1e15:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _among(middle, rows) < known else (low, middle)
    return _among(high, rows * times)


def _among(values: float, rows: float) -> float:
    return values * -math.expm1(-rows / values)


def plan_due(
    scheduled: Scheduled,
    answered_us: Mapping[str, int | None],
    before: Mapping[str, StreamClock],
    after: Mapping[str, StreamClock],
    queries: Sequence[str],
) -> dict[str, Due]:
    """The windows of these queries that are due now that time has gone on, as the schedule plans them."""
    times: dict[str, QueryTimes] = {}
    for name in queries:
        clocks = [after[stream] for stream in scheduled.workload.plans[name].reads]
        last = max((clock.last_us for clock in clocks if clock.last_us is not None), default=None)
        first = min((clock.first_us for clock in clocks if clock.first_us is not None), default=None)
        since = answered_us.get(name)
        since = first if since is None else since
        if since is not None:
            times[name] = QueryTimes(since, last)
    scheduled.plan(times, before, after, flush=False)
    return scheduled.due


@dataclass(frozen=True)
class Scans:
    """What scans of panes read, and what they take; `times` is by stream how many times its rows come now."""

    machine: Machine
    workload: Workload
    times: Mapping[str, float]

    def of(self, due: Mapping[str, Due], speeds: Sequence[float]) -> tuple[list[Spent], float]:
        """What each group's tasks spend, and the seconds of all of them together."""
        spent, work = list[Spent](), 0.0
        for main, names in self.workload.groups.items():
            mine = {name: due[name] for name in names if name in due}
            if mine:
                panes, scanned, answered = self._scan(main, mine)
                seconds = self.machine.executed_s(scanned, answered)
                spent.append(Spent(main, seconds, panes, round(scanned), round(answered)))
                work += seconds
        # A task works on one group in one bin.
        tasks = min(len(spent) * self.machine.bins, len(speeds))
        before = min(len(spent) * self.machine.bins, self.machine.hosts)
        faster = sum(sorted(speeds, reverse=True)[:tasks]) / before if before else 1.0
        return spent, work / max(faster, 1e-9)

    def groups(self, due: Mapping[str, Due]) -> float:
        """Groups that these windows answer."""
        found = 0.0
        for name, each in due.items():
            found += self._scan(self.workload.plans[name].main, {name: each})[2]
        return found

    def _scan(self, main: str, due: Mapping[str, Due]) -> tuple[int, float, float]:
        """Panes, their rows, and groups answered, of one group of queries."""
        known = self.machine.schedule.measured.get(main, GroupSize())
        plans = {name: self.workload.plans[name] for name in due}
        first = min(each.first_us - plans[name].aggregate.window.size_us for name, each in due.items())
        last = max(each.last_us for each in due.values())
        pane_us = min(self.workload.kept[id_].pane_us for id_ in self.workload.sources_of(next(iter(due))))
        panes = max(1, (last - first) // pane_us)
        reads = next(iter(plans.values())).reads
        times = max((self.times.get(stream, 1.0) for stream in reads), default=1.0)
        per_s = sum(self.machine.rates.get(stream, 0.0) for stream in reads)
        in_pane = distinct(known.rows_per_pane, per_s * pane_us / 1e6, times)
        size_us = max(plan.aggregate.window.size_us for plan in plans.values())
        in_window = distinct(known.groups_per_window, per_s * size_us / 1e6, times)
        return panes, panes * in_pane, sum(each.count for each in due.values()) * in_window
