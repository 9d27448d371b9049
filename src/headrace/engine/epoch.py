"""One epoch, from a micro-batch to a manifest, in six steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.engine.absorb import Absorbed, AbsorbTask, Bounds, Projection, projection
from headrace.engine.answer import spec_of
from headrace.engine.arrow_rows import arrow_schema
from headrace.engine.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.chunks import Chunk
from headrace.engine.compact import CompactTask
from headrace.engine.deliver import AnswerTask, Work
from headrace.engine.finish import answer_ddl, answer_schema, direct_finish, spark_finish
from headrace.engine.hooks import Hooks
from headrace.engine.panes import layout_of
from headrace.engine.rejected import write_rejected
from headrace.engine.sinks import FileSink, Sink
from headrace.engine.state_io import StateIo
from headrace.errors import CorruptStateError, EngineError
from headrace.model import Entry, EpochDecision, Flush, Stream, streams_of
from headrace.planning import AnswerPlan, Synopsis
from headrace.policies import (
    ChunkSize,
    Due,
    Merge,
    StreamClock,
    advance_clock,
    due_windows,
    find_idle,
    follow_others,
    last_end_with_rows,
    plan_merge,
    watermark_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Epochs", "Installed"]

# Windows of a query without keys answered in one epoch; a stream that leaps over years makes millions of them due.
MOST_EMPTY_WINDOWS = 100_000
# Before any watermark and without any limit: every time fits.
_EVER = (-(2**62), 2**62)
T = TypeVar("T")


@dataclass(frozen=True)
class Installed:
    """A query that runs: how it is answered and where its results go."""

    plan: AnswerPlan
    sink: Sink


@dataclass
class Progress:
    """What an epoch has done so far: its steps fill it in, its commit writes it down."""

    decision: EpochDecision
    replay: bool
    began_s: float
    absorbed: Absorbed
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    due: dict[str, Due] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    steps_s: dict[str, float] = field(default_factory=dict)


class Epochs:
    """Runs epochs one after the other; between two of them nothing is under way."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        io: StateIo,
        manifest: Manifest,
        streams: Sequence[Stream],
        queries: Mapping[str, Installed],
        corrupt: frozenset[str],
        hooks: Hooks,
    ) -> None:
        self._spark, self._checkpoint, self._io, self._manifest = spark, checkpoint, io, manifest
        self._streams, self._queries, self._corrupt = tuple(streams), dict(queries), corrupt
        self._hooks, self._probe = hooks, hooks.probe
        self._projections: dict[tuple[str, ...], Projection] = {}
        self._schemas: dict[tuple[str, ...], pa.Schema] = {}
        self._groups = [streams_of(installed.plan.query.root) for installed in self._queries.values()]
        self._since_us: int | None = None
        self._behind = False
        self._busy, self._stopping = threading.Lock(), False

    @property
    def manifest(self) -> Manifest:
        """What the last committed epoch left."""
        return self._manifest

    def run(self, batch: DataFrame, number: int) -> None:
        """Runs the micro-batch `number` as the next epoch, unless it is committed already."""
        with self._busy:
            if self._stopping:
                raise EngineError("the run is stopping")
            if number > self._manifest.batch:
                self._run(batch, number, None)

    def flush(self, reason: str) -> None:
        """Runs epochs without rows until every window that holds rows is answered."""
        with self._busy:
            self._run(None, self._manifest.batch, Flush(reason))
            while self._behind:
                self._run(None, self._manifest.batch, Flush(reason))

    def recover(self) -> None:
        """Ends a flush that a crash interrupted, before any new row is looked at."""
        decision = self._checkpoint.decision(self._manifest.epoch + 1)
        if decision is not None and decision.flush is not None:
            self.flush(decision.flush.reason)

    def quiesce(self) -> None:
        """Waits for the epoch under way to be committed and lets no other begin."""
        self._stopping = True
        with self._busy:
            pass

    def _run(self, batch: DataFrame | None, number: int, flush: Flush | None) -> None:
        jobs = self._jobs()
        progress = self._step("admit", self._admit, number, flush)
        self._timed(progress, "absorb", self._absorb, batch)
        self._timed(progress, "advance", self._advance)
        self._timed(progress, "answer", self._answer)
        self._timed(progress, "commit", self._commit, jobs)
        self._observe()

    # 1 admit -------------------------------------------------------------------------------------------------------

    def _admit(self, number: int, flush: Flush | None) -> Progress:
        epoch = self._manifest.epoch + 1
        began = time.monotonic()
        self._probe("before-decision")
        decision = self._checkpoint.decision(epoch)
        replay = decision is not None
        if decision is not None and (decision.batch, decision.flush is None) != (number, flush is None):
            raise CorruptStateError(
                f"decision {epoch} of {self._checkpoint.storage.root} is for batch {decision.batch}, not {number}"
            )
        if decision is None:
            wall_us = self._hooks.clock_us(epoch)
            self._since_us = wall_us if self._since_us is None else self._since_us
            decision = EpochDecision(
                epoch=epoch,
                batch=number,
                wall_us=wall_us,
                seed=epoch,
                queries=tuple(sorted(self._live())),
                idle=find_idle(self._clocks(), self._streams, self._groups, wall_us, self._since_us),
                flush=flush,
            )
            self._checkpoint.write_decision(decision)
        self._probe("after-decision")
        return Progress(decision, replay, began, Absorbed())

    # 2 absorb ------------------------------------------------------------------------------------------------------

    def _absorb(self, progress: Progress, batch: DataFrame | None) -> None:
        if batch is None:
            return
        bounds = self._bounds(progress.decision)
        try:
            progress.absorbed = self._absorb_once(batch, progress, bounds)
        except Exception as failure:
            _raise_if_not_a_querys(failure)
            progress.failed = self._culprits(batch, progress, bounds, failure)
            progress.absorbed = self._absorb_once(batch, progress, bounds)
        if any(count.rejected for count in progress.absorbed.counts.values()):
            write_rejected(batch, self._streams, bounds, self._corrupt, self._checkpoint.storage,
                           progress.decision.epoch, progress.replay)  # fmt: skip
        self._probe("after-state")

    def _absorb_once(self, batch: DataFrame, progress: Progress, bounds: tuple[Bounds, ...]) -> Absorbed:
        self._probe("mid-state")
        live = tuple(name for name in self._live() if name not in progress.failed)
        return self._absorb_rows(batch, progress.decision.epoch, bounds, live)

    def _absorb_rows(
        self, batch: DataFrame, epoch: int, bounds: tuple[Bounds, ...], live: tuple[str, ...], trial: bool = False
    ) -> Absorbed:
        shape = self._projection(live)
        task = AbsorbTask(None if trial else self._checkpoint.state_folder, epoch, bounds, shape)
        rows = batch.selectExpr(*shape.bound(bounds))
        if live not in self._schemas:
            self._schemas[live] = arrow_schema(rows)
        return sum(self._io.absorb(rows, self._schemas[live], task), Absorbed())

    def _culprits(
        self, batch: DataFrame, progress: Progress, bounds: tuple[Bounds, ...], failure: Exception
    ) -> dict[str, str]:
        """Which queries made the pass over the rows fail: those that fail alone, if any does not."""
        found: dict[str, str] = {}
        live = self._live()
        for name in live:
            try:
                self._absorb_rows(batch, progress.decision.epoch, bounds, (name,), trial=True)
            except Exception as error:
                _raise_if_not_a_querys(error)
                found[name] = _cause(error)
        if not found or len(found) == len(live) > 1:
            raise failure
        return found

    # 3 advance -----------------------------------------------------------------------------------------------------

    def _advance(self, progress: Progress) -> None:
        decision = progress.decision
        clocks = self._clocks()
        for stream in self._streams:
            count = progress.absorbed.counts.get(stream.name)
            seen = None if count is None or count.first_us is None or count.last_us is None else (
                count.first_us, count.last_us)  # fmt: skip
            clocks[stream.name] = advance_clock(clocks[stream.name], stream, seen, decision.wall_us)
        idle = [i.stream for i in decision.idle if clocks[i.stream].heard_us != decision.wall_us]
        clocks = follow_others(clocks, idle, self._groups)
        if decision.flush is not None:
            clocks = {name: self._ended(name, clock) for name, clock in clocks.items()}
        progress.clocks = clocks
        self._behind = False
        for name in self._live():
            if name in progress.failed:
                continue
            plan = self._queries[name].plan
            state = self._manifest.queries[name]
            window = plan.aggregate.window
            streams = streams_of(plan.query.root)
            begun = [clocks[s].first_us for s in streams if clocks[s].first_us is not None]
            first = min((b for b in begun if b is not None), default=None)
            if state.since_us is not None:
                # Windows that began before the query did lack rows: the first whole one starts at `since`.
                first = state.since_us + window.size_us - 1
            now = watermark_of(clocks, streams) if decision.flush is None else self._last_end(name, clocks)
            due = due_windows(window, first, state.answered_us, now)
            if due is not None:
                progress.due[name] = self._bounded(name, due)

    def _bounded(self, query: str, due: Due) -> Due:
        """Windows without rows are answered too where there is no key: so many at a time, the rest next."""
        if not spec_of(self._queries[query].plan).always or due.count <= MOST_EMPTY_WINDOWS:
            return due
        self._behind = True
        return replace(due, last_us=due.first_us + (MOST_EMPTY_WINDOWS - 1) * due.slide_us)

    def _last_end(self, query: str, clocks: Mapping[str, StreamClock]) -> int | None:
        plan = self._queries[query].plan
        lasts = [clocks[s].last_us for s in streams_of(plan.query.root)]
        known = [last for last in lasts if last is not None]
        return last_end_with_rows(plan.aggregate.window, max(known)) if known else None

    def _ended(self, stream: str, clock: StreamClock) -> StreamClock:
        """A flushed stream's watermark passes the end of every window that holds its rows."""
        if clock.last_us is None or clock.watermark_us is None:
            return clock
        ends = [
            last_end_with_rows(self._queries[name].plan.aggregate.window, clock.last_us)
            for name in self._live()
            if stream in streams_of(self._queries[name].plan.query.root)
        ]
        return replace(clock, watermark_us=max([clock.watermark_us, *ends]))

    # 4 answer ------------------------------------------------------------------------------------------------------

    def _answer(self, progress: Progress) -> None:
        works = {name: self._work(name, due, progress) for name, due in progress.due.items()}
        direct = {name: work for name, work in works.items() if work.finish is not None}
        if direct:
            self._deliver(direct, progress)
        for name, work in works.items():
            if work.finish is None:
                self._deliver_by_sql(name, work, progress)
        self._probe("after-sinks")

    def _work(self, name: str, due: Due, progress: Progress) -> Work:
        installed = self._queries[name]
        ids = {synopsis.id for synopsis in installed.plan.synopses}
        least = due.first_us - installed.plan.aggregate.window.size_us
        chunks: dict[str, list[str]] = {id_: [] for id_ in ids}
        for chunk in (*self._manifest.chunks, *progress.absorbed.chunks):
            for id_, end in chunk.ends:
                if id_ in ids and end > least:
                    chunks[id_].append(chunk.name)
        sink = installed.sink
        writes_parquet = (
            isinstance(sink, FileSink)
            and sink.format == "parquet"
            and not sink.options
            and self._io.delivers_to(sink.storage)
        )
        finish = direct_finish(installed.plan.query) if writes_parquet else None
        return Work(
            spec_of(installed.plan),
            due,
            {id_: tuple(names) for id_, names in chunks.items()},
            finish,
            sink.staging if isinstance(sink, FileSink) else None,
        )

    def _deliver(self, works: Mapping[str, Work], progress: Progress) -> None:
        names, items = tuple(works), tuple(works.values())
        delivered = self._blamed(lambda: self._io.deliver(items))
        files: dict[str, list[str]] = {name: [] for name in names}
        for delivery in delivered:
            name = names[delivery.work]
            if delivery.error is not None:
                progress.failed[name] = delivery.error
            else:
                assert delivery.file is not None
                files[name].append(delivery.file)
                progress.rows[name] = progress.rows.get(name, 0) + delivery.rows
        self._probe("mid-sinks")
        for name in names:
            if name not in progress.failed:
                sink = self._queries[name].sink
                assert isinstance(sink, FileSink)
                sink.adopt(files[name], progress.decision.epoch, progress.replay)

    def _deliver_by_sql(self, name: str, work: Work, progress: Progress) -> None:
        installed = self._queries[name]
        query = installed.plan.query
        task = AnswerTask(self._checkpoint.state_folder, work, answer_schema(query))
        try:
            results = spark_finish(self._io.answers(task, answer_ddl(query)), query.finish)
            progress.rows[name] = installed.sink.write(results, progress.decision.epoch, progress.replay) or 0
        except Exception as failure:
            _raise_if_not_a_querys(failure)
            progress.failed[name] = _cause(failure)

    # 5 commit ------------------------------------------------------------------------------------------------------

    def _commit(self, progress: Progress, jobs: int) -> None:
        before, decision = self._manifest, progress.decision
        queries = {name: self._outcome(name, state, progress) for name, state in before.queries.items()}
        covered = dict(before.covered)
        chunks, dropped = self._retain((*before.chunks, *progress.absorbed.chunks), queries, covered, progress)
        manifest = Manifest(
            epoch=decision.epoch,
            batch=decision.batch,
            clocks=progress.clocks,
            ledger={s.name: before.ledger.get(s.name, Entry()) + _entry(progress, s.name) for s in self._streams},
            queries=queries,
            covered=covered,
            chunks=chunks,
            observed={
                "wall_us": decision.wall_us,
                "seconds": round(time.monotonic() - progress.began_s, 4),
                "steps_s": {name: round(s, 4) for name, s in progress.steps_s.items()},
                "jobs": self._jobs() - jobs,
                "rows": {name: count.entry.rows_in for name, count in progress.absorbed.counts.items()},
                "due": {name: due.count for name, due in progress.due.items()},
                "state_bytes": sum(chunk.bytes for chunk in chunks),
                "replay": progress.replay,
            },
        )
        self._probe("before-manifest")
        self._checkpoint.commit(manifest)
        self._manifest = manifest
        self._probe("after-manifest")
        self._checkpoint.clean(manifest, dropped)

    def _outcome(self, name: str, state: QueryState, progress: Progress) -> QueryState:
        if name in progress.failed:
            return replace(state, failed=progress.failed[name])
        due = progress.due.get(name)
        if due is None:
            return state
        return replace(
            state,
            answered_us=due.last_us,
            answers=state.answers + due.count,
            rows=state.rows + progress.rows.get(name, 0),
        )

    def _retain(
        self,
        chunks: tuple[Chunk, ...],
        queries: Mapping[str, QueryState],
        covered: dict[str, int | None],
        progress: Progress,
    ) -> tuple[tuple[Chunk, ...], frozenset[str]]:
        """Chunks that some query still needs, few of them; and the names of those that can go."""
        expired = self._expired(queries, progress)
        kept = tuple(c for c in chunks if any(id_ in expired and end > expired[id_] for id_, end in c.ends))
        sizes = [ChunkSize(c.name, c.level, max(end for _, end in c.ends)) for c in kept]
        merge = plan_merge(sizes, pieces=self._checkpoint.bins)
        if isinstance(merge, Merge):
            kept = self._compact(kept, merge, expired, progress.decision.epoch)
        for id_, before in expired.items():
            if before > _EVER[0]:
                covered[id_] = max(before, covered.get(id_) or before)
        names = {chunk.name for chunk in kept}
        return kept, frozenset(chunk.name for chunk in chunks if chunk.name not in names)

    def _expired(self, queries: Mapping[str, QueryState], progress: Progress) -> dict[str, int]:
        """Per synopsis in use the time before which no window to come reaches."""
        expired: dict[str, int] = {}
        for name, state in queries.items():
            if state.failed is not None:
                continue
            plan = self._queries[name].plan
            window = plan.aggregate.window
            reach = _EVER[0] if state.answered_us is None else state.answered_us + window.slide_us - window.size_us
            for synopsis in plan.synopses:
                expired[synopsis.id] = min(expired.get(synopsis.id, reach), reach)
        return expired

    def _compact(
        self, chunks: tuple[Chunk, ...], merge: Merge, expired: Mapping[str, int], epoch: int
    ) -> tuple[Chunk, ...]:
        layouts = tuple(layout_of(s) for s in self._synopses(tuple(self._queries)) if s.id in expired)
        task = CompactTask(self._checkpoint.state_folder, epoch, merge.level, merge.chunks, layouts, dict(expired))
        made = self._blamed(lambda: self._io.compact(task))
        merged = set(merge.chunks)
        return (*(chunk for chunk in chunks if chunk.name not in merged), *made)

    # 6 observe -----------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        self._hooks.on_epoch(self._manifest)

    # -----------------------------------------------------------------------------------------------------------------

    def _live(self) -> list[str]:
        return [name for name in self._queries if self._manifest.queries[name].failed is None]

    def _clocks(self) -> dict[str, StreamClock]:
        return {s.name: self._manifest.clocks.get(s.name, StreamClock()) for s in self._streams}

    def _bounds(self, decision: EpochDecision) -> tuple[Bounds, ...]:
        clocks = self._clocks()
        marks = [clocks[stream.name].watermark_us for stream in self._streams]
        return tuple(
            Bounds(_EVER[0] if mark is None else mark, decision.wall_us + stream.ahead_us)
            for stream, mark in zip(self._streams, marks, strict=True)
        )

    def _synopses(self, names: Sequence[str]) -> tuple[Synopsis, ...]:
        found = (synopsis for name in names for synopsis in self._queries[name].plan.synopses)
        return tuple({synopsis.id: synopsis for synopsis in found}.values())

    def _projection(self, names: tuple[str, ...]) -> Projection:
        if names not in self._projections:
            self._projections[names] = projection(
                self._streams, self._synopses(names), self._checkpoint.bins, self._corrupt
            )
        return self._projections[names]

    def _blamed(self, job: Callable[[], list[T]]) -> list[T]:
        """What the tasks of a job report; a failure says whose it is."""
        try:
            return job()
        except Exception as failure:
            _raise_if_not_a_querys(failure)
            raise

    def _jobs(self) -> int:
        """Spark jobs started so far in this application."""
        return int(self._spark._jsc.sc().dagScheduler().nextJobId())

    def _step(self, name: str, step: Callable[..., Progress], *arguments: Any) -> Progress:
        began = time.monotonic()
        progress = step(*arguments)
        progress.steps_s[name] = time.monotonic() - began
        return progress

    def _timed(self, progress: Progress, name: str, step: Callable[..., None], *arguments: Any) -> None:
        began = time.monotonic()
        step(progress, *arguments)
        progress.steps_s[name] = time.monotonic() - began


def _entry(progress: Progress, stream: str) -> Entry:
    count = progress.absorbed.counts.get(stream)
    return count.entry if count else Entry()


def _cause(failure: Exception) -> str:
    """The first telling line of what Spark says about a failure."""
    text = str(failure)
    for line in text.splitlines():
        if "[" in line and "]" in line and "SQLSTATE" in line:
            return line[line.index("[") :].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(failure).__name__)


# What Spark says when a job ends because the run does: nobody's fault.
_CANCELLED = (
    "cancelled",
    "Interrupted",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "Py4JNetworkError",
)


def _raise_if_not_a_querys(failure: Exception) -> None:
    """Raises what no query is to blame for: damaged state, a failing disk, the end of the run."""
    text = str(failure)
    if "CorruptStateError: " in text:
        raise CorruptStateError(text.rpartition("CorruptStateError: ")[2].splitlines()[0]) from failure
    if isinstance(failure, EngineError | ConnectionError) or any(word in text for word in _CANCELLED):
        raise failure
    if "OSError: " in text:
        raise EngineError(
            f"a task could not read or write: {text.rpartition('OSError: ')[2].splitlines()[0]}"
        ) from failure
