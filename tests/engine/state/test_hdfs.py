"""A checkpoint and results on a real HDFS, which tasks cannot open themselves: Spark carries everything.

Needs jars that Spark does not ship, so it runs when it is given them: HEADRACE_HDFS_JARS names a folder with
hadoop-client-minicluster in the version of Spark's own Hadoop client, and junit-jupiter-api, which it starts with.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import scenario

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.choose_io import choose_io
from headrace.engine.state.spark_io import SparkIo
from headrace.engine.state.storage import open_storage

JARS = os.environ.get("HEADRACE_HDFS_JARS", "")
pytestmark = pytest.mark.skipif(not JARS, reason="HEADRACE_HDFS_JARS does not name the jars of a small HDFS")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One NameNode and one DataNode on this machine; the root of their file system."""
    home = tmp_path_factory.mktemp("hdfs")
    details = home / "details.json"
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    command = [str(java), "-Xmx512m", "-cp", f"{JARS}/*{os.pathsep}{Path(pyspark.__file__).parent}/jars/*",
               "org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format",
               "-writeDetails", str(details)]  # fmt: skip
    with (home / "log.txt").open("wb") as log:
        cluster = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 100
        while not details.exists() or not details.read_text().endswith("}"):
            assert cluster.poll() is None, (home / "log.txt").read_text()[-3000:]
            assert time.monotonic() < deadline, (home / "log.txt").read_text()[-3000:]
            time.sleep(0.2)
        yield f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}"
    finally:
        cluster.kill()
        cluster.wait()


@pytest.mark.parametrize(("bins", "seed"), [(1, 31), (3, 32)], ids=["one bin", "three bins"])
def test_answers_equal_duckdb_across_a_restart_and_merges(
    spark: Any, hdfs: str, tmp_path: Path, bins: int, seed: int
) -> None:
    root = f"{hdfs}/user/x/{bins} bins"
    seen = scenario.play(spark, tmp_path / "in", root, bins, seed)
    assert max(seen.jobs) <= 5, "tasks finish what they can here too"
    storage = open_storage(f"{root}/state", spark)
    assert seen.manifest is not None
    named = sorted(chunk.name for chunk in seen.manifest.chunks)
    assert storage.names("state") == named, "no probe and no staging is left, and no chunk that no manifest names"
    beside = {name for name in open_storage(f"{root}/keyed", spark).names("") if not name.startswith("epoch-")}
    assert beside - {"_staging"} == {"_headrace.json"}
    assert isinstance(choose_io(spark, Checkpoint(storage)), SparkIo), "nobody had to ask for it"


def test_a_second_engine_is_refused(spark: Any, hdfs: str, tmp_path: Path) -> None:
    scenario.write_halves(tmp_path / "in", scenario.make_epochs(seed=33, epochs=1), 0)
    root = f"{hdfs}/second"
    run = scenario.pipeline(spark, tmp_path / "in", root).start(spark, f"{root}/state", trigger="1 hour")
    try:
        with pytest.raises(hr.LockedError, match="in use by process"):
            scenario.pipeline(spark, tmp_path / "in", root).start(spark, f"{root}/state", once=True)
    finally:
        run.stop()


def test_damage_is_refused_by_name(spark: Any, hdfs: str, tmp_path: Path) -> None:
    scenario.write_halves(tmp_path / "in", scenario.make_epochs(seed=34, epochs=2), 0)
    root = f"{hdfs}/damage"
    scenario.pipeline(spark, tmp_path / "in", root).start(spark, f"{root}/state", once=True).await_termination()
    storage = open_storage(f"{root}/state", spark)
    flipped, cut, gone = storage.names("state")[:3]
    data = bytearray(storage.read(f"state/{flipped}") or b"")
    data[len(data) // 2] ^= 1
    storage.replace(f"state/{flipped}", bytes(data))
    storage.replace(f"state/{cut}", (storage.read(f"state/{cut}") or b"")[:-9])
    storage.delete(f"state/{gone}")
    with pytest.raises(hr.CorruptStateError) as refused:
        scenario.pipeline(spark, tmp_path / "in", root).start(spark, f"{root}/state", once=True)
    for name, words in ((flipped, "is altered"), (cut, "is truncated"), (gone, "is missing")):
        assert f"{name} {words}" in str(refused.value)


def test_results_elsewhere_are_finished_by_spark(spark: Any, hdfs: str, tmp_path: Path) -> None:
    """The checkpoint on HDFS, results in a local folder."""
    tables = scenario.make_epochs(seed=35, epochs=2, rows=80)
    scenario.write_halves(tmp_path / "in", tables, 0)
    pipe = scenario.pipeline(spark, tmp_path / "in", str(tmp_path / "out"))
    seen = scenario.Seen(level=1)
    hooks = Hooks(on_epoch=seen.watch)
    pipe.start(spark, f"{hdfs}/elsewhere/state", once=True, flush=True, hooks=hooks).await_termination()
    rejected = open_storage(f"{hdfs}/elsewhere/state/rejected", spark)
    (tmp_path / "out" / "state" / "rejected").mkdir(parents=True)
    for name in rejected.names(""):
        (tmp_path / "out" / "state" / "rejected" / name).write_bytes(rejected.read(name) or b"")
    scenario.check(spark, str(tmp_path / "out"), tables, seen)


def test_a_path_without_a_scheme_is_in_the_default_file_system(spark: Any, hdfs: str, tmp_path: Path) -> None:
    """The checkpoint by its bare path, results by theirs in the local file system, by the name of it."""
    tables = scenario.make_epochs(seed=36, epochs=2, rows=80)
    scenario.write_halves(tmp_path / "in", tables, 0)
    settings = spark._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", hdfs)
    try:
        pipe = scenario.pipeline(spark, tmp_path / "in", f"file://{tmp_path}")
        pipe.start(spark, "/bare/state", once=True, flush=True).await_termination()
        assert open_storage("/bare/state", spark).root == f"{hdfs}/bare/state"
        assert open_storage("/bare/state", spark).names("manifests")
    finally:
        settings.set("fs.defaultFS", before)
    for name in scenario.QUERIES:
        assert list((tmp_path / name).glob("epoch-*.parquet"))
