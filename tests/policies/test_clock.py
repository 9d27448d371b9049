"""What time an epoch is when clocks are set, machines suspended and engines stopped."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.policies import EpochTime, Reading, tell_time

HOUR, SECOND = 3_600_000_000, 1_000_000
NOON = 43_200 * SECOND


def told(wall: int, *, true: int | None = None, listened: int = 100, at: Reading | None = None) -> EpochTime:
    return EpochTime(wall, listened, 100, wall if true is None else true, at or Reading(wall, 0, 0))


@pytest.mark.parametrize(
    ("logged", "last", "now", "wall", "listened"),
    [
        pytest.param(None, None, Reading(NOON, 5, 7), NOON, NOON, id="the first epoch of all believes the wall clock"),
        pytest.param(
            (NOON, 900), None, Reading(NOON + HOUR, 5, 7), NOON + HOUR, 900,
            id="a restart believes the wall clock, and did not listen in between",
        ),
        pytest.param(
            (NOON, 900), None, Reading(NOON - HOUR, 5, 7), NOON, 900, id="a restart does not go back behind the log"
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON + SECOND, SECOND, SECOND), NOON + SECOND, 100 + SECOND,
            id="clocks that agree are followed",
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON + SECOND - HOUR, SECOND, SECOND), NOON + SECOND, 100 + SECOND,
            id="set back by an hour: time goes on as it has passed",
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON + SECOND + HOUR, SECOND, SECOND), NOON + SECOND + HOUR, 100 + SECOND,
            id="set forward by an hour: rows are judged by it, silence is not",
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON + 5 * HOUR, 5 * HOUR, SECOND), NOON + 5 * HOUR, 100 + SECOND,
            id="suspended or stopped for five hours: time has passed, nobody listened",
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON + 5 * HOUR, SECOND, SECOND), NOON + 5 * HOUR, 100 + SECOND,
            id="a machine whose steady clock stood, too: the wall clock knows better",
        ),
        pytest.param(
            (NOON + HOUR, 100), told(NOON + HOUR, true=NOON, at=Reading(NOON, 0, 0)),
            Reading(NOON + SECOND, SECOND, SECOND), NOON + HOUR, 100 + SECOND,
            id="after a restart that corrected a clock, time stands still until it is that late",
        ),
        pytest.param(
            (NOON + HOUR, 100), told(NOON + HOUR, true=NOON, at=Reading(NOON, 0, 0)),
            Reading(NOON + 2 * HOUR, 2 * HOUR, SECOND), NOON + 2 * HOUR, 100 + SECOND,
            id="and goes on from there",
        ),
        pytest.param(
            (NOON, 100), told(NOON), Reading(NOON, -5, -5), NOON, 100, id="a steady clock that is not costs nothing"
        ),
    ],
)  # fmt: skip
def test_the_time_of_an_epoch(
    logged: tuple[int, int] | None, last: EpochTime | None, now: Reading, wall: int, listened: int
):
    found = tell_time(logged, last, now)
    assert (found.wall_us, found.listened_us) == (wall, listened)


@pytest.mark.parametrize(
    ("leap", "note"),
    [
        pytest.param(0, None, id="no leap, no note"),
        pytest.param(9 * SECOND, None, id="a small correction is no news"),
        pytest.param(HOUR, "the wall clock was set forward by 1 h; rows are judged by the new time", id="forward"),
        pytest.param(
            -HOUR, "the wall clock was set back by 1 h; rows are judged by the time that has passed", id="back"
        ),
    ],
)
def test_a_leap_is_told(leap: int, note: str | None):
    found = tell_time((NOON, 100), told(NOON), Reading(NOON + SECOND + leap, SECOND, SECOND)).note
    assert (found or "").startswith(note or "")
    assert (found is None) == (note is None)


steps = st.lists(
    st.tuples(st.integers(0, HOUR), st.integers(-2 * HOUR, 2 * HOUR), st.integers(0, HOUR), st.booleans()), max_size=20
)


@given(steps)
@settings(max_examples=200)
def test_times_never_go_back_and_a_right_clock_is_never_ahead_of_them(
    happens: list[tuple[int, int, int, bool]],
):
    """Between epochs time passes, the clock is set by something, part of it is spent suspended, runs may restart."""
    true, error, steady, listening = NOON, 0, 0, 0
    first = last = tell_time(None, None, Reading(NOON, 0, 0))
    walls, heard = [first], 0
    for passed, leap, suspended, restarts in happens:
        true, steady, error = true + passed, steady + passed, error + leap
        if restarts:
            error = max(0, error)  # a start has nothing but the wall clock: one that is behind then is believed
        ran = max(0, passed - suspended)
        listening, heard = listening + ran, heard + (0 if restarts else ran)
        before = last.wall_us, last.listened_us
        last = tell_time(before, None if restarts else last, Reading(true + error, steady, listening))
        assert last.wall_us >= true, "a good row is never ahead of the epoch's time"
        walls.append(last)
    assert all(a.wall_us <= b.wall_us and a.listened_us <= b.listened_us for a, b in pairwise(walls))
    assert last.listened_us - first.listened_us == heard, "silence counts only while somebody listens"
