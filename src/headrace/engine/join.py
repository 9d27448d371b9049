"""The join operator: all windowed joins of a site, spread over hosts as `policies/diffusion.py` says.

Absorb cuts each side's rows into slices of the kind that the way in force gives them. In the answer step every host, a
task, makes the pairs of its blocks; plain columns go to Parquet straight from there, everything else through Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine.absorb import Absorbed, AbsorbTask, Bounds, Cut, Heavy, projection
from headrace.engine.answering import adopt, writes_parquet
from headrace.engine.arrow_rows import arrow_schema
from headrace.engine.arrow_types import arrow_type
from headrace.engine.blame import blamed, cause_of, raise_if_not_a_querys
from headrace.engine.chunks import holding
from headrace.engine.deliver import Delivery
from headrace.engine.flows import Moment, Stepped
from headrace.engine.join_sql import pairs_ddl, pairs_schema, spark_join
from headrace.engine.join_task import Closing, Counted, JoinTask, JoinWork, PairsTask
from headrace.engine.pairs import Matching
from headrace.engine.retention import EVER
from headrace.engine.sinks import FileSink
from headrace.engine.state_io import StateIo
from headrace.planning import LEFT, RIGHT, FlowPlan, JoinPlan
from headrace.policies import (
    EVERYWHERE,
    ONCE,
    JoinStats,
    JoinWay,
    SideStats,
    StreamClock,
    choose_way,
    learn_speeds,
    watermark_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.engine.chunks import Chunk

__all__ = ["JoinOperator"]

# Slices per host: enough to give a host that is half as fast half as many.
SLICES_PER_HOST = 4
# Epochs over which rates, shares of keys and speeds are sampled before a way is chosen anew.
PERIOD = 5
# What a side is taken for before its first epoch.
FIRST = SideStats(1000.0, 5000.0)
SIDES = (LEFT, RIGHT)


class JoinOperator:
    """Runs all joins; see `FlowOperator`."""

    def __init__(
        self,
        io: StateIo,
        folder: str,
        bins: int,
        probe: Callable[[str], None],
        way: str = "auto",
        memory_bytes: float | None = None,
    ) -> None:
        self._io, self._folder, self._bins, self._probe = io, folder, bins, probe
        self._way, self._memory = way, memory_bytes

    def serves(self, plan: FlowPlan) -> bool:
        return isinstance(plan, JoinPlan)

    # decide ----------------------------------------------------------------------------------------------------------

    def decide(self, flows: Mapping[str, FlowPlan], state: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        decided: dict[str, Any] = {}
        hosts = self._io.hosts()
        for owner, plan in _all(flows):
            name = plan.query.name
            memory = self._memory if _may_shed(flows[owner]) else None
            decided[name] = self._decide(plan, state.get(name) or {}, hosts, epoch, memory)
        return decided

    def _decide(
        self, plan: JoinPlan, state: Mapping[str, Any], hosts: int, epoch: int, memory: float | None
    ) -> dict[str, Any]:
        before = _way_of(state["way"]) if "way" in state else None
        slices = int(state.get("slices", SLICES_PER_HOST * hosts))
        sample = state.get("sample") or {"epochs": 0}
        # The first choice is a guess: what the first epoch brings decides the second.
        due = before is None or state.get("guess") or sample["epochs"] >= PERIOD or max(before.hosts) >= hosts
        way = before if before is not None and not due else self._wanted(plan, state, before, slices, hosts, memory)
        return {
            **asdict(way),
            "slices": slices,
            "speeds": _known_speeds(state, hosts),
            "sampled": bool(due),
            "guess": before is None,
            "mixed": "way" in state and (_signature(way) != state["signature"] or state.get("until") is not None),
            "seed": epoch,
        }

    def _wanted(
        self,
        plan: JoinPlan,
        state: Mapping[str, Any],
        before: JoinWay | None,
        slices: int,
        hosts: int,
        memory: float | None,
    ) -> JoinWay:
        stats = JoinStats(
            _stats(state, LEFT, _window_us(plan, LEFT)),
            _stats(state, RIGHT, _window_us(plan, RIGHT)),
            bool(plan.equal),
            _known_speeds(state, hosts),
            memory,
        )
        return choose_way(stats, self._way, before, slices)

    def cuts(self, flows: Mapping[str, FlowPlan], decided: Mapping[str, Any]) -> dict[str, Cut]:
        return {s.id: _cut(decided[plan.query.name], s.role) for _, plan in _all(flows) for s in plan.stores}

    def ends(self, plan: FlowPlan, clocks: Mapping[str, StreamClock]) -> int | None:
        """An inner join has no open results; outer ones give every row without a match once time has passed it."""
        assert isinstance(plan, JoinPlan)
        if all(each.join.how == "inner" for each in plan.in_order):
            return None
        last = max(_last(each, side, clocks) for each in plan.in_order for side in SIDES)
        delays = sum(each.feeds.delay_us for each in plan.in_order if each.feeds is not None)
        return None if last == EVER[0] else last + plan.reach_us + delays + 1

    # step ------------------------------------------------------------------------------------------------------------

    def step(self, moment: Moment) -> Stepped:
        stepped = Stepped()
        run = _Epoch(moment, dict(moment.after))
        direct: dict[str, JoinWork] = {}
        for owner, plan in _all(moment.flows):
            if owner in stepped.failed:
                continue
            # What is below others is decided under a name of its own; results and failures are the query's.
            with _guarded(owner, stepped):
                work = self._work(plan, run)
                if plan.feeds is not None:
                    self._feed(owner, plan, work, run)
                elif work.picked is not None:
                    direct |= {owner: work} if _has_work(work) else {}
                elif _has_work(work):
                    stepped.rows[owner] = self._deliver_by_sql(owner, plan, work, run)
        if direct:
            self._deliver(direct, run, stepped)
        for owner, plan in _all(moment.flows):
            if owner in stepped.failed:
                continue
            expired, name = self._expired(plan, run.after), plan.query.name
            stepped.expired |= {plan.store(side).id: expired[side] for side in SIDES}
            counted = run.counted.get(name, [])
            stepped.state[name] = self._learned(plan, run, counted, expired)
            if counted:
                stepped.observed[name] = _shown(counted)
        stepped.chunks, stepped.clocks = run.fed.chunks, {name: run.after[name] for name in run.made}
        return stepped

    def _work(self, plan: JoinPlan, run: _Epoch) -> JoinWork:
        join, decision = plan.join, run.moment.decision.flows[plan.query.name]
        stores = plan.store(LEFT).id, plan.store(RIGHT).id
        reach = self._expired(plan, run.moment.before)
        held = holding(run.moment.chunks, {store: reach[side] for store, side in zip(stores, SIDES, strict=True)})
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
            tuple(c.name for c in run.fresh if any(id_ in stores for id_, _ in c.ends)),
            matching,
            tuple(decision["hosts"]),
            bool(decision["mixed"]),
            (len(plan.store(LEFT).columns), len(plan.store(RIGHT).columns)),
            closing=(self._closing(plan, LEFT, run), self._closing(plan, RIGHT, run)),
        )
        sink = run.moment.sinks.get(plan.query.name)
        after = join.where is not None and join.how != "inner"
        if plan.feeds is not None or plan.picked is None or join.rest is not None or after:
            return work
        if sink is None or not writes_parquet(sink, self._io):
            return work
        assert isinstance(sink, FileSink)
        names = [column.name for column in join.columns]
        chosen = [plan.picked[names.index(output.sql)] for output in plan.query.finish.outputs]
        schema = pa.schema([(output.name, arrow_type(output.type)) for output in plan.query.finish.outputs])
        picked = tuple((SIDES.index(side), column) for side, column in chosen)
        return replace(work, picked=picked, schema=schema, staging=sink.staging)

    def _closing(self, plan: JoinPlan, side: str, run: _Epoch) -> Closing | None:
        if not plan.keeps(side):
            return None
        before, after = (_closed(plan, side, clocks) for clocks in (run.moment.before, run.after))
        if after is None:
            return None
        return Closing(EVER[0] if before is None else before, after)

    def _expired(self, plan: JoinPlan, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Per side the time before which no row can be met by a row to come, nor is needed to tell who met nobody."""
        found: dict[str, int] = {}
        for side, other in (SIDES, SIDES[::-1]):
            closed = _closed(plan, side, clocks)
            times = [EVER[0] if closed is None else closed]
            if plan.keeps(other):
                theirs = _closed(plan, other, clocks)
                # A row of the other side that is open may have met rows as old as this side's range before it.
                times.append(EVER[0] if theirs is None else theirs - _window_us(plan, side))
            found[side] = min(times)
        return found

    def _deliver(self, works: Mapping[str, JoinWork], run: _Epoch, stepped: Stepped) -> None:
        """All joins that select plain columns for Parquet, in one job."""
        names, moment = tuple(works), run.moment
        task = JoinTask(self._folder, tuple(works.values()))
        hosts = max(max(work.hosts) + 1 for work in works.values())
        deliveries: list[Delivery] = []
        for item in blamed(lambda: self._io.join(task, hosts)):
            if isinstance(item, Counted):
                run.counted.setdefault(names[item.work], []).append(item)
            else:
                deliveries.append(item)
        adopt(deliveries, names, moment.sinks, (moment.decision.epoch, moment.replay), stepped, self._probe)

    def _pairs(self, plan: JoinPlan, work: JoinWork) -> DataFrame:
        task = PairsTask(self._folder, work, pairs_schema(plan))
        return self._io.pairs(task, max(work.hosts) + 1, pairs_ddl(plan))

    def _deliver_by_sql(self, owner: str, plan: JoinPlan, work: JoinWork, run: _Epoch) -> int:
        with spark_join(self._pairs(plan, work), plan) as results:
            return run.moment.sinks[owner].write(results, run.moment.decision.epoch, run.moment.replay) or 0

    def _feed(self, owner: str, plan: JoinPlan, work: JoinWork, run: _Epoch) -> None:
        """Absorbs a join's pairs, as rows of a stream, into what is above it: another join's store, or panes."""
        assert plan.feeds is not None
        stream, moment = plan.feeds.stream, run.moment
        absorbed = Absorbed()
        if _has_work(work):
            above = [p for _, p in _all({owner: moment.flows[owner]}) if stream.name in sum(p.streams.values(), ())]
            stores = [s for p in above for s in p.stores if s.feeds[0].stream == stream.name]
            kept = [k for k in moment.kept.values() if k.synopsis.feeds[0].stream == stream.name]
            shape = projection((stream,), kept, self._bins, stores=stores)
            cuts = {s.id: _cut(moment.decision.flows[p.query.name], s.role) for p in above for s in p.stores}
            bounds = (Bounds(*EVER),)
            task = AbsorbTask(self._folder, moment.decision.epoch, bounds, shape, cuts)
            with spark_join(self._pairs(plan, work), plan) as pairs:
                fields = ", ".join(f"'{column.name}', `{column.name}`" for column in stream.columns)
                rows = pairs.selectExpr("0 AS _s", f"named_struct({fields}) AS {stream.name}")
                rows = rows.selectExpr(*shape.bound(bounds))
                absorbed = sum(self._io.absorb(rows, arrow_schema(rows), task), Absorbed())
        run.made.append(stream.name)
        run.after[stream.name] = _derived_clock(plan, moment.before[stream.name], run.after, absorbed)
        run.fed = run.fed + absorbed

    # observe ---------------------------------------------------------------------------------------------------------

    def _learned(
        self, plan: JoinPlan, run: _Epoch, counted: Sequence[Counted], expired: Mapping[str, int]
    ) -> dict[str, Any]:
        """What the next decisions are made by."""
        name, moment, absorbed = plan.query.name, run.moment, run.moment.absorbed + run.fed
        state, decision = moment.state.get(name) or {}, moment.decision.flows[name]
        way = _way_of(decision)
        sample: dict[str, Any] = {"epochs": 0, "advance_us": 0, LEFT: _EMPTY, RIGHT: _EMPTY}
        # A decision that is repeated may be older than a query of the same name that starts anew.
        if not decision["sampled"] and "sample" in state:
            sample = state["sample"]
        brought = bool(absorbed.counts)
        sides: dict[str, Any] = {}
        for number, side in enumerate(SIDES):
            id_ = plan.store(side).id
            brought_rows = absorbed.rows.get(id_, 0) + _shed(absorbed, id_)
            sides[side] = _sampled(sample[side], brought_rows, absorbed.heavy.get(id_, ()))
            # The most that was read in a period: where the other side brings nothing, a window is not looked at.
            rows = sum(c.home_rows[number] for c in counted)
            if rows and rows >= sample[side].get("window_rows", 0):
                size = sum(c.home_bytes[number] for c in counted)
                sides[side] |= {"window_rows": rows, "row_bytes": round(size / rows, 2)}
            elif "window_rows" in sample[side]:
                sides[side] |= {key: sample[side][key] for key in ("window_rows", "row_bytes")}
        until = state.get("until")
        if "signature" in state and _signature(way) != state["signature"]:
            # From now on keys are cut otherwise: until what is here has expired, a key may be in blocks of both kinds.
            until = {side: _last(plan, side, moment.before) for side in SIDES}
        if until is not None and all(expired[side] > until[side] for side in SIDES):
            until = None
        return {
            "way": asdict(way),
            "slices": decision["slices"],
            "guess": decision["guess"],
            "signature": _signature(way),
            "forms": plan.forms,
            "until": until,
            "sample": {
                "epochs": sample["epochs"] + int(brought),
                "advance_us": sample["advance_us"] + _advance_us(plan, moment.before, run.after),
                **sides,
            },
            "shed": state.get("shed", 0) + sum(_shed(absorbed, store.id) for store in plan.stores),
            "speeds": _speeds(decision.get("speeds", (1.0,) * (max(way.hosts) + 1)), way.hosts, counted),
        }


