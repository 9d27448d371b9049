"""One sliding query against plain Spark's `window()`, and the engine's fixed cost against an empty `foreachBatch`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.bench.measure import Say, batch_seconds, result
from headrace.engine import Hooks, Manifest, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_ingest"]

SCHEMA = "ts TIMESTAMP, k INT, v INT"
KEYS = 1000
SIZE_S, SLIDE_S, LATENESS_S = 60, 5, 5
START_US = 1_704_067_200_000_000
# Event time that one epoch's rows span.
EPOCH_S = 10
FILES_PER_EPOCH = 2
# Epochs of small files left out of the medians, while the machines behind both sides are still being compiled.
WARM_EPOCHS = 30


@dataclass(frozen=True)
class _Outcome:
    seconds: float
    rows: int
    batch_s: float
    jobs: float
    steps_s: dict[str, float]
    results: Path

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


def bench_ingest(quick: bool, say: Say) -> dict[str, Any]:
    """4 million rows in epochs of 500,000 through one query (60 s, slide 5 s, 1000 keys), both sides in one session.

    Ratios: `vs_spark`, rows per second over plain Spark's; `fixed_cost_over_empty`, time of an epoch of 1000 rows that
    closes windows over that of an empty `foreachBatch` on the same files.
    """
    epochs, per_epoch, tiny = (4, 100_000, 50) if quick else (8, 500_000, 90)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        say(f"writing {epochs * per_epoch:,} rows")
        _write(home / "rows", epochs, per_epoch)
        _write(home / "warm", epochs, per_epoch)
        _write(home / "tiny", tiny, 1000)
        spark = build_session("bench ingest", conf={"spark.driver.memory": "4g"})
        for side in (_spark, _headrace):
            say(f"warming up {side.__name__[1:]}")
            side(spark, home / "warm", home / f"warm{side.__name__}", epochs * per_epoch)
        outcomes: dict[str, list[_Outcome]] = {"spark": [], "headrace": []}
        # Turn and turn about, so that a slow moment of the machine does not fall on one side only.
        for turn in range(1 if quick else 3):
            for name, side in (("spark", _spark), ("headrace", _headrace)):
                outcome = side(spark, home / "rows", home / f"{name}{turn}", epochs * per_epoch)
                say(f"{name}: {outcome.rows_per_s:,.0f} rows/s, {outcome.batch_s:.3f} s per epoch")
                outcomes[name].append(outcome)
        best = {name: max(found, key=lambda o: o.rows_per_s) for name, found in outcomes.items()}
        correct = _same(best["spark"].results, best["headrace"].results, home / "rows")
        say("results are the same" if correct else "RESULTS DIFFER")
        empty_s = _empty(spark, home / "tiny", home / "empty")
        fixed = _headrace(spark, home / "tiny", home / "fixed", tiny * 1000, files=1, skip=WARM_EPOCHS)
        say(f"an empty epoch takes {empty_s:.3f} s, ours of 1000 rows {fixed.batch_s:.3f} s")
    median = {n: statistics.median(o.rows_per_s for o in found) for n, found in outcomes.items()}
    return result(
        "ingest",
        correct,
        {"vs_spark": median["headrace"] / median["spark"], "fixed_cost_over_empty": fixed.batch_s / empty_s},
        {
            "spark_rows_per_s": round(median["spark"]),
            "headrace_rows_per_s": round(median["headrace"]),
            "spark_epoch_s": best["spark"].batch_s,
            "headrace_epoch_s": best["headrace"].batch_s,
            "headrace_steps_s": best["headrace"].steps_s,
            "empty_epoch_s": empty_s,
            "headrace_tiny_epoch_s": fixed.batch_s,
            "headrace_tiny_steps_s": fixed.steps_s,
            "jobs_per_epoch": fixed.jobs,
            "rows": epochs * per_epoch,
            "rows_per_epoch": per_epoch,
        },
    )


def _write(folder: Path, epochs: int, rows: int) -> None:
    """Files of one epoch each, or two for large epochs, with modification times in their order."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    files = FILES_PER_EPOCH if rows > 10_000 else 1
    for number in range(epochs * files):
        n = rows // files
        begin = START_US + number // files * EPOCH_S * 1_000_000
        table = pa.table(
            {
                "ts": pa.array(begin + rng.integers(0, EPOCH_S * 1_000_000, n), pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, KEYS, n), pa.int32()),
                "v": pa.array(rng.integers(0, 1500, n), pa.int32()),
            }
        )
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _rows(spark: SparkSession, folder: Path, files: int) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(folder))


