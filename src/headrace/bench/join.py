"""Windowed joins against Spark's own stream-stream join, on the same files, both into Parquet."""

from __future__ import annotations

import os
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
from headrace.bench.measure import Say, result
from headrace.bench.plain import PlainSpark
from headrace.engine import Hooks, Manifest, build_session
from headrace.model import JoinMeasures, JoinState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_join"]

SCHEMA = "ts TIMESTAMP, k INT, x DOUBLE, n BIGINT"
START_US = 1_704_067_200_000_000
# Event time of an epoch and reach of both windows.
EPOCH_S, RANGE_S = 2, 10
FILES = (2, 1)


@dataclass(frozen=True)
class _Case:
    """A join to run: rows per epoch of both sides, keys, the share of L's hottest key, and the condition."""

    name: str
    rows: tuple[int, int]
    epochs: int
    keys: int
    hot: float = 0.0
    on: str = "l.k = r.k"
    limit_s: float = 90.0
    skip: int = 2


def bench_join(quick: bool, say: Say) -> dict[str, Any]:
    """10 s windows in epochs of 2 s, inner joins of two streams, each side's rows/s after its first epochs.

    - `uniform_vs_spark`: L 500,000 and R 100,000 rows per epoch, 4 million keys evenly.
    - `hot_vs_spark`: the same with one key holding 30 % of L.
    - `small_vs_spark`: 50,000 and 10,000 rows per epoch.
    - a band join without an equality, which Spark refuses: its words, and our rows per second.
    - `swap`: rows sent to hosts per epoch while the rates of a split join's sides swap, and what the formula says.

    Spark has a time limit for each; the batch under way when it is over counts as done.
    """
    ratios: dict[str, float] = {}
    measures: dict[str, Any] = {}
    correct = True
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, PlainSpark() as plain:
        spark = build_session("bench join", conf={"spark.driver.memory": "4g"})
        for case in _cases(quick):
            home = Path(folder) / case.name
            _write(home, case)
            if not measures:
                # The compilers behind both sides are warm after a run over the first files.
                _headrace(spark, case, home, home / "warm")
            theirs = plain.ask("joined", left=home / "l", right=home / "r", out=home / "spark", files=FILES,
                               schema=SCHEMA, on=case.on, range_s=RANGE_S, late=f"{EPOCH_S} seconds",
                               skip=case.skip, limit_s=case.limit_s)  # fmt: skip
            ours = _headrace(spark, case, home, home / "headrace")
            same = _expected(home, case).equals(_read(home / "headrace"))
            if "refused" in theirs:
                say(f"{case.name}: Spark says: {theirs['refused']}")
                measures[f"{case.name}_spark_says"] = theirs["refused"]
            else:
                if theirs["finished"]:
                    same = same and _read(home / "spark").equals(_read(home / "headrace"))
                ratios[f"{case.name}_vs_spark"] = ours["rows_per_s"] / theirs["rows_per_s"]
                measures[f"{case.name}_spark_rows_per_s"] = round(theirs["rows_per_s"])
                measures[f"{case.name}_spark_finished"] = theirs["finished"]
                say(
                    f"{case.name}: Spark {theirs['rows_per_s']:,.0f} rows/s{'' if theirs['finished'] else ' (cut off)'}"
                )
            say(f"{case.name}: Headrace {ours['rows_per_s']:,.0f} rows/s, {ours['way']}, "
                f"results {'as they should be' if same else 'DIFFER'}")  # fmt: skip
            measures |= {f"{case.name}_{key}": value for key, value in ours.items()}
            correct = correct and same
        measures["swap"] = _swap(spark, Path(folder) / "swap")
        say(f"swap: rows sent per epoch {measures['swap']['sent']}")
    return result("join", correct, ratios, measures)