@dataclass
class _Epoch:
    """A moment while joins are stepped: time after it, derived streams included, and what those brought."""

    moment: Moment
    after: dict[str, StreamClock]
    fed: Absorbed = field(default_factory=Absorbed)
    made: list[str] = field(default_factory=list)
    counted: dict[str, list[Counted]] = field(default_factory=dict)

    @property
    def fresh(self) -> tuple[Chunk, ...]:
        return (*self.moment.absorbed.chunks, *self.fed.chunks)


@contextmanager
def _guarded(owner: str, stepped: Stepped) -> Iterator[None]:
    """Notes what goes wrong for one query, so that the others are not disturbed."""
    try:
        yield
    except Exception as failure:
        raise_if_not_a_querys(failure)
        stepped.failed[owner] = cause_of(failure)


def _may_shed(plan: FlowPlan) -> bool:
    """Whether rows may be left out: of an outer join that would make others look as if they had met nobody."""
    return isinstance(plan, JoinPlan) and all(each.join.how == "inner" for each in plan.in_order)


def _all(flows: Mapping[str, FlowPlan]) -> list[tuple[str, JoinPlan]]:
    """All joins, those below others first, each with the query it belongs to."""
    return [(name, each) for name, plan in flows.items() if isinstance(plan, JoinPlan) for each in plan.in_order]


