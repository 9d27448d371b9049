"""Puts a pipeline together: its checkpoint, operators and sinks, and the one StreamingQuery that drives its epochs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.engine.changes import Parts, SinkFunctions, is_over
from headrace.engine.construct import Built, Judged, build_epochs, judge_pipeline, launch
from headrace.engine.links.links import Links, open_links
from headrace.engine.operators.port import StepFunctions
from headrace.engine.replay import Replayed, Replaying
from headrace.engine.run import Run
from headrace.engine.sinks.choose import open_sink, refuse_clashes, refuse_later_epochs
from headrace.engine.sources.coming import ComingRows
from headrace.engine.sources.file_log import FileLog
from headrace.engine.sources.intake import IntakeControl, intake_before, read_with_intake, streams_with_intake
from headrace.engine.sources.read import LINKS, made_in_python, sources_of, unite
from headrace.engine.sources.tables import Tables
from headrace.engine.spark.connectors import check_connectors
from headrace.engine.spark.reading import start_reading
from headrace.engine.spark.secrets import remember_options
from headrace.engine.spark.session import settings_from, tune, tuning_from
from headrace.engine.spark.ship import prepare_executors
from headrace.engine.standing import Standing
from headrace.engine.state.carry_over import carry_over, refuse_other_forms
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.choose_io import choose_io, verify_state
from headrace.engine.state.reselected import refuse_mixed_rows
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.storage import LocalStorage, Storage, open_storage
from headrace.engine.state.terms import setting_terms
from headrace.engine.state.workload import description_of, plan_workload, shedding_of
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics import MetricsPage
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import Problem, SpecError
from headrace.hiding import hide
from headrace.model import Flush, LinkEnds, Pipeline, SettingTerms, Stream
from headrace.planning import columns_in_use, part_queries, plan_query
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["start"]

_LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_LOG_WRITER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    frames: Mapping[str, DataFrame] | None = None,
    tables: Mapping[str, DataFrame] | None = None,
    functions: SinkFunctions | None = None,
    steps: StepFunctions | None = None,
    checkpoint: str | None = None,
    once: bool = False,
    flush: bool | Collection[str] = False,
    hooks: Hooks | None = None,
    ends: LinkEnds | None = None,
) -> Run:
    """Starts a pipeline from where its checkpoint ends; `ends` are the links of the site that it is the part of.

    `flush` has it answer every window that holds rows before it ends, or those over some streams.
    `frames` and `tables` are the streams and tables that the caller brings.
    """
    pipeline, root = _prepared(pipeline, spark, checkpoint)
    settings = setting_terms(pipeline.engine, settings_from(spark))
    hooks = (hooks or Hooks()).without_secrets()
    sources = dict(frames or {})
    paced = streams_with_intake(pipeline.streams, tuple(sources), once)
    point = Checkpoint(_open_storage(root, spark))
    links = open_links(ends or LinkEnds(), pipeline, spark, point, hooks)
    sources |= links.receiving.frames(spark)
    hooks, given = hooks.watched_by(lambda decision: None, links.committed), dict(sources)
    judged = judge_pipeline(pipeline, spark, sources)
    if pipeline.queries and not judged.queries:
        raise SpecError(Problem(text) for text in judged.refused.values())
    refuse_clashes(replace(pipeline, queries=judged.queries), point.storage.root, spark)
    manifest = point.open(_bins(pipeline, spark), _origins(pipeline, sources))
    with ExitStack() as failing:
        failing.callback(point.close)
        io = choose_io(spark, point)
        verify_state(io, manifest)
        links.begin(manifest)
        starting = _Starting(
            pipeline, spark, judged, settings, point, io, given, sources, paced, functions or {}, steps or {}, hooks,
            links, once, Tables(spark, point.storage, pipeline.tables, tables),
        )  # fmt: skip
        page = MetricsPage()
        # An epoch that was begun ends first, as it was decided; the pipeline of now goes on from there.
        replayed = starting.replay(manifest, hooks.watched_by(page.decided, page.committed))
        hooks.on_replayed()
        some = () if isinstance(flush, bool) else tuple(flush)
        ending = Flush("the run was asked to flush", some) if flush else None
        run = starting.go_on(replayed, page, ending, failing)
        failing.pop_all()
    if run.metrics_url is not None:
        hooks.on_note(f"metrics are at {run.metrics_url}")
    return run


def _prepared(pipeline: Pipeline, spark: SparkSession, checkpoint: str | None) -> tuple[Pipeline, str]:
    """Gets Spark ready for a pipeline, which is given back with the root of its checkpoint; SpecError if it cannot."""
    if apart := pipeline.born_apart:
        raise SpecError(f"{apart}: `headrace run` runs the part of each; one run cannot read them all")
    remember_options(pipeline)
    tune(spark)
    prepare_executors(spark.sparkContext)
    root = checkpoint or pipeline.engine.checkpoint
    if root is None:
        raise SpecError("a run needs a checkpoint: a folder of its own to keep its state in")
    # Spark knows sources by their position: by name, so that their order in the file does not matter.
    pipeline = replace(pipeline, streams=tuple(sorted(pipeline.streams, key=lambda stream: stream.name)))
    check_connectors(pipeline, spark)
    tuning_from(spark)  # refuses settings that make no sense
    return pipeline, root


def _open_storage(root: str, spark: SparkSession) -> Storage:
    storage = open_storage(root, spark)
    # Spark's other way to write its log starts a process per file on a local disk; one writer needs no such care.
    if isinstance(storage, LocalStorage):
        spark.conf.set(_LOG_WRITER, _LOCAL_LOG_WRITER)
    else:
        spark.conf.unset(_LOG_WRITER)
    return storage


def _bins(pipeline: Pipeline, spark: SparkSession) -> int:
    return pipeline.engine.bins or max(1, spark.sparkContext.defaultParallelism // 2)


def _serve(pipeline: Pipeline, page: MetricsPage, failing: ExitStack) -> MetricsServer | None:
    """The server of the metrics page, if the pipeline wants one; closed if the start fails."""
    if pipeline.engine.metrics is None:
        return None
    server = MetricsServer(pipeline.engine.metrics, page.text)
    failing.callback(server.close)
    return server


@dataclass(frozen=True)
class _Starting:
    """A start whose checkpoint is open: the pipeline as Spark has judged it, and what its caller gave with it."""

    pipeline: Pipeline
    spark: SparkSession
    judged: Judged
    settings: SettingTerms
    point: Checkpoint
    io: StateIo
    frames: Mapping[str, DataFrame]  # that need not be read: the caller's, and those of links
    reading: Mapping[str, DataFrame]  # all of them
    paced: tuple[Stream, ...]  # whose intake the engine sets
    functions: SinkFunctions
    steps: StepFunctions
    hooks: Hooks
    links: Links
    once: bool
    tables: Tables

    def replay(self, last: Manifest | None, hooks: Hooks) -> Replayed:
        """Runs the epoch after the last manifest as it was decided, if it was."""
        return Replaying(
            self.pipeline, self.spark, self.point, self.io, self.frames, self.functions, self.steps, hooks, self.links
        ).run(last)

    def standing(self, replayed: Replayed) -> Standing:
        """Where the engine stands before its first epoch: who shares what, where each query goes on, and its sink."""
        manifest = self.point.latest()
        known = {} if manifest is None else manifest.queries
        shed = {} if manifest is None else shedding_of(self.point, manifest)
        texts = {query.name: query.sql for query in self.pipeline.queries}
        going_on = {name: how for name, (sql, how) in shed.items() if texts.get(name) == sql}
        queries = part_queries(self.judged.queries, self.pipeline.engine, going_on)
        plans = {query.name: plan_query(query) for query in queries}
        over = {name: state for name, state in known.items() if name in plans and is_over(state, plans[name].query)}
        plans = {name: plan for name, plan in plans.items() if name not in over}
        before = None if manifest is None else description_of(self.point, manifest)
        streams_before = before.streams if before else ()
        refuse_other_forms(streams_before, self.pipeline.streams, known)
        refuse_mixed_rows(streams_before, self.pipeline.streams, known, self.pipeline.tables, self.hooks.on_note)
        workload = plan_workload(plans, self.pipeline.streams, before, manifest.coverage if manifest else {})
        refused = {name: QueryState(texts[name], failed=cause) for name, cause in self.judged.refused.items()}
        manifest = carry_over(manifest, workload, refused | over, self.hooks.on_note)
        sinks = {
            name: replayed.sink_of(plan.query)
            or open_sink(
                plan.query, self.spark, self.point, self.functions.get(name), name in known, self.hooks.on_note
            )
            for name, plan in plans.items()
        }
        refuse_later_epochs(sinks, self.point, manifest.epoch)
        return Standing(self.pipeline.streams, workload, sinks, manifest, self.pipeline.tables)

    def go_on(self, replayed: Replayed, page: MetricsPage, flush: Flush | None, failing: ExitStack) -> Run:
        """Has Spark read on from where the engine stands, in epochs of the pipeline as it is now."""
        standing = self.standing(replayed)
        intake, built = self.epochs(standing, page)
        sources = {**self.reading, **read_with_intake(self.spark, self.paced, intake.intake)}
        columns = columns_in_use(self.judged.queries, self.pipeline.streams)
        united = unite(self.pipeline.streams, sources, columns)
        if replayed.unfinished is not None:
            built.epochs.flush(replayed.unfinished)
        server = _serve(self.pipeline, page, failing)
        every_ms = None if self.once else self.pipeline.engine.trigger_us // 1000
        launched = partial(launch, self.pipeline.name, self.point, built.epochs, every_ms, self.links)
        if self.links.receiving.folders or made_in_python(self.pipeline.streams):
            launched = partial(start_reading, launched)
        query = launched(united)
        parts = Parts(
            self.spark, self.pipeline, sources, self.judged.whole, self.point, self.io, built.epochs, built.operators,
            dict(standing.sinks), self.hooks, launched, united, columns, self.paced, server,
            self.tables,
        )  # fmt: skip
        run = Run(parts, query, self.once, flush)
        page.lag = built.shedding.behind = run.waiting_rows
        page.links = self.links.sending.meters
        built.shedding.between = run.between_epochs_s
        intake.apply = run._set_intake if self.paced and not self.once else None
        return run

    def epochs(self, standing: Standing, page: MetricsPage) -> tuple[IntakeControl, Built]:
        """Epochs that can run, and the control of how much the paced streams give to each."""
        names = sources_of(standing.streams, self.reading)
        log = FileLog(self.point.storage, names, self.spark)
        coming = ComingRows(self.point.storage, names, log)
        trigger_s = 0.0 if self.once else self.pipeline.engine.trigger_us / SECOND_US
        intake = IntakeControl(self.paced, intake_before(self.point), trigger_s, log, self.hooks.on_note)
        hooks = self.hooks.watched_by(page.decided, page.committed, intake.committed)
        built = build_epochs(
            self.spark, self.point, self.io, standing, self.tables, self.settings, self.judged.corrupt, self.steps,
            intake.intake if self.paced else None, self.once, coming.of, hooks, self.links,
        )  # fmt: skip
        return intake, built


def _origins(pipeline: Pipeline, sources: Mapping[str, DataFrame]) -> dict[str, str]:
    """What Spark's log of offsets is about."""
    streams = {stream.name: stream for stream in pipeline.streams}
    return {
        "links" if name == LINKS else name: "other sites" if name == LINKS else _origin(streams[name])
        for name in sources_of(pipeline.streams, sources)
    }


def _origin(stream: Stream) -> str:
    """What a stream is read from, as far as it must not change under a checkpoint."""
    source = stream.source
    if source is None:
        return "a DataFrame"
    topics = [text for key, text in source.options if key.lower() in ("subscribe", "subscribepattern", "assign")]
    return hide(" ".join(part for part in (source.format, source.path, *topics) if part))
