"""Forms of SQL in one pipeline, judged by DuckDB: OVER in the answers of windows, GROUP BY at several
levels, windows that cumulate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from joins import database, make_side, play, windows
from world import SECOND, assert_same

SIXES = """SELECT window, k, s, COUNT(*) AS c, SUM(n) AS t FROM l
    GROUP BY window(ts, '6 seconds', '3 seconds'), k, s"""
FIVE = "window(ts, '5 seconds')"
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
    "rollup": """SELECT k, s, COUNT(*) AS c, SUM(n) AS t, COUNT(DISTINCT n % 3) AS d, MAX(k) AS m, GROUPING(s) AS g,
            grouping_id() AS i
        FROM l GROUP BY window(ts, '6 seconds', '3 seconds'), ROLLUP (k, s) HAVING COUNT(*) > 1""",
    "cube": """SELECT k, u.n % 3 AS e, COUNT(*) AS c, AVG(x) AS a FROM (SELECT k, n, x, ts FROM l WHERE x < 5 UNION ALL
            SELECT k, n, x, ts FROM r WHERE x < 5) AS u GROUP BY window(u.ts, '10 seconds'), CUBE (k, u.n % 3)""",
    "sets": f"""SELECT i, MAX(c) AS c, COUNT(*) AS n FROM (SELECT window, grouping_id(k, s) AS i, COUNT(*) AS c FROM l
            GROUP BY GROUPING SETS (({FIVE}, k), ({FIVE}, s), ({FIVE}))) AS a
        GROUP BY window(a.window, '15 seconds'), i""",
    "so_far": """SELECT k, COUNT(*) AS c, SUM(n) AS t, MAX(x) AS m, COUNT(DISTINCT s) AS d, MEDIAN(n) AS h
        FROM l [WINDOW 12 s CUMULATE 4 s] GROUP BY k""",
    "so_far_in_all": "SELECT COUNT(*) AS c, GROUPING(k) AS g FROM r [WINDOW 20 s CUMULATE 5 s] GROUP BY ROLLUP (k)",
    "so_far_most": """SELECT a.window.start AS a, e, k, t FROM (SELECT window, window_end AS e, k, SUM(n) AS t,
            RANK() OVER (PARTITION BY window_end ORDER BY SUM(n) DESC) AS r
        FROM l [WINDOW 12 s CUMULATE 4 s] GROUP BY k) AS a WHERE r = 1""",
}
ANSWERS = windows("SELECT * FROM l", "w.z AS z, k, s, count(*) AS c, sum(n)::bigint AS t", "k, s", 6, 3)
TENS = windows("SELECT * FROM l", "w.a, w.z, k, sum(n)::bigint AS t", "k", 10, 10, "count(*) > 1")


def cumulated(rows: str, select: str, group_by: str, size_s: int, step_s: int) -> str:
    """The SELECT over the windows that hold rows and begin at multiples of the size and end at each step."""
    size, step = size_s * SECOND, step_s * SECOND
    return f"""
        WITH rows AS ({rows}), w AS (
            SELECT (e - 1) // {size} * {size} AS a, e AS z FROM (SELECT min(t) AS f, max(t) AS g FROM rows),
            range(f // {step} * {step} + {step}, g + {size} + 1, {step}) x(e))
        SELECT {select} FROM w JOIN rows ON rows.t >= w.a AND rows.t < w.z GROUP BY w.a, w.z, {group_by}
    """


SO_FAR = cumulated("SELECT * FROM l", "w.a, w.z, k, sum(n)::bigint AS t", "k", 12, 4)
BOTH = "SELECT k, n, x, t FROM l WHERE x < 5 UNION ALL SELECT k, n, x, t FROM r WHERE x < 5"
LEVELS = windows(
    "SELECT * FROM l", "w.z - 1 AS t, grouping_id(k, s) AS i, count(*) AS c", "GROUPING SETS ((k), (s), ())", 5, 5
)
SPAN = "make_timestamptz(w.a), make_timestamptz(w.z)"
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
        f"{SPAN}, count(*), max(y)", "", 12, 12,
    ),
    "twice": f"""SELECT k, q FROM (SELECT *,
            row_number() OVER (PARTITION BY z ORDER BY r, k NULLS FIRST, s NULLS FIRST) AS q
        FROM (SELECT *, rank() OVER (PARTITION BY z ORDER BY c DESC) AS r FROM ({ANSWERS})) WHERE r < 4)
        WHERE q <= 3""",
    "rollup": windows(
        "SELECT * FROM l",
        f"{SPAN}, k, s, count(*), sum(n)::bigint, count(DISTINCT n % 3), max(k), grouping(s), grouping_id(k, s)",
        "ROLLUP (k, s)", 6, 3, "count(*) > 1",
    ),
    "cube": windows(BOTH, f"{SPAN}, k, n % 3, count(*), avg(x)", "CUBE (k, n % 3)", 10, 10),
    "sets": windows(LEVELS, f"{SPAN}, i, max(c), count(*)", "i", 15, 15),
    "so_far": cumulated(
        "SELECT * FROM l", f"{SPAN}, k, count(*), sum(n)::bigint, max(x), count(DISTINCT s), median(n)", "k", 12, 4
    ),
    "so_far_in_all": cumulated("SELECT * FROM r", f"{SPAN}, count(*), grouping(k)", "ROLLUP (k)", 20, 5),
    "so_far_most": f"""SELECT make_timestamptz(a), make_timestamptz(z), k, t FROM (SELECT *,
        rank() OVER (PARTITION BY z ORDER BY t DESC) AS r FROM ({SO_FAR})) WHERE r = 1""",
}  # fmt: skip


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, list[tuple[Any, ...]]]]:
    rng = np.random.default_rng(71)
    left, right = make_side(rng, 4, 60, 8, 5, hot=0.3), make_side(rng, 4, 30, 8, 5)
    home = tmp_path_factory.mktemp("forms")
    return database(left, right), play(spark, home, left, right, QUERIES, restart=2, flush=True)


@pytest.mark.parametrize("name", QUERIES)
def test_what_queries_say_equals_duckdb_across_a_restart(played: Any, name: str) -> None:
    connection, found = played
    wanted = connection.execute(WANTED[name]).fetchall()
    assert len(wanted) >= 4
    assert_same(found[name], wanted)
