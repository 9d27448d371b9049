"""How many rows an epoch takes from sources that wait: as many as fill its time, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import Intake

__all__ = ["FIRST_INTAKE", "Taken", "plan_intake"]

# Enough to see how fast rows go, few enough for a small machine's memory.
FIRST_INTAKE = Intake(100_000, "nothing is known yet")
# Fewer rows than this cost no less time; more than this do not fit small machines.
LEAST, MOST = 1_000, 10_000_000
# Epochs that have to agree: one may have been slow for reasons of its own, the first of a run always is.
AGREEING = 3
# Another intake makes Spark's query start anew, which takes about a second: not for small gains.
WORTHWHILE = 2.0
# Of the time of an epoch; the rest is for answers to come and for Spark itself.
SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Taken:
    """What an epoch took from sources with an intake, in how many seconds, and whether it could have taken no more."""

    rows: int
    seconds: float
    full: bool


def plan_intake(now: Intake, epochs: Sequence[Taken], target_s: float) -> Intake:
    """The intake of the epochs to come; `now` itself when it should stay. `epochs` are those since it was set.

    >>> plan_intake(Intake(1000, ""), [Taken(1000, 0.1, True)] * 3, 1.0).rows
    8000
    """
    last = epochs[-AGREEING:]
    if len(last) < AGREEING or not all(epoch.full for epoch in last):
        return now
    rate = max(epoch.rows / max(epoch.seconds, 1e-3) for epoch in last)
    wanted = _rounded(min(MOST, max(LEAST, rate * target_s * SHARE)))
    if now.rows / WORTHWHILE < wanted < now.rows * WORTHWHILE:
        return now
    return Intake(wanted, f"epochs of {now.rows:,} rows went at {rate:,.0f} rows/s; epochs are to take {target_s:g} s")


def _rounded(rows: float) -> int:
    """To two digits, which is all that is known.

    >>> _rounded(123_456), _rounded(1000.0)
    (120000, 1000)
    """
    return int(float(f"{rows:.1e}"))
