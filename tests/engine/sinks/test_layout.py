"""Results in folders by value, and tables of the latest result of each key: whole, once, and again after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from postgres import PASSWORD, Postgres
from world import SCHEMA, START, make_epochs, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.errors import EngineError, SpecError
from headrace.model import EpochDecision

SQL = "SELECT k, g, COUNT(*) AS n, SUM(i) AS total FROM r GROUP BY window(ts, '60 s', '20 s'), k, g"
COLUMNS = "window_start, window_end, k, g, n, total"


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return sorted(map(repr, connection.execute(sql).fetchall()))


def test_folders_and_latest_results_across_a_crash(spark: Any, postgres: Postgres, tmp_path: Path) -> None:
    """Struck down when sinks had an epoch and its manifest was not written: the epoch is given to all of them again."""
    write_epochs(tmp_path / "in", make_epochs(seed=11, epochs=3))
    decided: list[EpochDecision] = []
    folders: dict[str, Any] = {"partition_by": ["g", "k"]}
    latest: dict[str, Any] = {"key": ["k", "g"]}

    def start(hooks: Hooks) -> None:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        pipe = hr.Pipeline("layout").stream("r", rows, time="ts", lateness="20 seconds")
        pipe.query("all", SQL, sink=hr.parquet(str(tmp_path / "all")))
        pipe.query("folders", SQL, sink=hr.parquet(str(tmp_path / "folders"), **folders))
        pipe.query("parts", SQL, sink=hr.delta(str(tmp_path / "parts"), **folders))
        pipe.query("table", SQL, sink=hr.delta(str(tmp_path / "table"), **latest))
        pipe.query("base", SQL, sink=hr.jdbc(postgres.url, "latest_of", user="ann", password=PASSWORD, **latest))
        # Rows whose times are in disorder: an older one that comes later is not the latest.
        raw = hr.delta(str(tmp_path / "raw"), key=["k"], latest="ts")
        pipe.query("raw", "SELECT k, ts, i FROM r", sink=raw)
        pipe.query("every", "SELECT k, ts, i FROM r", sink=hr.parquet(str(tmp_path / "every")))
        pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=hooks).await_termination()

    def strike(point: str) -> None:
        if point == "before-manifest" and decided[-1].epoch == 1:
            raise OSError("struck")

    def clock(epoch: int) -> int:
        return START + epoch * 20_000_000

    with pytest.raises(EngineError, match="struck"):
        start(Hooks(clock_us=clock, probe=strike, on_decision=decided.append))
    start(Hooks(clock_us=clock))
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute(f"CREATE TABLE wanted AS SELECT {COLUMNS} FROM '{tmp_path}/all/*.parquet'")
    wanted = rows_of(duck, "SELECT * FROM wanted")
    assert len(wanted) > 50
    # In folders, k is no text to DuckDB where it could be more; the folders say no more than what they are called.
    types = "hive_types = {'k': VARCHAR, 'g': INT}"
    found = f"read_parquet('{tmp_path}/folders/*/*/*.parquet', hive_partitioning = true, {types})"
    assert rows_of(duck, f"SELECT {COLUMNS} FROM {found}") == wanted
    file = next((tmp_path / "folders").glob("g=*/k=*/epoch-*.parquet"))
    assert set(pq.read_schema(file).names) == {"window_start", "window_end", "n", "total"}
    parts = DeltaTable(str(tmp_path / "parts"))
    assert parts.metadata().partition_columns == ["g", "k"]
    duck.register("parts", parts.to_pyarrow_table())
    assert rows_of(duck, f"SELECT {COLUMNS} FROM parts") == wanted
    newest = f"SELECT {COLUMNS} FROM wanted QUALIFY row_number() OVER (PARTITION BY k, g ORDER BY window_end DESC) = 1"
    duck.register("found", DeltaTable(str(tmp_path / "table")).to_pyarrow_table())
    assert rows_of(duck, f"SELECT {COLUMNS} FROM found") == rows_of(duck, newest)
    in_base = postgres.query("SELECT coalesce(k, '-'), coalesce(g, -1), n, coalesce(total, -1) FROM latest_of", "ann")
    same = f"SELECT coalesce(k, '-'), coalesce(g, -1)::TEXT, n::TEXT, coalesce(total, -1)::TEXT FROM ({newest})"
    assert sorted(map(repr, in_base)) == rows_of(duck, same)
    duck.register("raw", DeltaTable(str(tmp_path / "raw")).to_pyarrow_table())
    last = f"SELECT k, max(ts) FROM '{tmp_path}/every/*.parquet' GROUP BY k"
    assert rows_of(duck, "SELECT k, ts FROM raw") == rows_of(duck, last)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        pytest.param({"format": "parquet", "path": "o", "partition_by": ["h"]}, "partition_by names 'h', which is no"
                     " result; results are window_start, window_end, k, g, n, total", id="a column that is no result"),
        pytest.param({"format": "kafka", "partition_by": ["k"]}, "partition_by is for files", id="a topic in folders"),
        pytest.param({"format": "parquet", "path": "o", "key": ["k"]}, "mode: upsert is for tables (delta, jdbc), not "
                     "for a parquet sink", id="files of the latest results"),
        pytest.param({"format": "delta", "path": "o", "key": ["k"], "partition_by": ["g"]}, "is not partitioned",
                     id="both"),
        pytest.param({"format": "delta", "path": "o", "key": ["k", "k"]}, "names a column twice", id="twice"),
        pytest.param({"format": "delta", "path": "o", "key": ["k"], "latest": "ts"}, "latest names 'ts', which is no",
                     id="no time"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(sink: dict[str, Any], said: str) -> None:
    from headrace.language import bind_query, parse_schema
    from headrace.model import Stream

    stream = Stream("r", parse_schema("ts TIMESTAMP, k STRING, g INT, i INT"), "ts")
    with pytest.raises(SpecError) as refused:
        bind_query("q", SQL, {"r": stream}, sink=hr.sink(**sink).spec)
    assert said in str(refused.value)
