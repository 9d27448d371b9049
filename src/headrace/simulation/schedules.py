"""Groups of queries that are executed again and again, by the schedules that run, on a processor in virtual time.

Section 5 of the paper on synchronised schedules: eight groups of top-k and percentile queries over packets, a pane a
second, synopses of frequency counts. A pane has as many entries as its rows have distinct values. Combining panes, and
finding the top of a window, take time for every entry.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from headrace.policies.schedule.executions import Advance, ScheduleState, plan_epoch
from headrace.policies.schedule.groups import Costs, Group, SchedulePolicy, SubGroup
from headrace.policies.schedule.periods import PeriodChoice
from headrace.units import SECOND_US

__all__ = ["Packets", "Played", "Processor", "packet_groups", "play_schedule", "shared_scan"]

# The paper's windows, in seconds.
SHORTEST, LONGEST = 20, 100


@dataclass(frozen=True, slots=True)
class Packets:
    """A stream of packets: rows per second, and how many addresses, ports and protocols they have."""

    rows_per_s: float
    addresses: int
    ports: int

    @property
    def values(self) -> tuple[tuple[str, float], ...]:
        """The eight groups with the values that their keys can have."""
        a, p = float(self.addresses), float(self.ports)
        return (("source", a), ("destination", a), ("source-destination", a * a), ("protocol", p), ("port", p),
                ("protocol-port", p * p), ("length by protocol", p), ("length by port", p))  # fmt: skip

    def entries(self, values: float, seconds: float) -> float:
        """Distinct values among the rows of so many seconds, if all values are equally frequent."""
        return values * -math.expm1(-self.rows_per_s * seconds / values)


@dataclass(frozen=True, slots=True)
class Processor:
    """What the paper's machine takes for an entry of a synopsis, in seconds: combined, or looked at for an answer.

    A row that arrives is put into the newest pane of every group. A one-time query about one address, once a second,
    looks at an entry of each pane.
    """

    entry_s: float
    answer_s: float

    def costs(self, packets: Packets, values: float) -> Costs:
        """What an execution of a group costs; windows are taken to be of middling length."""
        pane, window = packets.entries(values, 1), packets.entries(values, (SHORTEST + LONGEST) / 2)
        return Costs(-self.entry_s * pane, self.entry_s * pane, self.answer_s * window)

    def left(self, packets: Packets) -> float:
        """The share of time that is left for executions."""
        return max(0.0, 1 - self.entry_s * (packets.rows_per_s * len(packets.values) + LONGEST))


def packet_groups(rng: random.Random, packets: Packets, processor: Processor, queries: int) -> list[Group]:
    """Eight groups of so many queries each, windows of 20 to 100 s, slides of 1 s to half the window."""
    groups = []
    for name, values in packets.values:
        windows: dict[int, list[int]] = {}
        for _ in range(queries):
            window = rng.randint(SHORTEST, LONGEST)
            windows.setdefault(rng.randint(1, window // 2), []).append(window)
        subgroups = tuple(SubGroup(str(slide), slide, max(of), len(of)) for slide, of in sorted(windows.items()))
        groups.append(Group(name, SECOND_US, processor.costs(packets, values), subgroups))
    return groups


@dataclass(frozen=True, slots=True)
class Played:
    """Queries executed per second, panes late on average over queries and at worst, and the share of time in use."""

    throughput: float
    latency: float
    busy: float
    worst: float


def play_schedule(
    policy: SchedulePolicy,
    groups: Sequence[Group],
    choices: Mapping[str, PeriodChoice],
    seconds: int,
    epoch_s: int,
    budget_s: float,
    *,
    eager: bool,
) -> Played:
    """So many seconds of event time, in epochs that may each take `budget_s` to execute what is due."""
    state, busy = ScheduleState(), 0.0
    asked = {(group.name, each.name): each for group in groups for each in group.subgroups}
    runs: dict[tuple[str, str], list[int]] = {key: [] for key in asked}
    for start in range(0, seconds, epoch_s):
        progress = {group.name: Advance(start * SECOND_US, (start + epoch_s) * SECOND_US) for group in groups}
        plan = plan_epoch(policy, groups, choices, progress, state, budget_s, eager=eager)
        state, busy = plan.state, busy + plan.cost
        for execution in plan.executions:
            for served in execution.served:
                runs[execution.group, served.subgroup] += [served.lateness_panes] * len(served.ends_us)
    queries = sum(each.answers for each in asked.values())
    executed = sum(len(runs[key]) * each.answers for key, each in asked.items())
    # A query that was never executed has been late since its first deadline.
    late = {key: fmean(runs[key]) if runs[key] else max(0, seconds - each.period) for key, each in asked.items()}
    mean = sum(late[key] * each.answers for key, each in asked.items()) / queries
    return Played(executed / seconds, mean, busy / (budget_s * (seconds // epoch_s)), max(late.values()))


def shared_scan(groups: Sequence[Group], costs: Mapping[str, Costs]) -> list[Group]:
    """The same groups at the engine's costs: one scan of an epoch serves all executions of a group."""
    return [replace(group, costs=costs[group.name], one_scan=True) for group in groups]
