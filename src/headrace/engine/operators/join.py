"""The join operator: all windowed joins of a site, spread over hosts as `policies/joins/diffusion.py` says.

Absorb cuts each side's rows into slices of the kind that the way in force gives them. In the answer step every host, a
task, makes the pairs of its blocks; plain columns go to Parquet straight from there, everything else through Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.failures import blamed, cause_of
from headrace.engine.operators.answering import give_to_sinks, writes_parquet
from headrace.engine.operators.giving import give
from headrace.engine.operators.join_sql import pairs_ddl, pairs_schema, spark_join
from headrace.engine.operators.port import Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.sinks.choose import FileSink
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import NodeState
from headrace.engine.state.retention import EVER
from headrace.engine.state.state_io import StateIo, Stays
from headrace.kernels.absorb import Absorbed, Slicing, Worked
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.chunks import holding
from headrace.kernels.deliver import Delivery
from headrace.kernels.join import CONSTANT, Closing, Counted, JoinTask, JoinWork, PairsTask
from headrace.kernels.pairs import Matching
from headrace.model import (
    EVERYWHERE,
    HALF,
    KEPT,
    ONCE,
    EpochDecision,
    JoinDecision,
    JoinMeasures,
    JoinState,
)
from headrace.planning import (
    LEFT,
    RIGHT,
    FlowPlan,
    JoinEpoch,
    JoinPlan,
    SideEpoch,
    Workload,
    advance_us,
    closed_us,
    decide_join,
    edges_into,
    expired_rows,
    host_rates,
    last_row_us,
    learn_join,
    may_shed_join,
)
from headrace.policies import StreamClock, watermark_of
from headrace.policies.remedies import Remedy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


__all__ = ["JoinOperator"]

SIDES = (LEFT, RIGHT)


class JoinOperator:
    """Runs all joins; see `Operator`."""

    def __init__(
        self,
        io: StateIo,
        folder: str,
        probe: Callable[[str], None],
        way: str = "auto",
        memory_bytes: float | None = None,
    ) -> None:
        self._io, self._folder, self._probe = io, folder, probe
        self._way, self._memory = way, memory_bytes

    def check(self, checked: Checked) -> None:
        return

    # decide ----------------------------------------------------------------------------------------------------------

    def decide(self, ask: Ask) -> Decided:
        decided, keep = dict[str, JoinDecision](), dict[str, float]()
        workload, state, hosts = ask.standing.workload, ask.standing.manifest.nodes, self._io.slots
        for name, plan in _joins(ask.standing.flows).items():
            memory, urgent = self._memory if may_shed_join(workload, name) else None, ask.acts(Remedy.SPREAD_JOINS)
            decided[name] = decide_join(plan, _state_of(state, name), hosts, self._way, memory, urgent=urgent)
            if (part := decided[name].way.keep) < 1:
                keep |= dict.fromkeys(edges_into(plan), part)
        return Decided(decided, keep)

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        joins = _joins(part.flows)
        slicings = {
            s.id: _slicing(_decided(decision, name), s.role) for name, plan in joins.items() for s in plan.stores
        }
        return Taking(stores=tuple(store for plan in joins.values() for store in plan.stores), slicings=slicings)

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """An inner join has no open results; outer ones give every row without a match once time has passed it."""
        ends: dict[str, int] = {}
        for plan in _joins(standing.flows).values():
            last = max(last_row_us(plan, side, clocks) for side in SIDES)
            if plan.join.how != "inner" and last != EVER[0]:
                end = last + plan.span_us + 1
                ends |= {stream: max(end, ends.get(stream, end)) for stream in plan.reads}
        return ends

    # answer ----------------------------------------------------------------------------------------------------------

    def answer(self, moment: Moment) -> Made:
        made = Made()
        joins = _joins(moment.flows)
        direct: dict[str, JoinWork] = {}
        for name, plan in joins.items():
            with _guarded(name, made):
                work = self._work(plan, moment)
                if plan.feeds is not None:
                    self._feed(plan, work, moment, made)
                elif work.picked is not None:
                    direct |= {name: work} if _has_work(work) else {}
                elif _has_work(work):
                    made.rows[name] = self._deliver_by_sql(plan, work, moment, made)
        told = self._deliver(direct, moment, made) if direct else {}
        for name, plan in joins.items():
            if name in made.failed:
                continue
            expired = expired_rows(plan, moment.after)
            made.expired |= {plan.store(side).id: expired[side] for side in SIDES}
            counted = told.get(name, [])
            made.state[name] = self._learned(plan, moment, counted, expired)
            if counted:
                made.observed[name] = _shown(counted)
                made.fed += _worked(plan, counted, absorbed=moment.absorbed)
        return made

    def _work(self, plan: JoinPlan, moment: Moment) -> JoinWork:
        join, decision = plan.join, _decided(moment.decision, plan.name)
        stores = plan.store(LEFT).id, plan.store(RIGHT).id
        reach = expired_rows(plan, moment.before)
        held = holding(moment.chunks, {store: reach[side] for store, side in zip(stores, SIDES, strict=True)})
        matching = Matching(
            join.left.window.size_us,
            join.right.window.size_us,
            tuple(
                (plan.position(LEFT, c.left), c.operator, plan.position(RIGHT, c.right), str(c.type))
                for c in join.comparisons
            ),
        )
        work = JoinWork(
            stores,
            (held[stores[0]], held[stores[1]]),
            tuple(c.name for c in moment.absorbed.chunks if any(id_ in stores for id_, _ in c.ends)),
            matching,
            decision.way.hosts,
            decision.mixed,
            (len(plan.store(LEFT).columns), len(plan.store(RIGHT).columns)),
            closing=(self._closing(plan, LEFT, moment), self._closing(plan, RIGHT, moment)),
            kept=_kept(plan, moment),
            half=join.how if join.how in HALF else None,
        )
        sink = moment.sinks.get(plan.name)
        after = join.where is not None and join.how != "inner"
        if plan.feeds is not None or plan.picked is None or join.rest is not None or after:
            return work
        if sink is None or not writes_parquet(plan.query, sink, self._io):
            return work
        assert isinstance(sink, FileSink)
        names = [column.name for column in join.columns]
        outputs = plan.query.finish.outputs
        schema = pa.schema([(output.name, arrow_type(output.type)) for output in outputs])
        chosen = [None if output.sql == KEPT else plan.picked[names.index(output.sql)] for output in outputs]
        picked = tuple((CONSTANT, 0) if each is None else (SIDES.index(each[0]), each[1]) for each in chosen)
        return replace(work, picked=picked, schema=schema, staging=sink.staging)

    def _closing(self, plan: JoinPlan, side: str, moment: Moment) -> Closing | None:
        if not plan.preserves(side):
            return None
        before, after = (closed_us(plan, side, clocks) for clocks in (moment.before, moment.after))
        if after is None:
            return None
        return Closing(EVER[0] if before is None else before, after)

    def _deliver(self, works: Mapping[str, JoinWork], moment: Moment, made: Made) -> dict[str, list[Counted]]:
        """All joins that select plain columns for Parquet, in one job; by join what its hosts say they did."""
        names, counted = tuple(works), dict[str, list[Counted]]()
        task = JoinTask(self._folder, tuple(works.values()))
        hosts = max(max(work.hosts) + 1 for work in works.values())
        deliveries: list[Delivery] = []
        for item in blamed(lambda: self._io.run(task, hosts, Stays.EXECUTOR)):
            if isinstance(item, Counted):
                counted.setdefault(names[item.work], []).append(item)
            else:
                deliveries.append(item)
        give_to_sinks(deliveries, names, moment.sinks, (moment.decision.epoch, moment.replay), made, self._probe)
        return counted

    def _pairs(self, plan: JoinPlan, work: JoinWork) -> DataFrame:
        task = PairsTask(self._folder, work, pairs_schema(plan))
        return self._io.rows(task, max(work.hosts) + 1, pairs_ddl(plan))

    def _deliver_by_sql(self, plan: JoinPlan, work: JoinWork, moment: Moment, made: Made) -> int:
        of = moment.decision.epoch, moment.replay
        with spark_join(self._pairs(plan, work), plan, work.kept) as results:
            return give(plan.query, moment.sinks[plan.name], results, *of, made.counts)

    def _feed(self, plan: JoinPlan, work: JoinWork, moment: Moment, made: Made) -> None:
        """Absorbs a join's pairs, as rows of a stream, into what the nodes above it keep."""
        assert plan.feeds is not None
        absorbed = Absorbed()
        if _has_work(work):
            with spark_join(self._pairs(plan, work), plan) as pairs:
                absorbed = moment.feed(plan.feeds.stream, pairs)
        now = watermark_of(moment.after, plan.reads)
        now = None if now is None else now - plan.feeds.delay_us
        made.clocks[plan.feeds.name] = moment.clock_of(plan.feeds, now, absorbed)
        made.fed += absorbed

    # observe ---------------------------------------------------------------------------------------------------------

    def _learned(
        self, plan: JoinPlan, moment: Moment, counted: Sequence[Counted], expired: Mapping[str, int]
    ) -> JoinState:
        """What the next decisions are made by."""
        absorbed, decision = moment.absorbed, _decided(moment.decision, plan.name)
        left, right = (
            _side(absorbed, plan.store(side).id, [(c.home_rows[i], c.home_bytes[i]) for c in counted])
            for i, side in enumerate(SIDES)
        )
        hosts = sorted(c.host for c in counted)
        epoch = JoinEpoch(
            left,
            right,
            bool(absorbed.counts),
            advance_us(plan, moment.before, moment.after),
            {side: last_row_us(plan, side, moment.before) for side in SIDES},
            expired,
            host_rates(_shown(counted), hosts, len(decision.speeds)),
        )
        return learn_join(plan.forms, _state_of(moment.state, plan.name), decision, epoch)


