"""A hot-key join on a cluster, by Headrace or by Spark itself: python join_on_cluster.py MASTER HOME headrace|spark

Prints what each executor (of Headrace: each host) did after the first epochs: task time in milliseconds and, of
Headrace, rows that it was sent or looked through for each slice it was given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from joins import SCHEMA

import headrace as hr
from headrace.engine import Hooks, Manifest, build_session

# Epochs that executors have to import packages and compile.
WARM = 4
RANGE_S = 10
HOSTS = 3


def busy_ms(spark: Any) -> dict[str, int]:
    """Task time by executor so far."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    executors = (found.apply(i) for i in range(found.size()))
    return {e.id(): int(e.totalDuration()) for e in executors if e.id() != "driver"}


def streams(spark: Any, home: Path) -> dict[str, Any]:
    # A file per core and epoch, so that reading keeps all of them busy, too.
    return {
        name: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", HOSTS).parquet(str(home / name))
        for name in "lr"
    }


def headrace(spark: Any, home: Path) -> dict[str, Any]:
    warm: dict[str, int] = {}
    worked = [0.0] * HOSTS

    def watch(manifest: Manifest) -> None:
        if manifest.epoch == WARM:
            warm.update(busy_ms(spark))
        if manifest.epoch > WARM:
            counted, hosts = manifest.observed.flows["q"], manifest.flows["q"].way.hosts
            for host in range(HOSTS):
                worked[host] += (sum(counted.received[host]) + sum(counted.held[host])) / hosts.count(host)

    pipe = hr.Pipeline("cluster")
    for name, rows in streams(spark, home).items():
        pipe.stream(name, rows, time="ts", lateness="2 seconds")
    sql = f"SELECT l.n, r.n AS m FROM l [RANGE {RANGE_S} s] JOIN r [RANGE {RANGE_S} s] ON l.k = r.k"
    pipe.query("q", sql, sink=hr.parquet(str(home / "out")))
    pipe.start(spark, str(home / "state"), once=True, hooks=Hooks(on_epoch=watch)).await_termination()
    return {"busy_ms": _since(warm, spark), "rows_per_slice": worked}


def _since(warm: dict[str, int], spark: Any) -> list[int]:
    return [ms - warm[id_] for id_, ms in busy_ms(spark).items()]


def plain(spark: Any, home: Path) -> dict[str, Any]:
    from pyspark.sql.functions import expr

    sides = {name: rows.withWatermark("ts", "2 seconds").alias(name) for name, rows in streams(spark, home).items()}
    near = f"INTERVAL {RANGE_S} SECONDS"
    on = f"l.k = r.k AND r.ts >= l.ts - {near} AND r.ts <= l.ts + {near}"
    pairs = sides["l"].join(sides["r"], expr(on)).selectExpr("l.n", "r.n AS m")
    writer = pairs.writeStream.format("parquet").option("path", str(home / "out"))
    query = writer.option("checkpointLocation", str(home / "state")).trigger(availableNow=True).start()
    warm: dict[str, int] = {}
    while not query.awaitTermination(1):
        if len(query.recentProgress) > WARM and not warm:
            warm = busy_ms(spark)
    return {"busy_ms": _since(warm, spark)}


def main() -> None:
    master, home, side = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(HOSTS),
        "spark.pyspark.python": sys.executable,
    }
    spark = build_session("join", master, conf)
    # All executors are there before anything is measured.
    while len(busy_ms(spark)) < HOSTS:
        spark.range(0, HOSTS, 1, HOSTS).count()
    print(json.dumps(headrace(spark, home) if side == "headrace" else plain(spark, home)))
    spark.stop()


if __name__ == "__main__":
    main()
