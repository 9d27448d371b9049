"""A Delta table has each epoch once, and refuses what it cannot hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from world import SCHEMA, admit, assert_same, expected, make_epochs, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.delta_sink import DeltaSink
from headrace.engine.storage import LocalStorage
from headrace.errors import SpecError
from headrace.model import SinkSpec


def rows(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist()]


def sink(folder: Path, application: str = "app", columns: str = "id BIGINT") -> DeltaSink:
    return DeltaSink(SinkSpec("delta", str(folder)), columns, LocalStorage(str(folder)), application)


def test_answers_equal_duckdb_across_a_restart(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=43, epochs=6)
    for first, part in ((0, tables[:3]), (3, tables[3:])):
        write_epochs(tmp_path / "in", part, first)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        pipe = hr.Pipeline("lake").stream("r", stream, time="ts", lateness="20 seconds")
        sql = "SELECT k, SUM(d) AS d, MAX(day) AS day FROM r GROUP BY window(ts, '60 s', '20 s'), k"
        pipe.query("q", sql, sink=hr.delta(str(tmp_path / "q")))
        pipe.query("zstd", sql, sink=hr.delta(str(tmp_path / "zstd"), compression="zstd"))
        computed = "SELECT k, SUM(i) + 1 AS v FROM r GROUP BY window(ts, '60 s', '20 s'), k HAVING COUNT(*) > 1"
        pipe.query("computed", computed, sink=hr.delta(str(tmp_path / "computed")))
        run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=first > 0)
        run.await_termination()
        assert {name: query.failed for name, query in run.progress.queries.items()} == dict.fromkeys(
            ["q", "zstd", "computed"]
        )
    admitted = admit(tables, 20).rows
    for name in ("q", "zstd"):
        assert_same(rows(tmp_path / name), expected(admitted, "k, sum(d), max(day)", "k", 60, 20, True))
    wanted = expected(admitted, "k, (sum(i) + 1)::bigint, count(*)", "k", 60, 20, True)
    assert_same(rows(tmp_path / "computed"), [row[:-1] for row in wanted if row[-1] > 1])


def test_an_epoch_given_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    sink(tmp_path).write(spark.range(5), 7, False)
    again = sink(tmp_path)
    again.write(spark.range(5), 7, True)
    again.write(spark.range(5, 8), 8, False)
    again.write(spark.range(5), 8, False)
    assert sorted(rows(tmp_path)) == [(i,) for i in range(8)]


def test_two_applications_write_to_one_table(spark: Any, tmp_path: Path) -> None:
    one, two = sink(tmp_path), sink(tmp_path, "other")
    one.write(spark.range(1), 3, False)
    two.write(spark.range(1, 2), 0, False)
    one.write(spark.range(2, 3), 4, False)
    assert sorted(rows(tmp_path)) == [(0,), (1,), (2,)]


def test_what_a_crash_left_is_not_in_the_table(spark: Any, tmp_path: Path) -> None:
    mine, theirs = (Path(sink(tmp_path, application).staging) / "x" for application in ("app", "other"))
    for folder in (mine, theirs):
        folder.mkdir(parents=True)
        spark.range(3).write.parquet(str(folder / "y"))
    (tmp_path / "epoch-000000000-000-dead.parquet").write_bytes(b"half a file")
    sink(tmp_path).write(spark.range(1), 0, True)
    assert rows(tmp_path) == [(0,)]
    assert not mine.exists()
    assert theirs.exists(), "what another pipeline has on its way to the table"


def test_a_table_that_takes_no_nulls_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    write_deltalake(str(tmp_path), pa.table({"id": [1]}, schema=schema))
    with pytest.raises(SpecError, match="NOT NULL"):
        sink(tmp_path)


def test_a_table_that_was_changed_fails_its_query_alone(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=44, epochs=5)
    write_epochs(tmp_path / "in", tables)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("lake").stream("r", stream, time="ts", lateness="20 seconds")
    sql = "SELECT k, SUM(i) AS v FROM r GROUP BY window(ts, '60 s', '20 s'), k"
    pipe.query("changed", sql, sink=hr.delta(str(tmp_path / "changed")))
    pipe.query("other", sql, sink=hr.delta(str(tmp_path / "other")))

    def change(manifest: Any) -> None:
        if manifest.epoch == 1:
            table = DeltaTable(str(tmp_path / "changed")).to_pyarrow_table()
            more = pa.table(table).append_column("more", pa.nulls(table.num_rows, pa.int64()))
            write_deltalake(str(tmp_path / "changed"), more, mode="append", schema_mode="merge")

    run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=Hooks(on_epoch=change))
    run.await_termination()
    failed = {name: query.failed for name, query in run.progress.queries.items()}
    assert "has the columns" in str(failed["changed"])
    assert failed["other"] is None
    assert_same(rows(tmp_path / "other"), expected(admit(tables, 20).rows, "k, sum(i)::bigint", "k", 60, 20, True))


def test_other_columns_are_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    sink(tmp_path).write(spark.range(1), 0, False)
    with pytest.raises(SpecError, match=r'has the columns id "long", the results id "string"'):
        sink(tmp_path, columns="id STRING")
    with pytest.raises(SpecError, match="cannot hold column 't' of type timestamp_ntz"):
        sink(tmp_path / "other", columns="t TIMESTAMP_NTZ")
    assert rows(tmp_path) == [(0,)]
