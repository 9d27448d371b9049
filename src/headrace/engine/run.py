"""A running pipeline: one StreamingQuery over all streams, epochs inside it, a handle outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.ask import ATTEMPTS, ask
from headrace.engine.blame import translated
from headrace.engine.epoch import Epochs
from headrace.engine.operators.functions import load_function
from headrace.engine.operators.join import JoinOperator
from headrace.engine.operators.keyed import KeyedOperator
from headrace.engine.sinks.choose import (
    MemorySink,
    Sink,
    forget_sinks,
    open_sink,
    refuse_clashes,
    refuse_later_epochs,
)
from headrace.engine.sources.file_log import FileLog
from headrace.engine.sources.intake import IntakeControl, in_words, intake_before, read_with_intake, streams_with_intake
from headrace.engine.sources.read import United, read_stream, unite
from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.spark.connectors import check_connectors
from headrace.engine.spark.judge import columns_in_use, judge
from headrace.engine.spark.pinned import PinnedJobs
from headrace.engine.spark.secrets import remember_options
from headrace.engine.spark.session import bin_bytes_from, tune, tuning_from
from headrace.engine.spark.ship import prepare_executors
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.choose_io import choose_io, verify_state
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.storage import LocalStorage, for_spark, open_storage
from headrace.engine.state.workload import adopt, forgettable, plan_workload, read_description
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics import MetricsPage, waiting_rows
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.engine.watch.status import describe
from headrace.errors import CorruptStateError, EngineError, HeadraceError, Problem, SpecError
from headrace.hiding import hide
from headrace.language import bind_query
from headrace.model import Intake, Pipeline, Query, SinkSpec, Step, StepFunction, Stream
from headrace.planning import Workload, plan_query
from headrace.policies import Patience, Tuning
from headrace.units import SECOND_US

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Run", "start"]

_LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_LOG_WRITER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class ChosenSink(Protocol):
    """A sink as the Python API makes it: what it is, and the function behind it if it is one of the caller's."""

    @property
    def spec(self) -> SinkSpec: ...

    @property
    def function(self) -> Callable[[Any, int], Any] | None: ...


class ChosenStep(Protocol):
    """A function with state as the Python API makes it."""

    @property
    def spec(self) -> StepFunction: ...

    @property
    def function(self) -> Callable[..., Any]: ...


@dataclass
class _Parts:
    """What a run is made of, and what it needs to change while it runs."""

    spark: SparkSession
    pipeline: Pipeline
    frames: dict[str, DataFrame]
    whole: United
    checkpoint: Checkpoint
    io: StateIo
    epochs: Epochs
    keyed: KeyedOperator
    sinks: dict[str, Sink]
    hooks: Hooks
    launch: Callable[[United], StreamingQuery]
    united: United
    columns: Mapping[str, frozenset[str]]
    waiting: tuple[Stream, ...]  # whose intake the engine sets
    server: MetricsServer | None


