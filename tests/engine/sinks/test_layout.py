"""Results in folders by value, and tables of the latest result of each key: whole, once, and again after a crash."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from postgres import PASSWORD, Postgres
from world import SCHEMA, START, make_epochs, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.sinks import delta
from headrace.engine.sinks.files import FileSink
from headrace.engine.sinks.jdbc import JdbcSink
from headrace.engine.state.storage import LocalStorage
from headrace.errors import EngineError, SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import EpochDecision, SinkSpec, Stream

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
        pipe.query("database", SQL, sink=hr.jdbc(postgres.url, "latest_of", user="ann", password=PASSWORD, **latest))
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


def staged(sink: FileSink, *parts: tuple[str, pa.Table]) -> list[str]:
    """Files as Spark leaves them in a sink's staging folder: in folders by value."""
    files = []
    for folder, table in parts:
        file = f"4f/{folder}part-00000.snappy.parquet"
        path = Path(sink.staging) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        files.append(file)
    return files


def numbers(*values: int, **more: Any) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64()), **more})


PARTS = (
    ("day=2024-01-01/k=a%2Fb/", numbers(1, 2)),
    ("day=2024-01-01/k=__HIVE_DEFAULT_PARTITION__/", numbers(3)),
)
ROWS = [(1, date(2024, 1, 1), "a/b"), (2, date(2024, 1, 1), "a/b"), (3, date(2024, 1, 1), None)]


def test_an_epoch_in_folders_takes_the_place_of_its_first_attempt(tmp_path: Path) -> None:
    storage, spec = LocalStorage(str(tmp_path)), SinkSpec("parquet", str(tmp_path), (), ("day", "k"))
    sink = FileSink(spec, storage)
    sink.adopt(staged(sink, *PARTS), 0, False)
    sink.adopt(staged(sink, *PARTS), 1, False)
    again = FileSink(spec, storage)
    assert again.last_epoch() == 1
    again.adopt(staged(again, PARTS[1]), 1, True)
    sql = f"SELECT n, day, k FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true) ORDER BY ALL"
    assert duckdb.connect().execute(sql).fetchall() == [*ROWS, ROWS[2]]


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = [("n", "long"), ("day", "date"), ("k", "string")]
    schema = {"type": "struct", "fields": [{"name": name, "type": type_, "nullable": True, "metadata": {}}
                                           for name, type_ in fields]}  # fmt: skip
    monkeypatch.setattr(delta, "_delta_schema", lambda columns: json.dumps(schema))


def table_sink(folder: Path, **layout: Any) -> delta.DeltaSink:
    return delta.DeltaSink(SinkSpec("delta", str(folder), **layout), "", LocalStorage(str(folder)), "app")


def test_a_delta_table_in_partitions_has_each_epoch_once(without_spark: None, tmp_path: Path) -> None:
    sink = table_sink(tmp_path, partition_by=("day", "k"))
    sink.adopt(staged(sink, *PARTS), 0, False)
    again = table_sink(tmp_path, partition_by=("day", "k"))
    again.adopt(staged(again, *PARTS), 0, True)
    again.adopt(staged(again, PARTS[1]), 1, False)
    found = pa.table(DeltaTable(str(tmp_path)).to_pyarrow_table()).to_pylist()
    assert sorted(((row["n"], row["day"], row["k"]) for row in found), key=repr) == [*ROWS, ROWS[2]]
    with pytest.raises(SpecError, match="is partitioned by day, k, and its sink by nothing"):
        table_sink(tmp_path)


def test_a_table_of_latest_results_is_its_last_version(
    without_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "_VACUUM_EVERY", 1)
    sink = table_sink(tmp_path, key=("k",), latest="n")
    for epoch, values in enumerate([(1, 2), (1, 2, 3)]):
        rows = numbers(*values, day=pa.nulls(len(values), pa.date32()), k=[f"k{n}" for n in values])
        sink.adopt(staged(sink, ("", rows)), epoch, False)
    table = DeltaTable(str(tmp_path))
    assert sorted(pa.table(table.to_pyarrow_table())["n"].to_pylist()) == [1, 2, 3]
    assert len(table.file_uris()) == 1
    assert len(list(tmp_path.glob("epoch-*.parquet"))) == 2, "what a reader of the version before may still want stays"


def test_a_database_keeps_the_later_of_two_results() -> None:
    """The statements of a transaction, run by DuckDB."""
    sink = object.__new__(JdbcSink)
    sink.table, sink._key, sink._latest = "t", ("k", "g"), "w"
    sink._quoted = lambda name: f'"{name}"'  # type: ignore[method-assign]
    duck = duckdb.connect()
    duck.execute("CREATE TABLE t (k TEXT, g INT, w INT, n INT)")
    duck.execute(
        "INSERT INTO t VALUES ('a', 1, 5, 1), ('b', 1, 5, 1), (NULL, 1, 5, 1), ('c', 1, NULL, 1), ('d', 1, 5, 1)"
    )
    duck.execute("CREATE TABLE s0 (k TEXT, g INT, w INT, n INT)")
    duck.execute(
        "INSERT INTO s0 VALUES ('a', 1, 6, 2), ('b', 1, 4, 2), (NULL, 1, 5, 2), ('c', 1, 1, 2), ('e', 1, NULL, 2)"
    )
    duck.execute(sink._superseded("s0 s"))
    duck.execute(f"INSERT INTO t SELECT * FROM s0 s WHERE NOT EXISTS ({sink._same_key()})")
    assert duck.execute("SELECT k, w, n FROM t ORDER BY ALL").fetchall() == [
        ("a", 6, 2), ("b", 5, 1), ("c", 1, 2), ("d", 5, 1), ("e", None, 2), (None, 5, 2),
    ]  # fmt: skip


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
    stream = Stream("r", parse_schema("ts TIMESTAMP, k STRING, g INT, i INT"), "ts")
    with pytest.raises(SpecError) as refused:
        bind_query("q", SQL, {"r": stream}, sink=hr.sink(**sink).spec)
    assert said in str(refused.value)
