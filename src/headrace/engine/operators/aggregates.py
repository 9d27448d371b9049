"""The aggregate operator: when windowed aggregates are due, and their answers from shared panes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.engine.failures import cause_of
from headrace.engine.operators.answering import Answering, Given
from headrace.engine.operators.port import Answered, Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.standing import Standing
from headrace.engine.state.retention import EVER
from headrace.kernels.absorb import Absorbed
from headrace.kernels.chunks import Chunk
from headrace.kernels.values import spelled
from headrace.model import SCHEDULE, AnswersState, Due, EpochDecision
from headrace.planning import AnswerPlan, QueryTimes, Scheduled, Workload, epoch_seconds, groups_of
from headrace.policies import StreamClock, due_windows, last_end_with_rows, watermark_of
from headrace.policies.remedies import Remedy

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
    """Answers all windowed aggregates; one schedule decides for all of them when that is.

    `may_wait` says that answers of a run without a trigger may come late under overload.
    """

    def __init__(self, answering: Answering, policy: str, trigger_s: float | None, may_wait: bool = False) -> None:
        self._answering, self._policy, self._trigger_s, self._may_wait = answering, policy, trigger_s, may_wait

    def check(self, checked: Checked) -> None:
        return

    def decide(self, ask: Ask) -> Decided:
        standing, before = ask.standing, ask.before
        schedule = standing.manifest.schedule
        groups = groups_of(standing.workload, standing.live, schedule, standing.manifest.coverage)
        last = before.schedule if before else None
        as_asked = ask.acts(Remedy.REFRESH)
        made = schedule.decide(self._policy, groups, self._epoch_s(ask), last, as_asked=as_asked)
        return Decided({SCHEDULE: made})

    def _epoch_s(self, ask: Ask) -> float | None:
        """How long an epoch may take, answers included; None: as long as it needs, unless answers are to come late."""
        late = self._may_wait and ask.acts(Remedy.ANSWER_LATE)
        if ask.flush is not None or self._trigger_s or not late:
            return None if ask.flush else self._trigger_s
        return epoch_seconds(0.0, ask.standing.manifest.shedding.costs.fixed_s)

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        return Taking(kept=tuple(part.kept.values()))

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Past the end of every window that holds a stream's rows."""
        scheduled, ends = _scheduled(standing, decision), dict[str, int]()
        nodes = standing.workload.under(standing.live)
        for name, plan in standing.workload.plans.items():
            if name not in nodes:
                continue
            window = scheduled.window_of(name)
            for stream in plan.reads:
                last = clocks[stream].last_us
                if last is not None and clocks[stream].watermark_us is not None:
                    ends[stream] = max(last_end_with_rows(window, last), ends.get(stream, EVER[0]))
        return ends

    def answer(self, moment: Moment) -> Made:
        made = self._feed(moment)
        if not moment.nodes or any(name in moment.standing.workload.queries for name in moment.nodes):
            # Queries are in the last round; the schedule learns of epochs without any, too.
            made.add(self._answer(moment))
        return made

    def _feed(self, moment: Moment) -> Made:
        """Gives all aligned windows that time has passed to the nodes above, whatever the schedule has to say.

        Windows without rows have no answers, so that there are never too many.
        """
        made, reached = Made(), dict[str, Answered]()
        for name, plan in moment.answers.items():
            if plan.feeds is None:
                continue
            state, now = _answers_state(name, moment), watermark_of(moment.after, plan.reads)
            times, absorbed = _times(plan, moment, state.answered_us, state.since_us), Absorbed()
            due = None if times is None else due_windows(plan.aggregate.window, times.after_us, None, now)
            if due is not None:
                given = Given(moment.decision.epoch, moment.replay, {name: due}, _chunks(moment))
                try:
                    results = self._answering.results(moment.standing.workload, name, given)
                    absorbed = moment.feed(plan.feeds.stream, results)
                except Exception as failure:
                    made.failed[name] = cause_of(failure, spelled(plan.query.root))
                    continue
            until = state.answered_us if due is None else due.last_us
            reached[name] = Answered(until)
            made.fed += absorbed
            made.clocks[plan.feeds.name] = moment.clock_of(plan.feeds, now, absorbed)
            made.state[name] = AnswersState(until, state.since_us, plan.forms)
        made.expired = _expired(moment.standing.workload, reached)
        return made

    def _answer(self, moment: Moment) -> Made:
        began = time.monotonic()
        epoch = _Epoch(moment, _scheduled(moment.standing, moment.decision))
        self._schedule(epoch)
        workload, decision = epoch.workload, moment.decision
        shedding = moment.standing.manifest.shedding.with_panes(moment.absorbed.panes)
        given = Given(decision.epoch, moment.replay, epoch.due, _chunks(moment), shedding)
        answered = self._answering.answer(workload, moment.sinks, given)
        alive = [name for name in _alive(moment) if name not in answered.failed]
        made = Made(answered.rows, answered.failed, unfinished=epoch.unfinished, counts=answered.counts)
        made.answered = {name: self._answered(name, epoch) for name in alive}
        made.expired = _expired(workload, made.answered)
        schedule = moment.standing.manifest.schedule
        made.state[SCHEDULE] = schedule.learned(
            workload, epoch.due, answered.spent, time.monotonic() - began, moment.other_s, epoch.scheduled.state
        )
        return made

    # ------------------------------------------------------------------------------------------------------------------

    def _schedule(self, epoch: _Epoch) -> None:
        """Which executions are due, now that time has advanced for all streams, derived ones included."""
        moment, scheduled = epoch.moment, epoch.scheduled
        times = {name: found for name in _alive(moment) if (found := _query_times(name, moment)) is not None}
        flush = moment.decision.flush
        scheduled.plan(times, moment.before, moment.after, flush is not None and not flush.streams)
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
        times = _query_times(name, epoch.moment)
        after = given.last_us if given is not None else None if times is None else times.after_us
        return due_windows(epoch.scheduled.window_of(name), after, None, ends_us) is not None


