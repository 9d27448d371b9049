"""When queries are executed: decided before an epoch, planned when its watermark is known, learned from after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import ClassVar

from headrace.model import (
    Due,
    GroupSchedule,
    HoppingWindow,
    Remembered,
    ScheduleDecision,
    SlidingWindow,
    Spent,
    TimeWindow,
    streams_of,
)
from headrace.planning.coverage import Coverage
from headrace.planning.sharing import Workload
from headrace.planning.synopsis import AnswerPlan
from headrace.policies import (
    Advance,
    CostModel,
    Costs,
    CostSample,
    Group,
    PeriodChoice,
    SchedulePolicy,
    ScheduleState,
    StreamClock,
    SubGroup,
    choose_periods,
    cost_per_pane,
    due_windows,
    enter,
    last_end_with_rows,
    learn,
    plan_epoch,
    watermark_of,
)

__all__ = ["GroupSize", "QueryTimes", "Schedule", "Scheduled", "groups_of", "subgroup_of", "unasked_share"]

# Before anything was measured: what executions cost on an ordinary machine, per pane's row and per group answered.
FIRST_COSTS = Costs(fixed=5e-3, per_pane=1e-7, per_answer=1e-6)
FIRST_ROWS = 1000.0
# Periods are chosen anew when a cost has changed by more than this factor since they were.
COSTS_CHANGED = 2.0
# A leap over more panes than this (a stream with a gap of days) is not scheduled pane by pane.
MOST_CLOSINGS = 10_000
# The least share of an epoch's time that answers get, however long absorbing takes.
LEAST_SHARE = 0.2
# How much of an average the newest measurement is.
NEWEST = 0.3


@dataclass(frozen=True, slots=True)
class GroupSize:
    """What is known of a group: rows in one of its panes, groups in one of its windows."""

    rows_per_pane: float = FIRST_ROWS
    groups_per_window: float = FIRST_ROWS


@dataclass(frozen=True)
class Schedule(Remembered):
    """All that scheduling remembers from epoch to epoch; committed with each."""

    KIND: ClassVar[str] = "schedule"

    state: ScheduleState = field(default_factory=ScheduleState)
    model: CostModel = field(default_factory=lambda: CostModel(FIRST_COSTS))
    measured: Mapping[str, GroupSize] = field(default_factory=dict)
    other_s: float | None = None  # what an epoch takes besides answering

    @property
    def outlives_queries(self) -> bool:
        return True

    def costs_of(self, group: str) -> Costs:
        """What an execution of a group costs, in seconds."""
        known, costs = self.measured.get(group, GroupSize()), self.model.costs
        return Costs(costs.fixed, costs.per_pane * known.rows_per_pane, costs.per_answer * known.groups_per_window)

    def decide(
        self,
        policy: str,
        groups: Iterable[Group],
        trigger_s: float | None,
        before: ScheduleDecision | None,
        *,
        as_asked: bool = False,
    ) -> ScheduleDecision:
        """How often each group runs from now on, and how long the coming epoch's answers may take.

        With `as_asked` no query is answered more often than asked, however cheap that would be.
        """
        known = {group.group: group for group in before.groups} if before and before.as_asked == as_asked else {}
        # Under the conservative policy every sub-group keeps its own period.
        periods = SchedulePolicy.CONSERVATIVE if as_asked and policy != SchedulePolicy.NONE else SchedulePolicy(policy)
        chosen = tuple(_chosen(periods, group, known.get(group.name)) for group in groups)
        if not trigger_s:
            return ScheduleDecision(policy, None, chosen, "no limit: everything due is answered", as_asked)
        other = self.other_s or 0.0
        budget = max(trigger_s - other, LEAST_SHARE * trigger_s)
        reason = f"{budget:.2f} s of {trigger_s:.2f} s: the rest of an epoch takes {other:.2f} s"
        return ScheduleDecision(policy, round(budget, 4), chosen, reason, as_asked)

    def learned(
        self,
        workload: Workload,
        due: Mapping[str, Due],
        spent: Iterable[Spent],
        answer_s: float,
        other_s: float,
        state: ScheduleState,
    ) -> Schedule:
        """What is remembered after an epoch, given what its groups took and how long answering them all lasted."""
        measured = {id_: m for id_, m in self.measured.items() if id_ in workload.groups}
        by_group: dict[str, list[Spent]] = {}
        for item in spent:
            by_group.setdefault(item.group, []).append(item)
        total = sum(item.seconds for items in by_group.values() for item in items)
        model = self.model
        for id_, mine in by_group.items():
            names = [name for name in workload.groups.get(id_, ()) if name in due]
            windows = sum(due[name].count for name in names)
            if not windows or windows > MOST_CLOSINGS:
                continue
            before = measured.get(id_)
            panes = max(item.panes for item in mine)
            now = GroupSize(
                sum(item.scanned for item in mine) / max(1, panes), sum(item.answered for item in mine) / windows
            )
            measured[id_] = (
                now
                if before is None
                else GroupSize(
                    before.rows_per_pane + NEWEST * (now.rows_per_pane - before.rows_per_pane),
                    before.groups_per_window + NEWEST * (now.groups_per_window - before.groups_per_window),
                )
            )
            # Tasks run side by side: each group takes its part of the time that all took together.
            share = sum(item.seconds for item in mine) / total if total else 0.0
            scanned, answered = sum(item.scanned for item in mine), sum(item.answered for item in mine)
            sample = CostSample(1, scanned, answered, share * answer_s)
            model = learn(model, [sample])
        other = other_s if self.other_s is None else self.other_s + NEWEST * (other_s - self.other_s)
        return Schedule(state, model, measured, round(other, 4))


def _chosen(policy: SchedulePolicy, group: Group, before: GroupSchedule | None) -> GroupSchedule:
    """The periods chosen before, while they fit the group and costs are about what they were chosen by."""
    now = (group.costs.fixed, group.costs.per_pane, group.costs.per_answer)
    same = before is not None and before.periods_us.keys() == {subgroup.name for subgroup in group.subgroups}
    if before is not None and same and _fitting(before, group) is not None:
        pairs = list(zip(before.chosen_by_s, now, strict=True))
        if all(old <= COSTS_CHANGED * new and new <= COSTS_CHANGED * old for old, new in pairs):
            return replace(before, costs_s=now)
    choice = choose_periods(policy, group.subgroups, group.costs)
    periods_us = {name: period * group.pane_us for name, period in choice.periods.items()}
    return GroupSchedule(group.name, now, now, periods_us, choice.reason)


def _fitting(choice: GroupSchedule, group: Group) -> dict[str, int] | None:
    """The chosen periods in panes of the group as it is now; None if queries came or went that change what fits."""
    periods: dict[str, int] = {}
    for subgroup in group.subgroups:
        period_us = choice.periods_us.get(subgroup.name)
        own_us = subgroup.period * group.pane_us
        if period_us is None or period_us % group.pane_us or period_us > own_us:
            return None
        if subgroup.every and period_us < own_us:
            return None
        periods[subgroup.name] = period_us // group.pane_us
    return periods


def unasked_share(groups: Iterable[Group], decision: ScheduleDecision | None) -> float:
    """The part of what answers cost that goes into answering more often than asked, 0 to 1."""
    now_s = asked_s = 0.0
    for group in groups:
        chosen = next((each for each in decision.groups if each.group == group.name), None) if decision else None
        own = {subgroup.name: subgroup.period for subgroup in group.subgroups}
        periods = (_fitting(chosen, group) if chosen else None) or own
        cost = cost_per_pane(group.subgroups, own, group.costs) / group.pane_us
        asked_s += cost
        now_s += cost if periods == own else cost_per_pane(group.subgroups, periods, group.costs) / group.pane_us
    return max(0.0, 1 - asked_s / now_s) if now_s else 0.0


def groups_of(
    workload: Workload, live: Iterable[str], schedule: Schedule, coverage: Mapping[str, Coverage] | None = None
) -> list[Group]:
    """The groups of the queries that run, each with its sub-groups; `coverage` tells how long panes were before."""
    running = set(live)
    groups = []
    for id_, names in workload.groups.items():
        members: dict[str, list[str]] = {}
        for name in names:
            if name in running:
                members.setdefault(subgroup_of(workload.plans[name].aggregate.window), []).append(name)
        if members:
            pane_us = _pane_us(workload, id_)
            fixed = {
                subgroup_of(workload.plans[name].aggregate.window)
                for name in names
                if not _may_end_anywhere(workload, name, pane_us, coverage or {})
            }
            subgroups = tuple(
                _subgroup(key, [workload.plans[n] for n in of_key], pane_us, key in fixed)
                for key, of_key in sorted(members.items())
            )
            groups.append(Group(id_, pane_us, schedule.costs_of(id_), subgroups, one_scan=True))
    return groups


def subgroup_of(window: TimeWindow) -> str:
    """The name of the sub-group that a query's window belongs to: its slide, and its ends if they are fixed."""
    if isinstance(window, HoppingWindow):
        return f"each {window.slide_us}+{window.phase_us}"
    return f"{window.slide_us}"


