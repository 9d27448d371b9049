"""How event time advances: greatest time seen, watermark, and streams that fell silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model import Idle, Stream
from headrace.units import SECOND_US, format_duration

__all__ = ["StreamClock", "advance_clock", "find_idle", "follow_others", "ran_ahead", "watermark_of"]

# Rows that come a minute after a flush are nobody's surprise.
_SOON_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class StreamClock:
    """Event time of one stream after an epoch; None until its first admitted row.

    `first_us` and `last_us` are the least and greatest admitted event times, `heard_us` the listening time
    (`clock.py`) of its last row.
    """

    first_us: int | None = None
    last_us: int | None = None
    watermark_us: int | None = None
    heard_us: int | None = None


def advance_clock(
    clock: StreamClock,
    stream: Stream,
    seen: tuple[int, int] | None,
    listened_us: int,
    marks: Mapping[str, int | None] | None = None,
) -> StreamClock:
    """The clock after an epoch that admitted rows between the two event times in `seen`, or none.

    The watermark is the greatest admitted event time less the stream's lateness, and never goes back. Streams in
    `marks` bring their watermarks along, as those do that come from other sites: None until they have one.
    """
    if marks is not None and stream.name in marks:
        return _marked(clock, seen, listened_us, marks[stream.name])
    if seen is None:
        return clock
    least, greatest = seen
    last = greatest if clock.last_us is None else max(clock.last_us, greatest)
    watermark = last - stream.lateness_us
    return StreamClock(
        first_us=least if clock.first_us is None else min(clock.first_us, least),
        last_us=last,
        watermark_us=watermark if clock.watermark_us is None else max(clock.watermark_us, watermark),
        heard_us=listened_us,
    )


def _marked(clock: StreamClock, seen: tuple[int, int] | None, listened_us: int, mark: int | None) -> StreamClock:
    """The clock of a stream that is told its watermark; that it goes on is a sign of life as well as rows are."""
    goes_on = mark is not None and (clock.watermark_us is None or mark > clock.watermark_us)
    firsts = [time for time in (clock.first_us, seen and seen[0]) if time is not None]
    lasts = [time for time in (clock.last_us, seen and seen[1]) if time is not None]
    return StreamClock(
        first_us=min(firsts, default=None),
        last_us=max(lasts, default=None),
        watermark_us=mark if goes_on else clock.watermark_us,
        heard_us=listened_us if goes_on or seen is not None else clock.heard_us,
    )


def ran_ahead(before: StreamClock, after: StreamClock, stream: Stream) -> str | None:
    """What a flush that has moved a watermark far beyond the stream's rows means for rows to come; None if it has not.

    Far is more than the stream's lateness, and more than a minute.
    """
    mark, last = after.watermark_us, after.last_us
    if mark is None or last is None or mark == before.watermark_us:
        return None
    beyond = mark - last
    if beyond <= max(stream.lateness_us, _SOON_US):
        return None
    far = format_duration(beyond // SECOND_US * SECOND_US)
    return (
        f"the flush has moved the watermark of stream '{stream.name}' {far} beyond its last row: rows that come later "
        "and are older than that are late; flush a stream that has ended, not one that pauses"
    )


def find_idle(
    clocks: Mapping[str, StreamClock],
    streams: Iterable[Stream],
    groups: Iterable[Iterable[str]],
    listened_us: int,
    since_us: int,
) -> tuple[Idle, ...]:
    """Streams silent for their `idle` that a query reads together with others that are not.

    `groups` are the streams that queries read together. Silence is measured in listening time, and counts from
    `since_us`, when this run began, at the earliest: what came while nobody listened is still to be read.
    """
    streams, together = tuple(streams), [frozenset(group) for group in groups]
    quiet_us = {s.name: listened_us - max(clocks[s.name].heard_us or since_us, since_us) for s in streams}
    silent = {s.name for s in streams if quiet_us[s.name] >= s.idle_us}
    return tuple(
        Idle(s.name, f"silent for {format_duration(quiet_us[s.name] // SECOND_US * SECOND_US)}")
        for s in streams
        if s.name in silent and any(s.name in group and group - silent for group in together)
    )


def follow_others(
    clocks: Mapping[str, StreamClock], idle: Iterable[str], groups: Iterable[Iterable[str]]
) -> dict[str, StreamClock]:
    """Clocks in which an idle stream's watermark is the least of those it is read together with and that are not idle.

    Rows that it brings later and that are older than this are late, for every query alike.

        a   ----10----20----30      b said nothing since 10 and is idle:
        b   ----10                  its watermark is 30 too, and so is that of a query over both
    """
    sleeping, moved = frozenset(idle), dict(clocks)
    together = [frozenset(group) for group in groups]
    for name in sorted(sleeping):
        partners = {other for group in together if name in group for other in group} - sleeping
        marks = [clocks[partner].watermark_us for partner in partners]
        known = [mark for mark in marks if mark is not None]
        if known and len(known) == len(marks):
            own = clocks[name].watermark_us
            moved[name] = replace(clocks[name], watermark_us=min(known) if own is None else max(own, min(known)))
    return moved


def watermark_of(clocks: Mapping[str, StreamClock], streams: Iterable[str]) -> int | None:
    """The watermark a query over these streams follows: the least, or None while one has not begun."""
    marks = [clocks[name].watermark_us for name in streams]
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None
