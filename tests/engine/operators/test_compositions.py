"""Operators over operators, judged by DuckDB: each gets the results of others as it gets the rows of streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from joins import database, make_side, near, pipeline, play, windows
from world import SECOND, assert_same, results, write_epochs

import headrace as hr

JOIN = "FROM l [RANGE 4 s] JOIN r [RANGE 6 s] ON l.k = r.k"
QUERIES = {
    "recent": f"SELECT k, n, m, SUM(m) AS t, COUNT(*) AS c FROM (SELECT l.k AS k, l.n AS n, r.n AS m {JOIN}) AS j "
    "[PARTITION BY k ROWS 5]",
    "united": f"SELECT s, COUNT(*) AS c, SUM(v) AS t FROM (SELECT l.s AS s, r.n AS v {JOIN} "
    "UNION ALL SELECT s, n FROM r WHERE n % 2 = 0) AS u [WINDOW 10 s SLIDE 5 s] GROUP BY s",
    "two_joins": "SELECT k, COUNT(*) AS c, COUNT(m) AS met FROM ("
    "SELECT l.ts AS ts, l.k AS k, r.n AS m FROM l [RANGE 4 s] LEFT JOIN r [RANGE 2 s] ON l.k = r.k UNION ALL "
    "SELECT r.ts AS ts, r.k AS k, l.n AS m FROM l [RANGE 1 s] JOIN r [RANGE 5 s] ON l.s = r.s) AS u "
    "GROUP BY window(u.ts, '10 seconds'), k",
    "peak": "SELECT k, MAX(t) AS peak, COUNT(*) AS c FROM (SELECT k, SUM(n) AS t FROM l "
    "GROUP BY window(ts, '3 seconds'), k) AS m [WINDOW 12 s SLIDE 6 s] GROUP BY k",
    "busy": "SELECT MAX(t) AS peak, MIN(m.window.start) AS first FROM (SELECT window, k, SUM(n) AS t FROM l "
    "GROUP BY window(ts, '4 seconds', '2 seconds'), k HAVING COUNT(*) > 1) AS m "
    "GROUP BY window(m.window, '12 seconds')",
    "against": "SELECT l.n, a.t, a.e FROM l [RANGE 3 s] JOIN (SELECT k, SUM(n) AS t, window.end AS e FROM r "
    "GROUP BY window(ts, '5 seconds'), k) AS a [RANGE 8 s] ON l.k = a.k",
    "smooth": "SELECT k, MAX(a) AS top, COUNT(*) AS c FROM (SELECT k, ts, SUM(n) AS a FROM l [PARTITION BY k ROWS 3]) "
    "AS w GROUP BY window(w.ts, '10 seconds'), k",
    "three_levels": "SELECT COUNT(*) AS n, MAX(c) AS most FROM (SELECT k, COUNT(*) AS c FROM (SELECT l.k AS k, "
    f"r.ts AS ts {JOIN}) AS j GROUP BY window(j.ts, '5 seconds'), k) AS a [WINDOW 20 s] GROUP BY k % 2",
    "over_union": "SELECT u.n, r.n AS m FROM (SELECT k, n FROM l WHERE n % 2 = 0 UNION ALL SELECT l.k AS k, r.n AS n "
    "FROM l [RANGE 2 s] JOIN r [RANGE 2 s] ON l.s = r.s) AS u [RANGE 3 s] JOIN r [RANGE 1 s] ON u.k = r.k",
}


SPAN = "make_timestamptz(w.a), make_timestamptz(w.z)"
PAIRS = f"""SELECT l.k, l.s, l.n, r.n AS m, r.t AS rt, greatest(l.t, r.t) AS t
    FROM l JOIN r ON l.k = r.k AND {near("l", "r", 4, 6)}"""
ANSWERS = {
    # An answer is dated one microsecond before its window's end.
    "m3": windows("SELECT * FROM l", "k, sum(n)::bigint AS x, w.z - 1 AS t", "k", 3, 3),
    "m4": windows("SELECT * FROM l", "k, sum(n)::bigint AS x, w.a AS a, w.z - 1 AS t", "k", 4, 2, "count(*) > 1"),
    "r5": windows("SELECT * FROM r", "k, sum(n)::bigint AS x, w.z AS z, w.z - 1 AS t", "k", 5, 5),
    "j5": windows(f"SELECT k, rt AS t FROM ({PAIRS})", "k, count(*) AS c, w.z - 1 AS t", "k", 5, 5),
}
UNION = f"SELECT k, n, t FROM l WHERE n % 2 = 0 UNION ALL SELECT l.k, r.n, greatest(l.t, r.t) FROM l JOIN r " \
        f"ON l.s = r.s AND {near('l', 'r', 2, 2)}"  # fmt: skip
WANTED = {
    "recent": f"SELECT k, n, m, sum(m) OVER w, count(*) OVER w FROM ({PAIRS}) "
    "WINDOW w AS (PARTITION BY k ORDER BY t, n, m ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
    "united": windows(
        f"SELECT s, m AS v, t FROM ({PAIRS}) UNION ALL SELECT s, n, t FROM r WHERE n % 2 = 0",
        f"{SPAN}, s, count(*), sum(v)::bigint", "s", 10, 5,
    ),
    "two_joins": windows(
        f"SELECT l.t, l.k, r.n AS m FROM l LEFT JOIN r ON l.k = r.k AND {near('l', 'r', 4, 2)} UNION ALL "
        f"SELECT r.t, r.k, l.n FROM l JOIN r ON l.s = r.s AND {near('l', 'r', 1, 5)}",
        f"{SPAN}, k, count(*), count(m)", "k", 10, 10,
    ),
    "peak": windows(ANSWERS["m3"], f"{SPAN}, k, max(x), count(*)", "k", 12, 6),
    "busy": windows(ANSWERS["m4"], f"{SPAN}, max(x), make_timestamptz(min(rows.a))", "", 12, 12),
    "against": f"SELECT l.n, a.x, make_timestamptz(a.z) FROM l JOIN ({ANSWERS['r5']}) a "
    f"ON l.k = a.k AND {near('l', 'a', 3, 8)}",
    "smooth": windows(
        "SELECT k, t, sum(n) OVER (PARTITION BY k ORDER BY t, n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS x FROM l",
        f"{SPAN}, k, max(x)::bigint, count(*)", "k", 10, 10,
    ),
    "three_levels": windows(ANSWERS["j5"], f"{SPAN}, count(*), max(c)", "k % 2", 20, 20),
    "over_union": f"SELECT u.n, r.n FROM ({UNION}) u JOIN r ON u.k = r.k AND {near('u', 'r', 3, 1)}",
}  # fmt: skip


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, list[tuple[Any, ...]]]]:
    rng = np.random.default_rng(33)
    left, right = make_side(rng, 8, 30, 3, 6, hot=0.3), make_side(rng, 8, 30, 3, 6)
    home = tmp_path_factory.mktemp("compositions")
    return database(left, right), play(spark, home, left, right, QUERIES, restart=4, flush=True)


@pytest.mark.parametrize("name", QUERIES)
def test_operators_over_operators_equal_duckdb_across_a_restart(played: Any, name: str) -> None:
    connection, found = played
    wanted = connection.execute(WANTED[name]).fetchall()
    assert len(wanted) >= 5
    assert_same(found[name], wanted)


def test_queries_that_come_later_answer_windows_whose_rows_are_all_there(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(35)
    left, right = make_side(rng, 8, 30, 3, 6, hot=0.3), make_side(rng, 8, 30, 3, 6)
    for half, names in ((slice(0, 4), ["smooth"]), (slice(4, 8), ["smooth", "peak", "three_levels"])):
        write_epochs(tmp_path / "l", left[half], half.start)
        write_epochs(tmp_path / "r", right[half], half.start)
        pipe = pipeline(spark, tmp_path, {name: QUERIES[name] for name in names})
        pipe.start(spark, str(tmp_path / "state"), once=True, flush=half.start > 0).await_termination()
    before, connection = database(left[:4], right[:4]), database(left, right)
    seen = {name: before.execute(f"SELECT max(t) FROM {name}").fetchone()[0] for name in ("l", "r")}
    # Answers of 3 s may lack rows; pairs up to 6 s apart, and answers of 5 s about them.
    since = {"smooth": 0, "peak": seen["l"] + 3 * SECOND, "three_levels": max(seen.values()) + 11 * SECOND}
    for name, time_us in since.items():
        begin = connection.execute(f"SELECT make_timestamptz({time_us})").fetchone()[0]
        whole = [row for row in connection.execute(WANTED[name]).fetchall() if row[0] > begin]
        assert len(whole) >= 2
        assert_same(results(tmp_path / name), whole)


def numbered(state: Any, rows: Any) -> tuple[Any, Any]:
    """The rows of each key, numbered in the order of their time."""
    known = pl.from_arrow(state).rename({"n": "had"})
    new = pl.from_arrow(rows).with_columns(number=pl.int_range(1, pl.len() + 1).over("k"))
    told = new.join(known, on="k", how="left", maintain_order="left")
    told = told.select("k", "n", "m", number=pl.col("number") + pl.col("had").fill_null(0))
    kept = pl.concat([known.select("k", n="had"), told.select("k", n="number")]).group_by("k").agg(pl.col("n").max())
    return kept.to_arrow(), told.to_arrow()


def test_functions_over_joins_and_failures_below_queries(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(34)
    left, right = make_side(rng, 5, 30, 3, 6, hot=0.3), make_side(rng, 5, 30, 3, 6)
    answers = "(SELECT k, SUM(n) AS t FROM l GROUP BY window(ts, '3 seconds'), k) AS m [WINDOW 12 s SLIDE 6 s]"
    broken = answers.replace("SUM(n)", "1 / (COUNT(*) - COUNT(*))")
    queries = {
        "good": f"SELECT SUM(t) AS t, COUNT(*) AS c FROM {answers} GROUP BY k % 2",
        "bad": f"SELECT SUM(100 / (t % 2)) AS t FROM {answers} GROUP BY k % 2",
        "low": f"SELECT MAX(t) AS t FROM {broken}",
        "low_too": f"SELECT MIN(t) AS t FROM {broken}",
    }
    write_epochs(tmp_path / "l", left)
    write_epochs(tmp_path / "r", right)
    pipe = pipeline(spark, tmp_path, queries)
    pipe.query(
        "called",
        f"SELECT k, n, m FROM (SELECT l.k AS k, l.n AS n, r.n AS m {JOIN}) AS j [PARTITION BY k]",
        sink=hr.parquet(str(tmp_path / "called")),
        step=hr.step(numbered, state="k INT, n BIGINT", results="k INT, n BIGINT, m BIGINT, number BIGINT"),
    )
    run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True)
    run.await_termination()
    connection = database(left, right)
    good = windows(ANSWERS["m3"], f"{SPAN}, sum(x)::bigint, count(*)", "k % 2", 12, 6)
    assert_same(results(tmp_path / "good"), connection.execute(good).fetchall())
    called = f"SELECT k, n, m, row_number() OVER (PARTITION BY k ORDER BY t, n, m) FROM ({PAIRS})"
    assert_same(results(tmp_path / "called"), connection.execute(called).fetchall())
    told = run.status["queries"]
    failed = {name: query["cause"] for name, query in told.items() if query["state"] == "failed"}
    assert failed.keys() == {"bad", "low", "low_too"}, "of queries that read the same answers one fails alone"
    assert all("DIVIDE_BY_ZERO" in cause for cause in failed.values())
