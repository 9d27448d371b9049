"""Rows that come to sources while epochs run, and what each epoch takes of them: the oldest first."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.language import intake_unit
from headrace.model import Intake, Stream
from headrace.planning import Recorded
from headrace.planning.rates import GUESSED_ROWS_PER_S, row_bytes
from headrace.policies import REMEMBERED, UNPACED_S, Taken, is_full, plan_intake, share_of
from headrace.policies.intake import AGREEING, URGENT
from headrace.units import SECOND_US

__all__ = ["Arrivals", "Batch", "IntakeOf", "arrivals_of", "rates_of"]


@dataclass(frozen=True, slots=True)
class Batch:
    """What an epoch takes of a stream: rows, and when the oldest and the newest of them came, in simulated seconds."""

    rows: int
    oldest_s: float
    newest_s: float


@dataclass
class Arrivals:
    """One stream: its rate, the most rows that an epoch takes, and rows that wait, as spans of time with their rows."""

    stream: Stream
    rate: float
    most: int | None = None
    until_s: float = 0.0
    left: float = 0.0  # the part of a row that has come
    waiting: deque[tuple[float, float, float]] = field(default_factory=deque)

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return round(sum(rows for _, _, rows in self.waiting))

    def come(self, now_s: float, chance: random.Random) -> int:
        """Rows that have come since the last call, as independent senders send them."""
        mean = self.rate * (now_s - self.until_s)
        rows = max(0.0, mean + self.left + (mean**0.5) * chance.gauss(0.0, 1.0)) if mean > 0 else self.left
        whole = int(rows)
        # What chance adds or takes is settled with the next rows, so that the rate holds.
        self.left = mean + self.left - whole
        if whole:
            self.waiting.append((self.until_s, now_s, float(whole)))
        self.until_s = now_s
        return whole

    def take(self, most: int | None) -> Batch | None:
        """The oldest rows, not more than so many; None if none wait."""
        limits = [limit for limit in (most, self.most) if limit is not None]
        room = float(min(limits)) if limits else float("inf")
        taken, oldest, newest = 0.0, 0.0, 0.0
        while self.waiting and room > 0:
            begin, end, rows = self.waiting.popleft()
            part = min(rows, room)
            cut = end if part == rows else begin + (end - begin) * part / rows
            oldest = begin if not taken else oldest
            newest, taken, room = cut, taken + part, room - part
            if part < rows:
                self.waiting.appendleft((cut, end, rows - part))
        return Batch(round(taken), oldest, newest) if taken else None


@dataclass
class IntakeOf:
    """How much epochs take of the streams whose intake the engine sets, planned anew as a run does."""

    streams: Sequence[Stream]
    intake: Intake
    row_bytes: Mapping[str, float]
    target_s: float
    rows: list[Taken] = field(default_factory=list)
    files: list[Taken] = field(default_factory=list)

    def most(self, stream: Stream) -> int | None:
        """Rows that an epoch takes of a stream at most."""
        unit = intake_unit(stream)
        if unit is None:
            return None
        share = self._share(unit)
        return max(1, int(share / self.row_bytes[stream.name])) if unit == "bytes" else share

    def committed(self, taken: Mapping[str, int], seconds: float, urgent: bool = False) -> bool:
        """Takes note of an epoch; whether another intake was planned, for which Spark's query starts anew."""
        for unit, known in (("rows", self.rows), ("bytes", self.files)):
            mine = [stream.name for stream in self.streams if intake_unit(stream) == unit]
            amounts = [round(taken.get(name, 0) * (self.row_bytes[name] if unit == "bytes" else 1)) for name in mine]
            if amounts:
                known.append(Taken(sum(amounts), seconds, any(is_full(each, self._share(unit)) for each in amounts)))
                del known[:-REMEMBERED]
        planned = plan_intake(self.intake, self.rows, self.files, self.target_s, URGENT if urgent else AGREEING)
        if planned is self.intake:
            return False
        self.intake, self.rows, self.files = planned, [], []
        return True

    def _share(self, unit: str) -> int:
        return share_of(self.intake, unit, sum(intake_unit(each) == unit for each in self.streams))