class Run:
    """A pipeline that runs, or ran; like Spark's StreamingQuery."""

    def __init__(self, parts: _Parts, query: StreamingQuery, once: bool, flush: bool) -> None:
        self._parts, self._query, self._once, self._flush = parts, query, once, flush
        self._ended = threading.Lock()
        self._changing = threading.Lock()
        self._closed = False
        self._added: list[str] = []  # queries that came while it ran
        self._failure: HeadraceError | None = None

    @property
    def status(self) -> dict[str, Any]:
        """What `headrace status` shows of this run, as plain values."""
        parts = self._parts
        return {
            **describe(parts.checkpoint.storage.root, *parts.epochs.state),
            "rejected": RejectedRows(parts.checkpoint.storage).account(),
            "active": self.is_active,
        }

    @property
    def failed(self) -> dict[str, str]:
        """The queries that have failed, and why; the others go on without them."""
        return {name: state.failed for name, state in self.progress.queries.items() if state.failed is not None}

    @property
    def progress(self) -> Manifest:
        """What the last committed epoch left."""
        return self._parts.epochs.manifest

    @property
    def streaming_query(self) -> StreamingQuery:
        """Spark's own handle, for its progress and its plan."""
        return self._query

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics page is, if there is one."""
        return None if self._parts.server is None else self._parts.server.url

    def waiting_rows(self) -> dict[str, int]:
        """Rows by stream that its source had and the last batch did not take; of Kafka's streams."""
        progress = self._query.lastProgress
        streams = [stream.name for stream in self._parts.pipeline.streams]
        return {} if progress is None else waiting_rows(progress.sources, streams)

    @property
    def is_active(self) -> bool:
        """Whether epochs are still run."""
        return not self._closed and bool(self._query.isActive)

    def await_termination(self, timeout_s: int | None = None) -> bool:
        """Waits for the end; True if it has come. A failure is raised as EngineError or StateError."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            query, failure = self._query, None
            try:
                if until is None:
                    query.awaitTermination()
                # Spark refuses to wait for no time at all; it counts in seconds.
                elif not query.awaitTermination(max(1, round(until - time.monotonic()))):
                    return False
            except Exception as exc:
                failure = exc
            with self._changing:
                # A change that needed other columns has put a new query in the place of this one.
                if query is self._query:
                    break
        self._close(failure)
        return True

    def process_all_available(self) -> None:
        """Waits until all rows that are there now are in committed epochs."""
        while True:
            query, failure = self._query, None
            try:
                query.processAllAvailable()
            except Exception as exc:
                failure = exc
            with self._changing:
                if query is self._query:
                    break
        if failure is not None:
            self._close(failure)

    def flush(self) -> None:
        """Answers every window that holds rows; rows older than those windows' ends are late from now on."""
        self._stop_query()
        self._parts.epochs.flush("flush was asked for")

    def table(self, query: str) -> pa.Table | None:
        """The results that a memory sink keeps: all of a query's, or the newest."""
        sink = self._parts.sinks[query]
        if not isinstance(sink, MemorySink):
            raise SpecError(f"query '{query}' has no memory sink to read from")
        return sink.table()

    def add_query(
        self,
        name: str,
        sql: str,
        *,
        sink: ChosenSink | None = None,
        priority: int = 0,
        weight: float = 1.0,
        lifetime: str | None = None,
        step: ChosenStep | None = None,
    ) -> None:
        """Adds a query from the next epoch on; SpecError, and no change, if it cannot run. Default sink: memory."""
        streams = {stream.name: stream for stream in self._parts.pipeline.streams}
        spec = SinkSpec("memory") if sink is None else sink.spec
        query = bind_query(
            name,
            sql,
            streams,
            sink=spec,
            priority=priority,
            weight=weight,
            lifetime=lifetime,
            step=None if step is None else step.spec,
        )
        function = None if sink is None else sink.function
        over = forgettable(self._parts.epochs.manifest.queries, self._added)
        self.change(
            add=[query],
            drop=over,
            functions={} if function is None else {name: function},
            steps={} if step is None else {name: step.function},
        )
        self._added = [*(each for each in self._added if each not in over), name]

    def drop_query(self, name: str) -> None:
        """Ends a query from the next epoch on; what only it needed is freed."""
        self.change(drop=[name])

    def change(
        self,
        add: Sequence[Query] = (),
        drop: Sequence[str] = (),
        functions: Mapping[str, Callable[[Any, int], Any]] | None = None,
        steps: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        """Adds and drops queries between two epochs. All of it happens, or nothing, and SpecError says why.

        A query in both is replaced: it starts anew if its SQL is another or it has ended, and goes on if not.
        """
        if self._parts.epochs.calls:
            raise EngineError("queries change between two epochs: not from a hook or a sink, which are part of one")
        with self._changing:
            if self._once or not self.is_active:
                raise EngineError("queries are added and dropped while a run goes on; this one ends by itself or has")
            self._change(add, drop, functions or {}, steps or {})

    def _change(
        self,
        add: Sequence[Query],
        drop: Sequence[str],
        functions: Mapping[str, Callable[[Any, int], Any]],
        steps: Mapping[str, Callable[..., Any]],
    ) -> None:
        parts, notes = self._parts, list[str]()
        before = {query.name: query for query in parts.pipeline.queries}
        known = dict(before)
        for name in drop:
            if name not in known:
                raise SpecError(Problem(f"there is no query '{name}'; known: {', '.join(known) or 'none'}"))
            del known[name]
        judged = self._judged(add, known, steps)
        plans = {query.name: plan_query(query) for query in judged}
        known |= {query.name: query for query in judged}
        changed = replace(parts.pipeline, queries=tuple(known.values()))
        remember_options(changed)
        refuse_clashes(changed, parts.checkpoint.storage.root, parts.spark)
        states = parts.epochs.manifest.queries
        feeding = [query for name, query in known.items() if name in plans or states[name].runs]
        columns = columns_in_use(feeding, parts.pipeline.streams)
        missing = any(columns[name] - parts.columns[name] for name in columns)
        united = unite(parts.pipeline.streams, parts.frames, columns) if missing else parts.united
        opened: dict[str, Sink] = {}

        def plan(workload: Workload, manifest: Manifest) -> tuple[Workload, Manifest, dict[str, Sink]]:
            over = {name for name in plans if _is_over(manifest.queries.get(name), known[name])}
            new = {name: made for name, made in plans.items() if name not in over}
            staying = {n: p for n, p in workload.queries.items() if n in known and n not in plans}
            made = plan_workload({**staying, **new}, parts.pipeline.streams, workload, manifest.coverage)
            others = {n: s for n, s in manifest.queries.items() if n in known and n not in made.queries}
            for q in judged:
                # No epoch is under way here: opening a sink clears what a crashed one has left in its folder.
                if q.name in parts.sinks and q.name not in functions and _goes_on(before.get(q.name), q):
                    opened[q.name] = parts.sinks[q.name]
                    continue
                seen = q.name in manifest.queries
                opened[q.name] = open_sink(
                    q, parts.spark, parts.checkpoint, functions.get(q.name), seen, parts.hooks.on_note
                )
            refuse_later_epochs(opened, parts.checkpoint, manifest.epoch)
            adopted = adopt(manifest, made, others, notes.append)
            parts.keyed.check({name: flow for name, flow in made.flows.items() if name in new}, adopted.flows, steps)
            return made, adopted, {name: sink for name, sink in {**parts.sinks, **opened}.items() if name in known}

        # Spark's plan reads the columns in use: others need a new one, from the same offsets.
        parts.epochs.change(plan, (lambda: self._relaunch(united, columns)) if missing else lambda: None)
        sinks = {name: sink for name, sink in {**parts.sinks, **opened}.items() if name in known}
        gone = {name: sink for name, sink in parts.sinks.items() if sinks.get(name) is not sink}
        parts.sinks, parts.pipeline = sinks, changed
        forget_sinks(gone, sinks, parts.hooks.on_note)
        for note in notes:
            parts.hooks.on_note(note)

    def _relaunch(self, united: United, columns: Mapping[str, frozenset[str]]) -> None:
        """Has Spark read on from its offsets by another plan; by the one it had if it cannot."""
        parts = self._parts
        self._query.stop()
        try:
            self._query = parts.launch(united)
        except BaseException:
            self._query = parts.launch(parts.united)
            raise
        parts.united, parts.columns = united, columns

    def _set_intake(self, intake: Intake) -> bool:
        """Has epochs take so much from now on, which takes a new query of Spark's; whether that was possible."""
        with self._changing:
            parts = self._parts
            if not self.is_active:
                return False
            frames = {**parts.frames, **read_with_intake(parts.spark, parts.waiting, intake)}
            united = unite(parts.pipeline.streams, frames, parts.columns)
            try:
                parts.epochs.change(lambda w, m: (w, m, parts.sinks), lambda: self._relaunch(united, parts.columns))
            except Exception as failure:  # it goes on with the intake it had, or ends by what is wrong
                parts.hooks.on_note(f"the intake of epochs could not be changed: {translated(failure)}")
                return False
            parts.frames, parts.epochs.intake = frames, intake
        parts.hooks.on_note(in_words(intake, parts.waiting))
        return True

    def _judged(
        self, add: Sequence[Query], known: Mapping[str, Query], steps: Mapping[str, Callable[..., Any]]
    ) -> list[Query]:
        """The queries to add with Spark's types; SpecError with the problems of all of them."""
        parts, problems, judged = self._parts, list[Problem](), list[Query]()
        names = {name.lower() for name in known}
        rows = parts.whole.by_stream(parts.whole.rows)
        for query in add:
            if query.name.lower() in names:
                problems.append(Problem(f"there is a query '{query.name}' already", query=query.name))
                continue
            names.add(query.name.lower())
            try:
                judged.append(judge(query, parts.pipeline.streams, parts.spark, rows))
                plan_query(judged[-1])
                if isinstance(query.root, Step) and query.name not in steps:
                    load_function(query.root.step.function, query.name)
            except SpecError as error:
                problems += error.problems
        if problems:
            raise SpecError(problems)
        return judged

    def ask(self, sql: str) -> pa.Table:
        """Answers a one-time query from the panes that are there, over the newest closed window of its length."""
        parts = self._parts
        for attempt in range(ATTEMPTS):
            manifest, workload = parts.epochs.state
            try:
                return ask(parts.spark, parts.io, parts.checkpoint, manifest, workload, parts.pipeline.streams, sql)
            except CorruptStateError:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """Ends the run after the epoch under way; open windows stay open."""
        with self._changing:
            self._stop_query()
        self._flush = False
        self._close(None)

    def _stop_query(self) -> None:
        self._parts.epochs.quiesce()
        self._query.stop()

    def _close(self, failure: Exception | None) -> None:
        with self._ended:
            if not self._closed:
                self._closed = True
                try:
                    if failure is None and self._flush:
                        self._parts.epochs.flush("the run was asked to flush")
                finally:
                    self._parts.checkpoint.close()
                    if self._parts.server is not None:
                        self._parts.server.close()
                if failure is not None:
                    self._failure = translated(failure)
            if self._failure is not None:
                raise self._failure


def start(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    frames: Mapping[str, DataFrame] | None = None,
    functions: Mapping[str, Callable[[Any, int], Any]] | None = None,
    steps: Mapping[str, Callable[..., Any]] | None = None,
    checkpoint: str | None = None,
    once: bool = False,
    flush: bool = False,
    hooks: Hooks | None = None,
) -> Run:
    """Starts a pipeline from where its checkpoint ends."""
    if apart := pipeline.born_apart:
        raise SpecError(f"{apart}: running a pipeline on several sites is not part of this version")
    remember_options(pipeline)
    hooks = (hooks or Hooks()).without_secrets()
    tune(spark)
    prepare_executors(spark.sparkContext)
    tuning = tuning_from(spark)
    root = checkpoint or pipeline.engine.checkpoint
    if root is None:
        raise SpecError("a run needs a checkpoint: a folder of its own to keep its state in")
    # Spark knows sources by their position: by name, so that their order in the file does not matter.
    streams = tuple(sorted(pipeline.streams, key=lambda stream: stream.name))
    pipeline = replace(pipeline, streams=streams)
    check_connectors(pipeline, spark)
    sources = dict(frames or {})
    waiting = streams_with_intake(streams, tuple(sources), once)
    whole, corrupt, failed, queries = _sources(pipeline, spark, sources)
    columns = columns_in_use(queries, pipeline.streams)
    plans = {query.name: plan_query(query) for query in queries}
    refused = {q.name: QueryState(q.sql, failed=failed[q.name]) for q in pipeline.queries if q.name in failed}
    storage = open_storage(root, spark)
    # Spark's other way to write its log starts a process per file on a local disk; one writer needs no such care.
    spark.conf.set(_LOG_WRITER, _LOCAL_LOG_WRITER) if isinstance(storage, LocalStorage) else spark.conf.unset(
        _LOG_WRITER
    )
    point = Checkpoint(storage)
    bins = pipeline.engine.bins or max(1, spark.sparkContext.defaultParallelism // 2)
    refuse_clashes(replace(pipeline, queries=tuple(queries)), storage.root, spark)
    manifest = point.open(bins, {s.name: _origin(s) for s in streams})
    server: MetricsServer | None = None
    try:
        io = choose_io(spark, point)
        verify_state(io, manifest)
        point.clean_orphans(manifest, [query.name for query in pipeline.queries])
        before = read_description(point.workload(manifest)) if manifest is not None else None
        if manifest is not None:
            over = {n: s for n, s in manifest.queries.items() if n in plans and _is_over(s, plans[n].query)}
            refused |= over
            plans = {name: plan for name, plan in plans.items() if name not in over}
        seen = frozenset(manifest.queries if manifest is not None else ())
        workload = plan_workload(plans, streams, before, manifest.coverage if manifest else {})
        manifest = adopt(manifest, workload, refused, hooks.on_note)
        sinks = {
            name: open_sink(plan.query, spark, point, (functions or {}).get(name), name in seen, hooks.on_note)
            for name, plan in plans.items()
        }
        refuse_later_epochs(sinks, point, manifest.epoch)
        trigger_s = None if once else pipeline.engine.trigger_us / SECOND_US
        keyed = KeyedOperator(
            spark,
            point,
            io,
            PinnedJobs(spark.sparkContext, storage.root),
            tuning.flux,
            lambda: bin_bytes_from(spark),
            hooks.probe,
        )
        keyed.check(workload.flows, manifest.flows, steps or {})
        operators = (_joins(pipeline, io, point, hooks, tuning), keyed)
        page, log = MetricsPage(), FileLog(storage, [stream.name for stream in streams], spark)
        intake = IntakeControl(waiting, intake_before(point), trigger_s or 0.0, log, hooks.on_note)
        epochs = Epochs(
            spark, point, io, manifest, streams, workload, sinks, corrupt,
            hooks.watched_by(page.decided, page.committed, intake.committed),
            pipeline.engine.schedule, trigger_s, operators,
            Patience(tuning.patience, pipeline.engine.trigger_us / SECOND_US),
        )  # fmt: skip
        epochs.intake = intake.intake if waiting else None
        sources |= read_with_intake(spark, waiting, intake.intake)
        rows = unite(streams, sources, columns)
        epochs.recover()

        def launch(united: United) -> StreamingQuery:
            writer = united.rows.writeStream.foreachBatch(_batch_runner(epochs, united))
            writer = writer.queryName(f"headrace-{pipeline.name}")
            writer = writer.option("checkpointLocation", f"{for_spark(storage.root)}/spark")
            every = f"{pipeline.engine.trigger_us // 1000} milliseconds"
            return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()

        if pipeline.engine.metrics is not None:
            server = MetricsServer(pipeline.engine.metrics, page.text)
        query = launch(rows)
    except BaseException:
        point.close()
        if server is not None:
            server.close()
        raise
    parts = _Parts(
        spark, pipeline, sources, whole, point, io, epochs, keyed, sinks, hooks, launch, rows, columns, waiting, server
    )
    run = Run(parts, query, once, flush)
    page.lag = run.waiting_rows
    if server is not None:
        hooks.on_note(f"metrics are at {server.url}")
    intake.apply = run._set_intake if waiting and not once else None
    return run


def _joins(pipeline: Pipeline, io: StateIo, point: Checkpoint, hooks: Hooks, tuning: Tuning) -> JoinOperator:
    return JoinOperator(io, point.state_folder, point.bins, hooks.probe, pipeline.engine.join, tuning.join_bytes)


def _batch_runner(epochs: Epochs, united: United) -> Callable[[DataFrame, int], None]:
    tuned: set[int] = set()

    def run(batch: DataFrame, number: int) -> None:
        if not tuned:
            # Spark runs epochs in a session of their own; adaptive execution pays off for large shuffles, and epochs
            # have small ones.
            tune(batch.sparkSession)
            batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            tuned.add(number)
        epochs.run(united.by_stream(batch), number)

    return run


def _sources(
    pipeline: Pipeline, spark: SparkSession, frames: dict[str, DataFrame]
) -> tuple[United, frozenset[str], dict[str, str], list[Query]]:
    """All streams as one, which of them bring unparseable rows along, and the queries Spark accepts."""
    corrupt: set[str] = set()
    for stream in pipeline.streams:
        if stream.name not in frames:
            frames[stream.name], lenient = read_stream(spark, stream)
            if lenient:
                corrupt.add(stream.name)
    everything = {s.name: frozenset(c.name for c in s.columns) for s in pipeline.streams}
    whole = unite(pipeline.streams, frames, everything)
    queries: list[Query] = []
    failed: dict[str, str] = {}
    for query in pipeline.queries:
        try:
            queries.append(judge(query, pipeline.streams, spark, whole.by_stream(whole.rows)))
        except SpecError as problem:
            failed[query.name] = str(problem)
    if pipeline.queries and not queries:
        raise SpecError(Problem(text) for text in failed.values())
    return whole, frozenset(corrupt), failed, queries


def _origin(stream: Stream) -> str:
    """What a stream is read from, as far as it must not change under a checkpoint."""
    source = stream.source
    if source is None:
        return "a DataFrame"
    topics = [text for key, text in source.options if key.lower() in ("subscribe", "subscribepattern", "assign")]
    return hide(" ".join(part for part in (source.format, source.path, *topics) if part))


def _goes_on(before: Query | None, after: Query) -> bool:
    return before is not None and (before.sql, before.sink) == (after.sql, after.sink)


def _is_over(state: QueryState | None, query: Query) -> bool:
    """Whether a query has come to the end of the lifetime it still has."""
    same = state is not None and (state.sql, state.lifetime_us) == (query.sql, query.lifetime_us)
    return state is not None and state.ended and same
