"""Row windows and user-defined state: mini-partitions in bins that stay where they are, and move when told.

Rows of an epoch reach their bins through the epoch's chunks, cut by mini-partition. Nothing else travels: state stays
in the bin's process, and what is read of it from files is what has just moved there or has been lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine.failures import blamed, cause_of
from headrace.engine.operators.answering import hand_over, writes_parquet
from headrace.engine.operators.finishing import direct_finish, spark_finish
from headrace.engine.operators.functions import load_function, packed
from headrace.engine.operators.giving import give
from headrace.engine.operators.port import Answered, Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.operators.specs import spec_of_rows
from headrace.engine.sinks.choose import FileSink
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, NodeState
from headrace.engine.state.state_io import StateIo, Stays
from headrace.engine.state.storage import for_spark
from headrace.errors import StateError
from headrace.kernels.absorb import Slicing
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.chunks import APART, Chunk
from headrace.kernels.finish import DirectFinish
from headrace.kernels.keyed import BinReport, Kernel, KeyedTask, KeyedWork, Left, MiniWork, RowsKernel, Worked
from headrace.kernels.steps import StepKernel
from headrace.kernels.values import spelled
from headrace.model import Column, EpochDecision, KeyedDecision, KeyedMeasures, KeyedState
from headrace.planning import FlowPlan, RowsPlan, StepPlan, Workload
from headrace.policies import FluxSettings, KeyedEpoch, StreamClock, account, begin, decide_keyed, watermark_of
from headrace.policies.remedies import Remedy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KeyedOperator"]

# A mini-partition is written anew after at most so many epochs.
SNAPSHOT_EPOCHS = 32
# A log that is shorter than this is read again in no time.
SNAPSHOT_BYTES = 1 << 20
_NEVER = -(2**62)


@dataclass
class _Query:
    """What stays the same of a query from epoch to epoch, and what its processes hold."""

    plan: RowsPlan | StepPlan
    kernel: Kernel
    merges: bool
    schema: pa.Schema
    ddl: str
    state: str = ""  # columns of a function's state, and their version
    version: int = 0
    left: dict[int, Left] = field(default_factory=dict)  # by bin, in its process
    log_bytes: int = 0


def _stored(plan: FlowPlan) -> pa.Schema:
    return pa.schema([("p", pa.int64()), *((c.name, arrow_type(c.type)) for c in plan.stores[0].columns)])


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def _schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def _rows(plan: RowsPlan) -> _Query:
    types = {column.name: column.type for column in plan.stores[0].columns}
    results = [Column(given, types[source]) for given, source in plan.results]
    results += [Column(aggregate.name, aggregate.type) for aggregate in plan.root.aggregates]
    kernel = RowsKernel(spec_of_rows(plan), _stored(plan))
    return _Query(plan, kernel, True, _schema(results), ", ".join(f"{c.name} {c.type}" for c in results))


def _rooms(reports: Sequence[BinReport], work: int, most: Sequence[int] = ()) -> dict[int, int]:
    """By bin the bytes that one query may have there: what it has, and its bin's share of what is left on the host.

    `most` is what all queries of a bin may have, one number for all bins or one for each; none: what there is.
    """
    neighbours = Counter(report.host for report in reports)
    rooms: dict[int, int] = {}
    for report in reports:
        room = report.held_bytes + min(report.own_bytes, report.shared_bytes // neighbours[report.host])
        if most:
            room = min(room, most[report.bin % len(most)])
        others = sum(size for each in report.worked if each.work != work for _, size in each.state)
        rooms[report.bin] = max(0, room - others)
    return rooms


def _migrating(state: KeyedState, version: int, epoch: int) -> tuple[int, int] | None:
    """Since which epoch state is written in this version, where some of it may have another; None: it has not."""
    if state.migrating is not None and state.migrating[1] == version:
        return state.migrating
    return (epoch, version) if state.migrating is not None or state.version not in (0, version) else None


def _mine(flows: Mapping[str, FlowPlan]) -> dict[str, FlowPlan]:
    return {name: plan for name, plan in flows.items() if isinstance(plan, RowsPlan | StepPlan)}


def _decided(name: str, decision: EpochDecision) -> KeyedDecision:
    found = decision.nodes[name]
    assert isinstance(found, KeyedDecision)
    return found


def _all_at_once(decision: KeyedDecision) -> KeyedDecision:
    """The same decision where nothing may wait: the streams have ended, and all rows get their results now."""
    targets = {item.move.mini: item.move.target for item in decision.moving}
    owners = tuple(targets.get(mini, owner) for mini, owner in enumerate(decision.owners))
    return replace(decision, owners=owners, moving=(), waits=())


@dataclass(frozen=True)
class _Done:
    """An epoch of one query: its state before, what was decided and ordered, and what bins made of it in how long."""

    before: KeyedState
    decision: KeyedDecision
    work: KeyedWork
    worked: Sequence[Worked]
    reports: Sequence[BinReport]
    seconds: float

    @property
    def snapshots(self) -> tuple[Chunk, ...]:
        return tuple(each.snapshot for each in self.worked if each.snapshot is not None)

    def measured(self, slices: Mapping[tuple[str, int], int], most: Sequence[int]) -> KeyedEpoch:
        """What the epoch tells the policies; `slices` has the rows that came, by store and mini-partition."""
        bins, minis = range(self.decision.bins), range(len(self.decision.owners))
        by_bin = {each.bin: each for each in self.worked}
        memory = _rooms(self.reports, self.worked[0].work, most)
        rows = Counter[int]()
        for each in self.worked:
            rows.update(dict(each.rows))
        sizes = {mini: size for each in self.worked for mini, size in each.state}
        return KeyedEpoch(
            self.seconds,
            tuple(by_bin[b].seconds if b in by_bin else 0.0 for b in bins),
            tuple(by_bin[b].load_s if b in by_bin else 0.0 for b in bins),
            tuple(memory.get(b, 0) for b in bins),
            tuple(rows[mini] for mini in minis),
            tuple(slices.get((self.work.store, mini), 0) for mini in minis),
            tuple(sizes.get(mini) for mini in minis),
        )

    def recorded(self, state: KeyedState, query: _Query, epoch: int) -> KeyedState:
        """The state with the files it is in, up to when results are given, and the version of the query's state."""
        done, bases, snapshots = list(state.done_us), list(state.bases), list(state.snapshots)
        for mini in frozenset(range(len(done))).difference(self.decision.waits):
            done[mini] = max(self.work.final_us, self.before.done_us[mini] or _NEVER)
        for each in self.worked:
            for mini in each.saved:
                bases[mini] = epoch
                snapshots[mini] = None if each.snapshot is None else each.snapshot.name
        least = min(bases)
        log = (*self.before.log, *((epoch, fresh) for fresh in self.work.fresh))
        # State that waits is still of the version it had, until it has been written anew.
        migrating = _migrating(self.before, query.version, epoch)
        as_before = migrating is not None and any(
            snapshot is not None and base < migrating[0] for snapshot, base in zip(snapshots, bases, strict=True)
        )
        return replace(
            state,
            schema=self.before.schema if as_before else query.state,
            version=self.before.version if as_before else query.version,
            migrating=migrating if as_before else None,
            forms=query.plan.forms,
            done_us=tuple(done),
            bases=tuple(bases),
            snapshots=tuple(snapshots),
            log=tuple(item for item in log if item[0] > least),
        )

    def observed(self, measured: KeyedEpoch, state_bytes: int) -> KeyedMeasures:
        """What the manifest shows of the epoch."""
        places = {report.bin: report.place for report in self.reports}
        return KeyedMeasures(
            round(self.seconds, 4),
            tuple(round(each, 4) for each in measured.busy_s),
            tuple(places.get(bin_) for bin_ in range(self.decision.bins)),
            sum(each.loaded_bytes for each in self.worked),
            tuple(sorted(mini for each in self.worked for mini in each.loaded)),
            sum(measured.rows),
            len(frozenset(self.decision.waits)),
            state_bytes,
        )


