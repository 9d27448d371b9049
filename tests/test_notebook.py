"""The example notebook, run as it stands with a Spark session that nobody has prepared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from headrace.engine.watch.frames import as_html, decisions_frame, queries_frame, streams_frame
from headrace.model import EpochDecision, Flush, Idle, Intake, ScheduleDecision

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def test_a_notebook_has_no_results_in_it() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_a_notebook_runs_with_a_plain_session_whatever_python3_is(tmp_path: Path) -> None:
    """On the path `python3` is something that cannot run tasks, and nothing says which Python to take."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 7\n")
    other.chmod(0o755)
    given = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    path = f"{other.parent}{os.pathsep}{given['PATH']}"
    support = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "notebook.py"), str(NOTEBOOK)], capture_output=True,
        text=True, check=False, cwd=tmp_path, env={**given, "PATH": path, "PYTHONPATH": support},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    pipe, run, answers, streams, queries, decisions, asked = json.loads(done.stdout.splitlines()[-1]).values()
    assert "<td>busiest</td>" in pipe
    assert "web has ended, epoch " in run
    assert answers.count("host0") == 2
    assert "<td>requests</td>" in streams
    assert "<td>594</td>" in streams, "600 rows but 6 without a time"
    assert "<td>busiest</td>" in queries
    assert "flush" in decisions
    assert "host2" in asked


STATUS = {
    "streams": {"s": {"rows_in": 5, "used": 4, "late": 1, "shed": 0, "rejected": 0, "last_us": 2_000_000,
                      "watermark_us": None}},
    "queries": {"q": {"state": "failed", "cause": "<b>", "answers": 3, "rows": 7, "answered_us": None, "late_us": 0,
                      "achieved_period_us": 1_500_000}},
}  # fmt: skip


def test_frames_have_times_in_utc_and_html_is_escaped() -> None:
    streams, queries = streams_frame(STATUS), queries_frame(STATUS)
    assert str(streams["last"][0]) == "1970-01-01 00:00:02+00:00"
    assert streams["watermark"].isna().all()
    assert queries.to_dict("records")[0]["period_s"] == 1.5
    html = as_html("<i>", streams, queries)
    assert "<b>&lt;i&gt;</b>" in html
    assert "<td>&lt;b&gt;</td>" in html


def test_a_decision_has_a_row_for_each_thing_decided() -> None:
    decision = EpochDecision(
        4, 4, 0, 4, ("q",), (Idle("s", "silent for 60 s"),), Flush("asked"),
        {"*": ScheduleDecision("hybrid", None, (), "as they come")}, Intake(500, "first"),
    )  # fmt: skip
    found = decisions_frame([decision]).values.tolist()
    assert found == [
        [4, "stream s", "idle", "silent for 60 s"],
        [4, "streams", "flush", "asked"],
        [4, "intake", "500 rows", "first"],
        [4, "all queries", "schedule", "as they come"],
    ]


def test_before_the_first_epoch_frames_are_empty() -> None:
    empty = {"streams": {}, "queries": {}}
    assert list(queries_frame(empty).columns)[:2] == ["query", "state"]
    assert len(streams_frame(empty)) == len(decisions_frame(())) == 0
