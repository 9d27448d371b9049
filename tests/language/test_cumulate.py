"""`[WINDOW 1 day CUMULATE 1 h]`: aligned windows, which a subquery may have, too."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import CumulativeWindow, Scan, Stream, WindowAggregate
from headrace.units import SECOND_US

HOUR = 3600 * SECOND_US
DAY = "[WINDOW 1 day CUMULATE 1 h]"


def test_a_window_that_cumulates(streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", f"SELECT src, window.end AS e, COUNT(*) AS n FROM packets {DAY} GROUP BY src", streams)
    assert isinstance(query.root, WindowAggregate)
    assert query.root.window == CumulativeWindow(24 * HOUR, HOUR)
    assert [output.name for output in query.finish.outputs] == ["window_start", "window_end", "src", "e", "n"]


def test_its_answers_are_rows_of_the_query_around_them(streams: Mapping[str, Stream]) -> None:
    inner = f"(SELECT window, src, COUNT(*) AS n FROM packets {DAY} GROUP BY src) AS a"
    sql = f"SELECT *, RANK() OVER (PARTITION BY a.window.end ORDER BY n DESC) AS r FROM {inner}"
    root = bind_query("q", sql, streams).root
    assert isinstance(root, Scan)
    root = bind_query("q", f"SELECT MAX(n) AS n FROM {inner} GROUP BY window(a.window, '1 day')", streams).root
    assert isinstance(root, WindowAggregate)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        pytest.param("SELECT COUNT(*) FROM packets [WINDOW 1 day CUMULATE 7 h]", "whole number of steps", id="steps"),
        pytest.param("SELECT COUNT(*) FROM packets [WINDOW 1 h CUMULATE 1 day]", "number of steps", id="too long"),
        pytest.param("SELECT COUNT(*) FROM packets [WINDOW 1 day CUMULATE]", "CUMULATE has no duration", id="no step"),
        pytest.param("SELECT COUNT(*) FROM packets [WINDOW 1 day CUMULATE 0 s]", "above zero", id="no time"),
        pytest.param(
            f"SELECT src FROM packets {DAY} GROUP BY window(ts, '1 day'), src", "two windows", id="two windows"
        ),
        pytest.param(
            f"SELECT RANK() OVER (PARTITION BY window_start ORDER BY src) AS r FROM packets {DAY} GROUP BY src",
            "PARTITION BY window", id="several windows begin at once",
        ),
        pytest.param(
            "SELECT RANK() OVER (PARTITION BY a.window.start ORDER BY n) AS r FROM "
            f"(SELECT window, COUNT(*) AS n FROM packets {DAY}) AS a", "PARTITION BY window",
            id="several windows of a subquery begin at once",
        ),
    ],
)  # fmt: skip
def test_refused(sql: str, told: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", sql, streams)
    assert told in str(caught.value)
