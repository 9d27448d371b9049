"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from world import admit, assert_same, expected, make_epochs, results, write_epochs

from headrace.cli.app import _run
from headrace.cli.checking import why_missing

PIPELINE = """\
name: small
streams:
  r:
    source: {{format: parquet, path: in, options: {{maxFilesPerTrigger: 1}}}}
    schema: ts TIMESTAMP, k STRING, g INT, i INT
    time: ts
    lateness: 20 seconds
queries:
  by_key: {{sql: "SELECT k, SUM(i) AS v FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"}}
  total: {{sql: "SELECT COUNT(*) AS n FROM r {window}"}}
engine: {{checkpoint: state}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "p.yml"
    path.write_text(PIPELINE.format(window="[WINDOW 60 s SLIDE 20 s]"))
    (tmp_path / "in").mkdir()
    return path


def test_check_says_ok(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["check", str(spec)], False) == 0
    assert capsys.readouterr().out == "ok\n"


def test_check_names_every_problem_at_once(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(spec.read_text().replace("SUM(i)", "SUM(j)").replace("COUNT(*)", "RAND()"))
    assert _run(["check", str(spec)], False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "unknown column 'j'" in captured.err
    assert "rand" in captured.err
    assert f"{spec}:9" in captured.err


def test_check_as_json(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(spec.read_text().replace("SUM(i)", "SUM(j)"))
    assert _run(["check", str(spec), "--json"], False) == 2
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is False
    assert value["problems"][0]["query"] == "by_key"


def test_explain_names_synopses_and_why(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["explain", str(spec)], False) == 0
    text = capsys.readouterr().out
    assert "panes of 20 s" in text
    assert "sum(r.i)" in text
    assert _run(["explain", str(spec), "--json"], False) == 0
    assert set(json.loads(capsys.readouterr().out)["queries"]) == {"by_key", "total"}


FUNCTION = """\
name: j
streams:
  a: {source: {format: parquet, path: in}, schema: 'ts TIMESTAMP, k STRING', time: ts}
queries:
  q: {sql: 'SELECT k FROM a [PARTITION BY k]', function: 'count_beside:step', state: 'k STRING', results: 'k STRING'}
