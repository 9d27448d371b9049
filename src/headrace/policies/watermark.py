"""How event time advances: greatest time seen, watermark, and streams that fell silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model import Idle, Stream
from headrace.units import format_duration

__all__ = ["StreamClock", "advance_clock", "apply_idle", "find_idle", "watermark_of"]


@dataclass(frozen=True, slots=True)
class StreamClock:
    """Event time of one stream after an epoch; None until its first admitted row.

    `first_us` and `last_us` are the least and greatest admitted event times, `heard_us` the wall time of its last row.
    """

    first_us: int | None = None
    last_us: int | None = None
    watermark_us: int | None = None
    heard_us: int | None = None


def advance_clock(clock: StreamClock, stream: Stream, seen: tuple[int, int] | None, wall_us: int) -> StreamClock:
    """The clock after an epoch that admitted rows between the two event times in `seen`, or none.

    The watermark is the greatest admitted event time less the stream's lateness, and never goes back.
    """
    if seen is None:
        return clock
    least, greatest = seen
    last = greatest if clock.last_us is None else max(clock.last_us, greatest)
    watermark = last - stream.lateness_us
    return StreamClock(
        first_us=least if clock.first_us is None else min(clock.first_us, least),
        last_us=last,
        watermark_us=watermark if clock.watermark_us is None else max(clock.watermark_us, watermark),
        heard_us=wall_us,
    )


def find_idle(clocks: Mapping[str, StreamClock], streams: Iterable[Stream], wall_us: int) -> tuple[Idle, ...]:
    """Streams silent for their `idle` while others went on: their watermark follows the least of the others'.

    Rows they bring later and that are older than this are late, for every query alike.
    """
    streams = tuple(streams)
    silent = {
        s.name: wall_us - (clocks[s.name].heard_us or 0)
        for s in streams
        if clocks[s.name].heard_us is not None and wall_us - (clocks[s.name].heard_us or 0) >= s.idle_us
    }
    awake = [clocks[s.name].watermark_us for s in streams if s.name not in silent]
    known = [w for w in awake if w is not None]
    if not known or len(known) < len(awake):
        return ()
    target = min(known)
    return tuple(
        Idle(s.name, target, f"silent for {format_duration(silent[s.name] // 1_000_000 * 1_000_000)}")
        for s in streams
        if s.name in silent and (clocks[s.name].watermark_us or 0) < target
    )


def apply_idle(clocks: Mapping[str, StreamClock], idle: Iterable[Idle]) -> dict[str, StreamClock]:
    """Clocks with the watermarks of idle streams moved as decided."""
    moved = dict(clocks)
    for decision in idle:
        moved[decision.stream] = replace(moved[decision.stream], watermark_us=decision.watermark_us)
    return moved


def watermark_of(clocks: Mapping[str, StreamClock], streams: Iterable[str]) -> int | None:
    """The watermark a query over these streams follows: the least, or None while one has not begun."""
    marks = [clocks[name].watermark_us for name in streams]
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None
