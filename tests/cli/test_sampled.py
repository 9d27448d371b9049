"""`check --sample`: what the first rows of streams are like, and what queries answer over them."""

from __future__ import annotations

import gzip
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.cli.sampled import describe_sample
from headrace.engine.sources.sample import Refused, StreamSample, look, take
from headrace.language import load_pipeline
from headrace.model import Column, DataType, Kind, Stream
from headrace.units import SECOND_US

START = 1_767_614_400  # 2026-01-05 12:00:00
PIPELINE = """
streams:
  web:
    source: {format: json, path: logs}
    schema: "ts TIMESTAMP, host STRING, bytes BIGINT, `a.b` STRUCT<c: INT>"
    time: ts
    lateness: 10 seconds
  lines:
    source: {format: csv, path: lines}
    schema: ts TIMESTAMP, k STRING, n INT
    time: ts
queries:
  busiest:
    sql: SELECT host, COUNT(*) AS n, SUM(bytes) AS bytes FROM web GROUP BY window(ts, '1 minute'), host
  broken:
    sql: SELECT host, 1 / (COUNT(*) - COUNT(*)) AS n FROM web GROUP BY window(ts, '1 minute'), host
  plain:
    sql: SELECT k, n FROM lines WHERE n > 1
output: out
engine: {checkpoint: state}
"""


def write_logs(home: Path) -> list[tuple[int, str | None]]:
    """JSON lines in disorder in two files, some of them bad; gives back the times and columns to blame, in order."""
    rng, rows, lines = random.Random(5), list[tuple[int, str | None]](), list[str]()
    for i in range(400):
        second = max(0, i // 4 - (rng.randint(1, 30) if rng.random() < 0.3 else 0))
        at = f"2026-01-05T12:{second // 60:02d}:{second % 60:02d}Z"
        row = {"ts": at, "host": rng.choice("ab"), "bytes": i, "a.b": {"c": i}}
        bad = {7: "bytes", 8: "time", 9: "a.b", 10: "line"}.get(i % 50)
        row |= {"bytes": {"bytes": "12k"}, "time": {"ts": None}, "a.b": {"a.b": {"c": "x"}}}.get(bad or "", {})
        rows.append((START + second, bad))
        lines.append('{"ts": ' if bad == "line" else json.dumps(row))
    (home / "logs").mkdir()
    with gzip.open(home / "logs" / "a.json.gz", "wt") as packed:
        packed.write("\n".join(lines[:150]) + "\n")
    (home / "logs" / "b.json").write_text("\n".join(lines[150:]) + "\n")
    # Spark reads files in the order of their times; these may have been written within one tick of the clock.
    os.utime(home / "logs" / "a.json.gz", (START, START))
    (home / "lines").mkdir()
    (home / "lines" / "a.csv").write_text(
        "2026-01-05T12:00:00Z,x,1\n2026-01-05T12:00:01Z,y,2\n2026-01-05T12:00:02Z,z,two\n"
    )
    (home / "pipeline.yml").write_text(PIPELINE)
    return rows


def test_rows_are_judged_and_measured_in_the_order_in_which_they_come(spark: Any, tmp_path: Path):
    rows = write_logs(tmp_path)[:350]
    pipeline = load_pipeline(tmp_path / "pipeline.yml")
    stream = pipeline.stream("web")
    taken = take(spark, stream, 350, str(tmp_path / "sample"))
    found = look(taken, (START + 3600) * SECOND_US)
    times, behind = [second for second, bad in rows if bad is None], list[int]()
    greatest = 0
    for second in times:
        greatest = max(greatest, second)
        behind.append(greatest - second)
    bad = {each: sum(why == each for _, why in rows) for each in ("bytes", "time", "a.b", "line")}
    blamed = {each.column or each.reason: (each.rows, each.value) for each in found.refused}
    assert blamed == {
        "bytes": (bad["bytes"], "12k"),
        "a.b": (bad["a.b"], '{"c":"x"}'),
        "no event time": (bad["time"], None),
        "not json": (bad["line"], '{"ts": '),
    }
    assert (found.rows, found.parsed) == (350, len(times))
    assert (found.first_us, found.last_us) == (min(times) * SECOND_US, max(times) * SECOND_US)
    assert found.behind == sum(each > 0 for each in behind)
    assert found.late == sum(each > 10 for each in behind)
    assert found.worst_us == max(behind) * SECOND_US
    assert found.wanted_us == sorted(behind)[-1] * SECOND_US, "one row in a thousand of 350 is none"
    assert sum(each * SECOND_US <= found.wanted_us for each in behind) >= 0.999 * len(behind)
    early = look(taken, (START + 60 - 3600) * SECOND_US)
    ahead = {each.reason: each.rows for each in early.refused}["too far ahead of the clock"]
    assert ahead == sum(second > START + 60 for second in times)


def test_the_command_shows_streams_and_first_answers_and_writes_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_logs(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("headrace.cli.sampled.build_session", lambda *_, **__: spark)
    done = CliRunner().invoke(app, ["check", "pipeline.yml", "--sample", "1000"])
    assert done.exit_code == 1, "one of the queries fails over these rows"
    assert "web: the first 400 rows, of which 368 parse" in done.stdout
    assert "8 rejected: column 'bytes' is BIGINT, as in '12k'" in done.stdout
    assert "1 rejected: column 'n' is INT, as in 'two'" in done.stdout
    assert "busiest: 4 answers" in done.stdout
    assert "broken: failed: in 1 / (COUNT(*) - COUNT(*)): Division by zero" in done.stdout
    assert "plain: 1 answers\nk  n\ny  2" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before
    refused = CliRunner().invoke(app, ["check", "pipeline.yml", "--sample", "10", "--json"])
    assert refused.exit_code != 0


STREAM = Stream("s", (Column("ts", DataType(Kind.TIMESTAMP)),), "ts", 10 * SECOND_US)
SOUND = StreamSample("s", 1000, (), START * SECOND_US, (START + 60) * SECOND_US)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(StreamSample("s", 0, ()), "s: the first 0 rows, of which 0 parse", id="an empty stream"),
        pytest.param(SOUND, "every row is at least as late as those before it", id="rows in order"),
        pytest.param(
            replace(SOUND, behind=10, wanted_us=2 * SECOND_US, worst_us=3 * SECOND_US),
            "with lateness 10 s none of them is late; lateness: 2 s would admit 99.9 % in any case",
            id="disorder within the lateness",
        ),
        pytest.param(
            replace(SOUND, behind=100, late=50, wanted_us=30 * SECOND_US, worst_us=45 * SECOND_US),
            "with lateness 10 s up to 5.0% of rows are late; lateness: 30 s would admit 99.9 % in any case",
            id="disorder beyond it",
        ),
        pytest.param(
            replace(SOUND, refused=(Refused(3, "unparseable", "n", "INT", "x" * 99),)),
            f"3 rejected: column 'n' is INT, as in '{'x' * 60}...'",
            id="a long value is cut",
        ),
    ],
)
def test_a_sample_is_told_in_sentences(found: StreamSample, said: str):
    assert said in describe_sample(found, STREAM)