"""


def test_a_function_is_checked_and_explained_without_being_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yml"
    (tmp_path / "in").mkdir()
    path.write_text(FUNCTION)
    (tmp_path / "count_beside.py").write_text("raise RuntimeError('it was run')\ndef step(state, rows): ...\n")
    assert _run(["check", str(path)], False) == 0
    assert _run(["explain", str(path)], False) == 0
    assert "q: count_beside:step (state of version 1) over [PARTITION BY a.k] over a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("count_beside:step", "no.such:step", ["'no.such:step' is not there: no module"], id="module"),
        pytest.param("count_beside:step", "json.no_such:x", ["no module 'json.no_such'"], id="a module of a package"),
        pytest.param("count_beside:step", "count_beside:stop", ["'stop' is not in ", "count_beside.py"], id="a name"),
        pytest.param("count_beside:step", "count_beside:", ["module:name"], id="no name"),
        pytest.param("results", "migration: later, results", ["module:name", "later"], id="a migration"),
        pytest.param("results:", "version: 0, results:", ["versions of state count from 1"], id="a version"),
        pytest.param(", results: 'k STRING'", "", ["has function, and no results"], id="no results"),
        pytest.param("state: 'k STRING'", "state: 'k STRONG'", ["state of query 'q'", "STRONG"], id="a wrong type"),
        pytest.param("name: j", "name: j\nengine: {conf: {spark.headrace.flux.budgt: 1}}",
                     ["unknown setting 'spark.headrace.flux.budgt'"], id="a setting"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_function_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: list[str]
) -> None:
    path = tmp_path / "p.yml"
    (tmp_path / "in").mkdir()
    (tmp_path / "count_beside.py").write_text("from json import loads as other\nstep = other\n")
    assert old in FUNCTION
    path.write_text(FUNCTION.replace(old, new))
    assert _run(["check", str(path), "--json"], False) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert all(word in problem["message"] for word in words), problem


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        pytest.param("json:loads", None, id="a package"),
        pytest.param("os.path:join", None, id="a module under another name"),
        pytest.param("itertools:chain", None, id="a module without source"),
        pytest.param("math:nothing_of_the_sort", None, id="nor can be told what is in it"),
        pytest.param("headrace.policies.keyed.decide:begin", None, id="a module in packages"),
        pytest.param("space.inner.deep:f", None, id="folders without a file of their own"),
        pytest.param("space.inner.deep:g", None, id="in one another, which only running them finds"),
        pytest.param("space.plain:g", "'g' is not in", id="a name that is not there"),
        pytest.param("space.outer:f", "no module 'space.outer'", id="or is not there"),
        pytest.param("space.odd:anything", None, id="names made when they are asked for"),
        pytest.param("space.wrong:f", "line 1: ", id="no Python"),
    ],
)
def test_a_function_is_looked_for_without_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, missing: str | None
) -> None:
    (tmp_path / "space" / "inner").mkdir(parents=True)
    (tmp_path / "space" / "inner" / "deep.py").write_text("raise RuntimeError\nf = 1\n")
    (tmp_path / "space" / "plain.py").write_text("raise RuntimeError\nf = 1\n")
    (tmp_path / "space" / "odd.py").write_text("def __getattr__(name): ...\n")
    (tmp_path / "space" / "wrong.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = why_missing(function)
    assert (found is None) if missing is None else (found is not None and missing in found)


def test_check_refuses_what_a_run_would(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(
        spec.read_text().replace(
            "SELECT COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s]",
            "SELECT approx_percentile(ts, 0.5) AS p FROM r [PARTITION BY k ROWS 3]",
        )
    )
    assert _run(["check", str(spec)], False) == 2
    assert "approx_percentile needs a number, not TIMESTAMP" in capsys.readouterr().err


def test_explain_knows_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yml"
    path.write_text(FUNCTION + "engine: {conf: {spark.headrace.flux.minis: 8, spark.headrace.flux.moves: 'off'}}\n")
    assert _run(["explain", str(path)], False) == 0
    text = capsys.readouterr().out
    assert "8 mini-partitions per bin stay in the bin's process; they do not move" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["check", "nowhere.yml"], "nowhere.yml", id="a file that is not there"),
        pytest.param(["status", "nowhere"], "is not a checkpoint", id="a checkpoint that is not there"),
        pytest.param(["bench", "nothing"], "known: ingest", id="a bench that is not there"),
        pytest.param(["run"], "spec", id="an argument left out"),
        pytest.param(["dance"], "dance", id="a command that is not there"),
        pytest.param(["check", "x.yml", "--conf", "nonsense"], "--conf nonsense: write KEY=VALUE", id="no setting"),
        pytest.param(["check", "x.yml", "--conf", "a=b"], "--conf a=b: settings of Spark begin", id="not Spark's"),
        pytest.param(
            ["ask", "x", "SELECT 1", "--master", "moon"], "'moon' is not a Spark master; write", id="no master"
        ),
        pytest.param(["ask", "x", "SELECT 1", "--master", "local[0]"], "'local[0]' is not a Spark", id="no cores"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(arguments, False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["--version"], False) == 0
    assert capsys.readouterr().out == f"headrace {version('headrace')}\n"


def test_a_run_in_which_a_query_failed_exits_1_and_says_which(
    spec: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    (table,) = make_epochs(seed=63, epochs=1)
    write_epochs(spec.parent / "in", [table.select(["ts", "k", "g", "i"])])
    spec.write_text(spec.read_text().replace("SUM(i)", "SUM(1 / (i - i))"))
    assert _run(["run", str(spec), "--once", "--flush", "--json"], False) == 1
    captured = capsys.readouterr()
    said = [line for line in captured.err.splitlines() if line.startswith("headrace: ")]
    assert len(said) == 1
    assert said[0].startswith("headrace: query 'by_key' failed: ")
    assert "Division by zero" in said[0]
    end = json.loads(captured.out.splitlines()[-1])
    assert (end["event"], end["level"], list(end["failed"])) == ("end", "warning", ["by_key"])
    assert_same(
        results(spec.parent / "out" / "total"), expected(admit([table], 20).rows, "count(here)", "", 60, 20, False)
    )


def test_run_once_with_flush_then_status(spec: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    del spark  # the session the command finds
    tables = make_epochs(seed=61, epochs=3)
    write_epochs(spec.parent / "in", [table.select(["ts", "k", "g", "i"]) for table in tables])
    assert _run(["run", str(spec), "--once", "--flush"], False) == 0
    text = capsys.readouterr().out
    assert "epoch 0: " in text
    assert "Spark jobs" in text
    rows = admit(tables, 20).rows
    assert_same(results(spec.parent / "out" / "by_key"), expected(rows, "k, sum(i)::bigint", "k", 60, 20, False))
    assert _run(["status", str(spec.parent / "state"), "--json"], False) == 0
    status = json.loads(capsys.readouterr().out)
    entry = status["streams"]["r"]
    assert entry["rows_in"] == sum(table.num_rows for table in tables)
    assert entry["rows_in"] == entry["used"] + entry["late"] + entry["shed"] + entry["rejected"]
    assert _run(["status", str(spec.parent / "state")], False) == 0
    assert "by_key" in capsys.readouterr().out


def test_a_changed_query_starts_anew_and_the_others_go_on(
    spec: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    run 1     epochs 0 1 2      by_key, total
    run 2     epochs 3 4 5      by_key goes on, total has another window: from the newest closed one on
    """
    del spark
    tables = make_epochs(seed=62, epochs=6)
    narrow = [table.select(["ts", "k", "g", "i"]) for table in tables]
    write_epochs(spec.parent / "in", narrow[:3])
    assert _run(["run", str(spec), "--once"], False) == 0
    before = results(spec.parent / "out" / "total")
    write_epochs(spec.parent / "in", narrow[3:], 3)
    spec.write_text(PIPELINE.format(window="[WINDOW 40 s SLIDE 20 s]"))
    assert _run(["run", str(spec), "--once", "--flush"], False) == 0
    note = "query 'total' has changed and starts anew: it answers at once, from panes that are there"
    assert note in capsys.readouterr().err
    rows = admit(tables, 20).rows
    assert_same(results(spec.parent / "out" / "by_key"), expected(rows, "k, sum(i)::bigint", "k", 60, 20, False))
    watermark = max(admit(tables[:3], 20).rows["ts"].to_pylist()) - timedelta(seconds=20)
    after = [row for row in results(spec.parent / "out" / "total") if row not in before]
    wanted = [r for r in expected(rows, "count(here)", "", 40, 20, False) if r[1] > watermark - timedelta(seconds=20)]
    assert wanted
    assert_same(after, wanted)
