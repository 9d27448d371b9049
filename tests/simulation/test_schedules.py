"""The paper's machine: what entries cost, and how executions and their lateness are counted."""

from __future__ import annotations

import random

import pytest

from headrace.policies.schedule.groups import Costs, Group, SchedulePolicy, SubGroup
from headrace.policies.schedule.periods import choose_periods
from headrace.simulation.schedules import Packets, Processor, packet_groups, play_schedule

PACKETS = Packets(1500, 1000, 100)


def test_a_pane_has_as_many_entries_as_its_rows_have_values():
    assert PACKETS.entries(1000, 1) == pytest.approx(777, abs=1)
    assert PACKETS.entries(1e6, 1) == pytest.approx(1499, abs=1)
    assert PACKETS.entries(100, 60) == pytest.approx(100)


def test_queries_are_the_papers():
    groups = packet_groups(random.Random(1), PACKETS, Processor(4e-6, 1e-7), 30)
    assert [sum(each.answers for each in group.subgroups) for group in groups] == [30] * 8
    assert all(20 <= each.panes <= 100 and 1 <= each.period <= 50 for group in groups for each in group.subgroups)


def played(seconds_per_execution: float, policy: SchedulePolicy = SchedulePolicy.CONSERVATIVE):
    group = Group("g", 1_000_000, Costs(seconds_per_execution, 0, 0), (SubGroup("2", 2, 10, 3),))
    choices = {"g": choose_periods(policy, group.subgroups, group.costs)}
    return play_schedule(policy, [group], choices, 40, 10, 10.0, eager=False)


def test_a_task_that_fits_runs_at_its_period_and_is_never_late():
    found = played(0.5)
    assert found.throughput == pytest.approx(3 / 2, rel=0.1)
    assert found.latency == 0
    assert found.busy == pytest.approx(0.25, rel=0.1)


def test_a_task_that_takes_twice_its_period_is_late_by_its_period():
    found = played(4.0)
    assert found.throughput == pytest.approx(3 / 4, rel=0.1)
    assert found.latency == pytest.approx(2, abs=0.5)