def rates_of(streams: Sequence[Stream], recorded: Recorded | None) -> tuple[dict[str, float], list[str]]:
    """Rows per second of each stream, measured, declared or guessed; and what was guessed."""
    found, guesses = dict[str, float](), list[str]()
    for stream in streams:
        measured = None if recorded is None else _measured_rate(recorded, stream.name)
        declared = stream.rate.rows_per_s if stream.rate is not None else None
        if declared is None and stream.rate is not None:
            declared = (stream.rate.bytes_per_s or 0.0) / row_bytes(stream.columns)
        options = {} if stream.source is None else {key.lower(): text for key, text in stream.source.options}
        made = options.get("rate" if stream.source and stream.source.format == "synthetic" else "rowspersecond")
        if measured is not None:
            found[stream.name] = measured
        elif declared is not None:
            found[stream.name] = declared
        elif made is not None:
            found[stream.name] = float(made)
        else:
            found[stream.name] = GUESSED_ROWS_PER_S
            guesses.append(
                f"stream '{stream.name}' declares no rate: it is taken to bring {GUESSED_ROWS_PER_S:g} rows/s"
            )
    return found, guesses


def _measured_rate(recorded: Recorded, stream: str) -> float | None:
    """Rows per second of event time over the epochs that are recorded; None where they say nothing."""
    first, last = recorded.epochs[0], recorded.last
    before, after = (each.clocks.get(stream) for each in (first, last))
    if before is None or after is None or before.last_us is None or after.last_us is None:
        return None
    if after.last_us <= before.last_us:
        return _whole_rate(recorded, stream)
    rows = last.ledger[stream].rows_in - first.ledger[stream].rows_in
    return rows * SECOND_US / (after.last_us - before.last_us) if rows else None


def _whole_rate(recorded: Recorded, stream: str) -> float | None:
    clock, entry = recorded.last.clocks[stream], recorded.last.ledger.get(stream)
    if entry is None or clock.first_us is None or clock.last_us is None or clock.last_us <= clock.first_us:
        return None
    return entry.rows_in * SECOND_US / (clock.last_us - clock.first_us)


def arrivals_of(
    streams: Sequence[Stream], rates: Mapping[str, float], recorded: Recorded | None
) -> tuple[dict[str, Arrivals], list[str]]:
    """The streams with their rates and the limits that their sources set; and what was guessed."""
    found, guesses = dict[str, Arrivals](), list[str]()
    for stream in streams:
        source = stream.source
        options = {} if source is None else {key.lower(): text for key, text in source.options}
        most = None
        if source is not None and source.format == "kafka" and "maxoffsetspertrigger" in options:
            most = max(1, int(float(options["maxoffsetspertrigger"])))
        elif source is not None and {"maxfilespertrigger", "maxbytespertrigger"} & options.keys():
            seen = [e.observed.rows.get(stream.name, 0) for e in recorded.epochs] if recorded else []
            most = max(seen, default=0) or None
            limit = "nothing is known of its files, and it is taken whole" if most is None else f"{most:,} rows"
            guesses.append(f"stream '{stream.name}' limits what an epoch takes of its files: {limit}")
        found[stream.name] = Arrivals(stream, rates[stream.name], most)
    return found, guesses


def intake_of(
    streams: Sequence[Stream], intake: Intake, trigger_s: float, rows_per_byte: Mapping[str, float]
) -> IntakeOf:
    """The intake of a run's streams; bytes of rows in files as measured, else as wide as their columns."""
    widths = {s.name: 1 / rows_per_byte[s.name] if rows_per_byte.get(s.name) else row_bytes(s.columns) for s in streams}
    paced = [stream for stream in streams if intake_unit(stream) is not None]
    return IntakeOf(paced, intake, widths, trigger_s or UNPACED_S)
