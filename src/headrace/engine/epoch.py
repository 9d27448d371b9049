"""One epoch, from a micro-batch to a manifest, in six steps.

    1 admit     what is decided is logged before anything acts, or read again if it was
    2 absorb    one pass over the rows keeps what operators take of them
    3 advance   rows move the clocks of their streams
    4 answer    operators make results of what is there and give them to the sinks
    5 commit    one manifest says all that is true now
    6 observe   whoever watches is told

An epoch knows the port of operators (`operators/port.py`) and none of their kinds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.absorbing import Absorbing
from headrace.engine.deciding import Deciding
from headrace.engine.operators.port import Moment, Operator
from headrace.engine.progress import Progress
from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.retention import EVER, retain
from headrace.engine.state.state_io import StateIo
from headrace.engine.watch.hooks import Hooks
from headrace.errors import EngineError
from headrace.kernels.absorb import Absorbed, Bounds
from headrace.model import EpochDecision, Flush, Intake, Observed, Stream
from headrace.planning import ends_below, latest
from headrace.policies import StreamClock, advance_clock, follow_others

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Epoch"]


class Epoch:
    """Runs one epoch at a time, from where the engine stands to where it stands then.

    `standing` is the one thing that an epoch changes, at its commit; `unfinished` says that a flush needs another one.
    """

    def __init__(
        self,
        standing: Standing,
        deciding: Deciding,
        checkpoint: Checkpoint,
        io: StateIo,
        operators: Sequence[Operator],
        absorbing: Absorbing,
        corrupt: frozenset[str],
        hooks: Hooks,
        jobs: Callable[[], int],
    ) -> None:
        self.standing, self.unfinished, self._deciding = standing, False, deciding
        self._checkpoint, self._io, self._operators, self._absorbing = checkpoint, io, tuple(operators), absorbing
        self._corrupt, self._hooks, self._probe, self._jobs = corrupt, hooks, hooks.probe, jobs
        self._rejected = RejectedRows(checkpoint.storage)
        self._commit_s = 0.0  # what the last commit took

    def run(self, batch: DataFrame | None, number: int, flush: Flush | None, intake: Intake | None) -> None:
        """Runs micro-batch `number`, or a flush, which has no rows."""
        progress = self._admit(number, flush, intake)
        self._absorb(progress, batch)
        self._advance(progress)
        self._answer(progress)
        self._commit(progress)
        self._observe(progress)

    # 1 admit -------------------------------------------------------------------------------------------------------

    def _admit(self, number: int, flush: Flush | None, intake: Intake | None) -> Progress:
        began, jobs = time.monotonic(), self._jobs()
        self._probe("before-decision")
        decision, replay = self._deciding.decision(self.standing, number, flush, intake)
        self._hooks.on_decision(decision)
        self._probe("after-decision")
        progress = Progress(self.standing, decision, replay, began, jobs)
        progress.steps_s["admit"] = time.monotonic() - began
        return progress

    # 2 absorb ------------------------------------------------------------------------------------------------------

    def _absorb(self, progress: Progress, batch: DataFrame | None) -> None:
        with self._step(progress, "absorb"):
            if batch is None:
                return
            standing, decision = progress.standing, progress.decision
            bounds = tuple(_bounds(stream, standing.clocks[stream.name], decision) for stream in standing.streams)
            progress.absorbed, progress.failed = self._absorbing.declared(standing, decision, bounds, batch)
            if any(count.rejected for count in progress.absorbed.counts.values()):
                self._rejected.write(batch, standing.streams, bounds, self._corrupt, decision.epoch, progress.replay)
            self._probe("after-state")

    # 3 advance -----------------------------------------------------------------------------------------------------

    def _advance(self, progress: Progress) -> None:
        with self._step(progress, "advance"):
            standing, decision, clocks = progress.standing, progress.decision, dict(progress.standing.clocks)
            for stream in standing.streams:
                count = progress.absorbed.counts.get(stream.name)
                seen = None if count is None else count.span_us
                told = decision.listened_us, decision.marks
                clocks[stream.name] = advance_clock(clocks[stream.name], stream, seen, *told)
            idle = [each.stream for each in decision.idle if clocks[each.stream].heard_us != decision.listened_us]
            progress.clocks = follow_others(clocks, idle, standing.read_together)
            self._end_if_flushed(progress, [stream.name for stream in standing.streams])

    def _end_if_flushed(self, progress: Progress, streams: Iterable[str]) -> None:
        """Flushed streams' watermarks pass the end of everything that holds their rows."""
        if progress.decision.flush is None:
            return
        workload, ends = progress.standing.workload, dict[str, int]()
        clocks = latest(workload, progress.clocks)
        for operator in self._operators:
            found = operator.ends(progress.standing, progress.decision, clocks)
            ends |= {stream: max(end, ends.get(stream, end)) for stream, end in found.items()}
        ends = ends_below(workload, ends)
        some = progress.decision.flush.streams
        for stream in streams:
            if some and stream not in some:
                continue
            clock = progress.clocks[stream]
            known = [time_us for time_us in (clock.watermark_us, ends.get(stream)) if time_us is not None]
            progress.clocks[stream] = replace(clock, watermark_us=max(known)) if known else clock

    # 4 answer ------------------------------------------------------------------------------------------------------

    def _answer(self, progress: Progress) -> None:
        with self._step(progress, "answer"):
            progress.judge_rows()
            for nodes in progress.standing.workload.rounds:
                for operator in self._operators:
                    made = operator.answer(self._moment(progress, nodes))
                    progress.take(made)
                    self._end_if_flushed(progress, made.clocks)
            progress.judge_results()
            self._probe("after-sinks")

    def _moment(self, progress: Progress, nodes: Iterable[str]) -> Moment:
        standing, decision, alive = progress.standing, progress.decision, progress.alive

        def feed(stream: Stream, rows: DataFrame) -> Absorbed:
            absorbed, failed = self._absorbing.derived(standing, decision, progress.alive, stream, rows)
            progress.failed |= failed
            return absorbed

        return Moment(
            decision,
            progress.replay,
            standing,
            standing.workload.under(alive).intersection(nodes),
            progress.absorbed,
            progress.clocks,
            progress.ending,
            feed,
            progress.elapsed_s + self._commit_s,
        )

    # 5 commit ------------------------------------------------------------------------------------------------------

    def _commit(self, progress: Progress) -> None:
        began = time.monotonic()
        self._checkpoint.check_lock()
        before, decision, made = progress.standing.manifest, progress.decision, progress.made
        queries = progress.outcomes()
        for name, state in queries.items():
            if state.ended and not before.queries[name].ended:
                self._hooks.on_note(f"query '{name}' has come to the end of its lifetime")
        workload = progress.standing.workload
        if any(not queries[name].runs for name in workload.queries):
            workload = workload.only(name for name in workload.queries if queries[name].runs)
        nodes = progress.remembered(workload, queries)
        retained = retain(
            workload, (*before.chunks, *progress.absorbed.chunks, *made.chunks), nodes, made.expired,
            before.coverage, progress.absorbed, self._io, self._checkpoint.state_folder, self._checkpoint.bins,
            decision.epoch,
        )  # fmt: skip
        manifest = Manifest(
            epoch=decision.epoch,
            batch=decision.batch,
            clocks=progress.clocks,
            ledger=progress.ledger(),
            queries=queries,
            coverage=retained.coverage,
            workload=decision.workload,
            chunks=retained.chunks,
            nodes=nodes,
            edges=progress.edges(workload),
            expected=progress.verdict.expected,
            observed=Observed(
                decision.wall_us,
                round(progress.elapsed_s, 4),
                {step: round(seconds, 4) for step, seconds in progress.steps_s.items()},
                self._jobs() - progress.jobs,
                {name: count.entry.rows_in for name, count in progress.absorbed.counts.items()},
                {name: answered.windows for name, answered in made.answered.items() if answered.windows},
                sum(chunk.bytes for chunk in retained.chunks),
                progress.replay,
                made.observed,
                progress.absorbed.shed,
            ),
        )
        self._probe("before-manifest")
        self._checkpoint.commit(manifest)
        self.standing = replace(progress.standing, workload=workload, manifest=manifest)
        self.unfinished = made.unfinished
        self._probe("after-manifest")
        self._checkpoint.clean(manifest, retained.dropped)
        self._commit_s = time.monotonic() - began

    # 6 observe -----------------------------------------------------------------------------------------------------

    def _observe(self, progress: Progress) -> None:
        self._hooks.on_epoch(self.standing.manifest)
        for note in (*progress.verdict.notes, *progress.ran_ahead()):
            self._hooks.on_note(note)
        if progress.verdict.stop is not None:
            raise EngineError(progress.verdict.stop)

    # -----------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _step(self, progress: Progress, name: str) -> Iterator[None]:
        self._checkpoint.check_lock()
        with progress.timed(name):
            yield


def _bounds(stream: Stream, clock: StreamClock, decision: EpochDecision) -> Bounds:
    return Bounds(EVER[0] if clock.watermark_us is None else clock.watermark_us, decision.wall_us + stream.ahead_us)
