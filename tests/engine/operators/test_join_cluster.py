"""A hot key on a cluster: Headrace keeps all executors busy, where Spark's own join keeps one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import PATIENCE_S, Cluster, environment_of_driver
from joins import ARROW
from world import SECOND, START

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)
WORKERS, EPOCHS = 3, 8
SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS)
    yield started
    started.stop()


def write(home: Path, part: int = 1) -> dict[str, pl.DataFrame]:
    """Files of two seconds; 60 % of the left rows have one key, which a row in two thousand of the right has, too."""
    rng = np.random.default_rng(5)
    whole: dict[str, pl.DataFrame] = {}
    for name, n in (("l", 40_000 // part), ("r", 10_000 // part)):
        tables = []
        for number in range(EPOCHS * WORKERS):
            k = rng.integers(1, 200_000, n)
            k = np.where(rng.random(n) < (0.6 if name == "l" else 0.0005), 0, k)
            ts = START + number // WORKERS * 2 * SECOND + rng.integers(0, 2 * SECOND, n)
            columns = {
                "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                "k": pa.array(k, pa.int32()),
                "s": pa.nulls(n, pa.string()),
                "x": pa.nulls(n, pa.float64()),
                "n": pa.array(np.arange(number * n, (number + 1) * n), pa.int64()),
            }
            tables.append(pa.table(columns, schema=ARROW))
            path = home / name / f"{number:05d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(tables[-1], path)
            os.utime(path, (1_700_000_000 + number // WORKERS,) * 2)
        frame = pl.from_arrow(pa.concat_tables(tables))
        assert isinstance(frame, pl.DataFrame)
        whole[name] = frame
    return whole


# Times say something only of a machine that does nothing else.
TIMED = "HEADRACE_COMPARE" in os.environ


def run(cluster: Cluster, home: Path, side: str) -> dict[str, list[float]]:
    command = [sys.executable, str(SUPPORT / "join_on_cluster.py"), cluster.url, str(home), side]
    environment = environment_of_driver()
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), environment["PYTHONPATH"]])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    assert len(found["busy_ms"]) == WORKERS
    return found


def test_a_hot_key_keeps_all_executors_busy(cluster: Cluster, tmp_path: Path) -> None:
    rows = write(tmp_path)
    found = run(cluster, tmp_path, "headrace")
    # What is dealt out by slices is even; a host that was seen to be faster has more of them.
    assert max(found["rows_per_slice"]) <= 1.2 * min(found["rows_per_slice"]), found
    if TIMED:
        assert max(found["busy_ms"]) <= 1.2 * min(found["busy_ms"]), found
    right = rows["r"].select("k", pl.col("ts").alias("at"), pl.col("n").alias("m"))
    pairs = rows["l"].join(right, on="k").filter((pl.col("at") - pl.col("ts")).abs() <= pl.duration(seconds=10))
    made = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert made.sort("n", "m").equals(pairs.select("n", "m").sort("n", "m"))


@pytest.mark.skipif(not TIMED, reason="asked for by HEADRACE_COMPARE: it is about Spark, and about time")
def test_sparks_own_join_keeps_one_busy(cluster: Cluster, tmp_path: Path) -> None:
    write(tmp_path, part=4)
    busy = sorted(run(cluster, tmp_path, "spark")["busy_ms"])
    assert busy[-1] > 1.2 * busy[0], busy
