"""Follows how fast rows go, and has the sources' intake changed when it no longer fits the time of an epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.engine.sources.file_log import Files
from headrace.engine.sources.read import intake_unit, read_stream
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.model import Intake, Stream
from headrace.policies import FIRST_INTAKE, Taken, plan_intake
from headrace.policies.intake import AGREEING, URGENT
from headrace.policies.remedies import Remedy
from headrace.units import format_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IntakeControl", "in_words", "intake_before", "read_with_intake", "streams_with_intake"]

# What epochs are to take when one follows the other without a pause: long enough that fixed costs do not matter.
UNPACED_S = 1.0
# An epoch that took so much of its share took all it was allowed: Kafka counts offsets, of which some have no message
# (marks of transactions, what was compacted), and rounds by partition; the next file may have been too large.
FULL = 0.4
# Epochs that are remembered: more than have to agree.
REMEMBERED = 6


class TakenFiles(Protocol):
    """Knows which files an epoch took."""

    def files(self, batch: int, stream: str) -> Files | None: ...


def streams_with_intake(streams: Sequence[Stream], brought: Sequence[str], once: bool) -> tuple[Stream, ...]:
    """The streams whose intake the engine sets; those the caller brought are as they are.

    A run over what is there now has no time to keep to: it takes all files in one epoch, so that none of their rows
    comes late.
    """
    units = (None,) if not once else (None, "bytes")
    return tuple(stream for stream in streams if stream.name not in brought and intake_unit(stream) not in units)


def read_with_intake(spark: SparkSession, streams: Sequence[Stream], intake: Intake) -> dict[str, DataFrame]:
    """Streams that share an intake evenly: those of messages its rows, those of files its bytes."""
    return {stream.name: read_stream(spark, stream, _share(intake, stream, streams))[0] for stream in streams}


def intake_before(point: Checkpoint) -> Intake:
    """What the last epoch was allowed to take."""
    decided = point.decisions()
    decision = point.decision(decided[-1]) if decided else None
    return FIRST_INTAKE if decision is None or decision.intake is None else decision.intake


def in_words(intake: Intake, streams: Sequence[Stream]) -> str:
    """What epochs take from now on, and why."""
    units = {intake_unit(stream) for stream in streams}
    amounts = [f"{intake.rows:,} rows"] if "rows" in units else []
    amounts += [f"{format_bytes(intake.bytes)} of files"] if "bytes" in units else []
    return f"epochs take up to {' and '.join(amounts)} from now on: {intake.reason}"


def _share(intake: Intake, stream: Stream, streams: Sequence[Stream]) -> int:
    unit = intake_unit(stream)
    alike = sum(intake_unit(each) == unit for each in streams)
    return max(1, (intake.bytes if unit == "bytes" else intake.rows) // alike)


class IntakeControl:
    """Takes note of every epoch; `apply` is called on a thread of its own when another intake is planned."""

    def __init__(
        self,
        streams: Sequence[Stream],
        intake: Intake,
        trigger_s: float,
        log: TakenFiles | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._streams, self._log, self._note = tuple(streams), log, note
        self.intake = intake
        self._target_s = trigger_s or UNPACED_S
        self._rows: list[Taken] = []
        self._files: list[Taken] = []
        self._late: dict[str, int] | None = None
        self._said: set[tuple[str, str]] = set()
        self._applying = threading.Lock()
        self.apply: Callable[[Intake], bool] | None = None

    def committed(self, manifest: Manifest) -> None:
        """To be called after each commit."""
        if self.apply is None or not self._applying.acquire(blocking=False):
            return
        seconds = manifest.observed.seconds
        rows = self._taken_rows(manifest, seconds)
        self._rows = self._rows if rows is None else [*self._rows, rows][-REMEMBERED:]
        files = self._taken_files(manifest, seconds)
        self._files = self._files if files is None else [*self._files, files][-REMEMBERED:]
        agreeing = URGENT if manifest.shedding.remedies.acts(Remedy.INTAKE) else AGREEING
        planned = plan_intake(self.intake, self._rows, self._files, self._target_s, agreeing)
        if planned is self.intake:
            self._applying.release()
        else:
            threading.Thread(target=self._change, args=(planned,), name="headrace-intake", daemon=True).start()

    def _taken_rows(self, manifest: Manifest, seconds: float) -> Taken | None:
        mine = [stream for stream in self._streams if intake_unit(stream) == "rows"]
        rows = {stream.name: manifest.observed.rows.get(stream.name, 0) for stream in mine}
        full = any(rows[stream.name] >= FULL * _share(self.intake, stream, self._streams) for stream in mine)
        return Taken(sum(rows.values()), seconds, full) if mine else None

    def _taken_files(self, manifest: Manifest, seconds: float) -> Taken | None:
        """What an epoch took of files; None if nobody knows, which says nothing about the epochs around it."""
        amount, full = 0, False
        mine = [stream for stream in self._streams if intake_unit(stream) == "bytes"]
        late = {stream.name: manifest.ledger[stream.name].late for stream in mine if stream.name in manifest.ledger}
        before, self._late = self._late or late, late
        for stream in mine:
            share = _share(self.intake, stream, self._streams)
            if manifest.observed.rows.get(stream.name, 0):
                files = None if self._log is None else self._log.files(manifest.batch, stream.name)
                if files is None:
                    return None
                amount += files.bytes
                taken_all = files.bytes >= FULL * share
                full |= taken_all
                self._say_what_to_expect(stream, files, share, taken_all, late[stream.name] - before[stream.name])
        return Taken(amount, seconds, full) if mine else None

    def _say_what_to_expect(self, stream: Stream, files: Files, share: int, full: bool, late: int) -> None:
        if files.largest > share:
            self._say_once(
                stream,
                "large",
                f"stream '{stream.name}' has a file of {format_bytes(files.largest)}, and epochs are to take "
                f"{format_bytes(share)}: a file is taken whole; smaller files make shorter epochs",
            )
        if full and late > 0:
            self._say_once(
                stream,
                "late",
                f"{late:,} rows of stream '{stream.name}' came late while files that waited are taken in epochs of "
                f"{format_bytes(share)}, in the order in which they were written; if their times are in another order, "
                "give the stream a greater lateness, or set maxBytesPerTrigger",
            )

    def _say_once(self, stream: Stream, what: str, text: str) -> None:
        if (stream.name, what) not in self._said:
            self._said.add((stream.name, what))
            self._note(text)

    def _change(self, planned: Intake) -> None:
        assert self.apply is not None
        try:
            if self.apply(planned):
                self.intake, self._rows, self._files = planned, [], []
        finally:
            self._applying.release()
