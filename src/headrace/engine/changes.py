"""How queries come and go while a pipeline runs: all of a change happens between two epochs, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.epochs import Epochs
from headrace.engine.operators.functions import load_function
from headrace.engine.operators.port import Checked, Operator, StepFunctions
from headrace.engine.sinks.choose import (
    Sink,
    forget_sinks,
    open_sink,
    refuse_clashes,
    refuse_later_epochs,
)
from headrace.engine.sources.read import United, unite
from headrace.engine.spark.judge import judge
from headrace.engine.spark.secrets import remember_options
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.workload import adopt, plan_workload
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import Problem, SpecError
from headrace.model import Pipeline, Query, Step, Stream
from headrace.planning import Workload, columns_in_use, plan_query, with_kept

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
    waiting: tuple[Stream, ...]  # whose intake the engine sets
    server: MetricsServer | None


def change_queries(
    parts: Parts,
    add: Sequence[Query],
    drop: Sequence[str],
    functions: SinkFunctions,
    steps: StepFunctions,
    relaunch: Callable[[United, Mapping[str, frozenset[str]]], None],
) -> None:
    """Adds and drops queries between two epochs; `relaunch` has Spark read other columns from where it stands."""
    notes = list[str]()
    before = {query.name: query for query in parts.pipeline.queries}
    known = dict(before)
    for name in drop:
        if name not in known:
            raise SpecError(Problem(f"there is no query '{name}'; known: {', '.join(known) or 'none'}"))
        del known[name]
    judged = _judged(parts, add, known, steps)
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
        over = {name for name in plans if is_over(manifest.queries.get(name), known[name])}
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
        nodes = made.under(new)
        arriving = Checked({name: flow for name, flow in made.flows.items() if name in nodes}, adopted.nodes, steps)
        for operator in parts.operators:
            operator.check(arriving)
        return made, adopted, {name: sink for name, sink in {**parts.sinks, **opened}.items() if name in known}

    # Spark's plan reads the columns in use: others need a new one, from the same offsets.
    parts.epochs.change(plan, (lambda: relaunch(united, columns)) if missing else lambda: None)
    sinks = {name: sink for name, sink in {**parts.sinks, **opened}.items() if name in known}
    gone = {name: sink for name, sink in parts.sinks.items() if sinks.get(name) is not sink}
    parts.sinks, parts.pipeline = sinks, changed
    forget_sinks(gone, sinks, parts.hooks.on_note)
    for note in notes:
        parts.hooks.on_note(note)


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
