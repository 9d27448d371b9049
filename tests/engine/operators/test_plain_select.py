"""SELECTs without a window against DuckDB: every admitted row once, in one job for all queries, nothing kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from world import SCHEMA, SECOND, admit, assert_same, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks

LATENESS_S = 20
UNION = "(SELECT k, i, ts FROM r WHERE i > 0 UNION ALL SELECT k, g AS i, ts FROM r2 WHERE g = 1)"
# By query its Spark SQL and, where DuckDB words it otherwise, DuckDB's.
QUERIES: dict[str, tuple[str, str | None]] = {
    "everything": ("SELECT * FROM r", None),
    "computed": ("SELECT k, upper(s) AS u, i * 2 AS d, x / 3 AS t, y FROM r WHERE i > 5", None),
    "nulls": ("SELECT coalesce(k, 'none') AS k, g IS NULL AS missing, day, d FROM r WHERE b IS NULL OR b", None),
    "not_a_number": ("SELECT y, isnan(y) AS is_nan FROM r WHERE isnan(y)", None),
    "twice": ("SELECT i AS a, i AS b, ts, 7 AS seven FROM r", None),
    "twin": ("SELECT i AS a, i AS b, ts, 7 AS seven FROM r", None),
    "nested": ("SELECT named_struct('k', k, 'i', i) AS pair, array(i, g) AS list FROM r",
               "SELECT {'k': k, 'i': i}, [i, g] FROM r"),
    "subquery": ("SELECT a + 1 AS b FROM (SELECT i AS a, k FROM r WHERE k = 'k0') AS q WHERE a < 100", None),
    "united": (f"SELECT k, i + 1 AS j, ts FROM {UNION} AS u WHERE k <> 'k1'", None),
    "nothing": ("SELECT i FROM r WHERE i > 1000000", None),
}  # fmt: skip


def pipeline(spark: Any, tmp_path: Path, queries: dict[str, str], **sinks: Any) -> hr.Pipeline:
    pipe = hr.Pipeline("plain")
    for name in ("r", "r2"):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
        pipe.stream(name, rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for name, sql in queries.items():
        pipe.query(name, sql, sink=sinks.get(name) or hr.parquet(str(tmp_path / "out" / name)))
    return pipe


def play(spark: Any, tmp_path: Path, pipe: hr.Pipeline, **rest: Any) -> list[Any]:
    seen: list[Any] = []
    run = pipe.start(spark, checkpoint=str(tmp_path / "state"), once=True, hooks=Hooks(on_epoch=seen.append), **rest)
    run.await_termination()
    return seen


def judge(sql: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in tables.items():
        connection.register(name, rows)
    return connection.execute(sql).fetchall()


def flat(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(str(value) if isinstance(value, dict | list) else value for value in row) for row in rows]


@pytest.mark.parametrize("io", ["arrow", "spark"])
def test_every_admitted_row_is_a_result_once_across_a_restart(spark: Any, tmp_path: Path, io: str) -> None:
    one, two = make_epochs(seed=3, epochs=6), make_epochs(seed=4, epochs=6)
    spark.conf.set("spark.headrace.state.io", io)
    try:
        for first, last in ((0, 3), (3, 6)):
            write_epochs(tmp_path / "r", one[first:last], first)
            write_epochs(tmp_path / "r2", two[first:last], first)
            pipe = pipeline(spark, tmp_path, {name: sql for name, (sql, _) in QUERIES.items()})
            seen = play(spark, tmp_path, pipe)
    finally:
        spark.conf.unset("spark.headrace.state.io")
    admitted = {"r": admit(one, LATENESS_S), "r2": admit(two, LATENESS_S)}
    assert admitted["r"].late > 0
    last = seen[-1]
    for name, (sql, theirs) in QUERIES.items():
        wanted = judge(theirs or sql, **{stream: each.rows for stream, each in admitted.items()})
        assert_same(flat(results(tmp_path / "out" / name)), flat(wanted))
        assert last.queries[name].rows == len(wanted), name
        assert last.queries[name].failed is None
    assert last.ledger["r"].late == admitted["r"].late
    assert last.ledger["r"].used == admitted["r"].rows.num_rows
    assert last.chunks == (), "nothing is kept between epochs"
    assert not list((tmp_path / "state" / "state").rglob("*.chunk"))


def test_jobs_per_epoch_do_not_grow_with_the_queries(spark: Any, tmp_path: Path) -> None:
    jobs = {}
    for count in (1, 30):
        home = tmp_path / str(count)
        write_epochs(home / "r", make_epochs(seed=5, epochs=3, rows=60))
        write_epochs(home / "r2", make_epochs(seed=6, epochs=3, rows=60))
        pipe = pipeline(spark, home, {f"q{n}": f"SELECT k, i + {n} AS v FROM r WHERE g <> {n}" for n in range(count)})
        jobs[count] = [manifest.observed.jobs for manifest in play(spark, home, pipe)]
    assert jobs[1] == jobs[30] == [2, 2, 2], "one to absorb, one to write"


def test_a_failing_cast_fails_only_its_query(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=7, epochs=2)
    write_epochs(tmp_path / "r", tables)
    write_epochs(tmp_path / "r2", tables)
    queries = {"bad": "SELECT CAST(s AS INT) AS n FROM r WHERE s IS NOT NULL", "good": "SELECT s FROM r"}
    last = play(spark, tmp_path, pipeline(spark, tmp_path, queries))[-1]
    assert "CAST_INVALID_INPUT" in (last.queries["bad"].failed or "")
    assert last.queries["good"].failed is None
    assert_same(results(tmp_path / "out" / "good"), judge("SELECT s FROM r", r=admit(tables, LATENESS_S).rows))


def test_other_sinks_get_the_same_rows(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=8, epochs=3)
    write_epochs(tmp_path / "r", tables)
    write_epochs(tmp_path / "r2", tables)
    sql = "SELECT k, i + 1 AS j, x FROM r WHERE i % 2 = 0"
    given: list[tuple[Any, ...]] = []

    def take(rows: Any, epoch: int) -> None:
        given.extend(tuple(row) for row in rows.collect())

    sinks = {"delta": hr.delta(str(tmp_path / "out" / "delta")), "json": hr.json(str(tmp_path / "out" / "json"))}
    pipe = pipeline(spark, tmp_path, dict.fromkeys(sinks, sql), **sinks)
    pipe.query("python", sql, sink=hr.call(take))
    last = play(spark, tmp_path, pipe)[-1]
    assert {state.failed for state in last.queries.values()} == {None}
    wanted = judge(sql, r=admit(tables, LATENESS_S).rows)
    assert_same(given, wanted)
    assert_same(results(tmp_path / "out" / "delta"), wanted)
    found = spark.read.schema("k STRING, j INT, x DOUBLE").json(str(tmp_path / "out" / "json")).collect()
    assert_same((tuple(row) for row in found), wanted)


def test_rows_of_answers_can_be_filtered(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=9, epochs=4)
    write_epochs(tmp_path / "r", tables)
    write_epochs(tmp_path / "r2", tables)
    sql = ("SELECT k, n * 2 AS m FROM (SELECT k, COUNT(*) AS n FROM r GROUP BY window(ts, '10 seconds'), k) AS a "
           "WHERE n > 2")  # fmt: skip
    play(spark, tmp_path, pipeline(spark, tmp_path, {"busy": sql}), flush=True)
    counted = f"SELECT k, count(*) AS n FROM r GROUP BY epoch_us(ts) // {10 * SECOND}, k"
    wanted = judge(f"SELECT k, n * 2 FROM ({counted}) WHERE n > 2", r=admit(tables, LATENESS_S).rows)
    assert_same(results(tmp_path / "out" / "busy"), wanted)


def test_a_query_that_is_added_has_the_rows_from_then_on(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=10, epochs=4)
    write_epochs(tmp_path / "r", tables[:2])
    write_epochs(tmp_path / "r2", tables[:1])
    queries = {"old": "SELECT i FROM r"}
    play(spark, tmp_path, pipeline(spark, tmp_path, queries))
    write_epochs(tmp_path / "r", tables[2:], 2)
    play(spark, tmp_path, pipeline(spark, tmp_path, queries | {"new": "SELECT i FROM r"}))
    before, after = admit(tables[:2], LATENESS_S).rows.num_rows, admit(tables, LATENESS_S).rows.num_rows
    assert len(results(tmp_path / "out" / "old")) == after
    assert len(results(tmp_path / "out" / "new")) == after - before
