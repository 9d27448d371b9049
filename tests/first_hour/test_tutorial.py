"""The tutorial does what it says: a reader who types its blocks one after the other gets through it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial_runs_as_it_stands(tmp_path: Path):
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    scripts = [text for kind, text in blocks if kind == "python"]
    pipeline, added = (text for kind, text in blocks if kind == "yaml")
    (tmp_path / "make_logs.py").write_text(scripts[0])
    said = ""
    for line in (line for kind, text in blocks if kind == "sh" for line in text.splitlines()):
        if line.startswith("headrace check"):
            (tmp_path / "shop" / "pipeline.yml").write_text(pipeline)
        said += typed(line, tmp_path)
    assert "30,000" in said
    assert (
        duckdb.sql(
            f"SELECT count(*) FROM read_json('{tmp_path}/logs/*.json.gz') WHERE path = '/pay' AND ms > 1000"
        ).fetchall()
        == duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/shop/out/slow_payments/*.parquet'").fetchall()
    )
    assert "requests" in typed(f"python3 -c {shlex.quote(scripts[1])}", tmp_path)
    edited = pipeline.replace("output: out", f"{added}output: out")
    (tmp_path / "shop" / "pipeline.yml").write_text(edited)
    assert "ok" in typed("headrace check shop/pipeline.yml", tmp_path)


def typed(line: str, folder: Path) -> str:
    """What a command prints; it must succeed."""
    words = shlex.split(line)
    headrace = [sys.executable, "-c", "from headrace.cli import main; main()"]
    command = {"headrace": headrace, "python3": [sys.executable]}[words[0]] + words[1:]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout
