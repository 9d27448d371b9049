"""A package that an installation lacks is said before Spark starts, with the command that brings it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import checking
from headrace.cli.app import _run
from headrace.language import bind_query, lacking_packages, parse_schema
from headrace.model import SinkSpec, Stream

SQL = "SELECT COUNT(*) AS n FROM r [WINDOW 1 min]"


def test_only_queries_that_need_a_package_lack_it() -> None:
    stream = Stream("r", parse_schema("ts TIMESTAMP"), "ts")
    queries = [bind_query(name, SQL, {"r": stream}, sink=SinkSpec(name, "/x")) for name in ("delta", "parquet")]
    (problem,) = lacking_packages(queries, lambda package: False)
    assert str(problem) == "query 'delta': a delta sink needs the package deltalake: pip install 'headrace[delta]'"
    assert lacking_packages(queries, lambda package: True) == []


def test_check_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yml").write_text(
        f"streams: {{r: {{source: {{format: synthetic}}}}}}\nqueries: {{q: {{sql: '{SQL}', sink: delta}}}}\n"
    )
    monkeypatch.setattr(checking, "lacking_packages", lambda queries: lacking_packages(queries, lambda package: False))
    assert _run(["check", str(tmp_path / "p.yml")], False) == 2
    assert "p.yml: query 'q': a delta sink needs the package deltalake" in capsys.readouterr().err
