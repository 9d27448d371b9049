"""How queries come and go while a pipeline runs: all of a change happens between two epochs, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.epochs import Epochs
from headrace.engine.operators.functions import load_function
from headrace.engine.operators.port import Checked, Operator, StepFunctions
from headrace.engine.sinks.choose import Sink, forget_sinks, open_sink, refuse_clashes, refuse_later_epochs
from headrace.engine.sources.read import United, unite
from headrace.engine.sources.tables import Tables
from headrace.engine.spark.judge import judge
from headrace.engine.spark.secrets import remember_options
from headrace.engine.state.carry_over import carry_over
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.workload import plan_workload
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import Problem, SpecError
from headrace.model import Pipeline, Query, Step, Stream
from headrace.planning import Workload, columns_in_use, part_queries, plan_query, with_kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Parts", "SinkFunctions", "change_queries", "is_over"]

# Functions that a caller has given for sinks, by query.
SinkFunctions = Mapping[str, Callable[[Any, int], Any]]


@dataclass
class Parts:
    """What a run is made of, and what it needs to change while it runs."""

    spark: SparkSession
    pipeline: Pipeline
    frames: dict[str, DataFrame]
    whole: United
    checkpoint: Checkpoint
    io: StateIo
    epochs: Epochs
    operators: tuple[Operator, ...]
    sinks: dict[str, Sink]
    hooks: Hooks
    launch: Callable[[United], StreamingQuery]
    united: United
    columns: Mapping[str, frozenset[str]]
    paced: tuple[Stream, ...]  # whose intake the engine sets
    server: MetricsServer | None
    tables: Tables


def change_queries(
    parts: Parts,
    add: Sequence[Query],
    drop: Sequence[str],
    functions: SinkFunctions,
    steps: StepFunctions,
    relaunch: Callable[[United, Mapping[str, frozenset[str]]], None],
) -> None:
    """Adds and drops queries between two epochs; `relaunch` has Spark read other columns from where it stands."""
    before = {query.name: query for query in parts.pipeline.queries}
    staying = _without(before, drop)
    coming = {query.name: query for query in _judged(parts, add, staying, steps)}
    after = staying | coming
    pipeline = replace(parts.pipeline, queries=tuple(after.values()))
    remember_options(pipeline)
    refuse_clashes(pipeline, parts.checkpoint.storage.root, parts.spark)
    states = parts.epochs.manifest.queries
    feeding = [query for name, query in after.items() if name in coming or states[name].runs]
    columns = columns_in_use(feeding, pipeline.streams)
    missing = any(columns[name] - parts.columns[name] for name in columns)
    united = unite(pipeline.streams, parts.frames, columns) if missing else parts.united
    change = _Change(parts, before, after, coming, functions, steps)
    # Spark's plan reads the columns in use: others need a new one, from the same offsets.
    parts.epochs.change(change.plan, (lambda: relaunch(united, columns)) if missing else lambda: None)
    gone = {name: sink for name, sink in parts.sinks.items() if change.sinks.get(name) is not sink}
    parts.sinks, parts.pipeline = change.sinks, pipeline
    forget_sinks(gone, change.sinks, parts.hooks.on_note)
    for note in change.notes:
        parts.hooks.on_note(note)


@dataclass
class _Change:
    """The queries before and after a change, those of them that come, and what a caller gave with them.

    Planning it finds the sinks of all queries after it, and what is to be said once it has happened.
    """

    parts: Parts
    before: Mapping[str, Query]
    after: Mapping[str, Query]
    coming: Mapping[str, Query]
    functions: SinkFunctions
    steps: StepFunctions
    sinks: dict[str, Sink] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def plan(self, workload: Workload, manifest: Manifest) -> tuple[Workload, Manifest, dict[str, Sink]]:
        """The workload, the state to go on from, and the sinks; no epoch is under way."""
        parts, states = self.parts, manifest.queries
        old = {n: plan for n, plan in workload.queries.items() if n in self.after and n not in self.coming}
        together = [*(plan.query for plan in old.values()), *self.coming.values()]
        going_on = {name: plan.query.shedding for name, plan in old.items()}
        parted = part_queries(together, parts.pipeline.engine, going_on)
        coming = [query for query in parted if query.name in self.coming]
        new = {query.name: plan_query(query) for query in coming if not is_over(states.get(query.name), query)}
        planned = plan_workload({**old, **new}, parts.pipeline.streams, workload, manifest.coverage)
        others = {name: state for name, state in states.items() if name in self.after and name not in planned.queries}
        opened = {name: self._sink(query, name in states) for name, query in self.coming.items()}
        refuse_later_epochs(opened, parts.checkpoint, manifest.epoch)
        carried = carry_over(manifest, planned, others, self.notes.append)
        nodes = planned.under(new)
        arriving = {name: flow for name, flow in planned.flows.items() if name in nodes}
        for operator in parts.operators:
            operator.check(Checked(arriving, carried.nodes, self.steps))
        self.sinks = {name: sink for name, sink in {**parts.sinks, **opened}.items() if name in self.after}
        return planned, carried, self.sinks

    def _sink(self, query: Query, seen: bool) -> Sink:
        """The sink that a query has already, if it goes on; opening one clears what a crashed epoch left there."""
        name, parts = query.name, self.parts
        if name in parts.sinks and name not in self.functions and _goes_on(self.before.get(name), query):
            return parts.sinks[name]
        return open_sink(query, parts.spark, parts.checkpoint, self.functions.get(name), seen, parts.hooks.on_note)


def _without(queries: Mapping[str, Query], drop: Sequence[str]) -> dict[str, Query]:
    """The queries that are not dropped; SpecError if there is none of that name."""
    left = dict(queries)
    for name in drop:
        if name not in left:
            raise SpecError(Problem(f"there is no query '{name}'; known: {', '.join(left) or 'none'}"))
        del left[name]
    return left


def _judged(parts: Parts, add: Sequence[Query], known: Mapping[str, Query], steps: StepFunctions) -> list[Query]:
    """The queries to add with Spark's types; SpecError with the problems of all of them."""
    problems, judged = list[Problem](), list[Query]()
    names = {name.lower() for name in known}
    rows = parts.whole.by_stream(parts.whole.rows)
    for query in add:
        if query.name.lower() in names:
            problems.append(Problem(f"there is a query '{query.name}' already", query=query.name))
            continue
        names.add(query.name.lower())
        try:
            judged.append(with_kept(judge(query, parts.pipeline.streams, parts.spark, rows), parts.pipeline.engine))
            plan_query(judged[-1])
            if isinstance(query.root, Step) and query.name not in steps:
                load_function(query.root.step.function, query.name)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return judged


def _goes_on(before: Query | None, after: Query) -> bool:
    return before is not None and (before.sql, before.sink) == (after.sql, after.sink)


def is_over(state: QueryState | None, query: Query) -> bool:
    """Whether a query has come to the end of the lifetime it still has."""
    same = state is not None and (state.sql, state.lifetime_us) == (query.sql, query.lifetime_us)
    return state is not None and state.ended and same
