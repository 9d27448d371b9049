"""kill -9 of the driver at named points and at random times: results and ledger equal the undisturbed run's.

How to see that the suite has teeth: HEADRACE_WITHOUT=decisions|sinks|manifests takes one safeguard away and the tests
of this file must fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from victim import FLOWS, QUERIES
from world import assert_same, make_epochs, results, write_epochs

# Random kills per test run; more, and more named points, with HEADRACE_KILLS=20.
KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
# Where a run dies, and after how many whole epochs: each run goes on where the one before it died.
POINTS = [
    "after-decision@0",
    "mid-state@1",
    "mid-sinks@0",
    "before-manifest@0",
    "after-manifest@1",
    *(["before-decision@0", "after-state@0", "after-sinks@0"] if KILLS > 1 else []),
]
WITHOUT = os.environ.get("HEADRACE_WITHOUT", "nothing")
# Some ten drivers are started one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(1200)
SUPPORT = Path(__file__).parent.parent / "support"


def start(home: Path, kill: str = "-", without: str = WITHOUT, seed: str = "-") -> subprocess.Popen[bytes]:
    # Beside what this process was given: the victim must run the same sources.
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(SUPPORT / "victim.py"), str(home), "2", kill, without, seed]
    with (home / "log.txt").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def finish(home: Path) -> None:
    process = start(home)
    assert process.wait(timeout=200) == 0, (home / "log.txt").read_text()[-3000:]


def outcome(home: Path) -> tuple[dict[str, list[Any]], Any]:
    return {name: results(home / name) for name in (*QUERIES, *FLOWS)}, json.loads((home / "ledger.json").read_text())


def prepare(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    write_epochs(home / "in", make_epochs(seed=5, epochs=6, rows=120))
    return home


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Any]], Any]:
    home = prepare(tmp_path_factory.mktemp("undisturbed"))
    process = start(home, without="nothing")
    assert process.wait(timeout=200) == 0, (home / "log.txt").read_text()[-3000:]
    found = outcome(home)
    used, late, shed, rejected = found[1]["r"]
    assert min(used, late, rejected) > 0, "the rows must put every account of the ledger to use"
    assert shed == 0
    return found


def check(home: Path, undisturbed: tuple[dict[str, list[Any]], Any]) -> None:
    found, ledger = outcome(home)
    for name in (*QUERIES, *FLOWS):
        assert_same(found[name], undisturbed[0][name])
    assert ledger == undisturbed[1]
    kept = sum(len(file.read_text().splitlines()) for file in (home / "state" / "rejected").glob("epoch-*.json"))
    assert kept == ledger["r"][3]


def test_kills_at_every_named_point(tmp_path: Path, undisturbed: tuple[dict[str, list[Any]], Any]) -> None:
    """One run, killed at each point in turn; ways to join and places of state change by chance in every epoch."""
    home = prepare(tmp_path)
    for seed, point in enumerate(POINTS):
        process = start(home, point, seed=str(seed))
        assert process.wait(timeout=200) == -signal.SIGKILL, (home / "log.txt").read_text()[-3000:]
        assert (home / "killed").read_text() == point
    finish(home)
    check(home, undisturbed)


def test_kills_at_random_times(tmp_path: Path, undisturbed: tuple[dict[str, list[Any]], Any]) -> None:
    """Kills, one seed each, until there were enough of them; a run that comes to its end between two is checked."""
    fired = runs = 0
    while fired < KILLS:
        home = prepare(tmp_path / str(runs))
        runs += 1
        while fired < KILLS and killed(home, random.Random(fired).uniform(2, 12)):
            fired += 1
        finish(home)
        check(home, undisturbed)
    assert fired == KILLS


def killed(home: Path, seconds: float) -> bool:
    """Whether a run was still under way so long after its checkpoint was opened, and was killed then."""
    process = start(home)
    # The lock is taken at once by every run; its content is this run's once it is.
    mine, lock = f"process {process.pid} ", home / "state" / "lock"
    deadline = time.monotonic() + 100
    while not (lock.exists() and lock.read_text().startswith(mine)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
        assert process.poll() is None, (home / "log.txt").read_text()[-3000:]
        assert time.monotonic() < deadline
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False
