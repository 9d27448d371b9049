"""How event time advances: greatest time seen, watermark, and streams that fell silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model import Idle, Stream
from headrace.units import SECOND_US, format_duration

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


def find_idle(
    clocks: Mapping[str, StreamClock],
    streams: Iterable[Stream],
    groups: Iterable[Iterable[str]],
    wall_us: int,
    since_us: int,
) -> tuple[Idle, ...]:
    """Streams silent for their `idle` while others of a query went on: their watermark follows the least of those.

    `groups` are the streams that queries read together; silence counts from `since_us`, when this run began, at the
    earliest, for what came while nobody listened is still to be read. Rows that an idle stream brings later and that
    are older than its new watermark are late, for every query alike.
    """
    streams = tuple(streams)
    groups = [frozenset(group) for group in groups]
    quiet_us = {s.name: wall_us - max(clocks[s.name].heard_us or since_us, since_us) for s in streams}
    silent = {s.name for s in streams if quiet_us[s.name] >= s.idle_us}
    found = []
    for name in (s.name for s in streams if s.name in silent):
        partners = {other for group in groups if name in group for other in group} - silent
        marks = [clocks[partner].watermark_us for partner in sorted(partners)]
        known = [mark for mark in marks if mark is not None]
        if not known or len(known) < len(marks):
            continue
        target, own = min(known), clocks[name].watermark_us
        if own is None or own < target:
            whole_s = quiet_us[name] // SECOND_US * SECOND_US
            found.append(Idle(name, target, f"silent for {format_duration(whole_s)}"))
    return tuple(found)


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
