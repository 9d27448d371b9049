"""A user's pipeline in simulated time: epochs as the engine runs them, decided by the engine's own functions.

    arrive    rows come to the sources; an epoch begins when its trigger does, and takes what waits, up to the intake
    admit     joins, keyed state, shedding and the schedule decide, by what they remember
    absorb    rows that edges keep cost what they cost on the machine
    advance   rows bring event time forward: a row's time is when it came
    answer    joins and keyed state work on the epoch's rows; then what is due is answered, as far as its budget goes
    observe   what all of that took goes back to who decides

Nothing here chooses: what is remembered, decided and learned are values of production's types, made by its functions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.model import (
    SCHEDULE,
    SHEDDING,
    Admission,
    AnswersState,
    Entry,
    EpochDecision,
    JoinDecision,
    JoinMeasures,
    JoinState,
    KeyedDecision,
    KeyedMeasures,
    KeyedState,
    LookupState,
    NodeDecision,
    Observed,
    Pipeline,
    Shed,
    SheddingDecision,
    edge_into,
)
from headrace.planning import (
    LEFT,
    RIGHT,
    AnswerPlan,
    Asked,
    Derived,
    FlowPlan,
    JoinEpoch,
    JoinPlan,
    LookupPlan,
    NodeState,
    Recorded,
    RecordedEpoch,
    RowsPlan,
    Scheduled,
    Shedding,
    StepPlan,
    Workload,
    advance_us,
    decide_join,
    decide_shedding,
    edges_into,
    edges_of,
    epoch_seconds,
    even_spread_offers,
    expired_rows,
    groups_of,
    host_rates,
    last_row_us,
    learn_join,
    may_shed_join,
    parts_of,
    plan_admissions,
    unasked_share,
)
from headrace.policies import (
    FIRST_INTAKE,
    StreamClock,
    account,
    advance_clock,
    begin,
    decide_keyed,
    due_windows,
    tuning_of,
    watermark_of,
)
from headrace.policies.remedies import Offer, Remedy
from headrace.policies.shedding import RowSample, learn_row_costs
from headrace.simulation.whatif.arriving import Batch, IntakeOf, arrivals_of, intake_of
from headrace.simulation.whatif.executions import Scans, plan_due
from headrace.simulation.whatif.joins import JoinWorld
from headrace.simulation.whatif.keyed import KeyedWorld
from headrace.simulation.whatif.machine import ROW_S, Machine, shares
from headrace.simulation.whatif.scenario import Scenario
from headrace.units import SECOND_US

__all__ = ["Beat", "World", "play"]

SIDES = (LEFT, RIGHT)
# Where there is no trigger, Spark looks for rows so often.
LEAST_S = 0.01
# A new intake makes Spark's query start anew.
RESTART_S = 1.0


@dataclass(frozen=True)
class Beat:
    """One epoch: when its rows were fixed and when it ended, in seconds, and how old its oldest row was then.

    By stream, `came` are the rows that came to the source since the epoch before, `waiting` those that it left there.
    """

    began_s: float
    ended_s: float
    lag_s: float
    came: Mapping[str, int]
    waiting: Mapping[str, int]
    record: RecordedEpoch

    @property
    def decision(self) -> EpochDecision:
        return self.record.decision


@dataclass
class _Epoch:
    """An epoch under way: rows by stream, derived ones included, and what its steps made of them."""

    decision: EpochDecision
    rows: dict[str, float]
    clocks: dict[str, StreamClock]
    nodes: dict[str, NodeState] = field(default_factory=dict)
    flows: dict[str, JoinMeasures | KeyedMeasures] = field(default_factory=dict)
    edges: dict[str, Shed] = field(default_factory=dict)
    answered_us: dict[str, int | None] = field(default_factory=dict)
    behind_us: dict[str, int] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    rest_s: float = 0.0
    absorb_s: float = 0.0
    flows_s: float = 0.0
    answer_s: float = 0.0
    read_s: dict[str, float] = field(default_factory=dict)  # task-seconds by stream, and by edge
    edge_s: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)  # rows by edge
    judged: Shedding = field(default_factory=Shedding)

    @property
    def seconds(self) -> float:
        return self.rest_s + self.absorb_s + self.flows_s + self.answer_s


class World:
    """Machines, sources, and the engine between two epochs: `record` is all that it remembers."""

    def __init__(
        self, pipeline: Pipeline, workload: Workload, machine: Machine, scenario: Scenario, recorded: Recorded | None
    ) -> None:
        self.pipeline, self.workload, self.machine = pipeline, workload, machine
        self.settings, self.tuning = pipeline.engine, tuning_of(dict(pipeline.engine.conf))
        self.trigger_s = pipeline.engine.trigger_us / SECOND_US
        self.speeds = scenario.speeds(machine.hosts if scenario.hosts is None else scenario.hosts)
        rates = scenario.rate.of(machine.rates)
        self.chance = random.Random(f"{scenario.seed}/simulate")
        self.arrivals, self.guesses = arrivals_of(pipeline.streams, rates, recorded)
        self.record = RecordedEpoch(EpochDecision(-1, -1, 0, 0, ())) if recorded is None else recorded.last
        first = recorded.last.decision.intake if recorded is not None else None
        self.intake: IntakeOf = intake_of(
            pipeline.streams, first or FIRST_INTAKE, self.trigger_s, self.record.shedding.rows_per_byte
        )
        self.now_s, self.admitted_s = 0.0, 0.0
        self.started = True
        times = {name: rate / self.machine.rates[name] for name, rate in rates.items() if self.machine.rates[name]}
        self.scans = Scans(machine, workload, times)
        self.parts = parts_of(workload, workload.queries, [s.name for s in pipeline.streams])
        self.late = self.record.ledger
        lasts = {s.name: self._clocks()[s.name].last_us for s in pipeline.streams}
        newest = max((last for last in lasts.values() if last is not None), default=0)
        self.origin_us = {name: newest if last is None else last for name, last in lasts.items()}
        self.joins = {n: self._joined(n, p) for n, p in workload.flows.items() if isinstance(p, JoinPlan)}
        self.keyed = {
            n: KeyedWorld.of(machine.keyed[n], self._keyed_state(n))
            for n, p in workload.flows.items() if isinstance(p, RowsPlan | StepPlan)
        }  # fmt: skip

    def _joined(self, name: str, plan: JoinPlan) -> JoinWorld:
        """A join with windows as full as they were."""
        state = self.record.nodes.get(name)
        world = JoinWorld.of(plan, self.machine.joins[name], state if isinstance(state, JoinState) else None)
        if state is not None:
            for side in SIDES:
                rate = sum(self.machine.rates.get(s, 0.0) * part for s, part in shares(plan, side, self.machine))
                world.fill(side, max(self.origin_us.values()), rate)
        return world

    # One epoch --------------------------------------------------------------------------------------------------------

    def epoch(self) -> Beat | None:
        """The epoch that begins now, and time until the next can begin; None if there are no rows for one."""
        came = {name: each.come(self.now_s, self.chance) for name, each in self.arrivals.items()}
        taken = {name: each.take(self.intake.most(each.stream)) for name, each in self.arrivals.items()}
        batches = {name: batch for name, batch in taken.items() if batch is not None}
        began_s = self.now_s
        if not batches:
            self.now_s = self._next(began_s, began_s)
            return None
        epoch = self._admit(batches)
        self._absorb(epoch)
        self._advance(epoch, batches)
        self._flow(epoch)
        self._learn_rows(epoch)
        self._answer(epoch)
        ended_s = began_s + self.machine.gap_s + epoch.seconds
        self.record = self._recorded(epoch)
        beat = Beat(
            began_s,
            ended_s,
            ended_s - min(batch.oldest_s for batch in batches.values()),
            came,
            {name: each.rows for name, each in self.arrivals.items()},
            self.record,
        )
        urgent = self.record.shedding.remedies.acts(Remedy.INTAKE)
        anew = self.intake.committed({name: batch.rows for name, batch in batches.items()}, epoch.seconds, urgent)
        self.now_s = self._next(began_s, ended_s + (RESTART_S if anew else 0.0))
        return beat

    def _next(self, began_s: float, ended_s: float) -> float:
        """When the next epoch begins: with the trigger, or at once if that has passed."""
        if not self.trigger_s:
            return max(ended_s, began_s + LEAST_S)
        return max(ended_s, (began_s // self.trigger_s + 1) * self.trigger_s)

    # 1 admit ----------------------------------------------------------------------------------------------------------

    def _admit(self, batches: Mapping[str, Batch]) -> _Epoch:
        number, record, nodes = self.record.decision.epoch + 1, self.record, dict[str, NodeDecision]()
        rows = {name: float(batch.rows) for name, batch in batches.items()}
        keep, acts = dict[str, float](), record.shedding.remedies.acts
        for name, plan in self.workload.flows.items():
            state = record.nodes.get(name)
            if isinstance(plan, JoinPlan):
                assert state is None or isinstance(state, JoinState)
                memory = self.tuning.join_bytes if may_shed_join(self.workload, name) else None
                urgent = acts(Remedy.SPREAD_JOINS)
                made = decide_join(plan, state, len(self.speeds), self.settings.join, memory, urgent=urgent)
                nodes[name] = made
                if made.way.keep < 1:
                    keep |= dict.fromkeys(edges_into(plan), made.way.keep)
            elif name in self.keyed:
                known, bins, merges = self._keyed_state(name), len(self.speeds), isinstance(plan, RowsPlan)
                nodes[name] = decide_keyed(known, bins, self.tuning.flux, merges, urgent=acts(Remedy.MOVE_STATE))
        shed, judged = self._decide_shedding(rows)
        nodes[SHEDDING] = shed
        groups = groups_of(self.workload, self.workload.queries, record.schedule)
        before = record.decision.schedule
        nodes[SCHEDULE] = record.schedule.decide(
            self.settings.schedule, groups, self._answers_s(), before, as_asked=acts(Remedy.REFRESH)
        )
        decision = EpochDecision(
            number, number, self._time_us(self.now_s), number, tuple(sorted(self.workload.queries)), nodes=nodes,
            intake=self.intake.intake if self.intake.streams else None, listened_us=self._time_us(self.now_s),
            admissions=self._admissions(keep, number, shed),
        )  # fmt: skip
        self.admitted_s, self.started = self.now_s, False
        return _Epoch(decision, rows, self._clocks(), rest_s=self.machine.rest_s * self._noise(), judged=judged)

    def _decide_shedding(self, rows: Mapping[str, float]) -> tuple[SheddingDecision, Shedding]:
        state, observed = self.record.shedding, self.record.observed
        counted = [s for s in self.pipeline.streams if s.source is not None and s.source.format == "kafka"]
        asked = Asked(
            {stream.name: rows.get(stream.name, 0.0) for stream in self.pipeline.streams},
            {stream.name: float(self.arrivals[stream.name].rows) for stream in counted},
            0.0 if self.started else self.now_s - self.admitted_s,
            self.started,
            self.trigger_s,
            max(0.0, observed.seconds - state.other_s) if state.other_s else 0.0,
            even_spread_offers(observed.flows),
        )
        groups = groups_of(self.workload, self.workload.queries, self.record.schedule)
        gain_s = unasked_share(groups, self.record.decision.schedule) * asked.answer_s if asked.answer_s else 0.0
        if gain_s > 0:
            asked = replace(asked, offers={**asked.offers, Remedy.REFRESH: Offer(gain_s, "no more answers than asked")})
        queries = {name: plan.query for name, plan in self.workload.queries.items()}
        return decide_shedding(state, self.parts, queries, self.settings, asked)

    def _answers_s(self) -> float:
        """How long an epoch may take, answers included; 0 is as long as it needs."""
        may_wait = self.settings.shedding != "off"
        if self.trigger_s or not (may_wait and self.record.shedding.remedies.acts(Remedy.ANSWER_LATE)):
            return self.trigger_s
        return epoch_seconds(0.0, self.record.shedding.costs.fixed_s)

    def _admissions(self, keep: Mapping[str, float], seed: int, shed: SheddingDecision) -> dict[str, Admission]:
        """What edges keep: of rows, and of the keys of joins that are shed by key."""
        streams, decided = self.pipeline.streams, shed.keep if shed.sheds else {}
        by_key = {edge for part in self.parts if part.by_key for mine in part.edges.values() for edge in mine}
        rows = {**keep, **{edge: part for edge, part in decided.items() if edge not in by_key}}
        keys = {edge: part for edge, part in decided.items() if edge in by_key}
        used = self.workload.columns_in_use(streams) if rows else {}
        return plan_admissions((*streams, *self.workload.derived_streams), used, rows, seed, shed.buckets, keys)

    # 2 absorb ---------------------------------------------------------------------------------------------------------

    def _absorb(self, epoch: _Epoch) -> None:
        admitted = epoch.decision.admissions.values()
        keep = {edge: part for each in admitted for edge, part in (*each.keep.items(), *each.keyed.items())}
        for edge, share in self.machine.share.items():
            offered = epoch.rows.get(edge.partition(">")[0], 0.0) * share
            epoch.kept[edge] = offered * keep.get(edge, 1.0)
            if edge in keep:
                epoch.edges[edge] = Shed(round(offered), round(offered) - round(epoch.kept[edge]))
        epoch.read_s, epoch.edge_s = self.machine.task_s(epoch.rows, epoch.kept)
        tasks_s = sum(epoch.read_s.values()) + sum(epoch.edge_s.values())
        epoch.absorb_s = self.machine.absorb.of(tasks_s, self._faster) * self._noise()

    # 3 advance --------------------------------------------------------------------------------------------------------

    def _advance(self, epoch: _Epoch, batches: Mapping[str, Batch]) -> None:
        heard_us = epoch.decision.listened_us
        for stream in self.pipeline.streams:
            batch, origin = batches.get(stream.name), self.origin_us[stream.name]
            times = None if batch is None else (origin + _us(batch.oldest_s), origin + _us(batch.newest_s))
            epoch.clocks[stream.name] = advance_clock(epoch.clocks[stream.name], stream, times, heard_us)

    # 4 answer ---------------------------------------------------------------------------------------------------------

    def _flow(self, epoch: _Epoch) -> None:
        """Joins and keyed state, those first whose results others read, and answers that others read."""
        for nodes in self.workload.rounds:
            for name in nodes:
                plan, made = self.workload.nodes[name], 0.0
                if name in self.joins:
                    made = self._join(name, epoch)
                elif name in self.keyed:
                    made = self._work(name, epoch)
                elif isinstance(plan, AnswerPlan) and plan.feeds is not None:
                    made = self._feed(plan, epoch)
                elif isinstance(plan, LookupPlan):
                    # Each row is taken to have one match: nothing is known of the tables here.
                    made, epoch.nodes[name] = self._read_by(plan, epoch), LookupState(plan.forms)
                if plan.feeds is not None:
                    self._derive(plan.feeds, plan.reads, made, epoch)

    def _join(self, name: str, epoch: _Epoch) -> float:
        """A join's epoch; the pairs it makes."""
        world, decision, state = self.joins[name], epoch.decision.nodes[name], self.record.nodes.get(name)
        assert isinstance(decision, JoinDecision)
        assert state is None or isinstance(state, JoinState)
        plan, before = world.plan, self._clocks()
        offered = {
            side: sum(epoch.rows.get(stream, 0.0) * share for stream, share in shares(plan, side, self.machine))
            for side in SIDES
        }
        keyed = {edge: part for each in epoch.decision.admissions.values() for edge, part in each.keyed.items()}
        keys = min((keyed[edge] for edge in edges_into(plan) if edge in keyed), default=1.0)
        now_us = max(last_row_us(plan, side, epoch.clocks) for side in SIDES)
        played = world.play(decision, offered, now_us, self.speeds, keys)
        epoch.flows[name], epoch.flows_s = played.measures, epoch.flows_s + played.seconds * self._noise()
        told = JoinEpoch(
            played.left,
            played.right,
            True,
            advance_us(plan, before, epoch.clocks),
            {side: last_row_us(plan, side, before) for side in SIDES},
            expired_rows(plan, epoch.clocks),
            host_rates(played.measures, range(len(played.measures.seconds)), len(decision.speeds)),
        )
        epoch.nodes[name] = learn_join(plan.forms, state, decision, told)
        return played.pairs

    def _work(self, name: str, epoch: _Epoch) -> float:
        """A row window's or a function's epoch; the rows that get their results."""
        plan, decision, state = self.workload.flows[name], epoch.decision.nodes[name], self._keyed_state(name)
        assert isinstance(decision, KeyedDecision)
        played = self.keyed[name].play(decision, self._read_by(plan, epoch), self.speeds)
        epoch.flows[name], epoch.flows_s = played.measures, epoch.flows_s + played.measures.step_s * self._noise()
        after = account(state, decision, played.measured, epoch.decision.epoch, self.tuning.flux)
        now = watermark_of(epoch.clocks, plan.reads)
        if now is not None:
            waits = frozenset(decision.waits)
            done = tuple(old if mini in waits else now for mini, old in enumerate(state.done_us))
            after = replace(after, done_us=done)
            known = [each for each in done if each is not None]
            if known and name in self.workload.queries:
                epoch.answered_us[name], epoch.behind_us[name] = min(known), max(0, now - min(known))
        epoch.nodes[name] = after
        return played.rows

    def _read_by(self, plan: FlowPlan, epoch: _Epoch) -> float:
        """The rows of an epoch that go into the one store of a node."""
        store = plan.stores[0]
        return sum(
            epoch.rows.get(feed.stream, 0.0) * self.machine.share.get(edge_into(store.id, feed.stream), 1.0)
            for feed in store.feeds
        )

    def _feed(self, plan: AnswerPlan, epoch: _Epoch) -> float:
        """Aligned windows that others read are given when time has passed them, whatever the schedule says."""
        state = self.record.nodes.get(plan.name)
        known = state if isinstance(state, AnswersState) else AnswersState(forms=plan.forms)
        now = watermark_of(epoch.clocks, plan.reads)
        firsts = [first for stream in plan.reads if (first := epoch.clocks[stream].first_us) is not None]
        first = min(firsts, default=None) if known.answered_us is None else known.answered_us
        due = due_windows(plan.aggregate.window, first, None, now)
        epoch.nodes[plan.name] = known if due is None else replace(known, answered_us=due.last_us)
        return 0.0 if due is None else self.scans.groups({plan.name: due})

    def _derive(self, derived: Derived, reads: Sequence[str], rows: float, epoch: _Epoch) -> None:
        """The stream of a node's results, and its clock."""
        epoch.rows[derived.name] = rows
        clock, now = epoch.clocks[derived.name], watermark_of(epoch.clocks, reads)
        if now is not None:
            now -= derived.delay_us
            seen = now if rows else clock.last_us
            epoch.clocks[derived.name] = replace(
                clock,
                first_us=seen if clock.first_us is None else clock.first_us,
                last_us=seen if clock.last_us is None or seen is None else max(seen, clock.last_us),
                watermark_us=now if clock.watermark_us is None else max(now, clock.watermark_us),
            )

    def _answer(self, epoch: _Epoch) -> None:
        decided, before = epoch.decision.schedule, self._clocks()
        assert decided is not None
        roots = [name for name, plan in self.workload.plans.items() if plan.feeds is None]
        scheduled = Scheduled(decided, self.workload, self.record.schedule)
        due = plan_due(scheduled, self.record.answered_us, before, epoch.clocks, roots)
        spent, work_s = self.scans.of(due, self.speeds)
        rows = sum(epoch.rows.get(stream.name, 0.0) for stream in self.pipeline.streams)
        passing_s = ROW_S * rows / self._faster if self.workload.flows else 0.0
        epoch.answer_s = self.machine.answers.of(work_s + passing_s) * self._noise()
        epoch.due = {name: each.count for name, each in due.items()}
        epoch.answered_us |= {n: due[n].last_us if n in due else self.record.answered_us.get(n) for n in roots}
        epoch.behind_us |= {name: scheduled.left.get(name, 0) for name in roots}
        other_s = epoch.seconds - epoch.answer_s + self._commit_s
        state = self.record.schedule.learned(
            self.workload, due, spent, round(epoch.answer_s, 4), round(other_s, 4), scheduled.state
        )
        epoch.nodes[SCHEDULE] = state

    # 6 observe --------------------------------------------------------------------------------------------------------

    def _learn_rows(self, epoch: _Epoch) -> None:
        """What shedding learns of an epoch: its rows, and what it took besides answers."""
        rows = {stream.name: round(epoch.rows.get(stream.name, 0.0)) for stream in self.pipeline.streams}
        offered = {edge: round(rows[edge.partition(">")[0]] * share) for edge, share in self.machine.share.items()}
        kept = {edge: round(count) for edge, count in epoch.kept.items()}
        seconds = epoch.seconds + self._commit_s
        sample = RowSample(rows, epoch.read_s, offered, kept, epoch.edge_s, seconds)
        state = epoch.judged
        if self.settings.shedding != "off":
            edges = {name: edges_of(self.workload, name) for name in self._told()}
            accounts = {edge: {0: (count, count - kept[edge])} for edge, count in offered.items()}
            state = state.with_queries(edges, accounts)
        costs = learn_row_costs(state.costs, sample)
        epoch.nodes[SHEDDING] = replace(state, costs=costs, other_s=round(seconds, 4))

    def _told(self) -> list[str]:
        """The queries whose results tell what was shed."""
        joins = [name for name, world in self.joins.items() if world.plan.shed_by_key]
        return [name for name in self.workload.queries if name in self.workload.plans or name in joins]

    def _recorded(self, epoch: _Epoch) -> RecordedEpoch:
        steps = {"admit": epoch.rest_s, "absorb": epoch.absorb_s, "advance": 0.0,
                 "answer": epoch.flows_s + epoch.answer_s}  # fmt: skip
        rows = {stream.name: round(epoch.rows.get(stream.name, 0.0)) for stream in self.pipeline.streams}
        observed = Observed(
            epoch.decision.wall_us,
            round(epoch.seconds, 4),
            {step: round(seconds, 4) for step, seconds in steps.items()},
            rows=rows,
            due=epoch.due,
            flows=epoch.flows,
            edges=epoch.edges,
        )
        ledger = {name: self.record.ledger.get(name, Entry()) + self._entry(name, n, epoch) for name, n in rows.items()}
        nodes = {**self.record.nodes, **epoch.nodes}
        return RecordedEpoch(epoch.decision, epoch.clocks, ledger, nodes, observed, epoch.answered_us, epoch.behind_us)

    def _entry(self, stream: str, rows: int, epoch: _Epoch) -> Entry:
        """The account of an epoch's rows: a row that any edge left out is shed; as many are late as were of late."""
        known = self.late.get(stream, Entry())
        late, rejected = (round(rows * part / max(1, known.rows_in)) for part in (known.late, known.rejected))
        admission = epoch.decision.admissions.get(stream)
        parts = () if admission is None else (*admission.keep.values(), *admission.keyed.values())
        least = min(parts, default=1.0)
        shed = round((rows - late - rejected) * (1 - least))
        return Entry(rows - late - rejected - shed, late, shed, rejected)

    # ------------------------------------------------------------------------------------------------------------------

    def _clocks(self) -> dict[str, StreamClock]:
        names = (*(stream.name for stream in self.pipeline.streams), *self.workload.derived)
        return {name: self.record.clocks.get(name, StreamClock()) for name in names}

    def _keyed_state(self, name: str) -> KeyedState:
        known, bins = self.record.nodes.get(name), len(self.speeds)
        minis = bins * self.tuning.flux.minis_per_bin
        return known if isinstance(known, KeyedState) else begin(bins, minis, self.tuning.flux)

    def _time_us(self, at_s: float) -> int:
        return max(self.origin_us.values(), default=0) + _us(at_s)

    def _noise(self) -> float:
        """By how much this step is longer or shorter than expected."""
        return 1.0 + self.machine.noise * self.chance.uniform(-1.0, 1.0)

    @property
    def _faster(self) -> float:
        """How many times the work of the known machine's hosts is done in a time."""
        return sum(self.speeds) / self.machine.hosts

    @property
    def _commit_s(self) -> float:
        """What is between two epochs is Spark's and the commit's."""
        return self.machine.gap_s / 2


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)


def play(world: World, minutes: float) -> tuple[Beat, ...]:
    """The epochs that begin within so many simulated minutes."""
    beats = list[Beat]()
    while world.now_s < 60 * minutes:
        beat = world.epoch()
        if beat is not None:
            beats.append(beat)
    return tuple(beats)
