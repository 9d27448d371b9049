"""Subqueries that aggregate: which are accepted, how their results are dated, and what is refused for what it means."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Join, RowsAggregate, Scan, Stream, Union, WindowAggregate, streams_of

MINUTES = (
    "(SELECT window, window.end AS e, src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src) AS m"
)
OVER = f"SELECT MAX(n) AS n FROM {MINUTES}"


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(f"SELECT window_end AS z, MAX(n) AS n FROM {MINUTES} [WINDOW 1 hour]", id="brackets"),
        pytest.param(f"{OVER} GROUP BY window(m.window, '1 hour')", id="Spark's chained windows"),
        pytest.param(f"{OVER} GROUP BY window(window_time(m.window), '1 hour')", id="window_time"),
        pytest.param(f"WITH m AS {MINUTES.removesuffix(' AS m')} SELECT MAX(n) AS n FROM m [WINDOW 1 hour]", id="WITH"),
    ],
)
def test_answers_are_rows_of_the_query_around_them(sql: str, streams: Mapping[str, Stream]) -> None:
    root = bind_query("q", sql, streams).root
    assert isinstance(root, WindowAggregate)
    assert isinstance(root.input, Scan)
    assert root.time is None
    assert root.input.of is not None
    assert isinstance(root.input.of.root, WindowAggregate)
    assert streams_of(root) == ("packets",)
    dated = next(o for o in root.input.of.finish.outputs if o.name == root.input.of.time)
    assert dated.sql == "timestamp_micros(unix_micros(window_end) - 1)"


def test_the_window_of_the_answers_can_be_read_beside_the_one_they_are_grouped_by(
    streams: Mapping[str, Stream],
) -> None:
    hours = "window(m.window, '1 hour')"
    sql = f"SELECT {hours}, MIN(m.window.start) AS a FROM {MINUTES} GROUP BY {hours}"
    query = bind_query("q", sql, streams)
    assert [output.name for output in query.finish.outputs] == ["window_start", "window_end", "window", "a"]


def test_a_result_of_a_row_window_is_dated_as_its_row(streams: Mapping[str, Stream]) -> None:
    sql = (
        "SELECT MAX(a) AS a FROM (SELECT src, ts, AVG(length) AS a FROM packets [PARTITION BY src ROWS 9]) AS r "
        "GROUP BY window(r.ts, '1 minute')"
    )
    root = bind_query("q", sql, streams).root
    assert isinstance(root, WindowAggregate)
    assert isinstance(root.input, Scan)
    assert root.input.of is not None
    assert isinstance(root.input.of.root, RowsAggregate)
    outputs = {output.name: output.sql for output in root.input.of.finish.outputs}
    assert outputs[root.input.of.time] == outputs["ts"]


def test_pairs_in_a_union_are_dated_by_the_column_that_window_names(streams: Mapping[str, Stream]) -> None:
    sql = (
        "SELECT COUNT(*) AS n FROM (SELECT g.ts AS t FROM packets p [RANGE 1 s] JOIN flows g [RANGE 1 s] "
        "ON p.src = g.src UNION ALL SELECT ts FROM flows) AS u GROUP BY window(u.t, '1 minute')"
    )
    root = bind_query("q", sql, streams).root
    assert isinstance(root, WindowAggregate)
    assert isinstance(root.input, Union)
    assert [type(each) for each in root.input.inputs] == [Join, Scan]
    assert root.time == "c0"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        pytest.param(
            "SELECT MAX(n) AS n FROM (SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]) AS m [WINDOW 1 hour]",
            "when [WINDOW ..] answers depends on the schedule",
            id="answers in brackets",
        ),
        pytest.param(
            f"{OVER} GROUP BY window(m.e, '1 hour')",
            "window() takes the time of its rows, not m.e",
            id="another time than the rows have",
        ),
        pytest.param(
            "SELECT COUNT(*) AS n FROM packets GROUP BY window(window_time(ts), '1 hour')",
            "window() takes the time of its rows",
            id="window_time of no window",
        ),
        pytest.param(
            "SELECT MAX(n) AS n FROM (SELECT src, COUNT(*) AS n FROM packets GROUP BY src) AS m [WINDOW 1 hour]",
            "a subquery in FROM filters and projects, or groups by window(ts, '1 minute')",
            id="groups without windows",
        ),
        pytest.param(
            "SELECT MAX(n) AS n FROM (SELECT src AS n FROM packets [PARTITION BY src]) AS m [WINDOW 1 hour]",
            "PARTITION BY needs ROWS",
            id="a function in a subquery",
        ),
    ],
)
def test_what_is_refused_is_refused_for_its_meaning(sql: str, message: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as refused:
        bind_query("q", sql, streams)
    assert message in str(refused.value)
