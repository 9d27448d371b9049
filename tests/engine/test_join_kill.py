"""kill -9 of the driver between a switch of ways and the next epoch, and elsewhere: each result once all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from joins import judged, make_side
from world import assert_same, results, write_epochs

# Where a run dies, and after how many times there: each run goes on where the one before it died, with other ways.
POINTS = ["after-decision@1", "after-state@1", "mid-sinks@1", "before-manifest@0", "after-manifest@1"]
WANTED = {
    "equal": ("l.k = r.k", (4, 9), ""),
    "outer": ("l.k = r.k AND (l.n + r.n) % 2 = 0", (6, 2), "FULL"),
    "band": ("l.x >= r.x - 1.5 AND l.x <= r.x + 1.5", (3, 3), "LEFT"),
}
# Six drivers are started one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)
SUPPORT = Path(__file__).parent.parent / "support"


def run(home: Path, kill: str, seed: int) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])}
    command = [sys.executable, str(SUPPORT / "join_victim.py"), str(home), kill, str(seed)]
    with (home / "log.txt").open("ab") as log:
        return subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=200, check=False).returncode


def test_joins_survive_kills_between_switches(tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    left, right = make_side(rng, 9, 40, 3, 6, hot=0.4), make_side(rng, 9, 40, 3, 6)
    write_epochs(tmp_path / "l", left)
    write_epochs(tmp_path / "r", right)
    for seed, point in enumerate(POINTS):
        assert run(tmp_path, point, seed) == -signal.SIGKILL, (tmp_path / "log.txt").read_text()[-3000:]
        assert (tmp_path / "killed").read_text() == point
    assert run(tmp_path, "-", 99) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    for name, (on, ranges, how) in WANTED.items():
        assert_same(results(tmp_path / name), judged(left, right, "l.n, r.n", on, ranges, how))
