"""`headrace ask`: one-time queries from the panes of a checkpoint equal DuckDB's answers, and refusals say why."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from world import admit, assert_same, make_epochs, write_epochs

import headrace as hr
from headrace.cli.app import _run
from headrace.engine import ask_checkpoint, describe_checkpoint
from headrace.engine.state.checkpoint import Checkpoint, Manifest

PIPELINE = """\
name: asked
streams:
  r:
    source: {format: parquet, path: in, options: {maxFilesPerTrigger: 1}}
    schema: ts TIMESTAMP, k STRING, g INT, i INT, x DOUBLE, d "DECIMAL(12,2)", b BOOLEAN
    time: ts
    lateness: 20 seconds
queries:
  keyed: {sql: "SELECT k, g, SUM(i) AS v, COUNT(*) AS n, MAX(d) AS m FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k, g"}
  words: {sql: "SELECT COUNT(DISTINCT k) AS n FROM r [WINDOW 40 s SLIDE 20 s] WHERE b"}
engine: {checkpoint: state}
""".replace('"DECIMAL(12,2)"', "DECIMAL(12,2)")


@pytest.fixture(scope="module")
def asked(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """A stopped checkpoint whose last windows are open, and the rows that count."""
    del spark
    home = tmp_path_factory.mktemp("asked")
    (home / "p.yml").write_text(PIPELINE)
    tables = make_epochs(seed=91, epochs=3)
    write_epochs(home / "in", [table.select(["ts", "k", "g", "i", "x", "d", "b"]) for table in tables])
    assert _run(["run", str(home / "p.yml"), "--once"], False) == 0
    return str(home / "state"), admit(tables, 20).rows


def duck(rows: pa.Table, state: str, size_s: int, sql: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer over the newest closed window on panes of 20 s."""
    watermark = describe_checkpoint(state)["streams"]["r"]["watermark_us"]
    end = watermark - watermark % 20_000_000
    connection = duckdb.connect()
    connection.register("all_rows", rows)
    connection.execute(
        "CREATE TABLE r AS SELECT * FROM all_rows WHERE epoch_us(ts) >= ? AND epoch_us(ts) < ?",
        [end - size_s * 1_000_000, end],
    )
    ends = [datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for us in (end - size_s * 10**6, end)]
    found = connection.execute(sql).fetchall()
    assert found
    return [(*ends, *row) for row in found]


@pytest.mark.parametrize(
    ("question", "size_s", "judge"),
    [
        pytest.param("SELECT k, g, SUM(i) AS v FROM r [WINDOW 40 s] GROUP BY k, g", 40,
                     "SELECT k, g, sum(i)::bigint FROM r GROUP BY ALL", id="the keys of a query, a shorter window"),
        pytest.param("SELECT k, SUM(i) + 1 AS v, MAX(d) AS m FROM r [WINDOW 60 s] GROUP BY k HAVING COUNT(*) > 2", 60,
                     "SELECT k, (sum(i) + 1)::bigint, max(d) FROM r GROUP BY k HAVING count(*) > 2", id="fewer keys"),
        pytest.param("SELECT COUNT(*) AS n FROM r [WINDOW 20 s SLIDE 20 s]", 20, "SELECT count(*) FROM r", id="no key"),
        pytest.param("SELECT g, SUM(i) AS v FROM r GROUP BY window(ts, '40 s', '20 s'), g", 40,
                     "SELECT g, sum(i)::bigint FROM r GROUP BY g", id="Spark's window"),
        pytest.param("SELECT COUNT(DISTINCT k) AS n FROM r [WINDOW 40 s] WHERE b", 40,
                     "SELECT count(DISTINCT k) FROM r WHERE b", id="the filter of a query"),
    ],
)  # fmt: skip
def test_an_answer_is_duckdbs(
    asked: tuple[str, pa.Table], question: str, size_s: int, judge: str, capfd: pytest.CaptureFixture[str]
) -> None:
    state, rows = asked
    capfd.readouterr()
    assert _run(["ask", state, question, "--json"], False) == 0
    answer = json.loads(capfd.readouterr().out)
    wanted = [
        tuple(str(v) if type(v).__name__ == "Decimal" else v for v in row) for row in duck(rows, state, size_s, judge)
    ]
    assert_same([tuple(row.values()) for row in answer], wanted)