class KeyedOperator:
    """Runs all row windows and functions of a pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        io: StateIo,
        settings: FluxSettings,
        memory_bytes: Callable[[], tuple[int, ...]] = tuple,
        probe: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._spark, self._checkpoint, self._io = spark, checkpoint, io
        self._settings, self._memory_bytes, self._probe = settings, memory_bytes, probe
        self._queries: dict[str, _Query] = {}
        self._checked: dict[str, _Query] = {}  # not at work yet

    def check(self, checked: Checked) -> None:
        """Loads functions that are not given; refuses state of another version that nothing can change."""
        for name, plan in _mine(checked.flows).items():
            self._checked[name] = self._made(name, plan, checked.functions.get(name))
            before = checked.state.get(name)
            if not isinstance(plan, StepPlan) or not isinstance(before, KeyedState):
                continue
            step, schema = plan.root.step, _columns(plan.root.step.state)
            if before.version != step.version and step.migration is None:
                raise StateError(
                    f"query '{name}' has state of version {before.version} ({before.schema}), and its function wants "
                    f"version {step.version}; give it a `migration`, go back to that version, or use another name"
                )
            if before.migrating is not None and step.migration is None:
                raise StateError(
                    f"query '{name}' has state of several versions, as its migration to version {before.migrating[1]} "
                    "has not come to its end; give it a `migration` that knows all of them"
                )
            if before.version == step.version and before.schema != schema:
                raise StateError(
                    f"query '{name}' has state of version {before.version} with the columns {before.schema}, and its "
                    f"function now declares {schema}; give it a new `version` and a `migration`"
                )

    def decide(self, ask: Ask) -> Decided:
        flows, state = _mine(ask.standing.flows), ask.standing.manifest.nodes
        # Queries come and go: what was made for one that has left goes with it.
        self._queries = {name: query for name, query in self._queries.items() if name in flows}
        urgent = ask.acts(Remedy.MOVE_STATE)
        return Decided({name: self._decide(name, plan, state.get(name), urgent) for name, plan in flows.items()})

    def _decide(self, name: str, plan: FlowPlan, known: NodeState | None, urgent: bool) -> KeyedDecision:
        bins = self._io.slots
        state = self._state(known, bins, bins * self._settings.minis_per_bin)
        return decide_keyed(state, bins, self._settings, self._query(name, plan).merges, urgent=urgent)

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        mine = _mine(part.flows)
        slicings = {
            plan.stores[0].id: Slicing(slices=len(_decided(name, decision).owners), apart=True)
            for name, plan in mine.items()
        }
        return Taking(stores=tuple(store for plan in mine.values() for store in plan.stores), slicings=slicings)

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Past the last row of all streams of a query."""
        ends: dict[str, int] = {}
        for plan in _mine(standing.flows).values():
            lasts = [last for stream in plan.reads if (last := clocks[stream].last_us) is not None]
            if lasts:
                ends |= {stream: max(max(lasts) + 1, ends.get(stream, _NEVER)) for stream in plan.reads}
        return ends

    def answer(self, moment: Moment) -> Made:
        names = tuple(_mine(moment.flows))
        if not names:
            return Made()
        decisions = {name: _decided(name, moment.decision) for name in names}
        decisions = {n: _all_at_once(d) if moment.is_last(n) else d for n, d in decisions.items()}
        bins = max(decision.bins for decision in decisions.values())
        states = {name: self._state(moment.state.get(name), d.bins, len(d.owners)) for name, d in decisions.items()}
        works = {name: self._work(name, moment, states[name], decisions[name]) for name in names}
        others = frozenset(_mine(moment.standing.flows)) - works.keys()
        task = KeyedTask(self._checkpoint.state_folder, moment.decision.epoch, tuple(works.values()), others)
        began = time.monotonic()
        reports: list[BinReport] = blamed(lambda: self._io.run(task, bins, Stays.PROCESS))
        seconds = time.monotonic() - began
        made, most = Made(), self._memory_bytes()
        worked = [each for report in reports for each in report.worked]
        for number, name in enumerate(names):
            mine = [each for each in worked if each.work == number]
            self._deliver(name, moment, works[name], mine, made)
            if name not in made.failed:
                done = _Done(states[name], decisions[name], works[name], mine, reports, seconds)
                self._account(name, moment, done, most, made)
                self._tell_time(name, moment, made)
        self._probe("after-keyed")
        return made

    # ------------------------------------------------------------------------------------------------------------------

    def _state(self, known: NodeState | None, bins: int, minis: int) -> KeyedState:
        return known if isinstance(known, KeyedState) else begin(bins, minis, self._settings)

    def _query(self, name: str, plan: FlowPlan) -> _Query:
        assert isinstance(plan, RowsPlan | StepPlan)
        known = self._queries.get(name)
        if known is None or known.plan is not plan:
            checked = self._checked.pop(name, None)
            known = checked if checked is not None and checked.plan is plan else self._made(name, plan)
            self._queries[name] = known
        return known

    def _made(self, name: str, plan: FlowPlan, function: Callable[..., Any] | None = None) -> _Query:
        if isinstance(plan, RowsPlan):
            return _rows(plan)
        assert isinstance(plan, StepPlan)
        step = plan.root.step
        function = function or load_function(step.function, name)
        migration = None if step.migration is None else load_function(step.migration, name, "migration")
        code = packed(function)
        assert code is not None
        results = _schema(step.results)
        kernel = StepKernel(
            name, code, plan.columns, plan.ties, _stored(plan), _schema(step.state), results, step.version,
            packed(migration),
        )  # fmt: skip
        ddl = ", ".join(f"`{c.name}` {c.type}" for c in step.results)
        return _Query(plan, kernel, False, results, ddl, _columns(step.state), step.version)

    def _work(self, name: str, moment: Moment, state: KeyedState, decision: KeyedDecision) -> KeyedWork:
        query = self._query(name, moment.flows[name])
        store = query.plan.stores[0].id
        fresh = tuple(c for c in moment.absorbed.chunks if c.level == APART and store in dict(c.ends))
        watermark = watermark_of(moment.after, query.plan.reads)
        waits = frozenset(decision.waits)
        shares: dict[int, tuple[int, ...]] = {item.mini: item.bins for item in decision.splits}
        works: dict[int, list[MiniWork]] = {}
        ships: dict[int, list[MiniWork]] = {}
        targets = {item.move.mini: item.move.target for item in decision.moving}
        for mini, owner in enumerate(decision.owners):
            done = state.done_us[mini]
            each = MiniWork(mini, _NEVER if done is None else done, state.bases[mini], state.snapshots[mini])
            if mini in targets:
                ships.setdefault(targets[mini], []).append(each)
            if mini in waits:
                continue
            helpers = shares.get(mini, (owner,))
            for i, bin_ in enumerate(helpers):
                works.setdefault(bin_, []).append(replace(each, share=(i, len(helpers))))
        sink = moment.sinks.get(name)
        writes = sink is not None and writes_parquet(query.plan.query, sink, self._io)
        steps = isinstance(query.plan, StepPlan)
        finish: DirectFinish | None = direct_finish(query.plan.query) if writes and not steps else None
        direct = finish is not None or (writes and steps)
        staging = sink.staging if direct and isinstance(sink, FileSink) else self._staging(moment, name)
        query.log_bytes += sum(chunk.bytes for chunk in fresh)
        return KeyedWork(
            name,
            store,
            query.kernel,
            state.log,
            tuple(chunk.name for chunk in fresh),
            _NEVER if watermark is None else watermark,
            {bin_: tuple(each) for bin_, each in works.items()},
            dict(query.left),
            self._saves(query, state, decision, moment.decision.epoch),
            {bin_: tuple(each) for bin_, each in ships.items()},
            self._settings.budget_bytes,
            direct,
            finish,
            query.schema,
            staging,
        )

    def _staging(self, moment: Moment, name: str) -> str:
        return f"{self._checkpoint.state_folder}/_keyed-{moment.decision.epoch}-{name}"

    def _saves(self, query: _Query, state: KeyedState, decision: KeyedDecision, epoch: int) -> frozenset[int]:
        """The mini-partitions of which a snapshot is written.

        All of them when the log is twice as long as the state; else each in its turn, so that no epoch has to write
        many; and those that had a turn in memory and go back to disk.
        """
        turned = frozenset(mini for each in decision.residence for mini in each.turn)
        if query.log_bytes > max(SNAPSHOT_BYTES, 2 * sum(state.state_bytes)):
            query.log_bytes = 0
            return frozenset(range(len(decision.owners)))
        # So that soon no file is left that only a migration from the version before can read.
        migrating = _migrating(state, query.version, epoch)
        return turned | {
            mini
            for mini, base in enumerate(state.bases)
            if (migrating is not None and base < migrating[0])
            or epoch - base >= SNAPSHOT_EPOCHS
            or (2 * (epoch - base) >= SNAPSHOT_EPOCHS and (epoch + mini) % SNAPSHOT_EPOCHS == 0)
        }

    def _deliver(self, name: str, moment: Moment, work: KeyedWork, worked: Sequence[Worked], made: Made) -> None:
        """Gives an epoch's results to the query's sink, or says why there are none."""
        errors = [each.error for each in worked if each.error is not None]
        if errors:
            made.failed[name] = errors[0]
            return
        files = [each.file for each in sorted(worked, key=lambda each: each.bin) if each.file is not None]
        made.rows[name] = sum(each.results for each in worked)
        sink, epoch = moment.sinks.get(name), moment.decision.epoch
        if work.direct:
            assert isinstance(sink, FileSink)
            self._probe("mid-sinks")
            hand_over(sink, files, name, (epoch, moment.replay), made)
            return
        if not files and (sink is None or not moment.replay):
            return
        query = self._queries[name]
        paths = [f"{for_spark(work.staging)}/{file}" for file in files]
        try:
            reader = self._spark.read.schema(query.ddl)
            # An epoch that is repeated may have had results before, in whose place there are none now.
            raw = reader.parquet(*paths) if paths else self._spark.createDataFrame([], query.ddl)
            results = spark_finish(raw, query.plan.query.finish)
            if query.plan.feeds is not None:
                made.fed += moment.feed(query.plan.feeds.stream, results)
            elif sink is not None:
                give(query.plan.query, sink, results, epoch, moment.replay, made.counts)
        except Exception as failure:
            made.failed[name] = cause_of(failure, spelled(query.plan.query.root))
        finally:
            self._checkpoint.storage.delete(work.staging.removeprefix(f"{self._checkpoint.storage.root}/"))

    def _tell_time(self, name: str, moment: Moment, made: Made) -> None:
        """The clock of the stream that results make: rows of all mini-partitions have theirs up to there."""
        derived, state = moment.flows[name].feeds, made.state[name]
        if derived is not None:
            assert isinstance(state, KeyedState)
            done = [time for time in state.done_us if time is not None and time > _NEVER]
            now = min(done) if len(done) == len(state.done_us) else None
            made.clocks[derived.name] = moment.clock_of(derived, now, made.fed)

    def _account(self, name: str, moment: Moment, done: _Done, most: Sequence[int], made: Made) -> None:
        """Notes what is remembered of a query from here on, and what was observed of it."""
        query, epoch = self._queries[name], moment.decision.epoch
        measured = done.measured(moment.absorbed.slices, most)
        state = account(done.before, done.decision, measured, epoch, self._settings)
        made.state[name] = state = done.recorded(state, query, epoch)
        made.chunks += done.snapshots
        times = [time for time in state.done_us if time is not None and time > _NEVER]
        if times:
            made.answered[name] = Answered(min(times), done.work.final_us - min(times))
        made.observed[name] = done.observed(measured, sum(state.state_bytes))
        query.left = {each.bin: each.left for each in done.worked}
