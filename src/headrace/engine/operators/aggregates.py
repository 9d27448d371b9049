"""The aggregate operator: when windowed aggregates are due, and their answers from shared panes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.engine.operators.answering import Answering, Given
from headrace.engine.operators.port import Answered, Ask, Checked, Decided, Moment, Stepped, Taking
from headrace.engine.standing import Standing
from headrace.engine.state.retention import EVER
from headrace.model import SCHEDULE, Due, EpochDecision, streams_of
from headrace.planning import AnswerPlan, QueryTimes, Scheduled, Workload, groups_of, streams_read
from headrace.policies import StreamClock, due_windows, last_end_with_rows

__all__ = ["AggregateOperator"]

# Windows of a query without keys answered in one epoch; a stream that leaps over years makes millions of them due.
MOST_EMPTY_WINDOWS = 100_000


@dataclass
class _Epoch:
    """The windows of one epoch: what is due, within what can be answered at once."""

    moment: Moment
    scheduled: Scheduled
    due: dict[str, Due] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def workload(self) -> Workload:
        return self.moment.standing.workload


class AggregateOperator:
    """Answers all windowed aggregates; one schedule decides for all of them when that is."""

    def __init__(self, answering: Answering, policy: str, trigger_s: float | None) -> None:
        self._answering, self._policy, self._trigger_s = answering, policy, trigger_s

    def check(self, checked: Checked) -> None:
        return

    def decide(self, ask: Ask) -> Decided:
        standing, before = ask.standing, ask.before
        schedule = standing.manifest.schedule
        groups = groups_of(standing.workload, standing.live, schedule, standing.manifest.coverage)
        trigger_s = None if ask.flush else self._trigger_s
        made = schedule.decide(self._policy, groups, trigger_s, before.schedule if before else None)
        return Decided({SCHEDULE: made})

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        return Taking(kept=tuple(part.kept.values()))

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Past the end of every window that holds a stream's rows, or pairs made of them."""
        scheduled, ends = _scheduled(standing, decision), dict[str, int]()
        for name, plan in standing.workload.plans.items():
            if name not in standing.live:
                continue
            window = scheduled.window_of(name)
            for stream in streams_of(plan.query.root):
                last = clocks[stream].last_us
                if last is not None and clocks[stream].watermark_us is not None:
                    ends[stream] = max(last_end_with_rows(window, last), ends.get(stream, EVER[0]))
            below = () if plan.pairs is None else streams_read(plan)
            lasts = [last for stream in below if (last := clocks[stream].last_us) is not None]
            if plan.pairs is not None and plan.pairs.feeds is not None and lasts:
                # Pairs are dated later than the last of their rows came by at most the delay.
                end = last_end_with_rows(window, max(lasts)) + plan.pairs.feeds.delay_us
                ends |= {stream: max(end, ends.get(stream, EVER[0])) for stream in below}
        return ends

    def step(self, moment: Moment) -> Stepped:
        began = time.monotonic()
        epoch = _Epoch(moment, _scheduled(moment.standing, moment.decision))
        self._schedule(epoch)
        workload, decision = epoch.workload, moment.decision
        shedding = moment.standing.manifest.shedding.with_panes(moment.absorbed.panes)
        given = Given(decision.epoch, moment.replay, epoch.due, (*moment.chunks, *moment.absorbed.chunks), shedding)
        answered = self._answering.answer(workload, moment.sinks, given)
        alive = [name for name in _alive(moment) if name not in answered.failed]
        stepped = Stepped(answered.rows, answered.failed, unfinished=epoch.unfinished)
        stepped.answered = {name: self._answered(name, epoch) for name in alive}
        stepped.expired = _expired(workload, stepped.answered)
        schedule = moment.standing.manifest.schedule
        stepped.state[SCHEDULE] = schedule.learned(
            workload, epoch.due, answered.spent, time.monotonic() - began, moment.other_s, epoch.scheduled.state
        )
        return stepped

    # ------------------------------------------------------------------------------------------------------------------

    def _schedule(self, epoch: _Epoch) -> None:
        """Which executions are due, now that time has advanced for all streams, derived ones included."""
        moment, scheduled = epoch.moment, epoch.scheduled
        times = {n: found for n in _alive(moment) if (found := _times(n, moment)) is not None}
        scheduled.plan(times, moment.before, moment.after, moment.decision.flush is not None)
        for name, due in scheduled.due.items():
            ends_us = moment.standing.manifest.queries[name].ends_us
            within = due if ends_us is None else due.until(ends_us)
            if within is not None:
                epoch.due[name] = self._bounded(name, within, epoch)

    def _bounded(self, query: str, due: Due, epoch: _Epoch) -> Due:
        """Windows without rows are answered too where there is no key: so many at a time, the rest next."""
        if not self._answering.spec(epoch.workload, query).always or due.count <= MOST_EMPTY_WINDOWS:
            return due
        epoch.unfinished = True
        return Due(due.ends[:MOST_EMPTY_WINDOWS])

    def _answered(self, name: str, epoch: _Epoch) -> Answered:
        due, behind = epoch.due.get(name), epoch.scheduled.left.get(name, 0)
        owes = name in epoch.moment.ending and self._owes(name, epoch)
        if due is None:
            return Answered(epoch.moment.standing.manifest.queries[name].answered_us, behind, owes=owes)
        return Answered(due.last_us, behind, due.count, owes)

    def _owes(self, name: str, epoch: _Epoch) -> bool:
        """Whether windows within the lifetime of a query have been put off to another epoch."""
        ends_us, _ = epoch.moment.standing.lifetime(name, epoch.moment.after)
        if ends_us is None:
            return False
        due, given = epoch.scheduled.due.get(name), epoch.due.get(name)
        wanted = None if due is None else due.until(ends_us)
        if wanted is not None and given is not None and given.last_us < wanted.last_us:
            return True
        if name not in epoch.scheduled.left:
            return False
        times = _times(name, epoch.moment)
        after = given.last_us if given is not None else None if times is None else times.after_us
        return due_windows(epoch.scheduled.window_of(name), after, None, ends_us) is not None


