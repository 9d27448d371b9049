"""Row windows in epochs: equal to DuckDB whatever moves, waits on disk or is shared, across restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from keyed_chaos import Chaos
from world import SCHEMA, admit, assert_same, make_epochs, results, unique_times, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.engine.operators import keyed

LATENESS_S = 20
# name: (select list, keys, rows, the rest), and what DuckDB selects
QUERIES: dict[str, tuple[tuple[str, str, int, str], str]] = {
    "plain": (("k, ts, i, SUM(i) AS a, COUNT(*) AS n, MAX(s) AS m", "k", 5, ""),
              "k, ts, i, sum(i) OVER w, count(*) OVER w, max(s) OVER w"),
    "by_sql": (("g, ts, i, AVG(x) - MIN(x) + 1 AS a, MEDIAN(i) AS m", "g, b", 40, "WHERE i IS NOT NULL"),
               "g, ts, i, avg(x) OVER w - min(x) OVER w + 1, median(i) OVER w"),
}  # fmt: skip


def expected(rows: pa.Table, name: str) -> list[tuple[Any, ...]]:
    (_, keys, n, where), duck = QUERIES[name]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", rows)
    return connection.execute(
        f"SELECT {duck} FROM r {where} WINDOW w AS (PARTITION BY {keys} ORDER BY ts"
        f" ROWS BETWEEN {n - 1} PRECEDING AND CURRENT ROW)"
    ).fetchall()


def run(spark: Any, home: Path, flush: bool, on_epoch: Callable[[Manifest], None] = lambda manifest: None) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("keyed").stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for name, ((select, keys, n, where), _) in QUERIES.items():
        sql = f"SELECT {select} FROM r [PARTITION BY {keys} ROWS {n}] {where}"
        pipe.query(name, sql, sink=hr.parquet(str(home / "out" / name)))
    started = pipe.start(spark, str(home / "state"), once=True, flush=flush, hooks=Hooks(on_epoch=on_epoch))
    started.await_termination()
    return started


def check(home: Path, tables: list[pa.Table]) -> None:
    admission = admit(tables, LATENESS_S)
    for name in QUERIES:
        assert_same(results(home / "out" / name), expected(admission.rows, name))


@pytest.fixture
def few_minis(spark: Any) -> Any:
    spark.conf.set("spark.headrace.flux.minis", "4")
    yield
    spark.conf.unset("spark.headrace.flux.minis")


@pytest.fixture
def no_moves(spark: Any) -> Any:
    spark.conf.set("spark.headrace.flux.moves", "off")
    yield
    spark.conf.unset("spark.headrace.flux.moves")


def test_results_equal_duckdb_across_a_restart(spark: Any, tmp_path: Path, few_minis: None, no_moves: None) -> None:
    tables = unique_times(make_epochs(seed=61, epochs=7, rows=150))
    seen: list[Manifest] = []
    write_epochs(tmp_path / "in", tables[:4])
    run(spark, tmp_path, flush=False, on_epoch=seen.append)
    assert {path.name for path in (tmp_path / "state" / "state").glob("*.chunk")} == {c.name for c in seen[-1].chunks}
    write_epochs(tmp_path / "in", tables[4:], first=4)
    run(spark, tmp_path, flush=True, on_epoch=seen.append)
    check(tmp_path, tables)
    observed = [manifest.observed.flows["plain"] for manifest in seen]
    loads = [bool(each.loaded_bytes) for each in observed]
    assert loads == [False] * 4 + [True] + [False] * (len(loads) - 5), "state is read after the restart, and never else"
    places = [each.places for each in observed[4:]]
    assert all(place == places[0] for place in places), "bins stay in their processes"


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_decided_results_are_the_same(
    spark: Any, tmp_path: Path, few_minis: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chaos = Chaos(random.Random(seed))
    tables = unique_times(make_epochs(seed=70 + seed, epochs=9, rows=120))
    monkeypatch.setattr(keyed, "decide_keyed", chaos)
    monkeypatch.setattr(keyed, "SNAPSHOT_EPOCHS", 3)
    for first, last in ((0, 3), (3, 6), (6, 9)):
        write_epochs(tmp_path / "in", tables[first:last], first=first)
        run(spark, tmp_path, flush=False)
    assert min(chaos.moves, chaos.waits, chaos.splits) > 0
    # In the end nothing waits: everything that came has an answer.
    monkeypatch.undo()
    spark.conf.set("spark.headrace.flux.minis", "4")
    run(spark, tmp_path, flush=True)
    check(tmp_path, tables)
