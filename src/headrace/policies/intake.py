"""How much an epoch takes from sources that wait: as much as fills its time, as far as that is known.

Messages are counted in rows and files in bytes, since that is how their sources can be told; the rule is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import FIRST_BYTES, Intake
from headrace.units import format_bytes

__all__ = ["AGREEING", "FIRST_INTAKE", "URGENT", "Taken", "plan_intake"]

# Enough to see how fast rows go, few enough for a small machine's memory.
FIRST_INTAKE = Intake(100_000, "nothing is known yet", FIRST_BYTES)
# Fewer rows or bytes than this cost no less time; more than this do not fit small machines.
LEAST, MOST = 1_000, 10_000_000
LEAST_BYTES, MOST_BYTES = 1_000_000, 4_000_000_000
# Epochs that have to agree: one may have been slow for reasons of its own, the first of a run always is.
AGREEING = 3
# Against overload one epoch is enough.
URGENT = 1
# Another intake makes Spark's query start anew, which takes about a second: not for small gains.
WORTHWHILE = 2.0
# Of the time of an epoch; the rest is for answers to come and for Spark itself.
SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Taken:
    """What an epoch took of one kind, in how many seconds, and whether it could have taken no more."""

    amount: int
    seconds: float
    full: bool


def plan_intake(
    now: Intake, rows: Sequence[Taken], files: Sequence[Taken], target_s: float, agreeing: int = AGREEING
) -> Intake:
    """The intake of the epochs to come; `now` itself when it should stay. Epochs are those since it was set.

    >>> plan_intake(Intake(1000, ""), [Taken(1000, 0.1, True)] * 3, [], 1.0).rows
    8000
    >>> plan_intake(Intake(1000, "", 64_000_000), [], [Taken(60_000_000, 6.0, True)] * 3, 1.0).bytes
    8000000
    """
    more_rows, rate = _plan(now.rows, rows[-agreeing:], LEAST, MOST, target_s, agreeing)
    more_bytes, bytes_rate = _plan(now.bytes, files[-agreeing:], LEAST_BYTES, MOST_BYTES, target_s, agreeing)
    reasons: list[str] = []
    if more_rows != now.rows:
        reasons.append(f"epochs of {now.rows:,} rows went at {rate:,.0f} rows/s")
    if more_bytes != now.bytes:
        reasons.append(f"epochs of {format_bytes(now.bytes)} went at {format_bytes(bytes_rate)}/s")
    if not reasons:
        return now
    return Intake(more_rows, f"{', '.join(reasons)}; epochs are to take {target_s:g} s", more_bytes)


def _plan(now: int, last: Sequence[Taken], least: int, most: int, target_s: float, agreeing: int) -> tuple[int, float]:
    """How much to take from now on, and what went by in a second."""
    if len(last) < agreeing or not all(epoch.full for epoch in last):
        return now, 0.0
    rate = max(epoch.amount / max(epoch.seconds, 1e-3) for epoch in last)
    wanted = _rounded(min(most, max(least, rate * target_s * SHARE)))
    return (now if now / WORTHWHILE < wanted < now * WORTHWHILE else wanted), rate


def _rounded(amount: float) -> int:
    """To two digits, which is all that is known.

    >>> _rounded(123_456), _rounded(1000.0)
    (120000, 1000)
    """
    return int(float(f"{amount:.1e}"))