def _pane_us(workload: Workload, group: str) -> int:
    return gcd(*(workload.plans[name].aggregate.window.pane_us for name in workload.groups[group]))


def _may_end_anywhere(workload: Workload, query: str, pane_us: int, coverage: Mapping[str, Coverage]) -> bool:
    """Whether windows that end with any pane of the group consist of whole panes of all that the query is made of.

    Details may be kept in longer panes than the group's, and so are rows from before a query came that has shorter
    ones. The query's own ends fit all of them.
    """
    sources = workload.sources_of(query)
    lengths = {workload.kept[id_].pane_us for id_ in sources}
    lengths |= {length for id_ in sources if id_ in coverage for length, _ in coverage[id_].panes}
    return not any(pane_us % length for length in lengths)


def _subgroup(key: str, plans: list[AnswerPlan], pane_us: int, fixed: bool) -> SubGroup:
    window = plans[0].aggregate.window
    return SubGroup(
        key,
        window.slide_us // pane_us,
        max(plan.aggregate.window.size_us for plan in plans) // pane_us,
        len(plans),
        max(plan.query.priority for plan in plans),
        fixed or isinstance(window, HoppingWindow),
        window.phase_us // pane_us if isinstance(window, HoppingWindow) else 0,
    )


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """What decides which of a query's windows can be due: its next end is after `after_us`.

    A `fresh` query has panes of windows that closed before it came: it answers the newest of them at once.
    """

    after_us: int
    last_row_us: int | None
    fresh: bool = False


