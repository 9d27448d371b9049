"""What the command line says of pipelines with sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.app import _run

PIPELINE = """\
streams:
  r: {source: {format: parquet, path: 'in/{site}'}, schema: 'ts TIMESTAMP, k STRING', time: ts}
queries:
  total: {sql: "SELECT COUNT(*) AS n FROM r [WINDOW 60 s]"}
sites: {a: {streams: [r]}, b: {streams: [r]}, hub: {proxy: true}}
network: {round_trips: rtt.csv}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "rtt.csv").write_text(",a,b,hub\na,0,30,12\nb,34,0,20\nhub,12,20,0\n")
    (tmp_path / "p.yml").write_text(PIPELINE)
    return tmp_path / "p.yml"


def test_check_accepts_a_stream_born_at_two_sites_and_notes_how_the_network_was_read(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["check", str(spec)], False) == 0
    captured = capsys.readouterr()
    assert captured.out == "ok\n"
    assert captured.err.splitlines() == [
        f"note: {spec.parent}/rtt.csv: 1 of 3 pairs have another round trip each way (the most: 'a' and 'b', 30 and 34 "
        "ms); the mean counts",
        "note: stream 'r' is born at sites a, b; `run` does not run several sites in this version",
    ]


def test_run_refuses_a_stream_born_at_two_sites_before_spark_starts(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["run", str(spec)], False) == 2
    assert "stream 'r' is born at sites a, b: running a pipeline on several sites is not part of this version" in (
        capsys.readouterr().err
    )


def test_a_mistake_in_a_network_file_is_said_with_that_file_and_line(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (spec.parent / "rtt.csv").write_text(",a,b,hub\na,0,30,12\nb,34,0,-20\nhub,12,20\n")
    assert _run(["check", str(spec), "--json"], False) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert {problem["file"] for problem in problems} == {str(spec.parent / "rtt.csv")}
    assert [(problem["line"], problem["message"]) for problem in problems] == [
        (4, "2 numbers in this row, and the matrix has 3 columns"),
        (3, "the round trip from 'b' to 'hub' is '-20'; milliseconds are 0 or more"),
    ]


@pytest.mark.parametrize("option", ["--topology", "--round-trips"])
def test_network_files_are_for_the_placement_bench(option: str, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["bench", "join", option, str(spec)], False) == 2
    assert "--topology and --round-trips are for bench placement, not for join" in capsys.readouterr().err