def _scheduled(standing: Standing, decision: EpochDecision) -> Scheduled:
    assert decision.schedule is not None
    return Scheduled(decision.schedule, standing.workload, standing.manifest.schedule, standing.manifest.coverage)


def _alive(moment: Moment) -> list[str]:
    standing = moment.standing
    return [name for name in standing.live if name in standing.workload.plans and name not in moment.failed]


def _times(name: str, moment: Moment) -> QueryTimes | None:
    """After which time a query's next window can end; None before its first row."""
    plan: AnswerPlan = moment.standing.workload.plans[name]
    state = moment.standing.manifest.queries[name]
    own = [moment.after[stream] for stream in streams_of(plan.query.root)]
    last = max((clock.last_us for clock in own if clock.last_us is not None), default=None)
    if state.answered_us is not None:
        return QueryTimes(state.answered_us, last)
    if state.since_us is not None:
        # Windows that began before the query did lack rows: the first whole one starts at `since`.
        return QueryTimes(state.since_us + plan.aggregate.window.size_us - 1, last, fresh=True)
    first = min((clock.first_us for clock in own if clock.first_us is not None), default=None)
    return None if first is None else QueryTimes(first, last)


def _expired(workload: Workload, answered: Mapping[str, Answered]) -> dict[str, int]:
    """Per synopsis in use the time before which no window to come reaches."""
    expired: dict[str, int] = {}
    for name, each in answered.items():
        # The window answered last stays: it is what a one-time query asks for.
        size_us = workload.plans[name].aggregate.window.size_us
        reach = EVER[0] if each.until_us is None else each.until_us - size_us
        for id_ in workload.sources_of(name):
            expired[id_] = min(expired.get(id_, reach), reach)
    return expired
