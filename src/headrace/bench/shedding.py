"""A burst of five times the capacity: what shedding keeps and how late it is, beside plain Spark with a fixed intake.

Files are written while the engines run, with rows dated by the clock, so lag is real.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import headrace as hr
from headrace.bench.feed import SCHEMA, TICK_S, Feed, Seen
from headrace.bench.measure import Say, result
from headrace.engine import build_session
from headrace.model import Shed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_shedding"]

TRIGGER_S = 1.0
# Queries whose rows cost something: sums by key, exact percentiles and distinct values.
QUERIES = {
    "scaled": "SELECT k, SUM(v) AS bytes, COUNT(*) AS n FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY k",
    "median": "SELECT g, MEDIAN(v) AS m FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
    "distinct": "SELECT g, COUNT(DISTINCT seq) AS n FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
}
# The capacity is the highest rate of these steps that is held; the first is what any machine holds.
FIRST_RATE, STEP = 2_000.0, 1.6
BURST = 5.0


def _run(
    spark: SparkSession,
    home: Path,
    name: str,
    rate: Callable[[float], float],
    seconds: float,
    queries: dict[str, str] | None = None,
    **settings: Any,
) -> tuple[Seen, Feed, Path]:
    """One engine over a feed, from before the first file to after the last."""
    out, seen = home / name, Seen()
    feed = Feed(out / "in", rate, seconds)
    rows = spark.readStream.schema(SCHEMA).parquet(str(out / "in"))
    pipe = hr.Pipeline("bench").stream("r", rows, time="ts", lateness="1 second")
    for query, sql in (queries or QUERIES).items():
        shedding = {"scale": True} if query == "scaled" and settings else None
        pipe.query(query, sql, sink=hr.parquet(str(out / query)), shedding=shedding)
    with feed:
        run = pipe.start(spark, str(out / "state"), trigger=f"{TRIGGER_S:g} seconds", hooks=seen.hooks(), **settings)
    run.process_all_available()
    run.flush()
    run.stop()
    return seen, feed, out


def _capacity(spark: SparkSession, home: Path, step_s: float, say: Say) -> float:
    """The highest constant rate, in rows per second, at which epochs keep up with their trigger."""
    held = rate = FIRST_RATE
    while True:
        seen, feed, _ = _run(spark, home, f"rate{rate:.0f}", lambda _, rate=rate: rate, step_s)  # type: ignore[misc]
        last = [lag for _, lag in seen.lags(feed.began_s + step_s / 2, math.inf, TRIGGER_S)]
        keeps_up = bool(last) and sorted(last)[len(last) // 2] <= 2.0
        say(f"{rate:,.0f} rows/s: {'held' if keeps_up else 'falls behind'}")
        if not keeps_up:
            return held
        held, rate = rate, rate * STEP


@dataclass(frozen=True)
class _Near:
    """How near scaled sums are: groups with 30 kept rows or more, those within three errors, and vanished groups."""

    groups: int
    within: int
    vanished: int


def _near(out: Path) -> _Near:
    given = pl.read_parquet(out / "in" / "*.parquet").with_columns(t=pl.col("ts").dt.timestamp("us"))
    found = pl.read_parquet(out / "scaled" / "*.parquet").with_columns(end=pl.col("window_end").dt.timestamp("us"))
    parts = []
    for end in found["end"].unique().to_list():
        inside = given.filter((pl.col("t") >= end - 4_000_000) & (pl.col("t") < end))
        parts.append(inside.group_by("k").agg(truth=pl.col("v").cast(pl.Int64).sum()).with_columns(end=pl.lit(end)))
    both = pl.concat(parts).join(found, on=["k", "end"], how="left")
    shed = both.filter(pl.col("kept").is_null() | (pl.col("kept") < 1))
    large = shed.filter(pl.col("n") * pl.col("kept") >= 30)
    off = (large["bytes"] - large["truth"]).abs() <= 3 * large["bytes_error"]
    return _Near(large.height, int(off.sum()), shed["bytes"].null_count())


def _throttled(
    spark: SparkSession, home: Path, rate: Callable[[float], float], seconds: float, files: int | None
) -> Any:
    """Plain Spark over the same feed, with a fixed number of files per trigger or without: lag and rows at the end."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    out = home / f"spark{files or 'free'}"
    feed = Feed(out / "in", rate, seconds)
    reader = spark.readStream.schema(SCHEMA)
    reader = reader if files is None else reader.option("maxFilesPerTrigger", files)
    rows = reader.parquet(str(out / "in")).withWatermark("ts", "1 second")
    answers = rows.groupBy(F.window("ts", "4 seconds", "2 seconds"), "k").agg(F.sum("v"), F.expr("percentile(v, 0.5)"),
                                                                              F.collect_set("seq"))  # fmt: skip
    writer = answers.writeStream.format("noop").outputMode("append").option("checkpointLocation", str(out / "state"))
    with feed:
        query = writer.trigger(processingTime=f"{TRIGGER_S:g} seconds").start()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    done = sum(each["numInputRows"] for each in progress)
    newest = max((each["eventTime"].get("max", "") for each in progress), default="")
    last = pl.Series([newest]).str.to_datetime("%+", time_zone="UTC").dt.timestamp("us")[0] / 1e6 if newest else 0.0
    return {"rows_answered": done, "rows": feed.rows, "lag_s": round(feed.began_s + seconds - last, 2)}


