"""OVER: top n per key, shares, neighbours and running sums within the answers of windows, judged by DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from joins import database, make_side, play, windows
from world import assert_same

SIXES = """SELECT window, k, s, COUNT(*) AS c, SUM(n) AS t FROM l
    GROUP BY window(ts, '6 seconds', '3 seconds'), k, s"""
QUERIES = {
    # Rows that are equal in the order are numbered by their keys.
    "top": """SELECT k, s, c, r FROM (SELECT window, k, s, COUNT(*) AS c,
            ROW_NUMBER() OVER (PARTITION BY window, k ORDER BY COUNT(*) DESC) AS r
        FROM l GROUP BY window(ts, '6 seconds', '3 seconds'), k, s) AS t WHERE r <= 2""",
    "ranks": f"""SELECT t.window.end AS e, k, t, r, d FROM (SELECT *,
            RANK() OVER (PARTITION BY window ORDER BY c DESC) AS r,
            DENSE_RANK() OVER (PARTITION BY a.window.end ORDER BY c DESC) AS d,
            percent_rank() OVER (PARTITION BY window ORDER BY c) AS p
        FROM ({SIXES}) AS a WHERE t > 5) AS t WHERE d <= 2 AND p < 2""",
    "shares": """SELECT k, SUM(n) AS t, SUM(n) / SUM(SUM(n)) OVER (PARTITION BY window) AS share,
            LAG(SUM(n), 1, -1) OVER (PARTITION BY window ORDER BY k) AS b,
            SUM(SUM(n)) OVER (PARTITION BY window ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS near,
            LAST_VALUE(k) OVER (PARTITION BY window ORDER BY SUM(n), k
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS z
        FROM l GROUP BY window(ts, '10 seconds'), k HAVING COUNT(*) > 1""",
    "over_top": f"""SELECT COUNT(*) AS c, MAX(t) AS top FROM (SELECT *,
            RANK() OVER (PARTITION BY window ORDER BY t DESC) AS r FROM ({SIXES}) AS a) AS b
        WHERE r = 1 GROUP BY window(b.window, '12 seconds')""",
    "twice": f"""SELECT k, q FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window ORDER BY r, k, s) AS q
        FROM (SELECT window, k, s, RANK() OVER (PARTITION BY window ORDER BY c DESC) AS r FROM ({SIXES}) AS a) AS b
        WHERE r < 4) AS d WHERE q <= 3""",
}
ANSWERS = windows("SELECT * FROM l", "w.z AS z, k, s, count(*) AS c, sum(n)::bigint AS t", "k, s", 6, 3)
TENS = windows("SELECT * FROM l", "w.a, w.z, k, sum(n)::bigint AS t", "k", 10, 10, "count(*) > 1")
MOST = f"""SELECT z - 1 AS t, y, rank() OVER (PARTITION BY z ORDER BY y DESC) AS r
    FROM (SELECT z, t AS y FROM ({ANSWERS}))"""
WANTED = {
    "top": f"""SELECT k, s, c, r FROM (SELECT *,
        row_number() OVER (PARTITION BY z, k ORDER BY c DESC, s NULLS FIRST) AS r FROM ({ANSWERS})) WHERE r <= 2""",
    "ranks": f"""SELECT make_timestamptz(z), k, t, r, d FROM (SELECT *,
            rank() OVER (PARTITION BY z ORDER BY c DESC) AS r, dense_rank() OVER (PARTITION BY z ORDER BY c DESC) AS d
        FROM ({ANSWERS}) WHERE t > 5) WHERE d <= 2""",
    "shares": f"""SELECT make_timestamptz(a), make_timestamptz(z), k, t, t / sum(t) OVER (PARTITION BY z),
            lag(t, 1, -1) OVER o, (sum(t) OVER (o ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING))::bigint,
            last_value(k) OVER (PARTITION BY z ORDER BY t, k NULLS FIRST
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        FROM ({TENS}) WINDOW o AS (PARTITION BY z ORDER BY k NULLS FIRST)""",
    "over_top": windows(
        f"SELECT * FROM ({MOST}) WHERE r = 1",
        "make_timestamptz(w.a), make_timestamptz(w.z), count(*), max(y)", "", 12, 12,
    ),
    "twice": f"""SELECT k, q FROM (SELECT *,
            row_number() OVER (PARTITION BY z ORDER BY r, k NULLS FIRST, s NULLS FIRST) AS q
        FROM (SELECT *, rank() OVER (PARTITION BY z ORDER BY c DESC) AS r FROM ({ANSWERS})) WHERE r < 4)
        WHERE q <= 3""",
}  # fmt: skip


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, list[tuple[Any, ...]]]]:
    rng = np.random.default_rng(71)
    left, right = make_side(rng, 6, 40, 3, 5, hot=0.3), make_side(rng, 6, 5, 3, 5)
    home = tmp_path_factory.mktemp("over")
    return database(left, right), play(spark, home, left, right, QUERIES, restart=3, flush=True)


@pytest.mark.parametrize("name", QUERIES)
def test_what_over_says_of_the_rows_of_a_window_equals_duckdb_across_a_restart(played: Any, name: str) -> None:
    connection, found = played
    wanted = connection.execute(WANTED[name]).fetchall()
    assert len(wanted) >= 5
    assert_same(found[name], wanted)
