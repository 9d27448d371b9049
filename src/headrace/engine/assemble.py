"""Puts a pipeline together: its checkpoint, operators and sinks, and the one StreamingQuery that drives its epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.absorbing import Absorbing
from headrace.engine.changes import Parts, is_over
from headrace.engine.epoch import Epoch
from headrace.engine.epochs import Epochs
from headrace.engine.operators.aggregates import AggregateOperator
from headrace.engine.operators.answering import Answering
from headrace.engine.operators.join import JoinOperator
from headrace.engine.operators.keyed import KeyedOperator
from headrace.engine.operators.port import Checked, Operator
from headrace.engine.operators.shedding import SheddingOperator
from headrace.engine.run import Run
from headrace.engine.sinks.choose import (
    open_sink,
    refuse_clashes,
    refuse_later_epochs,
)
from headrace.engine.sources.coming import ComingRows
from headrace.engine.sources.file_log import FileLog
from headrace.engine.sources.intake import IntakeControl, intake_before, read_with_intake, streams_with_intake
from headrace.engine.sources.read import United, read_stream, unite
from headrace.engine.spark.connectors import check_connectors
from headrace.engine.spark.deadline import Deadline
from headrace.engine.spark.jobs import jobs_started
from headrace.engine.spark.judge import judge
from headrace.engine.spark.pinned import PinnedJobs
from headrace.engine.spark.secrets import remember_options
from headrace.engine.spark.session import bin_bytes_from, tune, tuning_from
from headrace.engine.spark.ship import prepare_executors
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, QueryState
from headrace.engine.state.choose_io import choose_io, verify_state
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.storage import LocalStorage, for_spark, open_storage
from headrace.engine.state.workload import adopt, plan_workload, read_description
from headrace.engine.trial import Trial
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics import MetricsPage
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import Problem, SpecError
from headrace.hiding import hide
from headrace.model import Pipeline, Query, Stream
from headrace.planning import columns_in_use, plan_query, with_kept
from headrace.policies import Patience, Tuning
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start"]

_LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_LOG_WRITER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


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
            over = {n: s for n, s in manifest.queries.items() if n in plans and is_over(s, plans[n].query)}
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
        trial = Trial(Deadline(spark), Patience(tuning.patience, pipeline.engine.trigger_us / SECOND_US), hooks.on_note)
        log = FileLog(storage, [stream.name for stream in streams], spark)
        coming = ComingRows(storage, [stream.name for stream in streams], log)
        shedding = SheddingOperator(pipeline.engine, trigger_s, coming.of, hooks)
        operators = _operators(pipeline, spark, point, io, tuning, trial, trigger_s, hooks, shedding)
        for operator in operators:
            operator.check(Checked(workload.flows, manifest.nodes, steps or {}))
        page = MetricsPage()
        intake = IntakeControl(waiting, intake_before(point), trigger_s or 0.0, log, hooks.on_note)
        epoch = Epoch(
            Standing(streams, workload, sinks, manifest), point, io, operators,
            Absorbing(io, point.state_folder, point.bins, operators, corrupt, trial, hooks.probe), corrupt,
            hooks.watched_by(page.decided, page.committed, intake.committed), lambda: jobs_started(spark),
        )  # fmt: skip
        epochs = Epochs(epoch, point, intake.intake if waiting else None)
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
    parts = Parts(
        spark,
        pipeline,
        sources,
        whole,
        point,
        io,
        epochs,
        operators,
        sinks,
        hooks,
        launch,
        rows,
        columns,
        waiting,
        server,
    )
    run = Run(parts, query, once, flush)
    page.lag = shedding.behind = run.waiting_rows
    if server is not None:
        hooks.on_note(f"metrics are at {server.url}")
    intake.apply = run._set_intake if waiting and not once else None
    return run


def _operators(
    pipeline: Pipeline,
    spark: SparkSession,
    point: Checkpoint,
    io: StateIo,
    tuning: Tuning,
    trial: Trial,
    trigger_s: float | None,
    hooks: Hooks,
    shedding: SheddingOperator,
) -> tuple[Operator, ...]:
    """One operator per kind; those that make streams come before those that read them, shedding before the answers."""
    bins = PinnedJobs(spark.sparkContext, point.storage.root)
    answering = Answering(io, point.state_folder, point.bins, hooks.probe, trial)
    return (
        JoinOperator(io, point.state_folder, hooks.probe, pipeline.engine.join, tuning.join_bytes),
        KeyedOperator(spark, point, io, bins, tuning.flux, lambda: bin_bytes_from(spark), hooks.probe),
        shedding,
        AggregateOperator(answering, pipeline.engine.schedule, trigger_s),
    )


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
            judged = judge(query, pipeline.streams, spark, whole.by_stream(whole.rows))
            judged = with_kept(judged, pipeline.engine)
            plan_query(judged)  # a type that only Spark knows may be one that no plan can keep
            queries.append(judged)
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
