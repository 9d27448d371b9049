"""OVER: where it stands, what Spark gets of it, and what is refused for what it means."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Scan, Stream, WindowAggregate

KEYS = "FROM packets GROUP BY window(ts, '1 minute'), src, port"
ANSWERS = (
    "(SELECT window, window.end AS e, src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src) AS m"
)
ALL = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


@pytest.mark.parametrize(
    ("call", "sql"),
    [
        pytest.param(
            "ROW_NUMBER() OVER (PARTITION BY window, src ORDER BY SUM(length) DESC)",
            "row_number() OVER (PARTITION BY window_end, c0 ORDER BY a0 DESC NULLS LAST, c0, c1)",
            id="equal rows are numbered by their keys",
        ),
        pytest.param(
            "RANK() OVER (PARTITION BY window.start ORDER BY SUM(length) NULLS LAST)",
            "rank() OVER (PARTITION BY window_end ORDER BY a0 ASC NULLS LAST)",
            id="equal rows have the same rank",
        ),
        pytest.param(
            "SUM(SUM(length)) OVER (PARTITION BY window_end)",
            "sum(a0) OVER (PARTITION BY window_end)",
            id="a total of whole numbers",
        ),
        pytest.param(
            "SUM(AVG(length)) OVER (PARTITION BY window)",
            f"sum(a0) OVER (PARTITION BY window_end ORDER BY c0, c1 {ALL})",
            id="floating-point numbers are added in the order of the keys",
        ),
        pytest.param(
            "LAG(src, 2, 'none') OVER (PARTITION BY window ORDER BY port)",
            "lag(c0, 2, 'none') OVER (PARTITION BY window_end ORDER BY c1 ASC NULLS FIRST, c0, c1)",
            id="a neighbour",
        ),
        pytest.param(
            "COUNT(*) OVER (PARTITION BY window ORDER BY port ROWS 3 PRECEDING)",
            "count(1) OVER (PARTITION BY window_end ORDER BY c1 ASC NULLS FIRST, c0, c1 "
            "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
            id="a frame",
        ),
    ],
)
def test_what_spark_gets(call: str, sql: str, streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", f"SELECT src, port, {call} AS x {KEYS}", streams)
    assert [over.sql for over in query.finish.over] == [sql]
    assert query.finish.outputs[-1].sql == query.finish.over[0].name


@pytest.mark.parametrize("edge", ["window", "m.window.start", "e"])
def test_over_answers_is_a_step_of_the_node_that_answers(edge: str, streams: Mapping[str, Stream]) -> None:
    sql = f"SELECT * FROM (SELECT *, RANK() OVER (PARTITION BY {edge} ORDER BY n) AS r FROM {ANSWERS} WHERE n > 1) AS t"
    root = bind_query("q", f"{sql} WHERE r <= 3", streams).root
    assert isinstance(root, Scan)
    assert root.of is not None
    step = root.of.root
    assert isinstance(step, Scan)
    assert step.of is not None
    assert isinstance(step.of.root, WindowAggregate)
    assert [over.sql.split(" OVER ")[0] for over in root.of.finish.over] == ["rank()"]


def test_a_plain_column_keeps_the_name_that_spark_gives_it(streams: Mapping[str, Stream]) -> None:
    sql = f"SELECT src, rank() OVER (PARTITION BY window ORDER BY port) {KEYS}"
    assert bind_query("q", sql, streams).finish.outputs[-1].name.startswith("rank() OVER")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        pytest.param(f"SELECT src, RANK() OVER (ORDER BY port) AS r {KEYS}", "PARTITION BY window", id="all windows"),
        pytest.param(f"SELECT src, RANK() OVER (PARTITION BY window) AS r {KEYS}", "needs ORDER BY", id="no order"),
        pytest.param(
            f"SELECT src, RANK() OVER (PARTITION BY window ORDER BY port) AS r {KEYS} HAVING r < 3",
            "HAVING comes before OVER", id="HAVING",
        ),
        pytest.param(
            f"SELECT src {KEYS} HAVING RANK() OVER (ORDER BY src) < 3", "WHERE in a SELECT around", id="in HAVING"
        ),
        pytest.param(
            f"SELECT src, SUM(RANK() OVER (PARTITION BY window ORDER BY src)) AS r {KEYS}",
            "OVER comes after the aggregates", id="in an aggregate",
        ),
        pytest.param(
            f"SELECT src, MAX(RANK() OVER (PARTITION BY window ORDER BY src)) OVER (PARTITION BY window) AS r {KEYS}",
            "OVER inside OVER", id="in itself",
        ),
        pytest.param(
            "SELECT src, RANK() OVER (PARTITION BY window ORDER BY src) AS r FROM packets "
            "GROUP BY window(ts, '1 minute'), src, r", "OVER cannot be a group key", id="as a key",
        ),
        pytest.param(
            f"SELECT LAST_VALUE(src) OVER (PARTITION BY window ORDER BY port) AS r {KEYS}", ALL, id="one of equal rows"
        ),
        pytest.param(
            f"SELECT SUM(AVG(length)) OVER (PARTITION BY window ORDER BY port) AS r {KEYS}",
            "CAST them to DECIMAL", id="a running sum of floats",
        ),
        pytest.param(
            f"SELECT COUNT(*) OVER (PARTITION BY window ORDER BY port RANGE 1 PRECEDING) AS r {KEYS}",
            "RANGE has no numbers", id="RANGE with a number",
        ),
        pytest.param(
            f"SELECT RANK() OVER (PARTITION BY window ORDER BY port ROWS 1 PRECEDING) AS r {KEYS}",
            "rank takes no frame", id="a frame of a rank",
        ),
        pytest.param(
            f"SELECT COUNT(*) OVER (PARTITION BY window ROWS 1 PRECEDING) AS r {KEYS}", "add ORDER BY", id="ROWS"
        ),
        pytest.param(f"SELECT COUNT(DISTINCT src) OVER (PARTITION BY window) AS r {KEYS}", "DISTINCT", id="DISTINCT"),
        pytest.param(
            f"SELECT COUNT(*) FILTER (WHERE port > 1) OVER (PARTITION BY window) AS r {KEYS}", "FILTER", id="FILTER"
        ),
        pytest.param(
            f"SELECT NTILE(port) OVER (PARTITION BY window ORDER BY src) AS r {KEYS}", "whole number", id="ntile"
        ),
        pytest.param(
            f"SELECT NTH_VALUE(src, 2) OVER (PARTITION BY window) AS r {KEYS}", "known: row_number", id="others"
        ),
        pytest.param(f"SELECT rank(), src {KEYS}", "rank goes with OVER", id="without OVER"),
        pytest.param(f"SELECT RANK() OVER w AS r {KEYS}", "a WINDOW clause", id="a named window"),
        pytest.param(
            "SELECT ROW_NUMBER() OVER (PARTITION BY window ORDER BY n) AS r, v "
            f"FROM (SELECT *, map(src, n) AS v FROM {ANSWERS})",
            "have no order", id="rows whose content has no order",
        ),
        pytest.param(
            f"SELECT src, RANK() OVER (PARTITION BY window ORDER BY n) AS r FROM {ANSWERS} LIMIT 3",
            "LIMIT cannot stand here", id="LIMIT over answers",
        ),
        pytest.param(
            f"SELECT src, RANK() OVER (PARTITION BY src ORDER BY n) AS r FROM {ANSWERS}", "PARTITION BY window",
            id="all answers",
        ),
        pytest.param(
            "SELECT RANK() OVER (PARTITION BY src ORDER BY ts) AS r FROM packets", "write an aggregate OVER", id="rows"
        ),
    ],
)  # fmt: skip
def test_refused(sql: str, told: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", sql, streams)
    assert told in str(caught.value)
