"""An executor that is killed while the only query absorbs fails nothing: the run stops, and goes on later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import PATIENCE_S, Cluster, environment_of_driver
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)
SQL = "SELECT k, SUM(i) AS v FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"


def test_a_lost_executor_is_no_querys_failure(tmp_path: Path) -> None:
    tables = make_epochs(seed=91, epochs=5, rows=200)
    write_epochs(tmp_path / "in", tables)
    cluster = Cluster(tmp_path / "cluster", workers=2)
    try:
        command = [sys.executable, str(Path(__file__).parents[1] / "support" / "executor_killer.py")]
        driver = subprocess.run(
            [*command, cluster.url, str(tmp_path), SCHEMA, SQL],
            env=environment_of_driver(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    finally:
        cluster.stop()
    assert driver.returncode == 0, driver.stderr[-3000:]
    told = json.loads(driver.stdout.strip().splitlines()[-1])
    assert (tmp_path / "state" / "killed").exists(), "an executor was killed"
    assert "ExecutorLostFailure" in told["error"]
    assert (told["failed"], told["epoch"], told["failed_later"]) == ({}, 1, {})
    assert_same(results(tmp_path / "out"), expected(admit(tables, 20).rows, "k, sum(i)::bigint", "k", 60, 20, False))
