"""What a start and a replay put together alike: queries as Spark judges them, epochs, and what drives epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.absorbing import Absorbing
from headrace.engine.clocks import EpochClock
from headrace.engine.deciding import Deciding
from headrace.engine.epoch import Epoch
from headrace.engine.epochs import Epochs
from headrace.engine.links.links import Links
from headrace.engine.operators.aggregates import AggregateOperator
from headrace.engine.operators.answering import Answering
from headrace.engine.operators.join import JoinOperator
from headrace.engine.operators.keyed import KeyedOperator
from headrace.engine.operators.lookup import LookupOperator
from headrace.engine.operators.port import Checked, Operator, StepFunctions
from headrace.engine.operators.select import SelectOperator
from headrace.engine.operators.shedding import SheddingOperator
from headrace.engine.sources.coming import Batch
from headrace.engine.sources.read import United, read_stream, unite
from headrace.engine.sources.selecting import selected
from headrace.engine.sources.tables import Tables
from headrace.engine.spark.deadline import Deadline
from headrace.engine.spark.jobs import jobs_started
from headrace.engine.spark.judge import judge
from headrace.engine.spark.session import bin_bytes_from, tune
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.storage import for_spark
from headrace.engine.trial import Trial
from headrace.engine.watch.hooks import Hooks
from headrace.errors import SpecError
from headrace.model import Intake, Pipeline, Query, SettingTerms
from headrace.planning import plan_query, with_kept
from headrace.policies import Patience, tuning_of
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Built", "Judged", "build_epochs", "judge_pipeline", "launch"]


@dataclass(frozen=True)
class Judged:
    """All streams as one, which of them bring unparseable rows along, and the queries that Spark accepts or refuses."""

    whole: United
    corrupt: frozenset[str]
    queries: tuple[Query, ...]
    refused: Mapping[str, str]


def judge_pipeline(pipeline: Pipeline, spark: SparkSession, frames: dict[str, DataFrame]) -> Judged:
    """Reads the streams that are not among `frames`, which are added there, and has Spark judge all queries."""
    corrupt: set[str] = set()
    for stream in pipeline.streams:
        if stream.name not in frames:
            frames[stream.name], lenient = read_stream(spark, stream)
            if lenient:
                corrupt.add(stream.name)
        elif stream.select is not None:
            frames[stream.name] = selected(frames[stream.name], stream)
            corrupt.add(stream.name)
    everything = {s.name: frozenset(c.name for c in s.columns) for s in pipeline.streams}
    whole = unite(pipeline.streams, frames, everything)
    queries: list[Query] = []
    refused: dict[str, str] = {}
    for query in pipeline.queries:
        try:
            judged = judge(query, pipeline.streams, spark, whole.by_stream(whole.rows))
            judged = with_kept(judged, pipeline.engine)
            plan_query(judged)  # a type that only Spark knows may be one that no plan can keep
            queries.append(judged)
        except SpecError as problem:
            refused[query.name] = str(problem)
    return Judged(whole, frozenset(corrupt), tuple(queries), refused)


@dataclass(frozen=True)
class Built:
    """Epochs that can run, the operators they run with, shedding by itself, and the tables they look up in."""

    epochs: Epochs
    operators: tuple[Operator, ...]
    shedding: SheddingOperator
    tables: Tables


def build_epochs(
    spark: SparkSession,
    point: Checkpoint,
    io: StateIo,
    standing: Standing,
    tables: Tables,
    settings: SettingTerms,
    corrupt: frozenset[str],
    steps: StepFunctions,
    intake: Intake | None,
    once: bool,
    coming: Callable[[int], Mapping[str, Batch]],
    hooks: Hooks,
    links: Links,
) -> Built:
    """Epochs from where the engine stands; SpecError or StateError if a query cannot run."""
    tuning, trigger_s = tuning_of(settings.tuning), settings.trigger_us / SECOND_US
    trial = Trial(Deadline(spark), Patience(tuning.patience, trigger_s), hooks.on_note)
    answering = Answering(io, point.state_folder, point.bins, hooks.probe, trial)
    shedding = SheddingOperator(settings.engine(), None if once else trigger_s, coming, hooks)
    # One operator per kind; what is shed is known before answers say it.
    operators: tuple[Operator, ...] = (
        SelectOperator(io, point.state_folder, hooks.probe),
        LookupOperator(io, point.state_folder, tables, hooks.probe, hooks.on_note),
        JoinOperator(io, point.state_folder, hooks.probe, settings.join, tuning.join_bytes),
        KeyedOperator(spark, point, io, tuning.flux, lambda: bin_bytes_from(spark), hooks.probe),
        shedding,
        AggregateOperator(
            answering, settings.schedule, None if once else trigger_s, settings.engine().shedding != "off"
        ),
    )
    for operator in operators:
        operator.check(Checked(standing.workload.flows, standing.manifest.nodes, steps))
    absorbing = Absorbing(io, point.state_folder, point.bins, operators, corrupt, trial, hooks.probe)
    clock = EpochClock(hooks.reading, hooks.on_note)
    deciding = Deciding(settings, point, operators, clock, links.receiving.marks, links.receiving.since)
    epoch = Epoch(standing, deciding, point, io, operators, absorbing, corrupt, hooks, lambda: jobs_started(spark))
    return Built(Epochs(epoch, intake), operators, shedding, tables)


def launch(
    name: str, point: Checkpoint, epochs: Epochs, every_ms: int | None, links: Links, united: United
) -> StreamingQuery:
    """Spark's query that brings batches to epochs, from where its log ends: every so often, or once all there is."""
    writer = united.rows.writeStream.foreachBatch(_batch_runner(epochs, united, links)).queryName(f"headrace-{name}")
    writer = writer.option("checkpointLocation", f"{for_spark(point.storage.root)}/spark")
    if every_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def _batch_runner(epochs: Epochs, united: United, links: Links) -> Callable[[DataFrame, int], None]:
    tuned: set[int] = set()

    def run(batch: DataFrame, number: int) -> None:
        if not tuned:
            # Spark runs epochs in a session of their own; adaptive execution pays off for large shuffles, and epochs
            # have small ones.
            tune(batch.sparkSession)
            batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            tuned.add(number)
        epochs.run(united.by_stream(links.joined(batch, number, united, epochs)), number)

    return run
