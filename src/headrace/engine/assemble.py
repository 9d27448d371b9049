"""Puts a pipeline together: its checkpoint, operators and sinks, and the one StreamingQuery that drives its epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.changes import Parts, is_over
from headrace.engine.construct import build_epochs, judge_pipeline, launch
from headrace.engine.replay import Replaying
from headrace.engine.run import Run
from headrace.engine.sinks.choose import (
    open_sink,
    refuse_clashes,
    refuse_later_epochs,
)
from headrace.engine.sources.coming import ComingRows
from headrace.engine.sources.file_log import FileLog
from headrace.engine.sources.intake import IntakeControl, intake_before, read_with_intake, streams_with_intake
from headrace.engine.sources.read import United, unite
from headrace.engine.spark.connectors import check_connectors
from headrace.engine.spark.secrets import remember_options
from headrace.engine.spark.session import settings_from, tune, tuning_from
from headrace.engine.spark.ship import prepare_executors
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, QueryState
from headrace.engine.state.choose_io import choose_io, verify_state
from headrace.engine.state.storage import LocalStorage, open_storage
from headrace.engine.state.terms import setting_terms
from headrace.engine.state.workload import adopt, description_of, plan_workload
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics import MetricsPage
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import Problem, SpecError
from headrace.hiding import hide
from headrace.model import Pipeline, Stream
from headrace.planning import columns_in_use, plan_query
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
    root = checkpoint or pipeline.engine.checkpoint
    if root is None:
        raise SpecError("a run needs a checkpoint: a folder of its own to keep its state in")
    # Spark knows sources by their position: by name, so that their order in the file does not matter.
    streams = tuple(sorted(pipeline.streams, key=lambda stream: stream.name))
    pipeline = replace(pipeline, streams=streams)
    check_connectors(pipeline, spark)
    tuning_from(spark)  # refuses settings that make no sense
    settings = setting_terms(pipeline.engine, settings_from(spark))
    sources = dict(frames or {})
    waiting = streams_with_intake(streams, tuple(sources), once)
    judged = judge_pipeline(pipeline, spark, sources)
    if pipeline.queries and not judged.queries:
        raise SpecError(Problem(text) for text in judged.refused.values())
    columns = columns_in_use(judged.queries, pipeline.streams)
    plans = {query.name: plan_query(query) for query in judged.queries}
    storage = open_storage(root, spark)
    # Spark's other way to write its log starts a process per file on a local disk; one writer needs no such care.
    spark.conf.set(_LOG_WRITER, _LOCAL_LOG_WRITER) if isinstance(storage, LocalStorage) else spark.conf.unset(
        _LOG_WRITER
    )
    point = Checkpoint(storage)
    bins = pipeline.engine.bins or max(1, spark.sparkContext.defaultParallelism // 2)
    refuse_clashes(replace(pipeline, queries=judged.queries), storage.root, spark)
    manifest = point.open(bins, {s.name: _origin(s) for s in streams})
    server: MetricsServer | None = None
    try:
        io = choose_io(spark, point)
        verify_state(io, manifest)
        page = MetricsPage()
        watched = hooks.watched_by(page.decided, page.committed)
        # An epoch that was begun ends first, as it was decided; the pipeline of now goes on from there.
        replaying = Replaying(pipeline, spark, point, io, dict(frames or {}), functions or {}, steps or {}, watched)
        replayed = replaying.run(manifest)
        hooks.on_replayed()
        manifest = point.latest()
        before = None if manifest is None else description_of(point, manifest)
        texts = {query.name: query.sql for query in pipeline.queries}
        refused = {name: QueryState(texts[name], failed=cause) for name, cause in judged.refused.items()}
        if manifest is not None:
            over = {n: s for n, s in manifest.queries.items() if n in plans and is_over(s, plans[n].query)}
            refused |= over
            plans = {name: plan for name, plan in plans.items() if name not in over}
        seen = frozenset(manifest.queries if manifest is not None else ())
        workload = plan_workload(plans, streams, before, manifest.coverage if manifest else {})
        manifest = adopt(manifest, workload, refused, hooks.on_note)
        sinks = {
            name: replayed.sink_of(plan.query)
            or open_sink(plan.query, spark, point, (functions or {}).get(name), name in seen, hooks.on_note)
            for name, plan in plans.items()
        }
        refuse_later_epochs(sinks, point, manifest.epoch)
        trigger_s = 0.0 if once else pipeline.engine.trigger_us / SECOND_US
        log = FileLog(storage, [stream.name for stream in streams], spark)
        coming = ComingRows(storage, [stream.name for stream in streams], log)
        intake = IntakeControl(waiting, intake_before(point), trigger_s, log, hooks.on_note)
        built = build_epochs(
            spark, point, io, Standing(streams, workload, sinks, manifest), settings, judged.corrupt, steps or {},
            intake.intake if waiting else None, once, coming.of,
            hooks.watched_by(page.decided, page.committed, intake.committed),
        )  # fmt: skip
        epochs = built.epochs
        sources |= read_with_intake(spark, waiting, intake.intake)
        rows = unite(streams, sources, columns)
        if replayed.unfinished is not None:
            epochs.flush(replayed.unfinished.reason)

        def launched(united: United) -> StreamingQuery:
            return launch(pipeline.name, point, epochs, united, None if once else pipeline.engine.trigger_us // 1000)

        if pipeline.engine.metrics is not None:
            server = MetricsServer(pipeline.engine.metrics, page.text)
        query = launched(rows)
    except BaseException:
        point.close()
        if server is not None:
            server.close()
        raise
    parts = Parts(
        spark,
        pipeline,
        sources,
        judged.whole,
        point,
        io,
        epochs,
        built.operators,
        sinks,
        hooks,
        launched,
        rows,
        columns,
        waiting,
        server,
    )
    run = Run(parts, query, once, flush)
    page.lag = built.shedding.behind = run.waiting_rows
    if server is not None:
        hooks.on_note(f"metrics are at {server.url}")
    intake.apply = run._set_intake if waiting and not once else None
    return run


def _origin(stream: Stream) -> str:
    """What a stream is read from, as far as it must not change under a checkpoint."""
    source = stream.source
    if source is None:
        return "a DataFrame"
    topics = [text for key, text in source.options if key.lower() in ("subscribe", "subscribepattern", "assign")]
    return hide(" ".join(part for part in (source.format, source.path, *topics) if part))
