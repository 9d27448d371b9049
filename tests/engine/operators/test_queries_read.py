"""Queries that read others' results by name, judged by DuckDB, across a restart and a change of what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joins import database, make_side, near, pipeline, play, windows
from world import assert_same, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.errors import SpecError

QUERIES = {
    "sums": "SELECT k, SUM(n) AS t, COUNT(*) AS c FROM l GROUP BY window(ts, '3 seconds'), k -- of three seconds",
    "peaks": "SELECT k, MAX(t) AS peak, COUNT(*) AS c FROM Sums [WINDOW 12 s SLIDE 6 s] GROUP BY k",
    "great": "SELECT * FROM sums WHERE t > 40",
    "even": "SELECT ts, k, n FROM l WHERE n % 2 = 0",
    "evens": "SELECT k, COUNT(*) AS c FROM even GROUP BY window(ts, '10 seconds'), k",
    "met": "SELECT e.n, s.t, s.window_end AS z FROM even AS e [RANGE 3 s] JOIN sums AS s [RANGE 8 s] ON e.k = s.k",
    "first": "SELECT k, SUM(n) AS t FROM l GROUP BY window(ts, '5 seconds'), 1 ORDER BY 2 DESC, 1 LIMIT 2",
    "firsts": "WITH l AS (SELECT k, t FROM first) SELECT COUNT(*) AS c, SUM(t) AS t FROM l [WINDOW 20 s] "
    "GROUP BY k % 2",
}
SPAN = "make_timestamptz(w.a), make_timestamptz(w.z)"
SUMS = windows("SELECT * FROM l", "k, sum(n)::bigint AS x, count(*) AS c, w.a AS a, w.z AS z, w.z - 1 AS t", "k", 3, 3)
FIVES = windows("SELECT * FROM l", "k, sum(n)::bigint AS x, w.z - 1 AS t", "k", 5, 5)
RANKED = "row_number() OVER (PARTITION BY t ORDER BY x DESC, k NULLS FIRST) AS p"
FIRST = f"SELECT * FROM (SELECT *, {RANKED} FROM ({FIVES})) WHERE p <= 2"
WANTED = {
    "peaks": windows(SUMS, f"{SPAN}, k, max(x), count(*)", "k", 12, 6),
    "great": f"SELECT k, x, c, make_timestamptz(a), make_timestamptz(z) FROM ({SUMS}) WHERE x > 40",
    "evens": windows("SELECT * FROM l WHERE n % 2 = 0", f"{SPAN}, k, count(*)", "k", 10, 10),
    "met": f"SELECT l.n, s.x, make_timestamptz(s.z) FROM (SELECT * FROM l WHERE n % 2 = 0) l JOIN ({SUMS}) s "
    f"ON l.k = s.k AND {near('l', 's', 3, 8)}",
    "firsts": windows(FIRST, f"{SPAN}, count(*), sum(x)::bigint", "k % 2", 20, 20),
}


def test_results_read_by_name_equal_duckdb_across_a_restart(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(51)
    left, right = make_side(rng, 8, 30, 3, 6, hot=0.3), make_side(rng, 8, 30, 3, 6)
    found = play(spark, tmp_path, left, right, QUERIES, restart=4, flush=True)
    connection = database(left, right)
    for name, judge in WANTED.items():
        wanted = connection.execute(judge).fetchall()
        assert len(wanted) >= 5, name
        assert_same(found[name], wanted)


def test_what_reads_a_query_goes_on_without_it_and_starts_anew_with_another(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(52)
    left, right = make_side(rng, 6, 30, 3, 6), make_side(rng, 6, 30, 3, 6)
    told: list[str] = []
    for half, sums in ((slice(0, 3), QUERIES["sums"]), (slice(3, 6), QUERIES["sums"].replace("SUM(n)", "MAX(n)"))):
        write_epochs(tmp_path / "l", left[half], half.start)
        write_epochs(tmp_path / "r", right[half], half.start)
        run = pipeline(spark, tmp_path, {"sums": sums, "great": QUERIES["great"], "evens": QUERIES["even"]}).start(
            spark, str(tmp_path / "state"), hooks=Hooks(on_note=told.append)
        )
        run.process_all_available()
        if half.start == 0:
            run.drop_query("sums")
            run.add_query("later", "SELECT k, t FROM great WHERE t % 2 = 0", sink=hr.parquet(str(tmp_path / "later")))
            with pytest.raises(SpecError, match="unknown stream 'sums'"):
                run.add_query("none", "SELECT k FROM sums")
            write_epochs(tmp_path / "l", left[3:], 3)
            write_epochs(tmp_path / "r", right[3:], 3)
            run.process_all_available()
            run.flush()
            whole = database(left, right).execute(WANTED["great"]).fetchall()
            assert_same(results(tmp_path / "great"), whole)
            assert results(tmp_path / "later")
            run.stop()
            continue
        run.stop()
    assert any("query 'great'" in note and "anew" in note for note in told), told
