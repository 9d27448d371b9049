"""Every sink takes every answer once, and takes an epoch again without harm."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine.sinks.choose import FileSink, FormatSink, MemorySink
from headrace.engine.state.storage import LocalStorage
from headrace.model import SinkSpec

SQL = "SELECT k, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any, dict[int, int], str]:
    home = tmp_path_factory.mktemp("sinks")
    tables = make_epochs(seed=41, epochs=5)
    write_epochs(home / "in", tables)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    called: dict[int, int] = {}
    pipe = hr.Pipeline("sinks").stream("r", rows, time="ts", lateness="20 seconds")
    sinks = {
        "parquet": hr.parquet(str(home / "parquet")),
        "zstd": hr.parquet(str(home / "zstd"), compression="zstd"),
        "json": hr.json(str(home / "json")),
        "csv": hr.csv(str(home / "csv"), header=True, sep="${env:HEADRACE_TEST_SEP}"),
        "orc": hr.sink("orc", str(home / "orc")),
        "memory": hr.memory(),
        "console": hr.console(),
        "noop": hr.sink("noop"),
        "called": hr.call(lambda answers, epoch: called.__setitem__(epoch, answers.count())),
    }
    for name, sink in sinks.items():
        pipe.query(name, SQL, sink=sink)
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.write", printed.append)
        patch.setenv("HEADRACE_TEST_SEP", ";")
        run = pipe.start(spark, str(home / "state"), once=True, flush=True)
        run.await_termination()
    wanted = expected(admit(tables, 20).rows, "k, count(*)", "k", 60, 20, False)
    return home, run, wanted, called, "".join(printed)


def test_parquet_with_and_without_options(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert_same(results(world[0] / "parquet"), world[2])
    assert_same(results(world[0] / "zstd"), world[2])
    file = next((world[0] / "zstd").glob("*.parquet"))
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"


def test_json(world: tuple[Path, Any, Any, Any, str]) -> None:
    text = [line for file in (world[0] / "json").glob("epoch-*") for line in file.read_text().splitlines()]
    assert sorted((r.get("k") or "", r["n"]) for r in map(json.loads, text)) == sorted(
        (r[2] or "", r[3]) for r in world[2]
    )


def test_csv_with_an_option_from_the_environment(world: tuple[Path, Any, Any, Any, str]) -> None:
    files = [
        list(csv.DictReader(f.read_text().splitlines(), delimiter=";")) for f in (world[0] / "csv").glob("epoch-*")
    ]
    found = sorted((row["k"], int(row["n"])) for rows in files for row in rows)
    assert found == sorted((r[2] or "", r[3]) for r in world[2])


def test_another_file_format(world: tuple[Path, Any, Any, Any, str], spark: Any) -> None:
    rows = spark.read.orc(str(world[0] / "orc")).selectExpr("k", "n").collect()
    assert sorted((r.k or "", r.n) for r in rows) == sorted((r[2] or "", r[3]) for r in world[2])


def test_memory(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert_same((tuple(row.values()) for row in world[1].table("memory").to_pylist()), world[2])


def test_console(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert "console, epoch " in world[4]
    assert world[4].count("\n  20") > 0


def test_a_function(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert sum(world[3].values()) == len(world[2])


def test_all_queries_run(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert {name: q["state"] for name, q in world[1].status["queries"].items()} == dict.fromkeys(
        world[1].status["queries"], "running"
    )


def test_nothing_is_left_in_staging(world: tuple[Path, Any, Any, Any, str]) -> None:
    assert not [p for name in ("parquet", "json", "csv") for p in (world[0] / name / "_staging").glob("*")]


def test_an_epoch_written_again_takes_the_place_of_the_first(spark: Any, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "out"))
    sink = FileSink(SinkSpec("parquet", str(tmp_path / "out")), storage)
    sink.write(spark.range(5).repartition(3), 7, False)
    sink.write(spark.range(5), 7, True)
    assert sorted(r[0] for r in results(tmp_path / "out")) == list(range(5))


def test_memory_written_again_takes_the_place_of_the_first(spark: Any) -> None:
    sink = MemorySink()
    sink.write(spark.range(5), 7, False)
    sink.write(spark.range(5), 7, True)
    table = sink.table()
    assert table is not None
    assert table.num_rows == 5


def test_a_foreign_format_is_not_written_twice_once_noted(spark: Any, tmp_path: Path) -> None:
    sink = FormatSink(SinkSpec("parquet", str(tmp_path / "out")), "q", LocalStorage(str(tmp_path / "state")))
    sink.write(spark.range(5), 7, False)
    sink.write(spark.range(5), 7, True)
    assert len(results(tmp_path / "out")) == 5