def _derived_clock(
    plan: JoinPlan, before: StreamClock, clocks: Mapping[str, StreamClock], absorbed: Absorbed
) -> StreamClock:
    """Time of the stream that a join's pairs make."""
    assert plan.feeds is not None
    seen = absorbed.counts.get(plan.feeds.name)
    now = watermark_of(clocks, [stream for streams in plan.streams.values() for stream in streams])
    marks = [m for m in (before.watermark_us, None if now is None else now - plan.feeds.delay_us) if m is not None]
    firsts = [t for t in (before.first_us, seen.first_us if seen else None) if t is not None]
    lasts = [t for t in (before.last_us, seen.last_us if seen else None) if t is not None]
    return replace(
        before,
        first_us=min(firsts, default=None),
        last_us=max(lasts, default=None),
        watermark_us=max(marks, default=None),
    )


_EMPTY: dict[str, Any] = {"rows": 0, "sampled": 0, "heavy": {}}


def _way_of(value: Mapping[str, Any]) -> JoinWay:
    return JoinWay(
        value["way"], value["split"], tuple(value["hot"]), tuple(value["hosts"]), value["reason"], value["costs_s"],
        value["keep"],
    )  # fmt: skip


def _signature(way: JoinWay) -> list[Any]:
    """What decides of which kind a key's rows become."""
    return ["rows"] if way.way in ("split", "biclique") else ["keys", *way.hot]