@contextmanager
def _guarded(node: str, made: Made) -> Iterator[None]:
    """Notes what goes wrong for one join, so that the others are not disturbed."""
    try:
        yield
    except Exception as failure:
        made.failed[node] = cause_of(failure)


def _joins(flows: Mapping[str, FlowPlan]) -> dict[str, JoinPlan]:
    return {name: plan for name, plan in flows.items() if isinstance(plan, JoinPlan)}


def _state_of(states: Mapping[str, NodeState], name: str) -> JoinState | None:
    found = states.get(name)
    assert found is None or isinstance(found, JoinState)
    return found


def _decided(decision: EpochDecision, name: str) -> JoinDecision:
    found = decision.nodes[name]
    assert isinstance(found, JoinDecision)
    return found


def _slicing(decision: JoinDecision, side: str) -> Slicing:
    way = decision.way
    kind = ONCE if way.way == "biclique" or way.split == side else EVERYWHERE
    slicing = Slicing(decision.slices, kind)
    match way.way:
        case "hash":
            return slicing
        case "hybrid":
            return replace(slicing, hot=way.hot)
        case _:
            return replace(slicing, rows=True)


def _side(absorbed: Absorbed, store: str, held: Sequence[tuple[int, int]]) -> SideEpoch:
    """What an epoch brought one side, and what hosts hold of it."""
    counts, heavy, shed = dict[int, int](), absorbed.heavy.get(store, ()), _shed(absorbed, store)
    for found in heavy:
        for key, count in found.hashes:
            counts[key] = counts.get(key, 0) + count
    sampled = sum(found.sampled for found in heavy)
    held_rows, held_bytes = sum(rows for rows, _ in held), sum(size for _, size in held)
    return SideEpoch(absorbed.rows.get(store, 0) + shed, shed, sampled, counts, held_rows, held_bytes)


