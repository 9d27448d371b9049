"""`headrace init`: what it writes runs as it stands, over made rows and over files that are there."""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from world import assert_same, results

from headrace.cli.app import _run
from headrace.language import load_pipeline

START = 1_767_614_400


def write_logs(folder: Path, rows: int = 3000) -> list[tuple[int, str, int]]:
    """Gzipped JSON lines with dotted and nested names, some up to 25 seconds behind; (seconds, host, code) of each."""
    rng, made = random.Random(5), list[tuple[int, str, int]]()
    folder.mkdir()
    with gzip.open(folder / "a.json.gz", "wt") as file:
        for i in range(rows):
            seconds = START + i // 3 - (rng.randint(1, 25) if rng.random() < 0.3 else 0)
            host, code = f"10.0.0.{rng.randint(1, 40)}", rng.choice([200, 404])
            ts = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.250Z")
            file.write(json.dumps({"ts": ts, "id.orig_h": host, "resp": {"code": code, "tags": ["a"]}}) + "\n")
            made.append((seconds, host, code))
    return made


def test_what_is_written_without_a_source_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["init", str(tmp_path / "new")], False) == 0
    assert f"next: headrace run {tmp_path}/new/pipeline.yml --once --flush" in capsys.readouterr().out
    assert _run(["check", str(tmp_path / "new" / "pipeline.yml")], False) == 0


def test_the_next_step_is_called_as_this_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_COMMAND", "./run headrace")
    assert _run(["init", str(tmp_path)], False) == 0
    assert f"next: ./run headrace run {tmp_path}/pipeline.yml" in capsys.readouterr().out


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline.yml").write_text("mine")
    assert _run(["init", str(tmp_path)], False) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "pipeline.yml").read_text() == "mine"


def test_bad_lines_do_not_hide_what_the_others_are_like(tmp_path: Path) -> None:
    wrong = ('{"ts": "2026', '{"resp": "none"}', "[1]", '{"resp": {"code": 1}, "ts": 5}')
    for name, bad in (("clean", ()), ("dirty", wrong)):
        (tmp_path / name).mkdir()
        write_logs(tmp_path / name / "logs")
        with gzip.open(tmp_path / name / "logs" / "a.json.gz", "at") as file:
            file.write("".join(f"{line}\n" for line in bad))
        assert _run(["init", str(tmp_path / name), "--from", str(tmp_path / name / "logs")], False) == 0
    clean, dirty = (load_pipeline(tmp_path / name / "pipeline.yml").streams[0] for name in ("clean", "dirty"))
    assert (dirty.columns, dirty.time, dirty.lateness_us) == (clean.columns, clean.time, clean.lateness_us)


def test_a_few_times_that_are_none_are_told_and_do_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    rows = [{"ts": f"2026-01-05T12:{n // 60:02d}:{n % 60:02d}Z", "host": "a"} for n in range(500)]
    rows[7]["ts"] = rows[300]["ts"] = "yesterday"
    (tmp_path / "logs" / "a.json").write_text("\n".join(map(json.dumps, rows)))
    assert _run(["init", str(tmp_path / "p"), "--from", str(tmp_path / "logs")], False) == 0
    assert "2 of 500 values of ts are no time, as 'yesterday'" in capsys.readouterr().out
    (stream,) = load_pipeline(tmp_path / "p" / "pipeline.yml").streams
    assert stream.time == "ts"
    (tmp_path / "logs" / "a.json").write_text("\n".join(json.dumps({"ts": f"day {n % 9}"}) for n in range(500)))
    assert _run(["init", str(tmp_path / "q"), "--from", str(tmp_path / "logs")], False) == 2
    assert "no column is an event time" in capsys.readouterr().err


def test_columns_time_and_lateness_are_those_of_the_files(tmp_path: Path) -> None:
    write_logs(tmp_path / "web logs")
    assert _run(["init", str(tmp_path), "--from", str(tmp_path / "web logs")], False) == 0
    stream = load_pipeline(tmp_path / "pipeline.yml").streams[0]
    assert (stream.name, stream.time) == ("web_logs", "ts")
    assert [column.name for column in stream.columns] == ["ts", "id.orig_h", "resp"]
    assert stream.lateness_us == 25_000_000


@pytest.mark.parametrize(
    ("name", "text", "time"),
    [
        pytest.param("a.csv", "when,event_time,v\n1,2026-01-05 12:00:00,3\n", "event_time", id="CSV with a header"),
        pytest.param("a.jsonl", '{"v": 1, "time": 1767614400}\n', "time", id="whole seconds since 1970"),
        pytest.param("a.json", '{"made": "2026-01-05T12:00:00Z", "ts": "2026-01-05T12:00:01Z"}\n', "ts",
                     id="of two times the one with the usual name"),
    ],
)  # fmt: skip
def test_the_event_time_is_found(name: str, text: str, time: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(text)
    assert _run(["init", str(tmp_path), "--from", str(tmp_path / "in" / name)], False) == 0
    assert load_pipeline(tmp_path / "pipeline.yml").streams[0].time == time


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(9, 2)), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    rows = pa.Table.from_pylist([{"at": datetime(2026, 1, 5, tzinfo=UTC), "d": None, "m": {"a": 1}}], schema)
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "notes.txt").write_text("not rows")
    assert _run(["init", str(tmp_path), "--from", str(tmp_path / "in")], False) == 0
    stream = load_pipeline(tmp_path / "pipeline.yml").streams[0]
    assert [str(column.type).upper() for column in stream.columns] == ["TIMESTAMP", "DECIMAL(9,2)", "MAP<STRING,INT>"]
    assert stream.source is not None
    assert dict(stream.source.options)["pathGlobFilter"] == "*.parquet"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({}, "no file here is of a kind", id="an empty folder"),
        pytest.param({"a.json": "nonsense\n"}, "cannot be read as json", id="no JSON"),
        pytest.param({"a.json": ""}, "Empty JSON file", id="an empty file"),
        pytest.param(
            {"a.json": '{"ts": 1767614400.25, "v": 1}\n'}, "no column is an event time", id="times as decimals"
        ),
        pytest.param({"a.json.gz": "not packed\n"}, "cannot be read as json", id="no gzip"),
    ],
)
def test_what_cannot_be_streamed_is_told_and_nothing_is_written(
    files: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text)
    assert _run(["init", str(tmp_path), "--from", str(tmp_path / "in")], False) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "pipeline.yml").exists()


def test_a_pipeline_over_logs_answers_as_duckdb_does(spark: Any, tmp_path: Path) -> None:
    rows = write_logs(tmp_path / "logs")
    assert _run(["init", str(tmp_path), "--from", str(tmp_path / "logs")], False) == 0
    assert _run(["run", str(tmp_path / "pipeline.yml"), "--once", "--flush"], False) == 0
    connection = duckdb.connect()
    connection.execute("CREATE TABLE logs (s BIGINT, host TEXT, code INT)")
    connection.executemany("INSERT INTO logs VALUES (?, ?, ?)", rows)
    wanted = connection.execute("SELECT s // 60 * 60 AS w, count(*) FROM logs GROUP BY w").fetchall()
    found = results(tmp_path / "out" / "per_minute")
    assert_same([(round(start.timestamp()), n) for start, _, n in found], wanted)