def _cut(decision: Mapping[str, Any], side: str) -> Cut:
    slices, hot = int(decision["slices"]), tuple(decision["hot"])
    kind = ONCE if decision["way"] == "biclique" or decision["split"] == side else EVERYWHERE
    cut = Cut(slices, kind, keep=decision["keep"], seed=decision["seed"])
    match decision["way"]:
        case "hash":
            return cut
        case "hybrid":
            return replace(cut, hot=hot)
        case _:
            return replace(cut, rows=True)


def _stats(state: Mapping[str, Any], side: str, window_us: int) -> SideStats:
    sample = state.get("sample") or {"epochs": 0}
    if not sample["epochs"]:
        return FIRST
    mine, rows = sample[side], sample[side]["rows"] / sample["epochs"]
    sampled = max(1, mine["sampled"])
    heavy = {int(key): count / sampled for key, count in mine["heavy"].items() if count > 1}
    if "window_rows" in mine:
        # What would be held if nothing were shed.
        window_rows = mine["window_rows"] / state["way"]["keep"]
    else:
        # Pairs that Spark finishes come without an account of what was read: as many epochs as the window is long.
        window_rows = rows * max(1.0, window_us * sample["epochs"] / max(1, sample["advance_us"]))
    return SideStats(rows, window_rows, mine.get("row_bytes", 100.0), heavy)


