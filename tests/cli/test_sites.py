"""What the command line says of pipelines with sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.app import _run
from headrace.cli.json_log import JsonLog
from headrace.cli.running_sites import _Ending, _run_on
from headrace.cli.stopping import Stopping
from headrace.engine import Manifest
from headrace.errors import EngineError

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
    ]


@pytest.mark.parametrize(
    ("site", "why"),
    [
        pytest.param("rome", "there is no such site; sites that run something: a, b, hub", id="no site of that name"),
        pytest.param("idle", "nothing of the pipeline runs there; sites that run something: a, b, hub", id="idle"),
    ],
)
def test_a_site_without_anything_to_run_is_refused_before_spark_starts(
    site: str, why: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(PIPELINE.replace("hub: {proxy: true}", "hub: {proxy: true}, idle: {}"))
    (spec.parent / "rtt.csv").write_text(",a,b,hub,idle\na,0,30,12,9\nb,30,0,20,9\nhub,12,20,0,9\nidle,9,9,9,0\n")
    assert _run(["run", str(spec), "--site", site], False) == 2
    assert f"--site {site}: {why}" in capsys.readouterr().err


def test_a_site_of_a_pipeline_without_sites_is_refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(PIPELINE.partition("sites:")[0].replace("{site}", "a"))
    (spec.parent / "in/a").mkdir()
    assert _run(["run", str(spec), "--site", "a"], False) == 2
    assert "--site a: pipeline 'p' has no sites" in capsys.readouterr().err


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


class _Fake:
    """A site's run that ends by itself after some looks, or when it is stopped."""

    def __init__(
        self, looks: int = 1_000_000, failure: str | None = None, failed: dict[str, str] | None = None
    ) -> None:
        self.looks, self.failure, self.failed, self.stopped = looks, failure, failed or {}, False
        self.progress = Manifest(-1, -1)

    @property
    def is_active(self) -> bool:
        self.looks -= 1
        return self.looks > 0

    def await_termination(self, timeout_s: int) -> bool:
        return False

    def stop(self) -> None:
        self.stopped = True
        if self.failure is not None:
            raise EngineError(self.failure)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        pytest.param({"a": _Fake(), "b": _Fake(3, "no room")}, "b: no room", id="a site that fails stops the others"),
        pytest.param(
            {"a": _Fake(3, failed={"q": "division by zero"}), "b": _Fake()},
            "a: query 'q' failed: division by zero",
            id="queries that failed are told with their site",
        ),
    ],
)
def test_sites_run_beside_each_other_until_one_ends(runs: dict[str, _Fake], said: str) -> None:
    class Sites:
        stopping = Stopping()

        def start(self, part: str, flush: bool) -> _Ending:
            return _Ending(part, runs[part], JsonLog("x", lambda line: None), self)  # type: ignore[arg-type]

    with pytest.raises(EngineError, match=said):
        _run_on(Sites(), {name: name for name in runs})  # type: ignore[arg-type]
    assert all(run.stopped for run in runs.values())
