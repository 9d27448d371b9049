"""Which windows are due: every end once, in order, from the first that holds a row."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import CumulativeWindow, Due, HoppingWindow, SlidingWindow, TimeWindow
from headrace.policies import due_windows, last_end_with_rows


def ends(due: Due | None) -> list[int]:
    return [] if due is None else list(due.ends)


@pytest.mark.parametrize(
    ("window", "first_row", "answered", "now", "wanted"),
    [
        #   rows      x  x     x
        #   ends   |     |     |     |     watermark 35
        #          0    10    20    30
        pytest.param(SlidingWindow(20, 10), 3, None, 35, [10, 20, 30], id="all ends after the first row are due"),
        pytest.param(SlidingWindow(20, 10), 3, None, 30, [10, 20, 30], id="an end the watermark stands on is due"),
        pytest.param(SlidingWindow(20, 10), 3, None, 29, [10, 20], id="an end it has not reached is not"),
        pytest.param(SlidingWindow(20, 10), 3, None, 9, [], id="nothing is due before the first end"),
        pytest.param(SlidingWindow(20, 10), 3, 20, 45, [30, 40], id="answered ends are not due again"),
        pytest.param(SlidingWindow(20, 10), 3, 40, 45, [], id="nothing is due twice"),
        pytest.param(SlidingWindow(20, 10), 3, 40, 12, [], id="a watermark that went back makes nothing due"),
        #   rows             x                  [0, 10) does not hold a row at 10
        #   ends   |         |         |
        #          0        10        20
        pytest.param(SlidingWindow(10, 10), 10, None, 25, [20], id="a row on an end belongs to the next window"),
        pytest.param(SlidingWindow(10, 10), 9, None, 25, [10, 20], id="a row just before an end belongs to it"),
        pytest.param(SlidingWindow(25, 10), 3, None, 35, [10, 20, 30], id="papers' ends are multiples of the slide"),
        # [-15, 10) [-5, 20) [5, 30): starts are multiples of 10, so ends are at 5 modulo 10.
        pytest.param(HoppingWindow(25, 10), 3, None, 35, [5, 15, 25, 35], id="Spark's starts are multiples of it"),
        pytest.param(HoppingWindow(20, 10, 3), 1, None, 24, [3, 13, 23], id="a start time shifts the ends"),
        pytest.param(HoppingWindow(20, 10, -3), 1, None, 24, [7, 17], id="also backwards"),
        pytest.param(HoppingWindow(20, 10, 33), 1, None, 24, [3, 13, 23], id="also beyond a slide"),
        pytest.param(CumulativeWindow(20, 10), 23, None, 55, [30, 40, 50], id="windows that cumulate end at each step"),
        pytest.param(SlidingWindow(20, 10), -33, None, -10, [-30, -20, -10], id="times before 1970 are times"),
        pytest.param(HoppingWindow(25, 10), -33, None, -10, [-25, -15], id="also in Spark's form"),
        pytest.param(SlidingWindow(20, 10), -5, None, 0, [0], id="the epoch of Unix is an end like any other"),
        pytest.param(SlidingWindow(20, 10), 0, 0, 10, [10], id="an answer at zero is an answer"),
        pytest.param(SlidingWindow(20, 10), 55, 20, 70, [60, 70], id="after a late start no end before it is due"),
        pytest.param(SlidingWindow(20, 10), None, None, 70, [], id="without rows nothing is due"),
        pytest.param(SlidingWindow(20, 10), 3, None, None, [], id="without a watermark nothing is due"),
    ],
)
def test_due(window: TimeWindow, first_row: int | None, answered: int | None, now: int | None, wanted: list[int]):
    due = due_windows(window, first_row, answered, now)
    assert ends(due) == wanted
    assert (due.count if due else 0) == len(wanted)
    if due is not None:
        assert (due.first_us, due.last_us) == (wanted[0], wanted[-1])


@pytest.mark.parametrize(
    ("some", "first", "last", "count"),
    [
        pytest.param(range(10, 41, 10), 10, 40, 4, id="every slide"),
        pytest.param((10, 25, 30), 10, 30, 3, id="ends at any distance"),
        pytest.param((7,), 7, 7, 1, id="one end"),
    ],
)
def test_due_ends_need_not_be_evenly_spaced(some: range | tuple[int, ...], first: int, last: int, count: int):
    due = Due(some)
    assert (due.first_us, due.last_us, due.count) == (first, last, count)
    assert hash(due) == hash(Due(some)), "equal asks are found by their ends"


def test_a_leap_over_years_makes_no_list_of_ends():
    due = due_windows(SlidingWindow(10, 10), 0, None, 10**15)
    assert due is not None
    assert (due.count, due.ends) == (10**14, range(10, 10**15 + 1, 10))


@pytest.mark.parametrize(
    ("window", "last_row", "end"),
    [
        #   row              x
        #   windows     [0    , 20)
        #                  [10    , 30)     the last that holds 15
        pytest.param(SlidingWindow(20, 10), 15, 30, id="a flush goes to the last window with a row"),
        pytest.param(SlidingWindow(20, 10), 10, 30, id="a window holds a row at its start"),
        pytest.param(SlidingWindow(20, 10), 9, 20, id="but none before it"),
        pytest.param(SlidingWindow(25, 10), 15, 40, id="a size that is no multiple of the slide"),
        pytest.param(HoppingWindow(25, 10), 15, 35, id="Spark's form of it"),
        pytest.param(HoppingWindow(20, 10, 3), 15, 33, id="a start time"),
        pytest.param(SlidingWindow(20, 10), -15, 0, id="times before 1970"),
    ],
)
def test_flush_ends_with_the_last_row(window: TimeWindow, last_row: int, end: int):
    assert last_end_with_rows(window, last_row) == end
    assert end - window.size_us <= last_row < end
    assert end + window.slide_us - window.size_us > last_row, "the next window would be empty"


sizes = st.integers(1, 60)
windows = st.one_of(
    st.builds(SlidingWindow, sizes, st.integers(1, 30)),
    st.builds(HoppingWindow, sizes, st.integers(1, 30), st.integers(-40, 40)),
)
times = st.integers(-200, 200)


@given(windows, times, st.lists(times, min_size=1, max_size=8))
@settings(max_examples=50)
def test_any_way_to_the_last_watermark_answers_the_same_windows_once(window: TimeWindow, first: int, marks: list[int]):
    answered, seen = None, []
    for mark in marks:
        due = due_windows(window, first, answered, mark)
        seen += ends(due)
        answered = due.last_us if due else answered
    assert seen == ends(due_windows(window, first, None, max(marks))), "none twice, none left out, in order"


@given(windows, times, times)
@settings(max_examples=50)
def test_ends_leave_no_gap_and_stand_where_the_window_says(window: TimeWindow, first: int, now: int):
    found = ends(due_windows(window, first, None, now))
    assert all(after - before == window.slide_us for before, after in pairwise(found))
    if found:
        assert first < found[0] <= first + window.slide_us, "no end after the first row is left out"
        assert now - window.slide_us < found[-1] <= now
    start = window.start_us if isinstance(window, HoppingWindow) else -window.size_us
    assert all((end - window.size_us - start) % window.slide_us == 0 for end in found)


@given(windows.filter(lambda w: w.size_us >= w.slide_us), times)
@settings(max_examples=50)
def test_the_first_window_holds_the_first_row(window: TimeWindow, first: int):
    end = ends(due_windows(window, first, None, first + window.slide_us))[0]
    assert end - window.size_us <= first < end
    assert end - window.slide_us <= first, "the window before it does not"


@given(windows, times, st.integers(0, 100))
@settings(max_examples=50)
def test_flush_answers_every_window_that_holds_a_row(window: TimeWindow, first: int, span: int):
    found = ends(due_windows(window, first, None, last_end_with_rows(window, first + span)))
    last = max((e for e in range(first, first + span + window.size_us + 1) if _is_end(window, e)), default=None)
    # Windows shorter than their slide can all miss the rows.
    holding = [] if last is None else [e for e in range(last, first, -window.slide_us) if e - window.size_us <= first]
    assert set(holding) <= set(found)
    assert not found or found[-1] == last


def _is_end(window: TimeWindow, time: int) -> bool:
    start = window.start_us if isinstance(window, HoppingWindow) else -window.size_us
    return (time - window.size_us - start) % window.slide_us == 0


@pytest.mark.parametrize("time", [-21, -20, -1, 0, 1, 19, 20, 39])
def test_windows_that_cumulate_begin_at_multiples_of_their_size(time: int) -> None:
    window = CumulativeWindow(20, 5)
    holding = [end for end in range(-60, 100, 5) if window.begin_us(end) <= time < end]
    assert holding
    assert all(window.begin_us(end) % 20 == 0 and end - window.begin_us(end) <= 20 for end in holding)
    assert last_end_with_rows(window, time) == holding[-1] == window.left_us(time)
    whole = [end for end in range(-60, 100, 5) if window.begin_us(end) >= time]
    assert min(whole) == window.whole_us(time) + 5
