"""What `check` finds before Spark starts; `run` refuses the same, by the same sentences."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headrace.cli.app import _run
from headrace.model import MARKER, FolderMark

PIPELINE = """\
streams:
  r:
    source: {format: parquet, path: in}
    schema: ts TIMESTAMP, k STRING
    time: ts
queries:
  q:
    sql: SELECT COUNT(*) AS n FROM r [WINDOW 1 min]
    sink: {format: parquet, path: out}
engine: {checkpoint: state, conf: {spark.ui.enabled: false}}
"""


@pytest.fixture(autouse=True)
def nothing_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / "p.yml"
    path.write_text(PIPELINE)
    return path


WRONG = [
    pytest.param("path: in", "path: ins", 3, "stream 'r' reads {home}/ins, which is not there", id="a missing input"),
    pytest.param("path: in", "path: 'none/*.parquet'", 3, "{home}/none/*.parquet, which is not there",
                 id="a pattern in a folder that is missing"),
    pytest.param("path: in", "path: p.yml", 3, "reads {home}/p.yml, which is a file: Spark streams from folders",
                 id="a file instead of its folder"),
    pytest.param("path: in", "path: 'file:{home}/ins'", 3, "reads file:{home}/ins, which is not there", id="a URI"),
    pytest.param("format: parquet, path: in", "format: parqet, path: in", 3,
                 "stream 'r' is read as 'parqet', and there is no such format; did you mean 'parquet'?",
                 id="a format that is misspelt"),
    pytest.param("format: parquet, path: in", "format: jdbc", 3, "is read as 'jdbc', and there is no such format",
                 id="a format that cannot be read as a stream"),
    pytest.param("format: parquet, path: out", "format: jsn", 9,
                 "query 'q': results are written as 'jsn', and there is no such format; did you mean 'json'?",
                 id="a sink's format that is misspelt"),
    pytest.param("format: parquet, path: out", "format: rate", 9, "results are written as 'rate', and there is no such",
                 id="a source for a sink"),
    pytest.param("path: out", "path: file", 9, "query 'q': results go to {home}/file, which is a file, not a folder",
                 id="results in a file"),
    pytest.param("path: out", "path: file/out", 9, "{home}/file/out, but {home}/file is a file, not a folder",
                 id="results below a file"),
    pytest.param("checkpoint: state", "checkpoint: file/state", 10,
                 "the checkpoint is {home}/file/state, but {home}/file is a file", id="a checkpoint below a file"),
    pytest.param("checkpoint: state", "checkpoint: state, jars: [none.jar]", 10, "there is no jar {home}/none.jar",
                 id="a missing jar"),
    pytest.param("conf: {spark.ui.enabled: false}", "conf: {{spark.sql.session.timeZone: CET}}", 10,
                 "answers depend on spark.sql.session.timeZone, which cannot be CET; leave it out", id="a time zone"),
    pytest.param("conf: {spark.ui.enabled: false}", "conf: {{spark.sql.variable.substitute: 'true'}}", 10,
                 "answers depend on spark.sql.variable.substitute, which cannot be true", id="variables in SQL"),
    pytest.param("path: in", "path: /dev/zero", 3, "reads /dev/zero, which is a device or a pipe", id="a device"),
    pytest.param("format: parquet, path: out", "format: python, options: {{function: 'nowhere:f'}}", None,
                 "query 'q': sink function 'nowhere:f' is not there: no module 'nowhere'", id="a missing module"),
    pytest.param("format: parquet, path: out", "format: python", None,
                 "query 'q': sink function '' is not there: write module:name", id="a sink without its function"),
]  # fmt: skip


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("old", "new", "line", "sentence"), WRONG)
def test_what_is_missing_is_said_before_spark_starts(
    command: str,
    old: str,
    new: str,
    line: int | None,
    sentence: str,
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    home = str(spec.parent)
    assert old in PIPELINE
    spec.write_text(PIPELINE.replace(old, new.format(home=home)))
    assert _run([command, str(spec)], False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence.format(home=home) in captured.err
    assert captured.err.startswith(f"headrace: {spec}:" if line is None else f"headrace: {spec}:{line}: ")
    assert captured.err.count("\n") == 1


def test_every_problem_around_is_said_at_once(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec.parent / "other").touch()
    text = PIPELINE.replace("path: in", "path: ins").replace("path: out", "path: file").replace(": state", ": other")
    spec.write_text(text)
    assert _run(["check", str(spec), "--json"], False) == 2
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [problem["line"] for problem in found] == [3, 9, 10]


@pytest.mark.parametrize(
    ("engine", "arguments", "variables"),
    [
        pytest.param("packages: ['a:b:1']", [], {}, id="packages"),
        pytest.param("conf: {spark.jars.packages: 'a:b:1'}", [], {}, id="a setting"),
        pytest.param("", ["--conf", "spark.jars=x.jar"], {}, id="a setting of the command"),
        pytest.param("", [], {"SPARK_HOME": "/opt/spark"}, id="a Spark of the user's own"),
    ],
)
def test_a_format_that_packages_or_jars_may_bring_is_accepted_with_a_note(
    engine: str,
    arguments: list[str],
    variables: dict[str, str],
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = PIPELINE.replace("format: parquet, path: in", "format: iceburg, path: db.t")
    spec.write_text(text.replace("conf: {spark.ui.enabled: false}", engine))
    assert _run(["check", str(spec), *arguments], False) == 0
    captured = capsys.readouterr()
    assert captured.out == "ok\n"
    assert captured.err.startswith(
        f"note: {spec}:3: stream 'r' is read as 'iceburg', which is no format of Spark's own"
    )
    assert _run(["check", str(spec), *arguments, "--json"], False) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("path: in", "path: 's3a://bucket/in'", id="an input on another file system"),
        pytest.param("path: in", "path: 'in/*/day-{{1,2}}'", id="a pattern"),
        pytest.param("format: parquet, path: in", "format: Parquet, path: in", id="a format in capitals"),
        pytest.param("path: out", "path: 'a/b/c'", id="results in folders to be made"),
        pytest.param("checkpoint: state", "checkpoint: 'hdfs:///x/y'", id="a checkpoint on another file system"),
        pytest.param("format: parquet, path: out", "format: MEMORY", id="a sink in capitals"),
    ],
)
def test_what_cannot_be_told_or_will_be_made_is_no_problem(
    old: str, new: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in PIPELINE
    spec.write_text(PIPELINE.replace(old, new))
    assert _run(["check", str(spec)], False) == 0
    assert capsys.readouterr() == ("ok\n", "")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param("path: in}", "path: in, options: {{maxFilePerTrigger: 2}}}}",
                     "3: stream 'r' has the option 'maxFilePerTrigger', which 'parquet' does not know; did you mean "
                     "'maxFilesPerTrigger'?", id="an option of a source"),
        pytest.param("path: out}", "path: out, options: {{compresion: zstd}}}}",
                     "9: the sink of query 'q' has the option 'compresion'", id="an option of a sink"),
        pytest.param("spark.ui.enabled: false", "spark.sql.shufle.partitions: 8",
                     "10: Spark has no setting spark.sql.shufle.partitions", id="a setting of Spark"),
        pytest.param("[WINDOW 1 min]", "[WINDOW 1 min SLIDE 2 s]",
                     "query 'q' answers every 2 s of event time: 43,200 times a day", id="a window that slides often"),
    ],
)  # fmt: skip
def test_what_is_probably_a_mistake_is_noted(
    old: str, new: str, told: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in PIPELINE
    spec.write_text(PIPELINE.replace(old, new.format()))
    assert _run(["check", str(spec)], False) == 0
    captured = capsys.readouterr()
    assert captured.out == "ok\n"
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_results_of_a_query_that_may_be_shed_have_columns_that_say_so(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    may = PIPELINE.replace("    sink:", "    shedding: {scale: true}\n    sink:").replace(
        "engine: {", "engine: {shedding: fit, "
    )
    assert may != PIPELINE
    spec.write_text(may)
    had = ("window_start", "TIMESTAMP"), ("window_end", "TIMESTAMP"), ("n", "BIGINT")
    (spec.parent / "out").mkdir()
    (spec.parent / "out" / "epoch-000000000-000.parquet").touch()
    (spec.parent / "state").mkdir()
    (spec.parent / "state" / "headrace.json").write_text(json.dumps({"id": "c1"}))
    mark = spec.parent / "out" / MARKER
    mark.write_text(FolderMark("c1", (*had, ("kept", "DOUBLE"), ("n_error", "DOUBLE"))).to_json())
    assert _run(["check", str(spec)], False) == 0, capsys.readouterr().err
    mark.write_text(FolderMark("c1", had).to_json())
    assert _run(["check", str(spec)], False) == 2
    assert "has results with other columns: kept and n_error are new" in capsys.readouterr().err
    spec.write_text(may.replace("AS n", "AS kept"))
    assert _run(["check", str(spec)], False) == 2
    assert "a query that may be shed has a result column 'kept' of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mark", "state", "told"),
    [
        pytest.param(FolderMark("c1", (("n", "BIGINT"),)), "c2", "holds results of another checkpoint (c1)",
                     id="of another checkpoint"),
        pytest.param(FolderMark("c1", (("n", "BIGINT"),)), None, "holds results of another checkpoint (c1)",
                     id="of a checkpoint that is gone"),
        pytest.param(FolderMark("c1", (("window_start", "TIMESTAMP"), ("window_end", "TIMESTAMP"), ("m", "BIGINT"))),
                     "c1", "has results with other columns: n is new, and m is gone; readers would find both kinds",
                     id="with other columns"),
        pytest.param(FolderMark("c1", (("window_start", "TIMESTAMP"), ("window_end", "TIMESTAMP"), ("n", "INT"))),
                     "c1", "has results with other columns: n is BIGINT, and was INT", id="with another type"),
        pytest.param(FolderMark("c1"), "c1", None, id="of an older Headrace, which did not say"),
        pytest.param(FolderMark("c1", (("window_start", "TIMESTAMP"), ("window_end", "TIMESTAMP"), ("n", "BIGINT"))),
                     "c1", None, id="of this checkpoint and query"),
    ],
)  # fmt: skip
def test_results_that_are_there_are_looked_at_before_spark_starts(
    mark: FolderMark, state: str | None, told: str | None, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (spec.parent / "out").mkdir()
    (spec.parent / "out" / "epoch-000000000-000.parquet").touch()
    (spec.parent / "out" / MARKER).write_text(mark.to_json())
    if state is not None:
        (spec.parent / "state").mkdir()
        (spec.parent / "state" / "headrace.json").write_text(json.dumps({"id": state}))
    assert _run(["check", str(spec)], False) == (0 if told is None else 2)
    captured = capsys.readouterr()
    assert (captured.err == "") if told is None else (told in captured.err)