def _cases(quick: bool) -> tuple[_Case, ...]:
    part, epochs = (5, 6) if quick else (1, 9)
    big = (500_000 // part, 100_000 // part)
    return (
        _Case("uniform", big, epochs, 4_000_000 // part),
        _Case("hot", big, epochs, 4_000_000 // part, hot=0.3, limit_s=60),
        _Case("small", (50_000 // part, 10_000 // part), 2 * epochs + 6, 400_000 // part, skip=6),
        _Case("band", (20_000 // part, 20_000 // part), epochs, 1000, on="l.x BETWEEN r.x - 0.01 AND r.x + 0.01"),
    )


def _swap(spark: SparkSession, home: Path) -> dict[str, Any]:
    """A split join whose sides swap their rates half way: rows sent to hosts, which side is split, by epoch."""
    fast, slow, epochs = 8000, 1000, 16
    first, last = _Case("swap", (fast, slow), epochs, 1000), _Case("swap", (slow, fast), epochs, 1000)
    _write(home, first)
    _write(home, last, epochs)
    seen: list[Manifest] = []
    pipe = hr.Pipeline("swap")
    for name, files in zip("lr", FILES, strict=True):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness=f"{EPOCH_S} seconds")
    sql = "SELECT l.n, r.n AS m FROM l [RANGE 4 s] JOIN r [RANGE 4 s] ON l.x BETWEEN r.x - 0.01 AND r.x + 0.01"
    pipe.query("q", sql, sink=hr.parquet(str(home / "q")))
    hooks = Hooks(on_epoch=seen.append)
    run = pipe.start(spark, str(home / "state"), trigger="0 seconds", join="split", hooks=hooks)
    run.process_all_available()
    run.stop()
    sent = [measures.received for m in seen if isinstance(measures := m.observed.flows["q"], JoinMeasures)]
    return {
        "sent": [sum(map(sum, hosts)) for hosts in sent],
        "split": [state.way.split for m in seen if isinstance(state := m.flows["q"], JoinState)],
        "swapped_at": epochs,
        # The split stream once, the copied one to each of the hosts.
        "formula": fast + len(sent[-1]) * slow,
        "formula_before_the_switch": slow + len(sent[-1]) * fast,
    }


def _write(home: Path, case: _Case, after: int = 0) -> None:
    """Files with modification times in their order, the same number per epoch and side, from an epoch on."""
    rng = np.random.default_rng(7)
    for name, rows, files in zip("lr", case.rows, FILES, strict=True):
        folder, serial = home / name, 0
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(after * files, (after + case.epochs) * files):
            n = rows // files
            begin = START_US + number // files * EPOCH_S * 1_000_000
            keys = rng.integers(1, case.keys, n)
            if name == "l" and case.hot:
                keys = np.where(rng.random(n) < case.hot, 0, keys)
            table = pa.table(
                {
                    "ts": pa.array(begin + rng.integers(0, EPOCH_S * 1_000_000, n), pa.timestamp("us", "UTC")),
                    "k": pa.array(keys, pa.int32()),
                    "x": pa.array(rng.random(n) * 1000, pa.float64()),
                    "n": pa.array(np.arange(serial, serial + n), pa.int64()),
                }
            )
            serial += n
            path = folder / f"{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number // files, 1_700_000_000 + number // files))


def _headrace(spark: SparkSession, case: _Case, home: Path, out: Path) -> dict[str, Any]:
    manifests: list[tuple[float, Manifest]] = []
    pipe = hr.Pipeline("bench")
    for name, files in zip("lr", FILES, strict=True):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness=f"{EPOCH_S} seconds")
    sql = f"SELECT l.n, r.n AS m FROM l [RANGE {RANGE_S} s] JOIN r [RANGE {RANGE_S} s] ON {case.on}"
    pipe.query("q", sql, sink=hr.parquet(str(out / "q")))
    run = pipe.start(
        spark,
        str(out / "state"),
        trigger="0 seconds",
        hooks=Hooks(on_epoch=lambda manifest: manifests.append((time.monotonic(), manifest))),
    )
    run.process_all_available()
    query = run.streaming_query
    run.stop()
    batches = [p for p in query.recentProgress if p.numInputRows]
    seconds = sum(p.durationMs["triggerExecution"] for p in batches[case.skip :]) / 1000
    rows_in = [sum(m.observed.rows.values()) for _, m in manifests]
    observed = [m.observed for _, m in manifests[case.skip :]]
    steps = {step: round(float(np.median([o.steps_s[step] for o in observed])), 4) for step in observed[0].steps_s}
    state = manifests[-1][1].flows["q"]
    assert isinstance(state, JoinState)
    return {
        "rows_per_s": round(sum(rows_in[case.skip :]) / seconds),
        "way": state.way.way + (f" {state.way.split}" if state.way.split else ""),
        "steps_s": steps,
        "jobs": max(o.jobs for o in observed),
        "pairs": manifests[-1][1].queries["q"].rows,
    }


def _read(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "q" / "*.parquet").select("n", "m").sort("n", "m")


def _expected(home: Path, case: _Case) -> pl.DataFrame:
    """The join over all rows at once, by Polars."""
    left, right = (pl.read_parquet(home / name / "*.parquet") for name in "lr")
    right = right.rename({"ts": "ts_r", "n": "m", "x": "x_r"})
    near = pl.duration(seconds=RANGE_S)
    if case.on.startswith("l.k"):
        pairs = left.join(right, on="k").filter((pl.col("ts_r") - pl.col("ts")).abs() <= near)
        return pairs.select("n", "m").sort("n", "m")
    right = right.with_columns(low=pl.col("x_r") - 0.01, high=pl.col("x_r") + 0.01)
    pairs = left.join_where(right, pl.col("x") >= pl.col("low"), pl.col("x") <= pl.col("high"))
    return pairs.filter((pl.col("ts_r") - pl.col("ts")).abs() <= near).select("n", "m").sort("n", "m")
