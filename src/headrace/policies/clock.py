"""What time an epoch is: the wall clock where it can be believed, the time that has passed where it jumps.

The clocks of a machine disagree about three things, and an epoch needs two times:

                          set back   set forward   suspended   stopped (SIGSTOP)
    wall clock            goes back  leaps         goes on     goes on
    steady clock          goes on    goes on       goes on     goes on
    listening clock       goes on    goes on       stands      stands

Rows are judged by the *wall time* of their epoch, which follows the wall clock, never goes back, and never falls behind
the steady clock within a run: a clock that is set back by an hour makes no good row look an hour ahead. Silence of
streams is measured by the *listening time*, which counts only while the engine runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.units import SECOND_US, format_duration

__all__ = ["EpochTime", "Reading", "tell_time"]

# Wall clocks are corrected by fractions of a second all the time; a leap beyond this is worth a note.
NOTED_US = 10 * SECOND_US


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks of a machine show at one moment; all but the wall clock count from any beginning."""

    wall_us: int
    steady_us: int
    listening_us: int


@dataclass(frozen=True, slots=True)
class EpochTime:
    """The times of an epoch, the reading they come from, and a note when the wall clock has leapt since the last.

    `true_us` is the wall time as this run knows it; `wall_us`, which is logged, is later where the log is ahead of it.
    `since_us` is the listening time at which the run began.
    """

    wall_us: int
    listened_us: int
    since_us: int
    true_us: int
    reading: Reading
    note: str | None = None


def tell_time(logged: tuple[int, int] | None, last: EpochTime | None, now: Reading) -> EpochTime:
    """The time of an epoch, after the `logged` wall and listening times of the epoch before and the `last` told.

    A run that has told no time yet believes the wall clock; after that it follows the wall clock forwards only. What a
    clock that was ahead has put into the log stays there: time stands still until the wall clock has come so far.

    >>> tell_time((500, 90), None, Reading(400, 7, 3)).wall_us
    500
    """
    if last is None:
        listened = now.wall_us if logged is None else logged[1]
        wall = now.wall_us if logged is None else max(now.wall_us, logged[0])
        return EpochTime(wall, listened, listened, now.wall_us, now)
    passed = max(0, now.steady_us - last.reading.steady_us)
    true = max(now.wall_us, last.true_us + passed)
    listened = last.listened_us + max(0, now.listening_us - last.reading.listening_us)
    leap = now.wall_us - last.reading.wall_us - passed
    wall = max(true, last.wall_us if logged is None else logged[0])
    return EpochTime(wall, listened, last.since_us, true, now, _note(leap))


def _note(leap_us: int) -> str | None:
    if abs(leap_us) < NOTED_US:
        return None
    size = format_duration(abs(leap_us) // SECOND_US * SECOND_US)
    if leap_us > 0:
        return f"the wall clock was set forward by {size}; rows are judged by the new time"
    return (
        f"the wall clock was set back by {size}; rows are judged by the time that has passed since, "
        "until a restart takes the wall clock's word again"
    )
