"""One sliding query against plain Spark's `window()`, and the engine's fixed cost against an empty `foreachBatch`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.bench.measure import Say, batch_seconds, result
from headrace.bench.plain import PlainSpark, empty_batches, measured, windowed
from headrace.engine import Hooks, Manifest, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EPOCH_S", "SCHEMA", "SIZE_S", "SLIDE_S", "bench_ingest", "run_on_files", "write_rows"]

SCHEMA = "ts TIMESTAMP, k INT, v INT"
KEYS = 1000
SIZE_S, SLIDE_S, LATENESS_S = 60, 5, 5
START_US = 1_704_067_200_000_000
# Event time that one epoch's rows span.
EPOCH_S = 10
FILES_PER_EPOCH = 2
# Epochs of small files left out of the medians, while the machines behind both sides are still being compiled.
WARM_EPOCHS = 30
_WINDOWED: dict[str, Any] = {
    "files": FILES_PER_EPOCH,
    "schema": SCHEMA,
    "size": f"{SIZE_S} seconds",
    "slide": f"{SLIDE_S} seconds",
    "late": f"{LATENESS_S} seconds",
}


@dataclass(frozen=True)
class _Outcome:
    seconds: float
    batch_s: float
    jobs: float = 0
    steps_s: dict[str, float] = field(default_factory=dict)


def bench_ingest(quick: bool, say: Say) -> dict[str, Any]:
    """4 million rows in epochs of 500,000 through one query (60 s, slide 5 s, 1000 keys), in turns with plain Spark.

    Plain Spark runs in its own process with Spark's own settings (`spark`), and once more in the engine's session with
    the engine's settings (`tuned`), which make Spark itself faster. Ratios:

    - `vs_spark`: rows per second over plain Spark's; `vs_tuned_spark` over Spark's with our settings.
    - `fixed_cost_over_empty`: time of an epoch of 1000 rows that closes windows, over that of an empty `foreachBatch`
      on the same files in plain Spark; `fixed_cost_over_tuned_empty` over that with our settings.
    """
    epochs, per_epoch, tiny = (4, 100_000, 50) if quick else (8, 500_000, 90)
    rows = epochs * per_epoch
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, PlainSpark() as plain:
        home = Path(folder)
        say(f"writing {rows:,} rows")
        write_rows(home / "rows", epochs, per_epoch)
        write_rows(home / "tiny", tiny, 1000)
        spark = build_session("bench ingest", conf={"spark.driver.memory": "4g"})
        found = _in_turns(spark, plain, home, rows, 2 if quick else 4, say)
        correct = _same(home / "spark1" / "q", home / "headrace1" / "q", home / "rows")
        say("results are the same" if correct else "RESULTS DIFFER")
        costs, fixed = _fixed_costs(spark, plain, home, say)
    speed = {name: rows / statistics.median(o.seconds for o in outcomes) for name, outcomes in found.items()}
    epoch_s = {
        f"{n}_epoch_s": round(statistics.median(o.batch_s for o in outcomes), 4) for n, outcomes in found.items()
    }
    return result(
        "ingest",
        correct,
        {
            "vs_spark": speed["headrace"] / speed["spark"],
            "vs_tuned_spark": speed["headrace"] / speed["tuned"],
            "fixed_cost_over_empty": fixed.batch_s / costs["empty_epoch_s"],
            "fixed_cost_over_tuned_empty": fixed.batch_s / costs["tuned_empty_epoch_s"],
        },
        {
            **{f"{name}_rows_per_s": round(value) for name, value in speed.items()},
            **epoch_s,
            "headrace_steps_s": found["headrace"][-1].steps_s,
            **costs,
            "headrace_tiny_epoch_s": fixed.batch_s,
            "headrace_tiny_steps_s": fixed.steps_s,
            "jobs_per_epoch": fixed.jobs,
            "rows": rows,
            "rows_per_epoch": per_epoch,
        },
    )


def _in_turns(
    spark: SparkSession, plain: PlainSpark, home: Path, rows: int, turns: int, say: Say
) -> dict[str, list[_Outcome]]:
    """What each side did with the rows, in every turn but the first, which is for the compilers behind each side."""
    source = home / "rows"
    sides: dict[str, Callable[[Path], _Outcome]] = {
        "spark": lambda out: _Outcome(**plain.ask("windowed", source=source, out=out, skip=2, **_WINDOWED)),
        "tuned": lambda out: _tuned(spark, source, out),
        "headrace": lambda out: run_on_files(spark, source, out),
    }
    found: dict[str, list[_Outcome]] = {name: [] for name in sides}
    # Turn and turn about, so that a slow moment of the machine does not fall on one side only.
    for turn in range(turns):
        for name, side in sides.items():
            outcome = side(home / f"{name}{turn}")
            say(f"{name}: {rows / outcome.seconds:,.0f} rows/s{' (warming up)' if turn == 0 else ''}")
            if turn:
                found[name].append(outcome)
    return found


def _fixed_costs(spark: SparkSession, plain: PlainSpark, home: Path, say: Say) -> tuple[dict[str, float], _Outcome]:
    """Seconds of Spark's empty epochs over the small files, by measure, and what the engine does with these files."""
    source = home / "tiny"
    empty = plain.ask("empty", source=source, out=home / "empty", skip=WARM_EPOCHS, files=1, schema=SCHEMA)
    tuned = measured(empty_batches(spark, str(source), 1, SCHEMA), str(home / "tuned_empty"), WARM_EPOCHS)
    fixed = run_on_files(spark, source, home / "fixed", files=1, skip=WARM_EPOCHS)
    say(f"an empty epoch takes {empty['batch_s']:.3f} s, ours of 1000 rows {fixed.batch_s:.3f} s")
    return {"empty_epoch_s": empty["batch_s"], "tuned_empty_epoch_s": tuned["batch_s"]}, fixed