def _shed(absorbed: Absorbed, store: str) -> int:
    return sum(account.shed for edge, account in absorbed.shed.items() if edge.partition(">")[2] == store)


def _worked(plan: JoinPlan, counted: Sequence[Counted], absorbed: Absorbed) -> Absorbed:
    """What tasks spent on pairs, as work on the edges that brought the rows."""
    edges = edges_into(plan)
    rows = {edge: absorbed.worked[edge].rows for edge in edges if edge in absorbed.worked}
    seconds, total = sum(each.seconds for each in counted), sum(rows.values())
    return Absorbed(worked={edge: Worked(0, seconds * n / total) for edge, n in rows.items()} if total else {})


def _kept(plan: JoinPlan, moment: Moment) -> float:
    """The part that was kept of the rows within reach of an epoch's pairs, if any may be shed."""
    if not plan.shed_by_key:
        return 1.0
    return moment.standing.manifest.shedding.with_panes(moment.absorbed.panes).kept_of_all(edges_into(plan))


def _has_work(work: JoinWork) -> bool:
    return bool(work.fresh) or any(closing is not None for closing in work.closing)


def _shown(counted: Sequence[Counted]) -> JoinMeasures:
    ordered = sorted(counted, key=lambda c: c.host)
    return JoinMeasures(
        tuple(tuple(c.received) for c in ordered),
        tuple(tuple(c.held) for c in ordered),
        tuple(round(c.seconds, 4) for c in ordered),
        sum(c.pairs for c in ordered),
    )
