"""The documents make a site: each page has its place in the menu, and links lead to pages and headings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning():
    done = subprocess.run(
        [sys.executable, "scripts/build_docs.py"], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert 'class="mermaid"' in (ROOT / "build/site/docs/layers.html").read_text(encoding="utf-8")
