"""The handle of a pipeline that runs, like Spark's StreamingQuery."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.ask import ATTEMPTS, ask
from headrace.engine.changes import Parts, change_queries
from headrace.engine.failures import stopped
from headrace.engine.sinks.choose import MemorySink
from headrace.engine.sources.intake import in_words, read_with_intake
from headrace.engine.sources.read import United, unite
from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.state.checkpoint import Manifest
from headrace.engine.state.workload import forgettable
from headrace.engine.watch.frames import as_html, decisions_frame, queries_frame, streams_frame
from headrace.engine.watch.metrics import waiting_rows
from headrace.engine.watch.questions import Questions
from headrace.engine.watch.status import describe
from headrace.errors import CorruptStateError, EngineError, HeadraceError, SpecError
from headrace.language import bind_query, with_expectations
from headrace.model import Flush, Intake, Query, SinkSpec, StepFunction

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Run"]


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


class ChosenExpectation(Protocol):
    """Something that is expected of results, as the Python API makes it."""

    @property
    def text(self) -> str: ...

    @property
    def otherwise(self) -> str: ...


class Run:
    """A pipeline that runs, or ran; like Spark's StreamingQuery."""

    def __init__(self, parts: Parts, query: StreamingQuery, once: bool, flush: Flush | None) -> None:
        self._parts, self._query, self._once, self._flush = parts, query, once, flush
        self._ended = threading.Lock()
        self._changing = threading.Lock()
        self._closed = False
        self._added: list[str] = []  # queries that came while it ran
        self._failure: HeadraceError | None = None
        self._questions = Questions(parts.checkpoint.storage.root, self.ask)

    @property
    def status(self) -> dict[str, Any]:
        """What `headrace status` shows of this run, as plain values."""
        parts = self._parts
        return {
            **describe(parts.checkpoint.storage.root, *parts.epochs.state),
            "rejected": RejectedRows(parts.checkpoint.storage).account(),
            "active": self.is_active,
        }

    def queries(self) -> pd.DataFrame:
        """A row per query: its state, what it has answered, how far behind it is."""
        return queries_frame(self.status)

    def streams(self) -> pd.DataFrame:
        """A row per stream: where its rows went, and its time."""
        return streams_frame(self.status)

    def decisions(self) -> pd.DataFrame:
        """A row per thing that was decided for the newest epochs, with its reason."""
        point = self._parts.checkpoint
        found = (point.decision(epoch) for epoch in point.decisions())
        return decisions_frame(each for each in found if each is not None)

    def __repr__(self) -> str:
        state = "runs" if self.is_active else "has ended"
        return f"<Run of '{self._parts.pipeline.name}': {state}, epoch {self.progress.epoch}>"

    def _repr_html_(self) -> str:
        state = "runs" if self.is_active else "has ended"
        title = f"{self._parts.pipeline.name} {state}, epoch {self.progress.epoch}"
        return as_html(title, self.streams(), self.queries())

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
        return {} if progress is None else waiting_rows(progress.sources, self._parts.united.sources)

    def between_epochs_s(self) -> float | None:
        """Seconds of the last batch outside its epoch, in which Spark plans and logs; None before the first batch."""
        progress = self._query.lastProgress
        took = {} if progress is None else progress.durationMs
        if "addBatch" not in took or "triggerExecution" not in took:
            return None
        return max(0, took["triggerExecution"] - took["addBatch"]) / 1000

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
        self._parts.epochs.flush(Flush("flush was asked for"))

    def table(self, query: str) -> pa.Table:
        """The results that a memory sink keeps: all of a query's, or the newest; without rows if there are none yet."""
        sink = self._parts.sinks.get(query)
        if sink is None:
            raise SpecError(f"there is no query '{query}'; known: {', '.join(self._parts.sinks) or 'none'}")
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
        expect: Sequence[ChosenExpectation | str] = (),
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
            queries={query.name: query for query in self._parts.pipeline.queries if query.name != name},
            tables={table.name: table for table in self._parts.pipeline.tables},
        )
        given = ((each, "warn") if isinstance(each, str) else (each.text, each.otherwise) for each in expect)
        query = with_expectations(query, given)
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
            change_queries(self._parts, add, drop, functions or {}, steps or {}, self._relaunch)

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
            frames = {**parts.frames, **read_with_intake(parts.spark, parts.paced, intake)}
            united = unite(parts.pipeline.streams, frames, parts.columns)
            try:
                parts.epochs.change(lambda w, m: (w, m, parts.sinks), lambda: self._relaunch(united, parts.columns))
            except Exception as failure:  # it goes on with the intake it had, or ends by what is wrong
                parts.hooks.on_note(f"the intake of epochs could not be changed: {stopped(failure)}")
                return False
            parts.frames, parts.epochs.intake = frames, intake
        parts.hooks.on_note(in_words(intake, parts.paced))
        return True

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
        self._flush = None
        self._close(None)

    def _stop_query(self) -> None:
        self._parts.epochs.quiesce()
        self._query.stop()

    def _close(self, failure: Exception | None) -> None:
        with self._ended:
            if not self._closed:
                self._closed = True
                self._questions.close()
                try:
                    if failure is None and self._flush is not None:
                        self._parts.epochs.flush(self._flush)
                except Exception as exc:
                    failure = exc
                finally:
                    self._parts.checkpoint.close()
                    self._parts.tables.close()
                    if self._parts.server is not None:
                        self._parts.server.close()
                if failure is not None:
                    # What an epoch raised went through Spark, which keeps no more of it than a text.
                    self._failure = stopped(self._parts.epochs.failure or failure)
            if self._failure is not None:
                raise self._failure
