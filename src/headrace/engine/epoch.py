"""One epoch, from a micro-batch to a manifest, in six steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.clocks import EpochClock
from headrace.engine.operators.answering import Answering, Given
from headrace.engine.operators.flows import FlowOperator, Moment, Stepped, remembered
from headrace.engine.operators.projection import projection
from headrace.engine.sinks.choose import Sink
from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.spark.arrow_rows import arrow_schema
from headrace.engine.spark.deadline import Deadline
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.retention import EVER, expired_panes, retain
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.workload import describe_workload
from headrace.engine.trial import Trial
from headrace.engine.watch.hooks import Hooks
from headrace.errors import CorruptStateError, EngineError
from headrace.kernels.absorb import Absorbed, AbsorbTask, Bounds, Cut, Projection
from headrace.model import (
    Due,
    Entry,
    EpochDecision,
    Flush,
    Intake,
    JoinDecision,
    KeyedDecision,
    Observed,
    Spent,
    Stream,
    streams_of,
)
from headrace.planning import FlowPlan, QueryTimes, Schedule, Scheduled, Workload, groups_of, streams_read
from headrace.policies import (
    PATIENCE,
    Patience,
    StreamClock,
    advance_clock,
    due_windows,
    find_idle,
    follow_others,
    last_end_with_rows,
    watermark_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Epochs"]

# Windows of a query without keys answered in one epoch; a stream that leaps over years makes millions of them due.
MOST_EMPTY_WINDOWS = 100_000


@dataclass
class Progress:
    """What an epoch has done so far: its steps fill it in, its commit writes it down."""

    decision: EpochDecision
    replay: bool
    began_s: float
    absorbed: Absorbed
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    scheduled: Scheduled | None = None
    due: dict[str, Due] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)
    stepped: Stepped = field(default_factory=Stepped)
    steps_s: dict[str, float] = field(default_factory=dict)


class Epochs:
    """Runs epochs one after the other; between two of them nothing is under way."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        io: StateIo,
        manifest: Manifest,
        streams: Sequence[Stream],
        workload: Workload,
        sinks: Mapping[str, Sink],
        corrupt: frozenset[str],
        hooks: Hooks,
        policy: str = "hybrid-late-pending",
        trigger_s: float | None = None,
        operators: Sequence[FlowOperator] = (),
        patience: Patience | None = None,
    ) -> None:
        self._policy, self._trigger_s, self._operators = policy, trigger_s, tuple(operators)
        self.intake: Intake | None = None
        self._decided: EpochDecision | None = None  # for the epoch before
        self._spark, self._checkpoint, self._io, self._manifest = spark, checkpoint, io, manifest
        self._streams, self._workload, self._sinks, self._corrupt = tuple(streams), workload, dict(sinks), corrupt
        self._hooks, self._probe = hooks, hooks.probe
        self._projections: dict[tuple[str, ...], Projection] = {}
        self._schemas: dict[tuple[str, ...], pa.Schema] = {}
        self._trial = Trial(Deadline(spark), patience or Patience(PATIENCE, 1.0), hooks.on_note)
        self._answering = Answering(io, checkpoint.state_folder, checkpoint.bins, hooks.probe, self._trial)
        self._described: Workload | None = None
        self._rejected = RejectedRows(checkpoint.storage)
        self._clock = EpochClock(hooks.reading, hooks.on_note)
        self._busy, self._stopping, self._replaced, self._behind = threading.Lock(), False, False, False
        self._thread: int | None = None  # the one that runs an epoch

    @property
    def state(self) -> tuple[Manifest, Workload]:
        """What the last epoch left and the workload it was committed with, or a later one."""
        return self._manifest, self._workload

    @property
    def manifest(self) -> Manifest:
        """What the last committed epoch left."""
        return self._manifest

    @property
    def calls(self) -> bool:
        """Whether the caller was itself called by an epoch under way: a hook, a sink."""
        return self._thread == threading.get_ident()

    def run(self, batch: DataFrame, number: int) -> None:
        """Runs the micro-batch `number` as the next epoch, unless it is committed already."""
        while not self._busy.acquire(timeout=0.1):
            if self._replaced:
                raise EngineError("another query takes over from here")
        try:
            if self._stopping:
                raise EngineError("the run is stopping")
            if number > self._manifest.batch:
                self._run(batch, number, None)
        finally:
            self._busy.release()

    def change(
        self,
        plan: Callable[[Workload, Manifest], tuple[Workload, Manifest, Mapping[str, Sink]]],
        between: Callable[[], None],
    ) -> None:
        """Replaces the workload between two epochs: `plan` makes the new one. If anything fails, nothing changes.

        `between` runs while no epoch is under way; it may stop the caller of `run` and start another.
        """
        with self._busy:
            before = self._workload, self._manifest, self._sinks
            workload, self._manifest, sinks = plan(self._workload, self._manifest)
            self._sinks = dict(sinks)
            self._install(workload)
            self._replaced = True
            try:
                between()
            except BaseException:
                workload, self._manifest, self._sinks = before
                self._install(workload)
                raise
            finally:
                self._replaced = False

    def flush(self, reason: str) -> None:
        """Runs epochs without rows until every window that holds rows is answered."""
        with self._busy:
            self._run(None, self._manifest.batch, Flush(reason))
            while self._behind:
                self._run(None, self._manifest.batch, Flush(reason))

    def recover(self) -> None:
        """Ends a flush that a crash interrupted, before any new row is looked at."""
        decision = self._checkpoint.decision(self._manifest.epoch + 1)
        if decision is not None and decision.flush is not None:
            self.flush(decision.flush.reason)

    def quiesce(self) -> None:
        """Waits for the epoch under way to be committed and lets no other begin."""
        self._stopping = True
        with self._busy:
            pass

    def _run(self, batch: DataFrame | None, number: int, flush: Flush | None) -> None:
        self._thread = threading.get_ident()
        try:
            jobs = self._jobs()
            progress = self._step("admit", self._admit, number, flush)
            self._timed(progress, "absorb", self._absorb, batch)
            self._timed(progress, "advance", self._advance)
            self._timed(progress, "flow", self._flow)
            self._timed(progress, "answer", self._answer)
            self._timed(progress, "commit", self._commit, jobs)
            self._observe()
        finally:
            self._thread = None

    # 1 admit -------------------------------------------------------------------------------------------------------

    def _admit(self, number: int, flush: Flush | None) -> Progress:
        epoch = self._manifest.epoch + 1
        began = time.monotonic()
        self._probe("before-decision")
        decision = self._checkpoint.decision(epoch)
        replay = decision is not None
        if decision is not None and (decision.batch, decision.flush is None) != (number, flush is None):
            raise CorruptStateError(
                f"decision {epoch} of {self._checkpoint.storage.root} is for batch {decision.batch}, not {number}"
            )
        if decision is None:
            now = self._clock.tell(epoch, self._decided or self._checkpoint.decision(epoch - 1))
            decision = EpochDecision(
                epoch=epoch,
                batch=number,
                wall_us=now.wall_us,
                listened_us=now.listened_us,
                seed=epoch,
                queries=tuple(sorted(self._live())),
                idle=find_idle(self._clocks(), self._streams, self._stream_groups(), now.listened_us, now.since_us),
                flush=flush,
                intake=self.intake,
                schedule=self._manifest.schedule.decide(
                    self._policy,
                    groups_of(self._workload, self._live(), self._manifest.schedule),
                    None if flush else self._trigger_s,
                    self._decided.schedule if self._decided else None,
                ),
                flows=self._decide_flows(epoch),
            )
            self._checkpoint.write_decision(decision)
        elif self._workload.all_flows:
            # Of queries that came after the crash nothing has acted yet; one may have the name of another before it.
            known = {n: d for n, d in decision.flows.items() if n in self._manifest.flows}
            decision = replace(decision, flows={**decision.flows, **self._decide_flows(epoch), **known})
        self._decided = decision
        self._hooks.on_decision(decision)
        self._probe("after-decision")
        return Progress(decision, replay, began, Absorbed())

    def _decide_flows(self, epoch: int) -> dict[str, JoinDecision | KeyedDecision]:
        decided: dict[str, JoinDecision | KeyedDecision] = {}
        live = {name: plan for name, plan in self._workload.all_flows.items() if self._manifest.queries[name].runs}
        for operator in self._operators:
            mine = {name: plan for name, plan in live.items() if operator.serves(plan)}
            decided |= operator.decide(mine, self._manifest.flows, epoch) if mine else {}
        return decided

    # 2 absorb ------------------------------------------------------------------------------------------------------

    def _absorb(self, progress: Progress, batch: DataFrame | None) -> None:
        if batch is None:
            return
        bounds = self._bounds(progress.decision)

        def over_rows(names: tuple[str, ...], trial: bool) -> Absorbed:
            if not trial:
                self._probe("mid-state")
            return self._absorb_rows(batch, progress.decision, bounds, names, trial)

        progress.absorbed, progress.failed = self._trial.absorb(over_rows, self._live())
        if any(count.rejected for count in progress.absorbed.counts.values()):
            epoch, replay = progress.decision.epoch, progress.replay
            self._rejected.write(batch, self._streams, bounds, self._corrupt, epoch, replay)
        self._probe("after-state")

    def _absorb_rows(
        self,
        batch: DataFrame,
        decision: EpochDecision,
        bounds: tuple[Bounds, ...],
        live: tuple[str, ...],
        trial: bool,
    ) -> Absorbed:
        shape = self._projection(live)
        cuts: dict[str, Cut] = {}
        for operator in self._operators:
            mine = {n: p for n, p in self._workload.all_flows.items() if n in live and operator.serves(p)}
            cuts |= operator.cuts(mine, decision.flows)
        task = AbsorbTask(None if trial else self._checkpoint.state_folder, decision.epoch, bounds, shape, cuts)
        rows = batch.selectExpr(*shape.bound(bounds))
        if live not in self._schemas:
            self._schemas[live] = arrow_schema(rows)
        return sum(self._io.absorb(rows, self._schemas[live], task), Absorbed())

    # 3 advance -----------------------------------------------------------------------------------------------------

    def _advance(self, progress: Progress) -> None:
        decision, clocks = progress.decision, self._clocks()
        for stream in self._streams:
            count = progress.absorbed.counts.get(stream.name)
            seen = None if count is None or count.first_us is None or count.last_us is None else (
                count.first_us, count.last_us)  # fmt: skip
            clocks[stream.name] = advance_clock(clocks[stream.name], stream, seen, decision.listened_us)
        idle = [i.stream for i in decision.idle if clocks[i.stream].heard_us != decision.listened_us]
        progress.clocks = follow_others(clocks, idle, self._stream_groups())
        assert decision.schedule is not None
        progress.scheduled = Scheduled(decision.schedule, self._workload, self._manifest.schedule)
        self._end_if_flushed(progress, [stream.name for stream in self._streams])

    def _end_if_flushed(self, progress: Progress, streams: Sequence[str]) -> None:
        """Flushed streams' watermarks pass the end of every window that holds their rows."""
        if progress.decision.flush is not None:
            assert progress.scheduled is not None
            ended = {name: self._ended(name, progress.clocks, progress.scheduled) for name in streams}
            progress.clocks = {**progress.clocks, **ended}

    def _flow(self, progress: Progress) -> None:
        """Results that come with the rows: each operator serves all live queries of its kind."""
        live = set(self._live()) - progress.failed.keys()
        for operator in self._operators:
            flows = {n: p for n, p in self._workload.all_flows.items() if n in live and operator.serves(p)}
            if flows:
                moment = Moment(
                    progress.decision, progress.replay, flows, self._sinks, self._workload.kept, self._manifest.chunks,
                    progress.absorbed, self._clocks(), progress.clocks, self._manifest.flows,
                    frozenset(n for n in flows if n in self._workload.queries and self._age(n, progress.clocks)[1]),
                )  # fmt: skip
                progress.stepped.add(operator.step(moment))
        progress.failed |= progress.stepped.failed
        progress.rows |= progress.stepped.rows
        progress.clocks = {**progress.clocks, **progress.stepped.clocks}
        self._end_if_flushed(progress, list(progress.stepped.clocks))

    def _schedule(self, progress: Progress) -> None:
        """Which executions are due, now that time has advanced for all streams, derived ones included."""
        scheduled, clocks, decision = progress.scheduled, progress.clocks, progress.decision
        assert scheduled is not None
        self._behind = False
        times = {
            name: found
            for name in self._live()
            if name in self._workload.plans
            and name not in progress.failed
            and (found := self._times(name, clocks)) is not None
        }
        scheduled.plan(times, self._clocks(), clocks, decision.flush is not None)
        for name, due in scheduled.due.items():
            ends_us = self._manifest.queries[name].ends_us
            within = due if ends_us is None else due.until(ends_us)
            if within is not None:
                progress.due[name] = self._bounded(name, within)

    def _times(self, name: str, clocks: Mapping[str, StreamClock]) -> QueryTimes | None:
        """After which time a query's next window can end; None before its first row."""
        plan, state = self._workload.plans[name], self._manifest.queries[name]
        own = [clocks[stream] for stream in streams_of(plan.query.root)]
        lasts = [clock.last_us for clock in own if clock.last_us is not None]
        last = max(lasts, default=None)
        if state.answered_us is not None:
            return QueryTimes(state.answered_us, last)
        if state.since_us is not None:
            # Windows that began before the query did lack rows: the first whole one starts at `since`.
            return QueryTimes(state.since_us + plan.aggregate.window.size_us - 1, last, fresh=True)
        first = min((clock.first_us for clock in own if clock.first_us is not None), default=None)
        return None if first is None else QueryTimes(first, last)

    def _bounded(self, query: str, due: Due) -> Due:
        """Windows without rows are answered too where there is no key: so many at a time, the rest next."""
        if not self._answering.spec(self._workload, query).always or due.count <= MOST_EMPTY_WINDOWS:
            return due
        self._behind = True
        return Due(due.ends[:MOST_EMPTY_WINDOWS])

    def _ended(self, stream: str, clocks: Mapping[str, StreamClock], scheduled: Scheduled) -> StreamClock:
        """A flushed stream's watermark passes the end of every window that holds its rows."""
        clock, ends = clocks[stream], list[int | None]()
        for name in self._live():
            plan = self._workload.queries[name]
            flow = self._workload.all_flows.get(name)
            if flow is not None and stream in streams_read(plan):
                ends += (o.ends(flow, clocks) for o in self._operators if o.serves(flow))
            if isinstance(plan, FlowPlan) or stream not in streams_of(plan.query.root):
                ends.append(self._end_of_pairs(name, stream, clocks, scheduled))
                continue
            if clock.last_us is not None and clock.watermark_us is not None:
                ends.append(last_end_with_rows(scheduled.window_of(name), clock.last_us))
        known = [end for end in (clock.watermark_us, *ends) if end is not None]
        return replace(clock, watermark_us=max(known)) if known else clock

    def _end_of_pairs(self, name: str, stream: str, clocks: Mapping[str, StreamClock], of: Scheduled) -> int | None:
        """Where a stream's time must be so that windows over a join's pairs have ended: rows before it are late."""
        plan = self._workload.plans.get(name)
        if plan is None or plan.pairs is None or plan.pairs.feeds is None or stream not in streams_read(plan):
            return None
        lasts = [last for each in streams_read(plan) if (last := clocks[each].last_us) is not None]
        return last_end_with_rows(of.window_of(name), max(lasts)) + plan.pairs.feeds.delay_us if lasts else None

    # 4 answer ------------------------------------------------------------------------------------------------------

    def _answer(self, progress: Progress) -> None:
        self._schedule(progress)
        chunks = (*self._manifest.chunks, *progress.absorbed.chunks, *progress.stepped.chunks)
        given = Given(progress.decision.epoch, progress.replay, progress.due, chunks)
        answered = self._answering.answer(self._workload, self._sinks, given)
        progress.failed |= answered.failed
        progress.rows |= answered.rows
        progress.spent = answered.spent
        self._probe("after-sinks")

    # 5 commit ------------------------------------------------------------------------------------------------------

    def _commit(self, progress: Progress, jobs: int) -> None:
        before, decision = self._manifest, progress.decision
        queries = {name: self._outcome(name, state, progress) for name, state in before.queries.items()}
        for name, state in queries.items():
            if state.ended and not before.queries[name].ended:
                self._hooks.on_note(f"query '{name}' has come to the end of its lifetime")
        if any(not queries[name].runs for name in self._workload.queries):
            self._install(self._workload.only(name for name in self._workload.queries if queries[name].runs))
        if self._described is not self._workload:
            self._checkpoint.write_workload(decision.epoch, describe_workload(self._workload, self._streams))
        stepped = progress.stepped
        failed = {name for name, state in queries.items() if state.failed is not None}
        flows = remembered({**before.flows, **stepped.state}, self._workload.all_flows, failed)
        there = (*before.chunks, *progress.absorbed.chunks, *stepped.chunks)
        retained = retain(
            self._workload,
            there,
            flows,
            {
                **{s.id: stepped.expired.get(s.id, EVER[0]) for s in self._workload.stores},
                **expired_panes(self._workload, queries),
            },
            before.coverage,
            progress.absorbed,
            self._io,
            self._checkpoint.state_folder,
            self._checkpoint.bins,
            decision.epoch,
        )
        manifest = Manifest(
            epoch=decision.epoch,
            batch=decision.batch,
            clocks=progress.clocks,
            ledger={s.name: before.ledger.get(s.name, Entry()) + _entry(progress, s.name) for s in self._streams},
            queries=queries,
            coverage=retained.coverage,
            workload=before.workload if self._described is self._workload else decision.epoch,
            chunks=retained.chunks,
            schedule=self._learned(progress),
            flows=flows,
            observed=Observed(
                decision.wall_us,
                round(time.monotonic() - progress.began_s, 4),
                {name: round(s, 4) for name, s in progress.steps_s.items()},
                self._jobs() - jobs,
                {name: count.entry.rows_in for name, count in progress.absorbed.counts.items()},
                {name: due.count for name, due in progress.due.items()},
                sum(chunk.bytes for chunk in retained.chunks),
                progress.replay,
                stepped.observed,
            ),
        )
        self._probe("before-manifest")
        self._checkpoint.commit(manifest)
        self._manifest, self._described = manifest, self._workload
        self._probe("after-manifest")
        self._checkpoint.clean(manifest, retained.dropped)

    def _outcome(self, name: str, state: QueryState, progress: Progress) -> QueryState:
        if name in progress.failed:
            return state.failed_by(progress.failed[name])
        if not state.runs or name not in self._workload.queries:
            return state
        state = self._aged(name, state, progress)
        if name in self._workload.flows:
            done, behind = progress.stepped.answered.get(name, (state.answered_us, 0))
            rows = state.rows + progress.rows.get(name, 0)
            return replace(state, rows=rows, answered_us=done, waiting_us=behind)
        due = progress.due.get(name)
        waiting = progress.scheduled.left.get(name, 0) if progress.scheduled else 0
        if due is None:
            return replace(state, waiting_us=waiting)
        gap = state.gap_us
        if state.answered_us is not None:
            mean = (due.last_us - state.answered_us) / due.count
            gap = mean if gap is None else gap + (mean - gap) * min(1.0, 0.1 * due.count)
        return replace(
            state,
            answered_us=due.last_us,
            answers=state.answers + due.count,
            rows=state.rows + progress.rows.get(name, 0),
            gap_us=gap,
            waiting_us=waiting,
        )

    def _aged(self, name: str, state: QueryState, progress: Progress) -> QueryState:
        """A query with a lifetime ends when time has passed it, and it owes nothing."""
        ends, over = self._age(name, progress.clocks)
        owes = over and name in self._workload.plans and ends is not None and self._owes(name, ends, progress)
        return replace(state, ends_us=ends, ended=over and not owes)

    def _age(self, name: str, clocks: Mapping[str, StreamClock]) -> tuple[int | None, bool]:
        """When the lifetime of a query ends, and whether time has passed that."""
        query, ends = self._workload.queries[name].query, self._manifest.queries[name].ends_us
        now = None if query.lifetime_us is None else watermark_of(clocks, streams_of(query.root))
        if now is None or query.lifetime_us is None:
            return ends, False
        ends = now + query.lifetime_us if ends is None else ends
        return ends, now >= ends

    def _owes(self, name: str, ends_us: int, progress: Progress) -> bool:
        """Whether windows up to a time have been put off to another epoch."""
        assert progress.scheduled is not None
        due, given = progress.scheduled.due.get(name), progress.due.get(name)
        wanted = None if due is None else due.until(ends_us)
        if wanted is not None and given is not None and given.last_us < wanted.last_us:
            return True
        if name not in progress.scheduled.left:
            return False
        times = self._times(name, progress.clocks)
        after = given.last_us if given is not None else None if times is None else times.after_us
        return due_windows(progress.scheduled.window_of(name), after, None, ends_us) is not None

    def _learned(self, progress: Progress) -> Schedule:
        assert progress.scheduled is not None
        answer_s = progress.steps_s.get("answer", 0.0)
        other_s = time.monotonic() - progress.began_s - answer_s
        return self._manifest.schedule.learned(
            self._workload, progress.due, progress.spent, answer_s, other_s, progress.scheduled.state
        )

    # 6 observe -----------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        self._hooks.on_epoch(self._manifest)

    # -----------------------------------------------------------------------------------------------------------------

    def _live(self) -> list[str]:
        return [name for name in self._workload.queries if self._manifest.queries[name].runs]

    def _stream_groups(self) -> list[tuple[str, ...]]:
        return [streams_read(plan) for plan in self._workload.queries.values()]

    def _clocks(self) -> dict[str, StreamClock]:
        names = (*(stream.name for stream in self._streams), *self._workload.derived)
        return {name: self._manifest.clocks.get(name, StreamClock()) for name in names}

    def _bounds(self, decision: EpochDecision) -> tuple[Bounds, ...]:
        clocks = self._clocks()
        marks = [clocks[stream.name].watermark_us for stream in self._streams]
        return tuple(
            Bounds(EVER[0] if mark is None else mark, decision.wall_us + stream.ahead_us)
            for stream, mark in zip(self._streams, marks, strict=True)
        )

    def _install(self, workload: Workload) -> None:
        self._workload = workload
        self._projections.clear()
        self._schemas.clear()

    def _projection(self, names: tuple[str, ...]) -> Projection:
        if names not in self._projections:
            part, own = self._workload.only(names), {stream.name for stream in self._streams}
            self._projections[names] = projection(
                self._streams,
                [kept for kept in part.kept.values() if kept.synopsis.feeds[0].stream in own],
                self._checkpoint.bins,
                self._corrupt,
                [store for store in part.stores if store.feeds[0].stream in own],
            )
        return self._projections[names]

    def _jobs(self) -> int:
        """Spark jobs started so far in this application."""
        return int(self._spark._jsc.sc().dagScheduler().nextJobId())

    def _step(self, name: str, step: Callable[..., Progress], *arguments: Any) -> Progress:
        began = time.monotonic()
        progress = step(*arguments)
        progress.steps_s[name] = time.monotonic() - began
        return progress

    def _timed(self, progress: Progress, name: str, step: Callable[..., None], *arguments: Any) -> None:
        began = time.monotonic()
        self._checkpoint.check_lock()
        step(progress, *arguments)
        progress.steps_s[name] = time.monotonic() - began


def _entry(progress: Progress, stream: str) -> Entry:
    """The account of a stream's rows; one that some query had to leave out is shed, though others may have used it."""
    count = progress.absorbed.counts.get(stream)
    entry = count.entry if count else Entry()
    shed = max((rows for (_, name), rows in progress.absorbed.shed.items() if name == stream), default=0)
    return replace(entry, used=entry.used - shed, shed=entry.shed + shed)