def _sampled(sample: Mapping[str, Any], rows: int, heavy: Sequence[Heavy]) -> dict[str, Any]:
    """A sample with one epoch more: rows, and counts of the heaviest hashes."""
    counts = dict(sample["heavy"])
    for found in heavy:
        for key, count in found.hashes:
            counts[str(key)] = counts.get(str(key), 0) + count
    heaviest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:32]
    return {
        "rows": sample["rows"] + rows,
        "sampled": sample["sampled"] + sum(found.sampled for found in heavy),
        "heavy": dict(heaviest),
    }


def _known_speeds(state: Mapping[str, Any], hosts: int) -> tuple[float, ...]:
    known = tuple(state.get("speeds") or ())
    return known if len(known) == hosts else (1.0,) * hosts


def _speeds(known: Sequence[float], slices: Sequence[int], counted: Sequence[Counted]) -> list[float]:
    """Relative speeds of the hosts, from rows per second where there was enough to do to tell."""
    busy = [c for c in counted if c.seconds > 0.2 and c.host < len(known)]
    rates = {c.host: (sum(c.received) + sum(c.held)) / c.seconds for c in busy}
    return list(learn_speeds(known, rates, idle=set(range(len(known))) - set(slices)))


def _shed(absorbed: Absorbed, store: str) -> int:
    return sum(rows for (id_, _), rows in absorbed.shed.items() if id_ == store)


def _has_work(work: JoinWork) -> bool:
    return bool(work.fresh) or any(closing is not None for closing in work.closing)


def _window_us(plan: JoinPlan, side: str) -> int:
    return (plan.join.left if side == LEFT else plan.join.right).window.size_us


def _closed(plan: JoinPlan, side: str, clocks: Mapping[str, StreamClock]) -> int | None:
    """The time before which rows of a side can meet no row to come; None before there is any."""
    other = RIGHT if side == LEFT else LEFT
    now = watermark_of(clocks, plan.streams[other])
    return None if now is None else now - _window_us(plan, side)


def _last(plan: JoinPlan, side: str, clocks: Mapping[str, StreamClock]) -> int:
    known = [clocks[stream].last_us for stream in plan.streams[side]]
    return max((last for last in known if last is not None), default=EVER[0])


def _advance_us(plan: JoinPlan, before: Mapping[str, StreamClock], after: Mapping[str, StreamClock]) -> int:
    """How far an epoch has brought event time."""
    first, last = (max(_last(plan, side, clocks) for side in SIDES) for clocks in (before, after))
    return 0 if first == EVER[0] else last - first


def _shown(counted: Sequence[Counted]) -> dict[str, Any]:
    ordered = sorted(counted, key=lambda c: c.host)
    return {
        "received": [list(c.received) for c in ordered],
        "held": [list(c.held) for c in ordered],
        "seconds": [round(c.seconds, 4) for c in ordered],
        "pairs": sum(c.pairs for c in ordered),
    }