def _scheduled(standing: Standing, decision: EpochDecision) -> Scheduled:
    assert decision.schedule is not None
    return Scheduled(decision.schedule, standing.workload, standing.manifest.schedule, standing.manifest.coverage)


def _alive(moment: Moment) -> list[str]:
    return [name for name, plan in moment.answers.items() if plan.feeds is None]


def _chunks(moment: Moment) -> tuple[Chunk, ...]:
    return (*moment.chunks, *moment.absorbed.chunks)


def _answers_state(node: str, moment: Moment) -> AnswersState:
    found = moment.state.get(node)
    return found if isinstance(found, AnswersState) else AnswersState()


def _query_times(name: str, moment: Moment) -> QueryTimes | None:
    state = moment.standing.manifest.queries[name]
    return _times(moment.standing.workload.plans[name], moment, state.answered_us, state.since_us)


def _times(plan: AnswerPlan, moment: Moment, answered_us: int | None, since_us: int | None) -> QueryTimes | None:
    """After which time a node's next window can end; None before its first row."""
    own = [moment.after[stream] for stream in plan.reads]
    since_us = max((us for us in (since_us, _since_us(plan, moment)) if us is not None), default=None)
    last = max((clock.last_us for clock in own if clock.last_us is not None), default=None)
    if answered_us is not None:
        return QueryTimes(answered_us, last)
    if since_us is not None:
        # Windows that began before the query did lack rows: the first whole one starts at `since`.
        return QueryTimes(plan.aggregate.window.whole_us(since_us), last, fresh=True)
    first = min((clock.first_us for clock in own if clock.first_us is not None), default=None)
    return None if first is None else QueryTimes(first, last)


def _since_us(plan: AnswerPlan, moment: Moment) -> int | None:
    """The time from which other sites have sent what a node is merged from; None: from the beginning."""
    panes = (feed.panes for demand in plan.demands for feed in demand.synopsis.feeds)
    since = moment.decision.since
    return max((since[column] for column in panes if column is not None and column in since), default=None)


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
