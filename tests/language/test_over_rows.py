"""OVER with a frame of ROWS over rows that never end means what the bracket form means, or is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Stream

TEN = "OVER (PARTITION BY src ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
UNITED = """(SELECT src, length AS n, ts AS t FROM packets
    UNION ALL SELECT src, CAST(bytes AS INT) AS n, ts AS t FROM flows) AS u"""
ANSWERS = "(SELECT window, src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src) AS m"


@pytest.mark.parametrize(
    ("over", "bracket"),
    [
        pytest.param(
            f"SELECT src, length - AVG(length) {TEN} AS off FROM packets WHERE port > 1",
            "SELECT src, length - AVG(length) AS off FROM packets [PARTITION BY src ROWS 10] WHERE port > 1",
            id="a statistic beside a column of its row",
        ),
        pytest.param(
            f"SELECT MAX(length) {TEN} AS m, COUNT(DISTINCT port) FILTER (WHERE ok) {TEN} AS c FROM packets",
            "SELECT MAX(length) AS m, COUNT(DISTINCT port) FILTER (WHERE ok) AS c FROM packets "
            "[PARTITION BY src ROWS 10]",
            id="several over the same rows",
        ),
        pytest.param(
            "SELECT SUM(length) OVER (PARTITION BY upper(src), port ORDER BY p.ts ROWS 2 PRECEDING) AS n "
            "FROM packets AS p",
            "SELECT SUM(length) AS n FROM packets AS p [PARTITION BY upper(src), port ROWS 3]",
            id="a frame that ends at its row without saying so",
        ),
        pytest.param(
            "SELECT COUNT(*) OVER (PARTITION BY src ORDER BY ts ROWS CURRENT ROW) AS n FROM packets",
            "SELECT COUNT(*) AS n FROM packets [PARTITION BY src ROWS 1]",
            id="its row alone",
        ),
        pytest.param(
            f"SELECT FIRST_VALUE(n) OVER (PARTITION BY src ORDER BY u.t ROWS 4 PRECEDING) AS f FROM {UNITED}",
            f"SELECT FIRST_VALUE(n) AS f FROM {UNITED} [PARTITION BY src ROWS 5]",
            id="over a union",
        ),
        pytest.param(
            f"SELECT src, AVG(n) OVER (PARTITION BY src ORDER BY window ROWS 9 PRECEDING) AS a FROM {ANSWERS}",
            f"SELECT src, AVG(n) AS a FROM {ANSWERS} [PARTITION BY src ROWS 10]",
            id="over the answers of many windows",
        ),
        pytest.param(
            f"SELECT src, MAX(n) AS m FROM (SELECT src, SUM(length) {TEN} AS n FROM packets) AS q [WINDOW 1 min] "
            "GROUP BY src",
            "SELECT src, MAX(n) AS m FROM (SELECT src, SUM(length) AS n FROM packets [PARTITION BY src ROWS 10]) AS q "
            "[WINDOW 1 min] GROUP BY src",
            id="in a subquery",
        ),
    ],
)  # fmt: skip
def test_a_row_window_in_the_words_of_sql(over: str, bracket: str, streams: Mapping[str, Stream]) -> None:
    one, other = (bind_query("q", sql, streams) for sql in (over, bracket))
    assert (one.root, one.finish) == (other.root, other.finish)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        pytest.param("LAG(length) OVER (PARTITION BY src ORDER BY ts)", "lag OVER is about the rows of one",
                     id="a neighbour"),
        pytest.param("RANK() OVER (PARTITION BY src ORDER BY ts ROWS 3 PRECEDING)", "write an aggregate",
                     id="a rank"),
        pytest.param("SUM(length) OVER (ORDER BY ts ROWS 3 PRECEDING)", "needs PARTITION BY", id="no keys"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY port ROWS 3 PRECEDING)", "goes by their event time",
                     id="another order"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY ts DESC ROWS 3 PRECEDING)", "by their event time",
                     id="backwards"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY ts)", "needs a frame of so many rows", id="no frame"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY ts ROWS UNBOUNDED PRECEDING)",
                     "needs a frame of so many rows", id="all rows before it"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)",
                     "needs a frame of so many rows", id="rows to come"),
        pytest.param("SUM(length) OVER (PARTITION BY src ORDER BY ts ROWS 1000000 PRECEDING)", "the most is 1000000",
                     id="too many rows"),
        pytest.param(f"SUM(length) {TEN} AS a, SUM(length)", "an aggregate without OVER, beside one with it",
                     id="an aggregate of all rows"),
        pytest.param(f"SUM(length) {TEN} AS a, SUM(length) OVER (PARTITION BY dst ORDER BY ts ROWS 9 PRECEDING)",
                     "two frames of rows in one query", id="other keys"),
        pytest.param(f"SUM(MAX(length) {TEN}) {TEN}", "OVER", id="in itself"),
    ],
)  # fmt: skip
def test_refused(sql: str, told: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", f"SELECT {sql} AS x FROM packets", streams)
    assert told in str(caught.value)