def bench_shedding(quick: bool, say: Say) -> dict[str, Any]:
    """Three queries under a burst of five times the capacity, which is measured first, for a minute.

    - `kept_over_capacity`: rows per second that queries kept during the burst, over the capacity.
    - `lag_epochs_after`: the most epochs that rows waited, from three epochs after the burst's start on.
    - `vs_throttled_spark`: seconds that plain Spark with a fixed `maxFilesPerTrigger` is behind at the end, over ours.
    """
    calm_s, burst_s, step_s = (10.0, 20.0, 10.0) if quick else (20.0, 60.0, 15.0)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home, spark = Path(folder), build_session("bench shedding", conf={"spark.driver.memory": "4g"})
        _run(spark, home, "warm", lambda _: FIRST_RATE, step_s)
        capacity = _capacity(spark, home, step_s, say)
        say(f"the capacity is {capacity:,.0f} rows/s")

        def rate(at: float) -> float:
            return capacity * (BURST if calm_s <= at < calm_s + burst_s else 0.5)

        seconds = 2 * calm_s + burst_s
        seen, feed, out = _run(spark, home, "burst", rate, seconds, shedding="fit", objective="fair")
        begin, end = feed.began_s + calm_s, feed.began_s + calm_s + burst_s
        lags = seen.lags(begin, feed.began_s + seconds, TRIGGER_S)
        settled = [lag for at, lag in lags if at > begin + 3 * TRIGGER_S]
        kept = _kept_rows(seen, begin, end) / burst_s
        entry = seen.manifests[-1][1].ledger["r"]
        balances = entry.rows_in == feed.rows and entry.used + entry.late + entry.shed + entry.rejected == feed.rows
        near = _near(out)
        say(f"kept {kept:,.0f} rows/s of {BURST * capacity:,.0f}, at most {max(settled, default=0):.1f} epochs behind")
        answering = _answering(spark, home, 2 * calm_s)
        say(f"where answers are what costs, {answering['shed']:,} rows are shed")
        files = max(1, round(TRIGGER_S / TICK_S))
        spark_free, spark_fixed = (_throttled(spark, home, rate, seconds, each) for each in (None, files))
        ours_s = seen.lags(begin, end, TRIGGER_S)[-1][1] * TRIGGER_S if seen.lags(begin, end, TRIGGER_S) else math.inf
    correct = balances and answering["shed"] == 0 and near.within >= 0.99 * near.groups
    return result(
        "shedding",
        correct,
        {
            "kept_over_capacity": kept / capacity,
            "lag_epochs_after": max(settled, default=0.0),
            "vs_throttled_spark": spark_fixed["lag_s"] / max(ours_s, 1e-3),
        },
        {
            "capacity_rows_per_s": round(capacity),
            "rows": feed.rows,
            "shed": entry.shed,
            "ledger_balances": balances,
            "lags_epochs": [round(lag, 2) for _, lag in lags],
            "groups_of_30_kept": near.groups,
            "within_three_errors": near.within,
            "vanished_groups": near.vanished,
            "answering": answering,
            "spark_fixed_intake": spark_fixed,
            "spark_free_intake": spark_free,
        },
    )


def _kept_rows(seen: Seen, begin_s: float, end_s: float) -> float:
    """Rows that queries kept on average in the epochs that ended in a time."""
    inside = [m for at, m in seen.manifests if begin_s <= at < end_s]
    if len(inside) < 2:
        return 0.0
    first, last = inside[0].shedding.queries, inside[-1].shedding.queries

    def kept(account: Shed) -> int:
        return account.rows - account.shed

    return sum(kept(last[name]) - kept(first.get(name, Shed())) for name in last) / len(last)


def _answering(spark: SparkSession, home: Path, seconds: float) -> dict[str, Any]:
    """Few rows, and answers that take longer than an epoch: answers come late, and nothing is shed."""
    windows: Sequence[int] = range(20, 60)
    queries = {
        f"q{size}": f"SELECT k, PERCENTILE(v, 0.{size}) AS v FROM r [WINDOW {size} s SLIDE 1 s] GROUP BY k"
        for size in windows
    }
    seen, feed, _ = _run(spark, home, "answering", lambda _: FIRST_RATE, seconds, queries, shedding="fit")
    last = seen.manifests[-1][1]
    late = max((query.waiting_us for _, m in seen.manifests for query in m.queries.values()), default=0)
    return {"rows": feed.rows, "shed": last.ledger["r"].shed, "latest_answer_s": late / 1e6}
