"""Which windows of a query are due: those that closed since its last answer."""

from __future__ import annotations

from headrace.model import Due, TimeWindow

__all__ = ["due_windows", "last_end_with_rows", "newest_end", "settled_until"]


def due_windows(
    window: TimeWindow, first_row_us: int | None, answered_us: int | None, now_us: int | None
) -> Due | None:
    """Ends after the last answered one (or after the first row) up to the watermark `now_us`.

    The first window is the first to hold a row; from there on no end is left out, so no gap exceeds the slide.

        rows      x  x     x
        ends   |     |     |     |          slide 10, watermark 35: ends 10, 20, 30
               0    10    20    30    40
    """
    if first_row_us is None or now_us is None:
        return None
    after = first_row_us if answered_us is None else max(first_row_us, answered_us)
    first = _next_end(window, after)
    last = _next_end(window, now_us) - window.slide_us
    return Due(range(first, last + 1, window.slide_us)) if first <= last else None


def settled_until(window: TimeWindow, after_us: int | None, now_us: int | None) -> int | None:
    """The time that no window to be answered begins to hold: the watermark, or less while answers are behind it.

    `after_us` is the end answered last, or the first row. Results dated by the last instant of their window are never
    older than this.

    >>> settled_until(TimeWindow(20, 20), 40, 59), settled_until(TimeWindow(20, 20), 40, 65)
    (59, 59)
    """
    due = due_windows(window, after_us, None, now_us)
    return now_us if due is None else due.first_us - 1


def newest_end(window: TimeWindow, now_us: int) -> int:
    """The greatest window end that the watermark has reached.

    >>> newest_end(TimeWindow(60, 20), 59), newest_end(TimeWindow(60, 20), 60)
    (40, 60)
    """
    return _next_end(window, now_us) - window.slide_us


def last_end_with_rows(window: TimeWindow, last_row_us: int) -> int:
    """The greatest window end whose window holds a row at `last_row_us`."""
    return _next_end(window, window.left_us(last_row_us)) - window.slide_us


def _next_end(window: TimeWindow, after_us: int) -> int:
    """The least window end greater than `after_us`."""
    return after_us - (after_us - window.phase_us) % window.slide_us + window.slide_us
