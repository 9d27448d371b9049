"""A standalone cluster whose executors do not have Headrace: it is sent to them, and losing one changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import PATIENCE_S, Cluster, environment_of_driver, python_without, wait_for
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)
LATENESS_S = 20
QUERIES = {
    "keyed": "SELECT k, SUM(i) AS v, COUNT(DISTINCT s) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k",
    "by_sql": "SELECT g, SUM(i) + 1 AS v FROM r GROUP BY window(ts, '50 s', '20 s'), g",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield started
    started.stop()


def start(cluster: Cluster, home: Path, python: str) -> subprocess.Popen[str]:
    """`headrace run` over the files in a folder, with everything it makes beside them."""
    spec = {
        "name": "cluster",
        "streams": {
            "r": {
                "source": {"format": "parquet", "path": "in", "options": {"maxFilesPerTrigger": 1}},
                "schema": SCHEMA,
                "time": "ts",
                "lateness": f"{LATENESS_S} seconds",
            }
        },
        "queries": {name: {"sql": sql} for name, sql in QUERIES.items()},
        "output": "out",
        "engine": {"checkpoint": "state", "bins": 2},
    }
    (home / "pipeline.yml").write_text(yaml.safe_dump(spec))
    conf = {
        "spark.pyspark.python": python,
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "run", str(home / "pipeline.yml")]
    return subprocess.Popen(
        [*command, "--once", "--flush", "--master", cluster.url, *options],
        env=environment_of_driver(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_executors_get_the_package_and_may_be_lost(cluster: Cluster, tmp_path: Path) -> None:
    tables = make_epochs(seed=41, epochs=6, rows=200)
    write_epochs(tmp_path / "in", tables)
    driver = start(cluster, tmp_path, python_without(tmp_path / "python"))
    try:
        manifest = tmp_path / "state" / "manifests" / "1.json"
        wait_for(lambda: manifest.exists() or driver.poll() is not None, PATIENCE_S, lambda: "no epoch was committed")
        assert driver.poll() is None, driver.communicate()[0]
        victim, *others = cluster.executors()
        assert others
        victim.kill()
        output, _ = driver.communicate(timeout=PATIENCE_S)
    finally:
        driver.kill()
        driver.communicate()
    assert driver.returncode == 0, output[-3000:]
    admission = admit(tables, LATENESS_S)
    assert_same(
        results(tmp_path / "out" / "keyed"),
        expected(admission.rows, "k, sum(i)::bigint, count(DISTINCT s)", "k", 60, 20, False),
    )
    assert_same(
        results(tmp_path / "out" / "by_sql"), expected(admission.rows, "g, (sum(i) + 1)::bigint", "g", 50, 20, True)
    )


def test_executors_without_polars_are_refused_in_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    write_epochs(tmp_path / "in", make_epochs(seed=42, epochs=1, rows=50))
    driver = start(cluster, tmp_path, python_without(tmp_path / "python", "polars"))
    output, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 2, output[-3000:]
    assert "lack polars in " in output
    assert "install the driver's versions for the Python of the executors" in output
    assert "Traceback" not in output
    assert not (tmp_path / "state" / "manifests").exists()