def test_a_table_for_people(asked: tuple[str, pa.Table], capsys: pytest.CaptureFixture[str]) -> None:
    state, rows = asked
    assert _run(["ask", state, "SELECT k, COUNT(*) AS n FROM r [WINDOW 20 s] GROUP BY k"], False) == 0
    captured = capsys.readouterr()
    head, *lines = captured.out.splitlines()
    assert head.split() == ["window_start", "window_end", "k", "n"]
    wanted = duck(rows, state, 20, "SELECT k, count(*) FROM r GROUP BY k")
    assert sorted(line.split()[-2:] for line in lines) == sorted([row[2] or "NULL", str(row[3])] for row in wanted)
    assert f"{len(wanted)} rows" in captured.err


@pytest.mark.parametrize(
    ("question", "words"),
    [
        pytest.param("SELECT SUM(nope) AS v FROM r [WINDOW 40 s]", "unknown column 'nope'", id="an unknown column"),
        pytest.param("SELECT COUNT(*) AS n FROM s [WINDOW 40 s]", "unknown stream 's'", id="an unknown stream"),
        pytest.param("SELECT COUNT(*) AS n FROM r", "needs a window", id="no window"),
        pytest.param("SELECT k FROM r", "only windowed aggregates", id="plain rows"),
        pytest.param("DELETE FROM r", "starts with SELECT", id="no SELECT"),
        pytest.param("SELECT COUNT(*) AS n FROM (SELECT a.k FROM r AS a [RANGE 1 s] JOIN r AS b [RANGE 1 s] "
                     "ON a.k = b.k) AS j [WINDOW 40 s]", "panes over results of other operators", id="pairs of a join"),
        pytest.param("SELECT k, AVG(i) AS v FROM r [PARTITION BY k ROWS 10]", "only windowed aggregates",
                     id="a window of rows"),
        pytest.param("SELECT to_json(k) AS k, COUNT(*) AS n FROM r [WINDOW 40 s] GROUP BY 1", "to_json",
                     id="what Spark refuses"),
        pytest.param("SELECT x, COUNT(*) AS n FROM r [WINDOW 40 s] GROUP BY x", "kept are panes of r by r.k",
                     id="a key that is not kept"),
        pytest.param("SELECT COUNT(*) AS n FROM r [WINDOW 40 s] WHERE x > 1",
                     "where .* are kept; kept are panes of r by r.k, r.g; of", id="a filter that is not kept"),
        pytest.param("SELECT MIN(i) AS m FROM r [WINDOW 40 s]", "do not have min", id="an aggregate that is not kept"),
        pytest.param("SELECT COUNT(*) AS n FROM r [WINDOW 30 s]", "panes are 20 s long", id="a length between panes"),
        pytest.param("SELECT COUNT(*) AS n FROM r [WINDOW 1 hour]", "ask for a shorter window",
                     id="a window longer than what is kept"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_paragraph(
    asked: tuple[str, pa.Table], question: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["ask", asked[0], question, "--json"], False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(words, captured.err), captured.err
    assert captured.err.startswith("headrace: ")
    assert len(captured.err.strip().splitlines()) == 1
    assert "Traceback" not in captured.err


def test_what_is_no_checkpoint_and_one_without_an_epoch(
    spark: Any, asked: tuple[str, pa.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    question = "SELECT COUNT(*) AS n FROM r [WINDOW 40 s]"
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert _run(["ask", str(folder), question], False) == 2
        assert f"{folder} is not a checkpoint" in capsys.readouterr().err
    (tmp_path / "headrace.json").write_bytes((Path(asked[0]) / "headrace.json").read_bytes())
    assert _run(["ask", str(tmp_path), question], False) == 2
    assert "has no epoch yet" in capsys.readouterr().err


def test_chunks_that_were_merged_away_meanwhile_are_looked_up_again(
    asked: tuple[str, pa.Table], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    latest = Checkpoint.latest
    reads: list[int] = []

    def outdated(checkpoint: Checkpoint) -> Manifest | None:
        """The third look, the first that leads to a job, is at a manifest whose chunks are gone."""
        manifest = latest(checkpoint)
        reads.append(1)
        if len(reads) != 3 or manifest is None:
            return manifest
        return replace(manifest, chunks=tuple(replace(c, name=f"gone-{c.name}") for c in manifest.chunks))

    monkeypatch.setattr(Checkpoint, "latest", outdated)
    assert _run(["ask", asked[0], "SELECT COUNT(*) AS n FROM r [WINDOW 40 s]", "--json"], False) == 0
    state, rows = asked
    assert_same(
        [tuple(row.values()) for row in json.loads(capsys.readouterr().out)],
        duck(rows, state, 40, "SELECT count(*) FROM r"),
    )
    assert len(reads) == 4 + 1


def test_an_engine_that_runs_answers_itself(
    asked: tuple[str, pa.Table], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """No Spark is started for the question, and a refusal of the engine's is the command's."""

    def another(*given: object) -> Any:
        raise AssertionError("Spark was started for a question that the engine answers")

    (tmp_path / "p.yml").write_text(PIPELINE)
    (tmp_path / "in").symlink_to(Path(asked[0]).parent / "in")
    run = hr.Pipeline.from_file(tmp_path / "p.yml").start(spark)
    run.process_all_available()
    monkeypatch.setattr("headrace.engine.ask.build_session", another)
    state = str(tmp_path / "state")
    question = ["ask", state, "SELECT g, SUM(i) AS v FROM r [WINDOW 40 s] GROUP BY g", "--json"]
    assert _run(question, False) == 0
    answer = json.loads(capsys.readouterr().out)
    wanted = duck(asked[1], state, 40, "SELECT g, sum(i)::bigint FROM r GROUP BY g")
    assert_same([tuple(row.values()) for row in answer], wanted)
    assert _run(["ask", state, "SELECT MIN(i) AS m FROM r [WINDOW 40 s]"], False) == 2
    assert "do not have min" in capsys.readouterr().err
    run.stop()
    with pytest.raises(AssertionError, match="Spark was started"):
        ask_checkpoint(state, question[2])


def test_a_pipeline_that_may_shed_is_started_again_where_its_results_are(
    asked: tuple[str, pa.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PIPELINE.replace("engine: {", "engine: {shedding: fit, ").replace('"}', '", shedding: {scale: true}}')
    assert text.count("scale") == 2
    (tmp_path / "p.yml").write_text(text)
    (tmp_path / "in").symlink_to(Path(asked[0]).parent / "in")
    for command in ("run", "check", "run"):
        more = ["--once"] if command == "run" else []
        assert _run([command, str(tmp_path / "p.yml"), *more], False) == 0, capsys.readouterr().err


def test_explain_takes_rates_from_what_a_run_has_measured(
    asked: tuple[str, pa.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, rows = asked
    (tmp_path / "p.yml").write_text(
        PIPELINE + "sites: {far: {streams: [r]}, hub: {proxy: true}}\nnetwork: {latency_ms: {far-hub: 10}}\n"
    )
    told = []
    for more in ([], ["--from", state]):
        capsys.readouterr()
        assert _run(["explain", str(tmp_path / "p.yml"), "--json", *more], False) == 0
        told.append(json.loads(capsys.readouterr().out)["placement"])
    born = [next(rate for source, _, rate in each["flows"] if source == "r@far") for each in told]
    stream = describe_checkpoint(state)["streams"]["r"]
    span_s = (stream["last_us"] - rows["ts"].cast(pa.int64()).to_numpy().min()) / 1e6
    assert born[1] / born[0] == pytest.approx(stream["rows_in"] / span_s / 1000, rel=0.01), "1000 rows/s are guessed"


def test_a_checkpoint_without_an_epoch_has_no_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yml").write_text(PIPELINE)
    assert _run(["explain", str(tmp_path / "p.yml"), "--from", str(tmp_path / "none")], False) == 2
    assert "has no epoch to take rates from" in capsys.readouterr().err
