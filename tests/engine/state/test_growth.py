"""State on disk and memory do not grow over 80 epochs of steady input; nor do jobs or planning per epoch."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
from world import SCHEMA, make_epochs, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest

EPOCHS = 80


def size(folder: Path) -> tuple[int, int]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return len(files), sum(file.stat().st_size for file in files)


QUERIES = {
    "aggregate": "SELECT k, SUM(i) AS v, COUNT(DISTINCT s) AS n FROM r [WINDOW 60 s SLIDE 5 s] GROUP BY k",
    "join": "SELECT a.i, b.i AS j FROM r AS a [RANGE 60 s] JOIN r AS b [RANGE 20 s] ON a.s = b.s AND a.i < b.i",
}


def test_nothing_grows(spark: Any, tmp_path: Path) -> None:
    one = make_epochs(seed=51, epochs=1, rows=40)[0]
    column = one.schema.get_field_index("ts")
    micros = one["ts"].cast("int64")
    tables = [
        one.set_column(column, "ts", pc.add(micros, n * 5_000_000).cast(one.schema.field("ts").type))
        for n in range(EPOCHS)
    ]
    write_epochs(tmp_path / "in", tables)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("growth").stream("r", rows, time="ts", lateness="60 seconds")
    for name, sql in QUERIES.items():
        pipe.query(name, sql, sink=hr.parquet(str(tmp_path / name)))
    seen: dict[int, dict[str, float]] = {}
    jobs: list[int] = []
    me = psutil.Process()
    state = tmp_path / "state"

    def watch(manifest: Manifest) -> None:
        jobs.append(manifest.observed.jobs)
        if manifest.epoch in (EPOCHS // 2, EPOCHS - 1):
            gc.collect()
            spark._jvm.System.gc()
            runtime = spark._jvm.java.lang.Runtime.getRuntime()
            files = [size(state / name) for name in ("state", "manifests", "decisions")]
            seen[manifest.epoch] = {
                "files": sum(count for count, _ in files),
                "bytes": sum(bytes_ for _, bytes_ in files),
                "chunks": len(manifest.chunks),
                "decided": len(json.dumps(manifest.to_json())),
                "driver": me.memory_info().rss,
                "jvm": runtime.totalMemory() - runtime.freeMemory(),
            }

    run = pipe.start(spark, str(state), trigger="0 seconds", hooks=Hooks(on_epoch=watch))
    run.process_all_available()
    run.stop()
    assert run.progress.epoch == EPOCHS - 1
    half, end = seen[EPOCHS // 2], seen[EPOCHS - 1]
    assert end["files"] <= half["files"] + 20
    assert end["bytes"] <= 1.2 * half["bytes"] + 20_000
    # What the driver goes through in every epoch to plan it.
    assert end["chunks"] <= half["chunks"] + 20
    assert end["decided"] <= 1.2 * half["decided"] + 2000
    assert end["driver"] <= half["driver"] + 20e6
    assert end["jvm"] <= half["jvm"] + 40e6
    # One job to absorb, one for joins, one to answer, and one more when chunks are merged.
    assert max(jobs) <= 4
    assert sum(jobs[-EPOCHS // 2 :]) <= 3.25 * EPOCHS // 2
