"""Runs an epoch again that was decided and not committed, as it was decided, before anything else happens.

A pipeline may have been edited since: other queries, lateness, settings. The epoch knows nothing of that. Its decision
names a workload file, out of which streams, queries and settings are made as they were; what was edited takes effect as
at any start, with the epoch after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.construct import Judged, build_epochs, judge_pipeline, launch
from headrace.engine.epochs import Epochs
from headrace.engine.failures import stopped
from headrace.engine.links.links import Links
from headrace.engine.operators.port import StepFunctions
from headrace.engine.sinks.choose import Sink, refuse_clashes, refuse_later_epochs
from headrace.engine.sinks.recall import open_recalled, recall_sink
from headrace.engine.sources.read import United, unite
from headrace.engine.sources.tables import Tables
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.terms import query_of, stream_of, table_of
from headrace.engine.state.workload import Terms, read_terms, restored_workload
from headrace.engine.watch.hooks import Hooks
from headrace.errors import CorruptStateError, SpecError, StateError
from headrace.language import is_name
from headrace.model import EpochDecision, Flush, Pipeline, Query, QueryTerms, Step, Stream, Table
from headrace.planning import columns_in_use, plan_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Replayed", "Replaying"]

# Spark's next trigger is so far away that only the batch that was begun is brought.
_NEVER_MS = 7 * 86_400_000


@dataclass(frozen=True)
class Replayed:
    """The sinks that the epoch had, by the queries it had; and the flush, if it has not come to its end."""

    queries: Mapping[str, Query]
    sinks: Mapping[str, Sink]
    unfinished: Flush | None = None

    def sink_of(self, query: Query) -> Sink | None:
        """The sink that a query goes on with, if it is the one that it was; a sink in memory has results of then."""
        then = self.queries.get(query.name)
        return self.sinks[query.name] if then is not None and (then.sql, then.sink) == (query.sql, query.sink) else None


@dataclass(frozen=True)
class Replaying:
    """What a replay takes from the start that it is part of: the pipeline of now, and what a caller gave with it."""

    pipeline: Pipeline
    spark: SparkSession
    point: Checkpoint
    io: StateIo
    frames: Mapping[str, DataFrame]
    functions: Mapping[str, Callable[[Any, int], Any]]
    steps: StepFunctions
    hooks: Hooks
    links: Links

    def run(self, last: Manifest | None) -> Replayed:
        """Runs the epoch after the last manifest, if it was decided; and clears what crashed attempts left."""
        decision = self.point.decision(0 if last is None else last.epoch + 1)
        present = {query.name for query in self.pipeline.queries}
        self.point.clean_orphans(last, present | set(() if decision is None else decision.queries))
        if decision is None:
            return Replayed({}, {})
        terms = read_terms(self.point.workload(decision.workload))
        self.hooks.on_note(f"epoch {decision.epoch} was begun before: it is run as it was decided then")
        then = self._pipeline(decision, terms)
        refuse_clashes(then, self.point.storage.root, self.spark)
        frames = dict(self.frames)
        judged = self._judged(then, frames)
        # The first epoch of a workload began with what queries that came and went had made of the manifest.
        manifest = terms.begun if last is None or decision.workload == decision.epoch else last
        plans = {query.name: plan_query(query) for query in judged.queries}
        workload = restored_workload(plans, then.streams, terms.description)
        sinks = {query.name: self._sink(query, decision) for query in judged.queries}
        refuse_later_epochs(sinks, self.point, manifest.epoch)
        built = build_epochs(
            self.spark, self.point, self.io, Standing(then.streams, workload, sinks, manifest, then.tables),
            Tables(self.spark, self.point.storage, then.tables), terms.settings, judged.corrupt, self.steps,
            decision.intake, False, lambda batch: {}, self.hooks, self.links,
        )  # fmt: skip
        with closing(built.tables):
            if decision.flush is not None:
                unfinished = built.epochs.flush_once(decision.flush)
                return Replayed({q.name: q for q in then.queries}, sinks, decision.flush if unfinished else None)
            columns = columns_in_use(judged.queries, then.streams)
            self._drive(decision, built.epochs, unite(then.streams, frames, columns))
        return Replayed({q.name: q for q in then.queries}, sinks)

    def _pipeline(self, decision: EpochDecision, terms: Terms) -> Pipeline:
        """The pipeline as it was; StateError with all that the checkpoint cannot bring back by itself."""
        now = {stream.name: stream for stream in self.pipeline.streams}
        if now.keys() != terms.streams.keys():
            raise CorruptStateError(f"epoch {decision.epoch} was decided for the streams {', '.join(terms.streams)}")
        try:
            streams = tuple(stream_of(name, each, now[name]) for name, each in terms.streams.items())
            tables = tuple(table_of(name, each) for name, each in terms.tables.items())
        except ValueError as exc:
            raise CorruptStateError(f"the checkpoint describes what no pipeline can declare: {exc}") from exc
        self._refuse_other_columns(streams)
        queries, problems = list[Query](), list[str]()
        for name, each in terms.queries.items():
            try:
                queries.append(self._query(name, each, streams, tables))
            except (StateError, SpecError, ValueError) as problem:
                problems.append(f"query '{name}': {problem}")
        if problems:
            raise StateError(
                f"epoch {decision.epoch} was begun before and must be run again as it was decided, but "
                f"{'; '.join(problems)}. Put these queries back as they were, start once, and edit again"
            )
        return replace(
            self.pipeline, streams=streams, queries=tuple(queries), engine=terms.settings.engine(), tables=tables
        )

    def _query(self, name: str, terms: QueryTerms, streams: tuple[Stream, ...], tables: tuple[Table, ...]) -> Query:
        present = self.pipeline.queries
        if not is_name(name) and name not in {query.name for query in present}:
            raise StateError("no query has such a name")
        if terms.step is not None:
            # Functions are code: the pipeline of now names them, or nobody does.
            known = [query.root.step for query in present if isinstance(query.root, Step) and query.name == name]
            for function in filter(None, (terms.step.function, terms.step.migration)):
                if not any(_is_one(function, each) for step in known for each in (step.function, step.migration)):
                    raise StateError(f"the pipeline no longer has its function {function}")
        sink = recall_sink(name, terms.sink, present)
        return query_of(name, terms, {s.name: s for s in streams}, sink, {t.name: t for t in tables})

    def _refuse_other_columns(self, streams: tuple[Stream, ...]) -> None:
        """StateError if a DataFrame that the caller brought lacks a column that the stream had."""
        for stream in streams:
            frame = self.frames.get(stream.name)
            if frame is not None and (lost := {c.name for c in stream.source_columns} - set(frame.columns)):
                raise StateError(
                    f"an epoch was begun before and must be run again, and the DataFrame of stream '{stream.name}' no "
                    f"longer has {', '.join(sorted(lost))}; start once with the DataFrame as it was"
                )

    def _judged(self, then: Pipeline, frames: dict[str, DataFrame]) -> Judged:
        judged = judge_pipeline(then, self.spark, frames)
        if judged.refused:
            raise StateError(
                "an epoch was begun before and must be run again, and Spark now refuses what it accepted then: "
                + "; ".join(judged.refused.values())
            )
        return judged

    def _sink(self, query: Query, decision: EpochDecision) -> Sink:
        present = {each.name: each for each in self.pipeline.queries}
        try:
            return open_recalled(query, present, self.spark, self.point, self.functions, self.hooks.on_note)
        except (SpecError, StateError) as problem:
            raise StateError(
                f"epoch {decision.epoch} was begun before and must be run again as it was decided, but the sink of "
                f"query '{query.name}' cannot be opened as it was: {problem}. Put the query back as it was, start "
                "once, and edit again"
            ) from problem

    def _drive(self, decision: EpochDecision, epochs: Epochs, united: United) -> None:
        """Has Spark bring the batch that was begun, and no other."""
        waiting = threading.Event()
        query = launch(self.pipeline.name, self.point, epochs, _NEVER_MS, self.links, united)
        try:
            while query.isActive and (epochs.manifest.epoch < decision.epoch or query.status["isTriggerActive"]):
                waiting.wait(0.02)
            if epochs.manifest.epoch < decision.epoch:
                self._raise(query, epochs)
        finally:
            epochs.quiesce()
            query.stop()

    def _raise(self, query: Any, epochs: Epochs) -> None:
        try:
            query.awaitTermination()
        except Exception as failure:
            raise stopped(epochs.failure or failure) from failure
        raise CorruptStateError(f"{self.point.storage.root}/spark does not bring the batch that was begun")


def _is_one(then: str, now: str | None) -> bool:
    """Whether two names are of one function: a script's module is called __main__ where the script itself runs.

    >>> _is_one("job:count", "job:count"), _is_one("__main__:count", "job:count"), _is_one("os:system", "job:count")
    (True, True, False)
    """
    if now is None or then == now:
        return then == now
    modules, names = zip(*(each.partition(":")[::2] for each in (then, now)), strict=True)
    return "__main__" in modules and names[0] == names[1]
