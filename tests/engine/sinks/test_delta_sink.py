"""A Delta table has each epoch once, and refuses what it cannot hold."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from world import SCHEMA, admit, assert_same, expected, make_epochs, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.sinks.delta import DeltaSink
from headrace.engine.state.storage import LocalStorage
from headrace.errors import EnvironmentProblem, SpecError, StateError
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
    assert sorted(rows(tmp_path)) == [(i,) for i in range(8)]
    for epoch, replay in ((8, False), (7, False), (7, True)):
        with pytest.raises(StateError, match="the checkpoint was set back"):
            sink(tmp_path).write(spark.range(5), epoch, replay)
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


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        pytest.param(pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])), {},
                     "NOT NULL", id="a table that takes no nulls"),
        pytest.param(pa.table({"id": [1], "m": [2]}), {"partition_by": ["m"]}, "is partitioned", id="partitions"),
        pytest.param(pa.table({"id": [1]}), {"configuration": {"delta.enableChangeDataFeed": "true"}}, "features",
                     id="a table that wants more of writers"),
        pytest.param(pa.table({"id": ["x"]}), {}, "id is long, and was string", id="other columns"),
        pytest.param(pa.table({"id": [1]}),
                     {"configuration": {"delta.setTransactionRetentionDuration": "interval 1 days"}},
                     "forgets transactions", id="a table that forgets which epochs it has had"),
    ],
)  # fmt: skip
def test_a_table_beyond_us_is_refused(tmp_path: Path, table: pa.Table, options: Any, message: str) -> None:
    write_deltalake(str(tmp_path), table, **options)
    with pytest.raises(SpecError, match=message):
        sink(tmp_path)


def test_a_store_that_deltalake_does_not_reach_is_said() -> None:
    storage = LocalStorage("/x")
    storage.root = "wasb://container/x"
    with pytest.raises(
        EnvironmentProblem, match="the package deltalake cannot reach wasb://container/x: Unknown scheme"
    ):
        DeltaSink(SinkSpec("delta", storage.root), "id BIGINT", storage, "app")


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(EnvironmentProblem, match=r"needs the package deltalake: pip install 'headrace\[delta\]'"):
        sink(tmp_path)


def commit(made: DeltaSink, epoch: int) -> None:
    """An epoch of one row, its number, without Spark."""
    folder = Path(made.staging)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([epoch], pa.int64())}), folder / "x.parquet")
    made.adopt(["x.parquet"], epoch, False)


def age(log: Path, epochs: int) -> None:
    """Gives the files of a log the times they would have at one epoch a second."""
    now = time.time()
    for file in log.iterdir():
        if file.name[:20].isdigit():
            then = now - (epochs - int(file.name[:20]))
            os.utime(file, (then, then))


def test_the_log_of_a_long_run_is_bounded_and_whole(tmp_path: Path) -> None:
    """400 epochs, one a second by the times of the log's files, of which readers may want the last 40."""
    kept, every, log = 40, 20, tmp_path / "_delta_log"
    options = (("delta.logRetentionDuration", f"interval {kept} seconds"), ("delta.checkpointInterval", str(every)))
    made = DeltaSink(SinkSpec("delta", str(tmp_path), options), "id BIGINT", LocalStorage(str(tmp_path)), "app")
    most = 0
    for epoch in range(400):
        commit(made, epoch)
        age(log, epoch + 1)
        most = max(most, len(list(log.iterdir())))
        if epoch == 199:  # another run goes on: all it knows is what the log says
            made = DeltaSink(SinkSpec("delta", str(tmp_path), options), "id BIGINT", LocalStorage(str(tmp_path)), "app")
            assert made.last_epoch() == 199
    # Versions to keep, those since the last clean-up, those down to the checkpoint before: each at most once.
    assert most <= kept + 2 * every + (kept + 2 * every) // every + 2
    assert not (log / f"{0:020d}.json").exists()
    assert made.last_epoch() == 398, "as of the last time it looked"
    newest = sorted(log.glob("*.checkpoint.parquet"))[-1]
    (txn,) = [row for row in pq.read_table(newest)["txn"].to_pylist() if row]
    assert (txn["appId"], txn["version"]) == ("app", int(newest.name[:20]) - 1), "the first version made the table"
    for version in range(400 - kept, 401):
        assert len(DeltaTable(str(tmp_path), version=version).file_uris()) == version, "a reader may still be there"
    assert sorted(rows(tmp_path)) == [(i,) for i in range(400)]


def test_a_table_that_others_compact_goes_on(tmp_path: Path) -> None:
    made = sink(tmp_path)
    for epoch in range(30):
        commit(made, epoch)
        if epoch % 10 == 9:
            DeltaTable(str(tmp_path)).optimize.compact()
            write_deltalake(str(tmp_path), pa.table({"id": pa.array([1000 + epoch], pa.int64())}), mode="append")
    table = DeltaTable(str(tmp_path))
    assert sorted(rows(tmp_path)) == sorted([*((i,) for i in range(30)), (1009,), (1019,), (1029,)])
    assert len(table.file_uris()) == 2
    assert sink(tmp_path).last_epoch() == 29


def test_the_slower_of_two_engines_on_one_checkpoint_is_stopped(tmp_path: Path) -> None:
    slow, fast = sink(tmp_path), sink(tmp_path)
    commit(slow, 0)
    commit(fast, 1)
    with pytest.raises(StateError, match="another engine runs on a copy of it"):
        commit(slow, 1)
    assert sorted(rows(tmp_path)) == [(0,), (1,)]


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
    assert "has other columns than the results: more is gone" in str(failed["changed"])
    assert failed["other"] is None
    assert_same(rows(tmp_path / "other"), expected(admit(tables, 20).rows, "k, sum(i)::bigint", "k", 60, 20, True))


def test_other_columns_are_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    sink(tmp_path).write(spark.range(1), 0, False)
    with pytest.raises(SpecError, match="has other columns than the results: id is string, and was long"):
        sink(tmp_path, columns="id STRING")
    with pytest.raises(SpecError, match="cannot hold column 't' of type timestamp_ntz"):
        sink(tmp_path / "other", columns="t TIMESTAMP_NTZ")
    assert rows(tmp_path) == [(0,)]
