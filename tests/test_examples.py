"""The examples as they stand, but for addresses and ports: they run, and their results are right."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from postgres import PASSWORD
from trades import make_topic, make_trades, read_topic, send
from world import assert_same, expected, results

from headrace.cli.app import _run
from headrace.engine.sources.synthetic import synthetic_source
from headrace.language import load_pipeline

EXAMPLES = Path(__file__).parents[1] / "examples"


def copied(name: str, folder: Path, **changes: str) -> Path:
    """The example in a folder of the test's own, with some texts replaced."""
    file = folder / "pipeline.yml"
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
    text = file.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return file


def packets(spark: Any, file: Path) -> pa.Table:
    """The rows of the example's synthetic stream."""
    source = load_pipeline(file).streams[0].source
    assert source is not None
    spark.dataSource.register(synthetic_source())
    rows = spark.readStream.format("headrace_synthetic").options(**dict(source.options)).load()
    tables: list[pa.Table] = []
    rows.writeStream.foreachBatch(lambda batch, _: tables.append(batch.toArrow())).trigger(availableNow=True).option(
        "checkpointLocation", str(file.parent / "judge")
    ).start().awaitTermination()
    return pa.concat_tables(tables)


def talkers(spark: Any, file: Path) -> list[tuple[Any, ...]]:
    """What the example asks, by DuckDB; its lateness is its disorder, so no row is late."""
    return expected(packets(spark, file), "key, sum(amount)::bigint, count(*)", "key", 10, 10, True)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/pipeline.yml")))
def test_an_example_has_no_problem(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["check", str(EXAMPLES / name / "pipeline.yml")], False) == 0
    assert capsys.readouterr().out == "ok\n"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/pipeline.yml")))
def test_the_cases_of_an_example_pass(spark: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["test", str(EXAMPLES / name / "pipeline.yml")], False) == 0
    assert "FAILED" not in capsys.readouterr().out


def test_sites(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = copied("sites", tmp_path)
    assert _run(["run", str(file), "--once", "--flush"], False) == 0
    born = pa.concat_tables([packets(spark, file)] * 3)
    slow = expected(born, "key, median(value)", "key", 60, 60, True, "value > 500")
    assert_same(results(tmp_path / "out" / "slow"), slow)
    said = capsys.readouterr().out
    assert all(f"{site}: epoch" in said for site in ("virginia", "oregon", "dublin", "frankfurt"))
    assert _run(["status", str(tmp_path / "state" / "frankfurt")], False) == 0
    told = capsys.readouterr().out
    assert "from dublin to frankfurt: " in told
    assert "0 epochs, 0 B and 0 s of event time on the way" in " ".join(told.split())


def test_delta(spark: Any, tmp_path: Path) -> None:
    file = copied("delta", tmp_path)
    assert _run(["run", str(file), "--once", "--flush"], False) == 0
    table = pa.table(DeltaTable(str(tmp_path / "out" / "talkers")).to_pyarrow_table())
    assert_same([tuple(row.values()) for row in table.to_pylist()], talkers(spark, file))


def test_state(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = copied("state", tmp_path)
    assert _run(["run", str(file), "--once", "--flush"], False) == 0
    rows = packets(spark, file)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", rows)
    visits = """
        SELECT key, min(ts), max(ts), count(*), sum(amount)::bigint FROM (
            SELECT *, count(*) FILTER (WHERE apart) OVER (PARTITION BY key ORDER BY ts) AS visit FROM (
                SELECT *, ts - lag(ts) OVER (PARTITION BY key ORDER BY ts) > INTERVAL 5 SECOND AS apart FROM r))
        GROUP BY key, visit QUALIFY visit < max(visit) OVER (PARTITION BY key)"""
    wanted = connection.execute(visits).fetchall()
    assert wanted
    assert_same(results(tmp_path / "out" / "visits"), wanted)
    assert len(results(tmp_path / "out" / "unusual")) == rows.num_rows
    capsys.readouterr()
    assert _run(["status", str(tmp_path / "state")], False) == 0
    assert "state of visits: " in capsys.readouterr().out


def test_postgres(spark: Any, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITOR_PASSWORD", PASSWORD)
    place = {"localhost:5432/monitor": f"127.0.0.1:{postgres.port}/ann", "user: headrace": "user: ann"}
    file = copied("postgres", tmp_path, **place)
    assert _run(["run", str(file), "--once", "--flush"], False) == 0
    found = postgres.query("SELECT window_end, host, bytes, packets FROM talkers", "ann")
    wanted = [(f"{row[1]:%Y-%m-%d %H:%M:%S}+00", row[2], str(row[3]), str(row[4])) for row in talkers(spark, file)]
    assert Counter(found) == Counter(wanted)


def test_kafka(spark: Any, kafka: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_topic(kafka.servers, "trades", "volumes")
    sent = make_trades(3000, seed=71)
    send(kafka.servers, "trades", sent, 0, 3000)
    changes = {"localhost:9092": kafka.servers, "metrics: 9464": "metrics: 0", "lateness: 5 seconds": "lateness: 2 min"}
    file = copied("kafka", tmp_path, **changes)
    assert _run(["run", str(file), "--once", "--flush", "--json"], False) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines if line["event"] != "note"] == [
        "decision", "epoch", "decision", "epoch", "end"]  # fmt: skip
    assert lines[-2]["streams"]["trades"]["rejected"] == sum(~sent.good) > 0
    assert lines[-2]["last_epoch"]["steps_s"].keys() >= {"admit", "absorb", "advance", "answer"}
    assert next(line for line in lines if line["event"] == "decision")["intake"]["rows"] == 100_000
    rows = sent.table.filter(pa.array(sent.good))
    select = "symbol, sum(qty)::bigint AS qty, sum(qty * price) / sum(qty) AS price"
    wanted = [row for row in expected(rows, select, "symbol", 60, 60, True) if row[3] > 0]
    found = []
    for message in read_topic(kafka.servers, "volumes"):
        value = json.loads(message.value())
        assert message.key().decode() == value["symbol"]
        start, end = (value[name].replace("Z", "+00:00") for name in ("window_start", "window_end"))
        found.append((*(_instant(text) for text in (start, end)), value["symbol"], value["qty"], value["price"]))
    assert_same(found, wanted)
    answered = results(tmp_path / "out" / "delays")
    assert sum(row[4] for row in answered) == rows.num_rows
    assert {row[3] for row in answered} == {None}, "no message has a header of that name"


def _instant(text: str) -> Any:
    return duckdb.sql(f"SET TimeZone = 'UTC'; SELECT '{text}'::TIMESTAMPTZ").fetchall()[0][0]
