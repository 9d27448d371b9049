"""One-time queries, answered from the panes that continuous queries have left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import lcm
from typing import TYPE_CHECKING

from headrace.engine.failures import failure_of
from headrace.engine.operators.finishing import answer_ddl, answer_schema, spark_finish
from headrace.engine.operators.specs import spec_of
from headrace.engine.spark.judge import judge
from headrace.engine.spark.session import build_session
from headrace.engine.spark.ship import prepare_executors
from headrace.engine.state.carry_over import complete_since
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.choose_io import choose_io
from headrace.engine.state.state_io import StateIo
from headrace.engine.state.storage import is_remote, open_storage
from headrace.engine.state.workload import Description, description_of, plan_workload
from headrace.engine.watch.questions import ask_engine
from headrace.errors import CorruptStateError, Problem, SpecError
from headrace.kernels.answer import Panes
from headrace.kernels.chunks import holding
from headrace.kernels.deliver import AnswerTask, Work
from headrace.language import bind_query
from headrace.model import Due, Fault, HoppingWindow, Query, Stream, TimeWindow, WindowAggregate, streams_of
from headrace.planning import Kept, Workload, plan_answer, plan_query
from headrace.policies import newest_end, watermark_of
from headrace.units import format_duration

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Asked", "ask", "ask_checkpoint", "plan_question"]

_NAME = "ask"
# A running engine may merge the chunks of a manifest away while they are being read; the next manifest has others.
ATTEMPTS = 5


@dataclass(frozen=True)
class Asked:
    """A question that can be answered: its plan, and the one window that it is about."""

    workload: Workload
    due: Due

    @property
    def query(self) -> Query:
        return self.workload.plans[_NAME].query


def ask_checkpoint(root: str, sql: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> pa.Table:
    """Answers a one-time query from a checkpoint, whether an engine is running on it or not."""
    if not is_remote(root) and os.path.isdir(root.removeprefix("file:")):
        # What can be refused is refused before Spark starts.
        _, description = _latest(Checkpoint(open_storage(root)))
        _aggregate(bind_query(_NAME, sql, {s.name: s for s in description.streams}))
        if master is None and not conf and (answer := ask_engine(root, sql)) is not None:
            return answer
    spark = build_session("ask", master, conf)
    checkpoint = Checkpoint(open_storage(root, spark))
    _latest(checkpoint)
    prepare_executors(spark.sparkContext)
    io = choose_io(spark, checkpoint, reads_only=True)
    for attempt in range(ATTEMPTS):
        try:
            manifest, description = _latest(checkpoint)
            return ask(spark, io, checkpoint, manifest, description, description.streams, sql)
        except CorruptStateError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _latest(checkpoint: Checkpoint) -> tuple[Manifest, Description]:
    root = checkpoint.storage.root
    if checkpoint.read() is None:
        raise SpecError(f"{root} is not a checkpoint; give the folder named by 'checkpoint' in the pipeline file")
    manifest = checkpoint.latest()
    if manifest is None:
        raise SpecError(f"{root} has no epoch yet to answer from; ask again when rows have come")
    return manifest, description_of(checkpoint, manifest)


def ask(
    spark: SparkSession,
    io: StateIo,
    checkpoint: Checkpoint,
    manifest: Manifest,
    kept: Description | Workload,
    streams: tuple[Stream, ...],
    sql: str,
) -> pa.Table:
    """The answer of a SELECT over the newest closed window of its length; SpecError says why there is none."""
    query = judge(bind_query(_NAME, sql, {s.name: s for s in streams}), streams, spark)
    asked = plan_question(query, manifest, kept, streams)
    begin = _aggregate(query).window.begin_us(asked.due.first_us)
    chunks = holding(manifest.chunks, dict.fromkeys(asked.workload.sources_of(_NAME), begin))
    panes = Panes(checkpoint.state_folder, chunks, checkpoint.bins)
    work = Work(spec_of(asked.workload, _NAME), asked.due, None, None)
    task = AnswerTask(panes, work, answer_schema(asked.query))
    try:
        answers = io.rows(task, checkpoint.bins, answer_ddl(asked.query))
        return spark_finish(answers, asked.query.finish).toArrow()
    except Exception as failure:
        found = failure_of(failure)
        if found.fault is Fault.CORRUPT:
            raise found.error() from failure
        raise


def plan_question(
    query: Query, manifest: Manifest, before: Description | Workload, streams: tuple[Stream, ...]
) -> Asked:
    """How a query can be answered once from what is kept now."""
    window = _aggregate(query).window
    if not isinstance(window, HoppingWindow):
        # One window is asked for: nothing slides.
        query = replace(query, root=replace(_aggregate(query), window=replace(window, slide_us=window.size_us)))
    workload = plan_workload({_NAME: plan_answer(query)}, streams, before, manifest.coverage)
    plan = workload.plans[_NAME]
    for demand in plan.demands:
        for source in workload.supplies[demand.synopsis.id].suppliers:
            kept = before.kept.get(source.synopsis)
            if kept is None:
                wanted = Kept(demand.synopsis, demand.measures, window.pane_us)
                raise _refusal(f"no panes {_described(wanted)} are kept", before.kept.values())
            missing = [m for m in demand.measures if m.column not in manifest.coverage[source.synopsis].columns]
            if missing:
                texts = ", ".join(m.kind if m.arguments is None else f"{m.kind} of {m.arguments[0]}" for m in missing)
                raise _refusal(f"the panes {_described(kept)} do not have {texts}", before.kept.values())
    panes = [before.kept[id_].pane_us for id_ in workload.sources_of(_NAME)]
    own = streams_of(query.root)
    last = max((c.last_us for s in own if (c := manifest.clocks.get(s)) and c.last_us is not None), default=None)
    due = _newest(plan.aggregate.window, lcm(*panes), watermark_of(manifest.clocks, own), last)
    since = complete_since(workload, _NAME, manifest.coverage)
    begin = window.begin_us(due.last_us)
    if since is not None and begin < since:
        reach = format_duration(max(0, due.last_us - since))
        raise SpecError(
            Problem(
                f"the panes reach back {reach} from the newest closed one, the window asked for is "
                f"{format_duration(window.size_us)} long",
                hint="ask for a shorter window, or run a query with a longer one",
            )
        )
    return Asked(workload, due)


def _newest(window: TimeWindow, pane_us: int, now_us: int | None, last_row_us: int | None) -> Due:
    """The newest closed window, on whole panes; a flush closes windows beyond the last row, which nobody asks for."""
    if now_us is None or last_row_us is None:
        raise SpecError(Problem("no pane has closed yet: the streams have no watermark", hint="ask again later"))
    if isinstance(window, HoppingWindow):
        if window.pane_us % pane_us:
            raise _misaligned(window, pane_us)
        return Due((newest_end(window, min(now_us, last_row_us + window.slide_us)),))
    if window.size_us % pane_us:
        raise _misaligned(window, pane_us)
    now_us = min(now_us, last_row_us + pane_us)
    return Due((now_us - now_us % pane_us,))


def _misaligned(window: TimeWindow, pane_us: int) -> SpecError:
    return SpecError(
        Problem(
            f"panes are {format_duration(pane_us)} long, and {window} does not begin and end on them",
            hint=f"ask for a multiple of {format_duration(pane_us)}",
        )
    )


def _aggregate(query: Query) -> WindowAggregate:
    if not isinstance(query.root, WindowAggregate):
        raise SpecError(
            Problem("only windowed aggregates are answered from panes", hint="write FROM stream [WINDOW 10 min]")
        )
    if plan_query(query).below:
        raise SpecError(
            Problem("panes over results of other operators belong to queries", hint="run the question as a query")
        )
    return query.root


def _refusal(message: str, kept: Iterable[Kept]) -> SpecError:
    return SpecError(Problem(message, hint="kept are panes " + "; ".join(sorted(_described(k) for k in kept))))


def _described(kept: Kept) -> str:
    feed = kept.synopsis.feeds[0]
    streams = ", ".join(dict.fromkeys(f.stream for f in kept.synopsis.feeds))
    where = f" where {feed.where}" if feed.where else ""
    detail = f" with values of {feed.detail}" if feed.detail else ""
    return f"of {streams}{where} by {', '.join(feed.keys) or 'no key'}{detail}"