def _spark(spark: SparkSession, source: Path, out: Path, rows: int) -> _Outcome:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    windowed = (
        _rows(spark, source, FILES_PER_EPOCH)
        .withWatermark("ts", f"{LATENESS_S} seconds")
        .groupBy(F.window("ts", f"{SIZE_S} seconds", f"{SLIDE_S} seconds"), "k")
        .agg(F.sum("v").alias("v"), F.count("*").alias("n"))
        .selectExpr("window.start AS window_start", "window.end AS window_end", "k", "v", "n")
    )
    writer = windowed.writeStream.format("parquet").option("path", str(out / "q"))
    began = time.monotonic()
    query = writer.option("checkpointLocation", str(out / "state")).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    seconds = time.monotonic() - began
    query.stop()
    return _Outcome(seconds, rows, batch_seconds(query, 2), 0, {}, out / "q")


def _headrace(
    spark: SparkSession, source: Path, out: Path, rows: int, files: int = FILES_PER_EPOCH, skip: int = 2
) -> _Outcome:
    manifests: list[Manifest] = []
    pipe = hr.Pipeline("bench")
    pipe.stream("r", _rows(spark, source, files), time="ts", lateness=f"{LATENESS_S} seconds")
    pipe.query(
        "q",
        f"SELECT k, SUM(v) AS v, COUNT(*) AS n FROM r "
        f"GROUP BY window(ts, '{SIZE_S} seconds', '{SLIDE_S} seconds'), k",
        sink=hr.parquet(str(out / "q")),
    )
    began = time.monotonic()
    run = pipe.start(spark, str(out / "state"), trigger="0 seconds", hooks=Hooks(on_epoch=manifests.append))
    run.process_all_available()
    seconds = time.monotonic() - began
    query = run.streaming_query
    run.stop()
    observed = [m.observed for m in manifests[skip:]]
    steps = {name: statistics.median(o["steps_s"].get(name, 0.0) for o in observed) for name in observed[-1]["steps_s"]}
    jobs = statistics.mean(o["jobs"] for o in observed)
    return _Outcome(seconds, rows, batch_seconds(query, skip), round(jobs, 2), steps, out / "q")


def _empty(spark: SparkSession, source: Path, out: Path) -> float:
    writer = _rows(spark, source, 1).writeStream.foreachBatch(lambda batch, number: None)
    query = writer.option("checkpointLocation", str(out)).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    return batch_seconds(query, WARM_EPOCHS)


def _same(spark: Path, headrace: Path, source: Path) -> bool:
    """Both sides' windows equal each other, and the sums over the rows themselves."""
    order = ["window_end", "k"]
    theirs = pl.read_parquet(spark / "*.parquet").sort(order)
    ours = pl.read_parquet(headrace / "*.parquet").sort(order)
    if not theirs.select(pl.col("window_end").cast(pl.Int64), "k", "v", "n").equals(
        ours.select(pl.col("window_end").cast(pl.Int64), "k", "v", "n")
    ):
        return False
    end = ours["window_end"].max()
    rows = pl.read_parquet(source / "*.parquet")
    last = rows.filter(pl.col("ts").is_between(end - pl.duration(seconds=SIZE_S), end, closed="left"))
    wanted = last.group_by("k").agg(pl.col("v").cast(pl.Int64).sum(), pl.len().cast(pl.Int64).alias("n")).sort("k")
    return ours.filter(pl.col("window_end") == end).select("k", "v", "n").sort("k").equals(wanted)
