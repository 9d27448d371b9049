"""What holds of any epoch that the policies were driven through, on Spark or in simulated time."""

from __future__ import annotations

import json
from dataclasses import replace

from headrace.model import (
    SCHEDULE,
    SHEDDING,
    EpochDecision,
    JoinDecision,
    JoinMeasures,
    JoinState,
    KeyedDecision,
    KeyedMeasures,
    KeyedState,
    Pipeline,
    ScheduleDecision,
    SheddingDecision,
    plain,
    restored,
)
from headrace.planning import (
    JoinPlan,
    RecordedEpoch,
    RowsPlan,
    Schedule,
    Shedding,
    StepPlan,
    Workload,
    decide_join,
    groups_of,
    may_shed_join,
)
from headrace.policies import decide_keyed, tuning_of
from headrace.policies.remedies import Remedy

__all__ = ["CHECKS"]

DECISIONS = {JoinPlan: JoinDecision, RowsPlan: KeyedDecision, StepPlan: KeyedDecision}
STATES = {JoinPlan: JoinState, RowsPlan: KeyedState, StepPlan: KeyedState}


class Pair:
    """An epoch, the one before it, and the pipeline that both are of."""

    def __init__(self, pipeline: Pipeline, workload: Workload, before: RecordedEpoch, epoch: RecordedEpoch) -> None:
        self.pipeline, self.workload, self.before, self.epoch = pipeline, workload, before, epoch
        self.tuning = tuning_of(dict(pipeline.engine.conf))


def survives_json(pair: Pair) -> None:
    for value in (pair.epoch, pair.before):
        assert restored(RecordedEpoch, json.loads(json.dumps(plain(value)))) == value
    decision = pair.epoch.decision
    assert EpochDecision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


def decides_for_every_node_by_its_kind(pair: Pair) -> None:
    nodes, states = pair.epoch.decision.nodes, pair.epoch.nodes
    assert isinstance(nodes[SCHEDULE], ScheduleDecision)
    assert isinstance(nodes[SHEDDING], SheddingDecision)
    assert isinstance(states[SCHEDULE], Schedule)
    assert isinstance(states[SHEDDING], Shedding)
    for name, plan in pair.workload.flows.items():
        if type(plan) in DECISIONS:
            assert isinstance(nodes[name], DECISIONS[type(plan)]), name
            assert isinstance(states[name], STATES[type(plan)]), name
    assert all(node.reason for node in nodes.values())


def follows_the_epoch_before(pair: Pair) -> None:
    before, decision = pair.before, pair.epoch.decision
    assert decision.epoch == before.decision.epoch + 1
    assert decision.wall_us >= before.decision.wall_us
    for stream, clock in before.clocks.items():
        for name in ("last_us", "watermark_us"):
            was, now = getattr(clock, name), getattr(pair.epoch.clocks[stream], name)
            assert was is None or (now is not None and now >= was), (stream, name)


def balances_the_ledger(pair: Pair) -> None:
    for stream, entry in pair.epoch.ledger.items():
        came = entry.rows_in - pair.before.ledger[stream].rows_in
        assert came == pair.epoch.observed.rows.get(stream, 0), stream
        for part in ("used", "late", "shed", "rejected"):
            assert getattr(entry, part) >= getattr(pair.before.ledger[stream], part)
    admitted = {e for each in pair.epoch.decision.admissions.values() for e in (*each.keep, *each.keyed)}
    assert pair.epoch.observed.edges.keys() <= admitted


def measures_what_was_decided(pair: Pair) -> None:
    for name, measures in pair.epoch.observed.flows.items():
        decision = pair.epoch.decision.nodes[name]
        if isinstance(measures, JoinMeasures):
            assert isinstance(decision, JoinDecision)
            assert len(measures.received) == len(measures.held) == len(measures.seconds) <= len(decision.speeds)
            assert all(seconds >= 0 for seconds in measures.seconds)
        else:
            assert isinstance(measures, KeyedMeasures)
            assert isinstance(decision, KeyedDecision)
            assert len(measures.busy_s) == len(measures.places) == decision.bins
            assert measures.step_s >= max(measures.busy_s) - 1e-3
            assert measures.waiting == len(decision.waits)


def steps_take_no_longer_than_the_epoch(pair: Pair) -> None:
    observed = pair.epoch.observed
    assert {"admit", "absorb", "advance", "answer"} == observed.steps_s.keys()
    assert sum(observed.steps_s.values()) <= observed.seconds + 1e-2


def sheds_by_what_was_planned(pair: Pair) -> None:
    shed = pair.epoch.decision.shedding
    assert shed is not None
    assert shed.strategy == pair.pipeline.engine.shedding
    admissions = pair.epoch.decision.admissions.values()
    planned = {edge: part for each in admissions for edge, part in (*each.keep.items(), *each.keyed.items())}
    joins = [n for n in pair.epoch.decision.flows.values() if isinstance(n, JoinDecision) and n.way.keep < 1]
    if not joins:
        assert planned == {edge: part for edge, part in shed.keep.items() if shed.sheds and part < 1}


def replays_schedules(pair: Pair) -> None:
    settings, before = pair.pipeline.engine, pair.before
    groups = groups_of(pair.workload, pair.workload.queries, before.schedule)
    as_asked = before.shedding.remedies.acts(Remedy.REFRESH)
    last, trigger_s = before.decision.schedule, settings.trigger_us / 1e6
    made = before.schedule.decide(settings.schedule, groups, trigger_s, last, as_asked=as_asked)
    assert made == pair.epoch.decision.schedule


def replays_joins(pair: Pair) -> None:
    for name, plan in pair.workload.flows.items():
        known = pair.before.nodes.get(name)
        if isinstance(plan, JoinPlan):
            assert isinstance(known, JoinState)
            decided = pair.epoch.decision.nodes[name]
            assert isinstance(decided, JoinDecision)
            memory = pair.tuning.join_bytes if may_shed_join(pair.workload, name) else None
            urgent, wanted = pair.before.shedding.remedies.acts(Remedy.SPREAD_JOINS), pair.pipeline.engine.join
            assert decide_join(plan, known, len(decided.speeds), wanted, memory, urgent=urgent) == decided


def replays_keyed_state(pair: Pair) -> None:
    for name, plan in pair.workload.flows.items():
        known = pair.before.nodes.get(name)
        if isinstance(known, KeyedState):
            decided = pair.epoch.decision.nodes[name]
            assert isinstance(decided, KeyedDecision)
            urgent, merges = pair.before.shedding.remedies.acts(Remedy.MOVE_STATE), isinstance(plan, RowsPlan)
            assert decide_keyed(known, decided.bins, pair.tuning.flux, merges, urgent=urgent) == decided


def costs_are_learned(pair: Pair) -> None:
    was, now = pair.before.shedding.costs, pair.epoch.shedding.costs
    if sum(pair.epoch.observed.rows.values()) >= 100:
        assert now.epoch.samples == was.epoch.samples + 1
        assert replace(now.epoch, samples=0) != replace(was.epoch, samples=0)
    assert all(0 <= now.share_of(edge) <= 1 for edge in now.selectivity)


CHECKS = (
    survives_json,
    decides_for_every_node_by_its_kind,
    follows_the_epoch_before,
    balances_the_ledger,
    measures_what_was_decided,
    steps_take_no_longer_than_the_epoch,
    sheds_by_what_was_planned,
    replays_schedules,
    replays_joins,
    replays_keyed_state,
    costs_are_learned,
)