@dataclass
class Scheduled:
    """The executions of one epoch: windows to answer by query, and the schedule's state after them."""

    decision: ScheduleDecision
    workload: Workload
    schedule: Schedule
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    due: dict[str, Due] = field(default_factory=dict)
    state: ScheduleState = field(default_factory=ScheduleState)
    left: dict[str, int] = field(default_factory=dict)
    reason: str = ""

    def window_of(self, query: str) -> TimeWindow:
        """A query's window with the period it really runs at."""
        window = self.workload.plans[query].aggregate.window
        if not isinstance(window, SlidingWindow):
            return window
        group = next(group for group in self.groups if group.name == self.workload.plans[query].main)
        return replace(window, slide_us=self._periods(group)[subgroup_of(window)] * group.pane_us)

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of all queries."""
        return groups_of(self.workload, self.workload.queries, self.schedule, self.coverage)

    def _periods(self, group: Group) -> dict[str, int]:
        """In panes what was decided; each sub-group's own if that does not fit the queries there are now."""
        own = {subgroup.name: subgroup.period for subgroup in group.subgroups}
        decided = next((g for g in self.decision.groups if g.group == group.name), None)
        return own if decided is None else _fitting(decided, group) or own

    def plan(
        self,
        times: Mapping[str, QueryTimes],
        before: Mapping[str, StreamClock],
        after: Mapping[str, StreamClock],
        flush: bool,
    ) -> None:
        """Fills in what is due: within the budget, or all of it when there is none."""
        groups = groups_of(self.workload, times, self.schedule, self.coverage)
        choices = {g.group: g for g in self.decision.groups}
        limited: dict[str, Advance] = {}
        for group in groups:
            names = [name for name in self.workload.groups[group.name] if name in times]
            streams = streams_of(self.workload.plans[names[0]].query.root)
            now = watermark_of(after, streams)
            if now is None:
                continue
            begin = watermark_of(before, streams)
            firsts = [f for s in streams if (f := after[s].first_us) is not None]
            if not firsts:
                continue
            begin = min(firsts) if begin is None else max(min(firsts), begin)
            if begin > now:
                continue
            leap = (now - begin) // group.pane_us > MOST_CLOSINGS
            if flush or leap or self.decision.budget_s is None or group.name not in choices:
                self._all(group, names, times, now, flush)
            else:
                limited[group.name] = Advance(begin, now)
        self._within(groups, limited, times)

    def _all(self, group: Group, names: list[str], times: Mapping[str, QueryTimes], now: int, flush: bool) -> None:
        """Every window end up to the watermark, or up to the last that holds a row."""
        for name in names:
            window, query = self.window_of(name), times[name]
            until = now
            if flush:
                if query.last_row_us is None:
                    continue
                until = last_end_with_rows(window, query.last_row_us)
            due = due_windows(window, query.after_us, None, until)
            if due is not None:
                self.due[name] = due
        periods = self._periods(group)
        tasks = {s.name: enter(group, s, periods[s.name], now) for s in group.subgroups}
        self.state = replace(self.state, tasks={**self.state.tasks, group.name: tasks})

    def _within(self, groups: list[Group], limited: Mapping[str, Advance], times: Mapping[str, QueryTimes]) -> None:
        """The executions that fit the budget, earliest deadline first."""
        if not limited:
            kept = {g.name: self.schedule.state.tasks[g.name] for g in groups if g.name in self.schedule.state.tasks}
            self.state = replace(self.state, tasks={**kept, **self.state.tasks})
            return
        policy = SchedulePolicy(self.decision.policy)
        costs = {g.group: Costs(*g.costs_s) for g in self.decision.groups}
        priced = [replace(group, costs=costs[group.name]) for group in groups if group.name in limited]
        chosen = {g.name: PeriodChoice(policy, self._periods(g), 0.0, 0.0, 0.0, "as decided") for g in priced}
        plan = plan_epoch(policy, priced, chosen, limited, self.schedule.state, self.decision.budget_s)
        ends: dict[str, list[int]] = {}
        for execution in plan.executions:
            members: dict[str, list[str]] = {}
            for name in self.workload.groups[execution.group]:
                if name in times:
                    members.setdefault(subgroup_of(self.workload.plans[name].aggregate.window), []).append(name)
            for served in execution.served:
                for name in members.get(served.subgroup, ()):
                    ends.setdefault(name, []).extend(end for end in served.ends_us if end > times[name].after_us)
        for name, query in times.items():
            if query.fresh and self.workload.plans[name].main in limited:
                # Its first window closed before it came: no plan has it. What has closed since then is the plan's.
                closed = limited[self.workload.plans[name].main].from_us
                first = due_windows(self.workload.plans[name].aggregate.window, query.after_us, None, closed)
                if first is not None:
                    ends.setdefault(name, []).append(first.first_us)
        self.due |= {name: Due(tuple(sorted(set(found)))) for name, found in ends.items() if found}
        self.left = {
            name: left.late_panes * next(g.pane_us for g in priced if g.name == left.group)
            for left in plan.left
            for name in self.workload.groups[left.group]
            if name in times and subgroup_of(self.workload.plans[name].aggregate.window) == left.subgroup
        }
        self.state = ScheduleState({**plan.state.tasks, **self.state.tasks}, plan.state.debt_us)
        self.reason = plan.reason
