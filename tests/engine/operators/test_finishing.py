"""What comes after the aggregates: WHERE, HAVING, ORDER BY ... LIMIT per window, DISTINCT; and sketches' errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr

WINDOW = "[WINDOW 60 s SLIDE 20 s]"
QUERIES = {
    "top": f"SELECT s, COUNT(*) AS n, SUM(l) AS v FROM r {WINDOW} GROUP BY s ORDER BY v DESC NULLS LAST LIMIT 3",
    "top_by_sql": f"SELECT s, COUNT(*) + 0 AS n FROM r {WINDOW} GROUP BY s ORDER BY SUM(l) DESC NULLS LAST LIMIT 3",
    "page": f"SELECT s, COUNT(*) AS n, SUM(l) AS v FROM r {WINDOW} GROUP BY s ORDER BY v DESC NULLS LAST"
    " LIMIT 3 OFFSET 2",
    "page_by_sql": f"SELECT s, COUNT(*) + 0 AS n FROM r {WINDOW} GROUP BY s ORDER BY SUM(l) DESC NULLS LAST"
    " LIMIT 3 OFFSET 2",
    "filtered": f"SELECT k, COUNT(*) AS n FROM r {WINDOW} WHERE i > 100 AND s IS NOT NULL GROUP BY k"
    " HAVING COUNT(*) > 2",
    "distinct": f"SELECT DISTINCT COUNT(*) > 3 AS many FROM r {WINDOW} GROUP BY k",
    "projected": f"SELECT m, SUM(j) AS v FROM (SELECT i * 2 AS j, g % 2 AS m FROM r WHERE g > 0) x {WINDOW} GROUP BY m",
    "approx": f"SELECT k, approx_count_distinct(l) AS a, approx_percentile(x, 0.9) AS b, approx_top_k(s, 3) AS c,"
    f" approx_percentile(i, 0.5, 100) AS d FROM r {WINDOW} GROUP BY k",
}


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    home = tmp_path_factory.mktemp("finish")
    tables = make_epochs(seed=31, epochs=8)
    write_epochs(home / "in", tables)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("finish").stream("r", rows, time="ts", lateness="20 seconds")
    for name, sql in QUERIES.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / name)))
    pipe.start(spark, str(home / "state"), bins=2, once=True, flush=True).await_termination()
    return home, admit(tables, 20).rows


def ranked(rows: Any, select: str, first: int = 1, last: int = 3) -> list[tuple[Any, ...]]:
    found = expected(rows, "s, count(*) AS n, sum(l) AS v", "s", 60, 20, False)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE t (a TIMESTAMPTZ, z TIMESTAMPTZ, s VARCHAR, n BIGINT, v HUGEINT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", found)
    order = "ORDER BY v DESC NULLS LAST"
    return connection.execute(
        f"SELECT a, z, {select} FROM t QUALIFY row_number() OVER (PARTITION BY z {order}) BETWEEN {first} AND {last}"
    ).fetchall()


def test_the_first_rows_of_each_window(world: tuple[Path, Any]) -> None:
    assert_same(results(world[0] / "top"), ranked(world[1], "s, n, v"))


def test_the_first_rows_of_each_window_when_spark_finishes(world: tuple[Path, Any]) -> None:
    assert_same(results(world[0] / "top_by_sql"), ranked(world[1], "s, n"))


def test_the_rows_after_the_first_of_each_window(world: tuple[Path, Any]) -> None:
    assert_same(results(world[0] / "page"), ranked(world[1], "s, n, v", 3, 5))
    assert_same(results(world[0] / "page_by_sql"), ranked(world[1], "s, n", 3, 5))


def test_where_and_having(world: tuple[Path, Any]) -> None:
    where = "i > 100 AND s IS NOT NULL"
    wanted = [r for r in expected(world[1], "k, count(*)", "k", 60, 20, False, where) if r[3] > 2]
    assert_same(results(world[0] / "filtered"), wanted)


def test_distinct_results(world: tuple[Path, Any]) -> None:
    wanted = {(a, z, n > 3) for a, z, _, n in expected(world[1], "k, count(*)", "k", 60, 20, False)}
    assert_same(results(world[0] / "distinct"), wanted)


def test_a_projected_and_filtered_stream(world: tuple[Path, Any]) -> None:
    wanted = expected(world[1], "g % 2 AS m, sum(i * 2)::bigint", "g % 2", 60, 20, False, "g > 0")
    assert_same(results(world[0] / "projected"), wanted)


def test_sketches_are_within_their_stated_errors(world: tuple[Path, Any]) -> None:
    select = "k, count(DISTINCT l), quantile_disc(x, 0.9), histogram(s), count(s), quantile_disc(i, 0.5)"
    exact = {(str(r[1]), r[2]): r[3:] for r in expected(world[1], select, "k", 60, 20, False)}
    found = {(str(r[1]), r[2]): r[3:] for r in results(world[0] / "approx")}
    assert {k for _, k in found} == {k for _, k in exact}
    assert len(found) == len(exact)
    by_key = {(z[:19], k): value for (z, k), value in exact.items()}
    for (z, k), (distinct, percentile, top, median) in found.items():
        true_distinct, true_percentile, counts, n, true_median = by_key[z[:19], k]
        # 2.3 % standard error: four of them, and three values that happen to share a register.
        assert abs(distinct - true_distinct) <= 3 + 4 * 0.023 * true_distinct
        assert percentile is None or abs(percentile - true_percentile) <= 0.0101 * abs(true_percentile)
        assert median is None or abs(median - true_median) <= 0.0101 * abs(true_median) + 0.5
        assert [i["count"] for i in top or []] == sorted((i["count"] for i in top or []), reverse=True)
        assert all(i["count"] == counts[i["item"]] for i in top or []), "30 words fit in 1000 counters: exact"
        assert len(top or []) == min(3, len(counts or {})) or n == 0
