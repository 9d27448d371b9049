"""Whose a failure is, on Spark: values fail their query and nothing else, storage that is away fails no query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from world import SECOND, START, assert_same, expected, results, write_epochs

import headrace as hr
from headrace.engine import Hooks

# What faults of machines and of state are called: here they are values of rows.
WORDS = (
    "cancelled",
    "java.io.IOException",
    "OSError: x",
    "CorruptStateError: x",
    "Interrupted",
    "LockedError: x",
)
COLUMNS = [f"s{i}" for i in range(len(WORDS))]
SCHEMA = ", ".join(["ts TIMESTAMP", "k STRING", "i INT", *(f"{name} STRING" for name in COLUMNS)])
WINDOW = "FROM r [WINDOW 20 s SLIDE 20 s]"
# Casts that fail while rows are absorbed, and some that fail when windows are answered.
BAD = {f"absorbs{i}": f"SUM(CAST({name} AS INT))" for i, name in enumerate(COLUMNS)}
BAD |= {f"answers{i}": f"CAST(MAX({name}) AS INT)" for i, name in enumerate(COLUMNS) if i in (0, 3)}
AGAIN = ("absorbs0", "absorbs3", "answers0")
GOOD = f"SELECT k, SUM(i) AS v {WINDOW} GROUP BY k"


def epoch(number: int, *, poisoned: bool = False) -> pa.Table:
    """Twenty seconds of rows whose texts are numbers, but for a row of words if it is poisoned."""
    ts = [START + number * 20 * SECOND + n * SECOND for n in range(20)]
    texts = {name: [str(n) for n in range(20)] for name in COLUMNS}
    if poisoned:
        for name, word in zip(COLUMNS, WORDS, strict=True):
            texts[name][7] = word
    keys = [f"k{n % 3}" for n in range(20)]
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "k": keys,
                     "i": pa.array(range(20), pa.int32()), **texts})  # fmt: skip


def stream(spark: Any, home: Path) -> hr.Pipeline:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    return hr.Pipeline("failing").stream("r", rows, time="ts", lateness="0 seconds")


def test_a_row_that_speaks_of_machines_fails_its_query_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    tables: list[pa.Table] = []
    # After a restart queries that have failed start anew, and meet the words again.
    for life, bad in enumerate((tuple(BAD), AGAIN)):
        new = [epoch(2 * life, poisoned=True), epoch(2 * life + 1)]
        write_epochs(tmp_path / "in", new, first=len(tables))
        tables += new
        pipe = stream(spark, tmp_path).query("good", GOOD, sink=hr.parquet(str(tmp_path / "good")))
        for name in bad:
            pipe.query(name, f"SELECT {BAD[name]} AS v {WINDOW}", sink=hr.parquet(str(tmp_path / name)))
        run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=life == 1)
        run.await_termination()
        assert run.failed.keys() == set(bad)
        for name, cause in run.failed.items():
            assert WORDS[int(name[-1])] in cause
            assert cause.endswith("(CAST_INVALID_INPUT)"), cause
    rows = pa.concat_tables(tables)
    assert run.progress.ledger["r"].used == rows.num_rows
    assert_same(results(tmp_path / "good"), expected(rows, "k, sum(i)::bigint", "k", 20, 20, False))


def test_the_only_query_fails_and_the_run_goes_on(spark: Any, tmp_path: Path) -> None:
    bad = f"SELECT SUM(CAST(s0 AS INT)) AS v {WINDOW}"
    for life in range(2):
        tables = [epoch(2 * life, poisoned=True), epoch(2 * life + 1)]
        write_epochs(tmp_path / "in", tables, first=2 * life)
        pipe = stream(spark, tmp_path).query("bad", bad, sink=hr.parquet(str(tmp_path / "bad")))
        run = pipe.start(spark, str(tmp_path / "state"), once=True)
        run.await_termination()
        assert list(run.failed) == ["bad"]
        assert run.progress.ledger["r"].used == 40 * (life + 1)
    assert results(tmp_path / "bad") == []


@pytest.mark.parametrize(
    ("value", "options"),
    [
        pytest.param("SUM(i)", {}, id="tasks write"),
        pytest.param("SUM(i) + 0", {}, id="tasks write what Spark has finished"),
        pytest.param("SUM(i)", {"compression": "gzip"}, id="Spark writes"),
    ],
)
def test_a_sink_whose_storage_is_away_stops_the_run_and_loses_nothing(
    spark: Any, tmp_path: Path, value: str, options: dict[str, str]
) -> None:
    tables = [epoch(n) for n in range(4)]
    write_epochs(tmp_path / "in", tables)
    out, away = tmp_path / "out", tmp_path / "away"
    points: list[str] = []

    def unmount(point: str) -> None:
        points.append(point)
        if point == "after-state" and points.count(point) == 3:
            out.rename(away)
            out.write_text("where a folder was")

    def start(hooks: Hooks) -> Any:
        pipe = stream(spark, tmp_path).query("good", GOOD, sink=hr.parquet(str(tmp_path / "good")))
        pipe.query("away", f"SELECT k, {value} AS v {WINDOW} GROUP BY k", sink=hr.parquet(str(out), **options))
        return pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=hooks)

    run = start(Hooks(probe=unmount))
    with pytest.raises(hr.EngineError, match=r"the run stopped: .*(?i:not a directory)"):
        run.await_termination()
    assert away.exists(), "the storage went away"
    assert run.failed == {}
    out.unlink()
    away.rename(out)
    run = start(Hooks())
    run.await_termination()
    assert run.failed == {}
    wanted = expected(pa.concat_tables(tables), "k, sum(i)::bigint", "k", 20, 20, False)
    assert_same(results(tmp_path / "good"), wanted)
    assert_same(results(out), wanted)
