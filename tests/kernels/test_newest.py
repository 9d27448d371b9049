"""Which window a one-time query is about."""

from __future__ import annotations

import pytest

from headrace.engine.ask import _newest
from headrace.model import HoppingWindow, SlidingWindow, TimeWindow


@pytest.mark.parametrize(
    ("window", "watermark", "last_row", "end"),
    [
        pytest.param(SlidingWindow(40, 40), 95, 120, 90, id="the last pane that the watermark has closed"),
        pytest.param(SlidingWindow(40, 40), 140, 99, 100, id="after a flush the pane of the last row"),
        pytest.param(SlidingWindow(40, 40), 140, 100, 110, id="which begins at its row"),
        pytest.param(HoppingWindow(40, 20), 95, 120, 80, id="aligned: the last end that the watermark has reached"),
        pytest.param(HoppingWindow(40, 20), 140, 99, 100, id="aligned, after a flush: the end after the last row"),
    ],
)
def test_the_newest_closed_window_that_can_hold_rows(window: TimeWindow, watermark: int, last_row: int, end: int):
    assert _newest(window, 10, watermark, last_row).ends == (end,)