def write_rows(folder: Path, epochs: int, rows: int) -> None:
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


def _tuned(spark: SparkSession, source: Path, out: Path) -> _Outcome:
    """Plain Spark's query in the engine's session."""
    return _Outcome(**measured(windowed(spark, source=str(source), out=str(out), **_WINDOWED), str(out), 2))


def run_on_files(
    spark: SparkSession,
    source: Path,
    out: Path,
    files: int = FILES_PER_EPOCH,
    skip: int = 2,
    lateness_s: int = LATENESS_S,
) -> _Outcome:
    """The engine on the files of a folder."""
    manifests: list[Manifest] = []
    pipe = hr.Pipeline("bench")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(source))
    pipe.stream("r", rows, time="ts", lateness=f"{lateness_s} seconds")
    pipe.query(
        "q",
        f"SELECT k, SUM(v) AS v, COUNT(*) AS n FROM r GROUP BY window(ts, '{SIZE_S} seconds', '{SLIDE_S} seconds'), k",
        sink=hr.parquet(str(out / "q")),
    )
    began = time.monotonic()
    run = pipe.start(spark, str(out / "state"), trigger="0 seconds", hooks=Hooks(on_epoch=manifests.append))
    run.process_all_available()
    seconds = time.monotonic() - began
    query = run.streaming_query
    run.stop()
    observed = [m.observed for m in manifests[skip:]]
    steps = {name: statistics.median(o.steps_s.get(name, 0.0) for o in observed) for name in observed[-1].steps_s}
    jobs = statistics.mean(o.jobs for o in observed)
    return _Outcome(seconds, batch_seconds(query, skip), round(jobs, 2), steps)


def _same(spark: Path, headrace: Path, source: Path) -> bool:
    """Both sides' windows equal each other, and the sums over the rows themselves."""
    order = ["window_end", "k"]
    theirs = pl.read_parquet(spark / "*.parquet").sort(order)
    ours = pl.read_parquet(headrace / "*.parquet").sort(order)
    # Plain Spark writes instants without a zone and in nanoseconds.
    end_us = pl.col("window_end").dt.timestamp("us")
    if not theirs.select(end_us, "k", "v", "n").equals(ours.select(end_us, "k", "v", "n")):
        return False
    end = ours["window_end"].max()
    rows = pl.read_parquet(source / "*.parquet")
    last = rows.filter(pl.col("ts").is_between(end - pl.duration(seconds=SIZE_S), end, closed="left"))
    wanted = last.group_by("k").agg(pl.col("v").cast(pl.Int64).sum(), pl.len().cast(pl.Int64).alias("n")).sort("k")
    return ours.filter(pl.col("window_end") == end).select("k", "v", "n").sort("k").equals(wanted)
