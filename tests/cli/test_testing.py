"""`headrace test`: cases pass or fail as their rows say, and what is different can be read."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import _run
from headrace.cli.differing import MOST_LINES, difference

NAN = float("nan")


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([{"k": "a"}, {"k": "b"}], [{"k": "b"}, {"k": "a"}], id="in any order"),
        pytest.param([{"k": "a"}], [{"k": "a", "n": 1}], id="only the columns that are named"),
        pytest.param([{"x": NAN}, {"x": NAN}], [{"x": NAN}, {"x": NAN}], id="NaN"),
        pytest.param([{"x": 0.3}], [{"x": 0.1 + 0.2}], id="the last digits of floats"),
        pytest.param([{"x": 2}], [{"x": Decimal("2.00")}], id="a whole number and a decimal"),
        pytest.param([{"s": {"u": [1.0]}}], [{"s": {"u": [1.0]}}], id="what is nested"),
    ],
)
def test_what_is_the_same_makes_no_lines(expected: list[Any], found: list[Any]) -> None:
    assert difference(expected, found) == []


@pytest.mark.parametrize(
    ("expected", "found", "lines"),
    [
        pytest.param([], [{"k": "a"}], ["  k", "+ a"], id="nothing was expected"),
        pytest.param([{"k": "a"}], [], ["  k", "- a"], id="nothing was found"),
        pytest.param([{"k": "a"}, {"k": "a"}], [{"k": "a"}], ["  k", "- a"], id="once too few"),
        pytest.param([{"k": "a"}], [{"k": "a"}, {"k": "a"}], ["  k", "+ a"], id="once too often"),
        pytest.param([{"k": None}], [{"k": ""}], ["  k", "- null", "+"], id="NULL is no empty text"),
        pytest.param([{"b": True}], [{"b": 1}], ["  b", "- true", "+ 1"], id="true is no number"),
        pytest.param([{"n": 2}], [{"n": Decimal(3)}], ["  n", "- 2", "+ 3"], id="another number"),
        pytest.param([{"k": "a", "n": 1}, {"k": "b", "n": 2}], [{"k": "b", "n": 3}, {"k": "a", "n": 9}],
                     ["  k  n", "- a  1", "+ a  9", "- b  2", "+ b  3"], id="rows most alike stand together"),
    ],
)  # fmt: skip
def test_rows_that_differ_are_shown(expected: list[Any], found: list[Any], lines: list[str]) -> None:
    shown = difference(expected, found)
    assert [line for line in shown if not line.startswith("  ")] == lines[1:]
    assert shown[0] == lines[0]


def test_many_rows_are_cut_short() -> None:
    shown = difference([], [{"n": n} for n in range(MOST_LINES + 5)])
    assert len(shown) == MOST_LINES + 2
    assert shown[-1] == "and 5 lines more"


PIPELINE = """\
streams:
  r:
    source: {format: kafka, options: {kafka.bootstrap.servers: "nowhere:1", subscribe: r}, value: json}
    schema: ts TIMESTAMP, k STRING, i INT
    time: ts
    lateness: 5 seconds
queries:
  by_key:
    sql: SELECT k, SUM(i) AS v FROM r [WINDOW 20 s SLIDE 10 s] GROUP BY k
    sink: {format: jdbc, options: {url: "jdbc:postgresql://nowhere/x", dbtable: t}}
  fails: {sql: "SELECT k, 1 / i AS share FROM r"}
engine: {packages: ["no.such:package:1.0"], jars: [not/there.jar]}
"""
CASES = """\
sums in the year 2200, with a late row in the second epoch:
  rows:
    r:
      - [{ts: 2200-01-05 12:00:20, k: a, i: 1}, {ts: 2200-01-05 12:00:21, k: a, i: 2}]
      - [{ts: 2200-01-05 12:00:14, k: a, i: 50}, {ts: 2200-01-05 12:00:16, k: a, i: 10},
         {ts: 2200-01-05 12:00:30, k: b, i: null}]
  expect:
    by_key:
      - {window_end: 2200-01-05 12:00:20, k: a, v: 10}
      - {window_end: 2200-01-05 12:00:30, k: a, v: 13}
      - {window_end: 2200-01-05 12:00:40, k: a, v: 3}
      - {window_end: 2200-01-05 12:00:40, k: b, v: null}
      - {window_end: 2200-01-05 12:00:50, k: b, v: null}
a sum that is another:
  rows: {r: [{ts: 2026-01-05 12:00:01, k: a, i: 1}]}
  expect: {by_key: [{window_end: 2026-01-05 12:00:10, v: 2}, {window_end: 2026-01-05 12:00:20, v: 1}]}
a query that fails:
  rows: {r: [{ts: 2026-01-05 12:00:01, k: a, i: 0}]}
  expect: {fails: []}
"""


def test_cases_run_without_sources_and_sinks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yml").write_text(PIPELINE)
    (tmp_path / "tests.yml").write_text(CASES)
    assert _run(["test", str(tmp_path / "p.yml")], False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok  sums in the year 2200, with a late row in the second epoch"
    assert lines[1:6] == [
        "FAILED  a sum that is another",
        "  by_key: - expected, + found",
        "      window_end           v",
        "    - 2026-01-05 12:00:10  2",
        "    + 2026-01-05 12:00:10  1",
    ]
    assert lines[6] == "FAILED  a query that fails"
    assert "division by zero" in lines[8].lower()
    assert lines[-1] == "1 of 3 cases pass"
    assert not (tmp_path / "state").exists()


def test_outcomes_as_json(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yml").write_text(PIPELINE)
    (tmp_path / "other.yml").write_text("none:\n  rows: {}\n  expect: {by_key: []}\n")
    arguments = ["test", str(tmp_path / "p.yml"), "--cases", str(tmp_path / "other.yml"), "--json"]
    assert _run(arguments, False) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"ok": True, "cases": [{"case": "none", "ok": True, "wrong": {}}]}


def test_cases_that_cannot_be_read_are_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yml").write_text(PIPELINE)
    assert _run(["test", str(tmp_path / "p.yml")], False) == 2
    assert "cannot read the cases: No such file" in capsys.readouterr().err
