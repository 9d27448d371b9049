"""How a birth changes the way its rows travel, and what a receiver makes of both ways: `docs/adr/0052`.

    event time   ───────────────T────────────────▶
    rows         old way        │ new way
    old link     ──── panes ────┤ ended, by plan 2
    new link                    ├──── rows ──────

A sender chooses T, an end of a pane beyond all that it has admitted, so each row's own time says which way it goes, and
tells T along the old link. A receiver's time goes up to T by the old link, and beyond by both until the old has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Stay

__all__ = ["HandOver", "LinkMark", "end_way", "hand_over", "mark_of"]


@dataclass(frozen=True, slots=True)
class HandOver:
    """From event time `at_us` on rows go as plan `version` says."""

    version: int
    at_us: int
    reason: str


@dataclass(frozen=True, slots=True)
class LinkMark:
    """A link as its receiver sees it: the plan it was cut by, its watermark, who takes over from it and whether it has
    sent all that was its own."""

    version: int
    watermark_us: int | None = None
    next: HandOver | None = None
    ended: bool = False


def hand_over(
    running: int, planned: int, last_us: int | None, pane_us: int, under_way: HandOver | None
) -> HandOver | Stay:
    """When a sender that has admitted rows up to `last_us` begins to send as the newest plan says.

    The plan's panes and those of the plan before have ends in common every `pane_us`. One change is made at a time.

    >>> hand_over(1, 2, 61, 20, None)
    HandOver(version=2, at_us=80, reason='plan 2 holds from the first end of a pane after all rows that came')
    >>> hand_over(1, 1, 61, 20, None).reason, hand_over(1, 3, 99, 20, HandOver(2, 80, "")).reason
    ('plan 1 is the newest', 'plan 2 has not taken over yet')
    """
    if pane_us < 1:
        raise ValueError(f"a pane has 1 microsecond or more, not {pane_us}")
    if under_way is not None:
        return Stay(f"plan {under_way.version} has not taken over yet")
    if planned <= running:
        return Stay(f"plan {running} is the newest")
    at_us = 0 if last_us is None else (last_us // pane_us + 1) * pane_us
    return HandOver(planned, at_us, f"plan {planned} holds from the first end of a pane after all rows that came")


def end_way(under_way: HandOver | None, watermark_us: int | None) -> bool:
    """Whether the old way has sent all it ever will: time has passed the hand-over, and what comes is late.

    >>> end_way(HandOver(2, 80, ""), 79), end_way(HandOver(2, 80, ""), 80), end_way(None, 80)
    (False, True, False)
    """
    return under_way is not None and watermark_us is not None and watermark_us >= under_way.at_us


def mark_of(links: tuple[LinkMark, ...], known: int) -> int | None:
    """The time that a birth's rows are complete up to, by its links of successive plans, for who knows plan `known`.

    None while nothing has come. Rows from a hand-over on are the next link's: as long as that has not begun, or is not
    known, time does not go beyond the hand-over.

    >>> old = LinkMark(1, 85, HandOver(2, 80, ""), ended=True)
    >>> mark_of((old,), 1), mark_of((old, LinkMark(2)), 2), mark_of((old, LinkMark(2, 120)), 2)
    (80, 80, 120)
    >>> mark_of((LinkMark(1, 60, HandOver(2, 80, "")), LinkMark(2, 120)), 2)
    60
    """
    return _mark({link.version: link for link in links if link.version <= known}, min(link.version for link in links))


def _mark(links: dict[int, LinkMark], version: int) -> int | None:
    link = links[version]
    if link.watermark_us is None or link.next is None:
        return link.watermark_us
    after = _mark(links, link.next.version) if link.next.version in links else None
    # What the next link says of times before the hand-over is about no rows of its own.
    rest = link.next.at_us if after is None else max(after, link.next.at_us)
    return rest if link.ended else min(link.watermark_us, rest)
