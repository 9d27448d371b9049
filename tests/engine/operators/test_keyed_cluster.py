"""Keyed state on a real cluster: it stays in its executors, a move ships what moves, a lost executor costs a reload."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from cluster import PATIENCE_S, Cluster, environment_of_driver
from keyed_driver import DEATH_AT, MOVE_AT
from world import SCHEMA, admit, assert_same, make_epochs, results, unique_times, write_epochs

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)
LATENESS_S = 20
SQL = "SELECT k, ts, i, SUM(i) AS a, COUNT(*) AS n FROM r [PARTITION BY k, g ROWS 6]"
DUCK = """SELECT k, ts, i, sum(i) OVER w, count(*) OVER w FROM rows
          WINDOW w AS (PARTITION BY k, g ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)"""


def test_state_stays_moves_and_is_read_again(tmp_path: Path) -> None:
    tables = unique_times(make_epochs(seed=81, epochs=10, rows=400))
    write_epochs(tmp_path / "in", tables)
    cluster = Cluster(tmp_path / "cluster", workers=2)
    try:
        command = [sys.executable, str(Path(__file__).parents[2] / "support" / "keyed_driver.py")]
        driver = subprocess.run(
            [*command, cluster.url, str(tmp_path), SCHEMA, SQL, f"{LATENESS_S} seconds"],
            env=environment_of_driver(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    finally:
        cluster.stop()
    assert driver.returncode == 0, driver.stderr[-3000:]
    epochs = json.loads(driver.stdout.strip().splitlines()[-1])
    rows = admit(tables, LATENESS_S).rows
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", rows)
    assert_same(results(tmp_path / "out"), connection.execute(DUCK).fetchall())

    assert [epoch["shuffled"] for epoch in epochs] == [0] * len(epochs), "Spark shuffles nothing"
    (move,) = epochs[MOVE_AT]["moved"]
    assert move["mini"] in epochs[MOVE_AT]["loaded"]
    assert epochs[MOVE_AT]["loaded_bytes"] > 0
    # Where a task runs is Spark's choice: on a busy machine it may not wait for the executor it is told to prefer.
    for earlier, later in pairwise(epochs):
        elsewhere = {bin_ for bin_ in (0, 1) if earlier["places"][bin_] != later["places"][bin_]}
        moved = {each["mini"] for each in later["moved"]}
        may = moved | {mini for mini, owner in enumerate(later["owners"]) if owner in elsewhere}
        assert set(later["loaded"]) <= may, "what has moved, or whose process is another, and nothing else"
        assert bool(later["loaded_bytes"]) <= bool(may), "state is where it was"
    before, after = epochs[DEATH_AT - 1], epochs[DEATH_AT]
    assert "victim" in before
    lost = {bin_ for bin_ in (0, 1) if before["places"][bin_] != after["places"][bin_]}
    assert 0 in lost
    owned = sorted(mini for mini, owner in enumerate(before["owners"]) if owner in lost)
    assert after["loaded"] == owned, "the bins of the lost executor, and no others"
