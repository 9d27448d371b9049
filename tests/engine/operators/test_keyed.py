"""Row windows and functions in epochs: equal to DuckDB whatever moves, waits on disk, is shared or lost.

Across restarts, too, and whichever way tasks get at files: opened by themselves (`arrow`), carried by Spark (`spark`).
"""

from __future__ import annotations

import os
import random
import signal
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
    "counted": (("k, i", "k", 1_000_000, ""), "k, i, count(*) OVER w"),
}  # fmt: skip


def running_count(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """For each row how many its key has had."""
    counts = {row["k"]: row["n"] for row in state.to_pylist()}
    told = []
    for row in rows.to_pylist():
        counts[row["k"]] = counts.get(row["k"], 0) + 1
        told.append({"k": row["k"], "i": row["i"], "n": counts[row["k"]]})
    results = pa.schema([("k", pa.string()), ("i", pa.int32()), ("n", pa.int64())])
    kept = [{"k": k, "n": n} for k, n in counts.items()]
    return pa.Table.from_pylist(kept, state.schema), pa.Table.from_pylist(told, results)


COUNT = hr.step(running_count, state="k STRING, n BIGINT", results="k STRING, i INT, n BIGINT")


def expected(rows: pa.Table, name: str) -> list[tuple[Any, ...]]:
    (_, keys, n, where), duck = QUERIES[name]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", rows)
    return connection.execute(
        f"SELECT {duck} FROM r {where} WINDOW w AS (PARTITION BY {keys} ORDER BY ts"
        f" ROWS BETWEEN {n - 1} PRECEDING AND CURRENT ROW)"
    ).fetchall()


def run(
    spark: Any, home: Path, flush: bool, on_epoch: Callable[[Manifest], None] = lambda manifest: None, io: str = "auto"
) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("keyed").stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for name, ((select, keys, n, where), _) in QUERIES.items():
        step = COUNT if name == "counted" else None
        window = f"PARTITION BY {keys}" if step else f"PARTITION BY {keys} ROWS {n}"
        sink = hr.parquet(str(home / "out" / name))
        pipe.query(name, f"SELECT {select} FROM r [{window}] {where}", sink=sink, step=step)
    spark.conf.set("spark.headrace.state.io", io)
    try:
        started = pipe.start(spark, str(home / "state"), once=True, flush=flush, hooks=Hooks(on_epoch=on_epoch))
        started.await_termination()
    finally:
        spark.conf.unset("spark.headrace.state.io")
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


@pytest.mark.parametrize(
    "ios",
    [
        pytest.param(("arrow", "arrow"), id="opened by tasks"),
        pytest.param(("spark", "spark"), id="carried by Spark"),
        pytest.param(("arrow", "spark"), id="opened by tasks, then carried"),
        pytest.param(("spark", "arrow"), id="carried, then opened by tasks"),
    ],
)
def test_results_equal_duckdb_across_a_restart(
    spark: Any, tmp_path: Path, few_minis: None, no_moves: None, ios: tuple[str, str]
) -> None:
    tables = unique_times(make_epochs(seed=61, epochs=7, rows=150))
    seen: list[Manifest] = []
    write_epochs(tmp_path / "in", tables[:4])
    run(spark, tmp_path, flush=False, on_epoch=seen.append, io=ios[0])
    assert {path.name for path in (tmp_path / "state" / "state").glob("*.chunk")} == {c.name for c in seen[-1].chunks}
    write_epochs(tmp_path / "in", tables[4:], first=4)
    run(spark, tmp_path, flush=True, on_epoch=seen.append, io=ios[1])
    check(tmp_path, tables)
    observed = [manifest.observed.flows["plain"] for manifest in seen]
    loads = [bool(each.loaded_bytes) for each in observed]
    assert loads == [False] * 4 + [True] + [False] * (len(loads) - 5), "state is read after the restart, and never else"
    places = [each.places for each in observed[4:]]
    assert all(place == places[0] for place in places), "bins stay in their processes"
    # To absorb, and to work on all bins; where results are finished by SQL, to write those.
    assert {manifest.observed.jobs for manifest in seen} <= {2, 3}


def test_a_process_that_dies_costs_a_job_where_spark_carries_files(
    spark: Any, tmp_path: Path, few_minis: None, no_moves: None
) -> None:
    tables = unique_times(make_epochs(seed=62, epochs=5, rows=150))
    write_epochs(tmp_path / "in", tables)
    seen: list[Manifest] = []

    def kill(manifest: Manifest) -> None:
        seen.append(manifest)
        if len(seen) == 3:
            place = manifest.observed.flows["plain"].places[1]
            assert place is not None
            os.kill(int(place.rpartition(":")[2]), signal.SIGKILL)

    run(spark, tmp_path, flush=True, on_epoch=kill, io="spark")
    check(tmp_path, tables)
    observed = [manifest.observed.flows["plain"] for manifest in seen]
    owned = tuple(mini for mini, owner in enumerate(seen[3].flows["plain"].owners) if owner == 1)
    assert [each.loaded for each in observed[1:]] == [(), (), owned, *[()] * (len(seen) - 4)]
    jobs = [manifest.observed.jobs for manifest in seen]
    # To absorb, to work on all bins, to bring the bin what it lost, to write what SQL finishes.
    assert jobs[3] == 4
    assert set(jobs[:3] + jobs[4:]) <= {2, 3}


@pytest.mark.parametrize(
    ("seed", "ios"),
    [
        pytest.param(1, ("arrow", "arrow", "arrow"), id="opened by tasks"),
        pytest.param(2, ("spark", "spark", "spark"), id="carried by Spark"),
        pytest.param(3, ("spark", "arrow", "spark"), id="in turns"),
    ],
)
def test_whatever_is_decided_results_are_the_same(
    spark: Any, tmp_path: Path, few_minis: None, monkeypatch: pytest.MonkeyPatch, seed: int, ios: tuple[str, ...]
) -> None:
    chaos = Chaos(random.Random(seed))
    tables = unique_times(make_epochs(seed=70 + seed, epochs=9, rows=120))
    monkeypatch.setattr(keyed, "decide_keyed", chaos)
    monkeypatch.setattr(keyed, "SNAPSHOT_EPOCHS", 3)
    for first, io in zip((0, 3, 6), ios, strict=True):
        write_epochs(tmp_path / "in", tables[first : first + 3], first=first)
        run(spark, tmp_path, flush=False, io=io)
    assert min(chaos.moves, chaos.waits, chaos.splits) > 0
    # In the end nothing waits: everything that came has an answer.
    monkeypatch.undo()
    spark.conf.set("spark.headrace.flux.minis", "4")
    run(spark, tmp_path, flush=True, io=ios[0])
    check(tmp_path, tables)
