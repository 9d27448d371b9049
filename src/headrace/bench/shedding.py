"""A burst of five times the capacity: what shedding keeps and how late it is, beside plain Spark with a fixed intake.

Files are written while the engines run, with rows dated by the clock, so lag is real.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import headrace as hr
from headrace.bench.burst import SCHEMA, TICK_S, TRIGGER_S, Feed, Seen
from headrace.bench.measure import Say, result
from headrace.bench.shedding_figure import two_queries
from headrace.engine import build_session
from headrace.model import Shed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_shedding"]

# Queries whose rows cost something: sums by key, exact percentiles and distinct values.
QUERIES = {
    "scaled": "SELECT k, SUM(v) AS bytes, COUNT(*) AS n FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY k",
    "median": "SELECT g, MEDIAN(v) AS m FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
    "distinct": "SELECT g, COUNT(DISTINCT seq) AS n FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
}
# The capacity is the highest rate of these steps that is held; the first is what any machine holds.
FIRST_RATE, STEP = 2_000.0, 1.6
BURST = 5.0
# A folder that is listed while files are written to it may show a newer file before an older one.
LATENESS = "5 seconds"
CONF = {"spark.driver.memory": "4g", "spark.sql.streaming.numRecentProgressUpdates": "1000"}


def _run(
    spark: SparkSession,
    home: Path,
    name: str,
    rate: Callable[[float], float],
    seconds: float,
    queries: dict[str, str] | None = None,
    file_rows: int | None = None,
    **settings: Any,
) -> tuple[Seen, Feed, Path]:
    """One engine over a feed, from before the first file to after the last."""
    out, seen = home / name, Seen()
    feed = Feed(out / "in", rate, seconds, file_rows)
    rows = spark.readStream.schema(SCHEMA).parquet(str(out / "in"))
    pipe = hr.Pipeline("bench").stream("r", rows, time="ts", lateness=LATENESS)
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
    """The highest constant rate, in rows per second, at which epochs keep up with their trigger.

    After the first rate that is too high, the one between it and the last that was held is tried.
    """

    def holds(rate: float) -> bool:
        seen, feed, _ = _run(spark, home, f"rate{rate:.0f}", lambda _: rate, step_s)
        last = [lag for _, lag in seen.lags(feed.began_s + step_s / 2, math.inf)]
        keeps_up = bool(last) and sorted(last)[len(last) // 2] <= 2.0
        say(f"{rate:,.0f} rows/s: {'held' if keeps_up else 'falls behind'}")
        return keeps_up

    rate = FIRST_RATE
    while holds(rate):
        rate *= STEP
    between = rate / math.sqrt(STEP)
    return between if holds(between) else rate / STEP


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


def _plain_spark(
    spark: SparkSession, home: Path, rate: Callable[[float], float], times_s: tuple[float, float], files: _Files
) -> dict[str, Any]:
    """Plain Spark over the same feed, with a fixed number of files per trigger or without.

    Seconds that it is behind when the burst ends, the rows that it has taken by then, and those by the end of the feed.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    out, (burst_ends_s, seconds) = home / f"spark{files.most or 'free'}", times_s
    feed = Feed(out / "in", rate, seconds, files.rows)
    reader = spark.readStream.schema(SCHEMA)
    reader = reader if files.most is None else reader.option("maxFilesPerTrigger", files.most)
    rows = reader.parquet(str(out / "in")).withWatermark("ts", LATENESS)
    answers = rows.groupBy(F.window("ts", "4 seconds", "2 seconds"), "k").agg(F.sum("v"), F.expr("percentile(v, 0.5)"),
                                                                              F.collect_set("seq"))  # fmt: skip
    writer = answers.writeStream.format("noop").outputMode("append").option("checkpointLocation", str(out / "state"))
    with feed:
        query = writer.trigger(processingTime=f"{TRIGGER_S:g} seconds").start()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    ended = feed.began_s + burst_ends_s
    before = [each for each in progress if _done_s(each) <= ended]
    newest = max((_seconds(each["eventTime"]["max"]) for each in before), default=feed.began_s)
    return {
        "lag_s_at_the_end_of_the_burst": round(ended - newest, 2),
        "rows_by_then": sum(each["numInputRows"] for each in before),
        "rows_in_the_end": sum(each["numInputRows"] for each in progress),
        "rows": feed.rows,
    }


@dataclass(frozen=True)
class _Files:
    """The most rows that a file has, and the most files that an epoch takes; None: all there are."""

    rows: int
    most: int | None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _done_s(progress: Any) -> float:
    """When a micro-batch was over, in seconds since 1970."""
    return _seconds(progress["timestamp"]) + float(progress["durationMs"]["triggerExecution"]) / 1000


def bench_shedding(quick: bool, say: Say) -> dict[str, Any]:
    """Three queries under a burst of five times the capacity, which is measured first, for a minute.

    - `kept_over_capacity`: rows per second that queries kept during the burst, over the capacity.
    - `lag_epochs_after`: the most epochs that rows waited, from three epochs after the burst's start on.
    - `vs_throttled_spark`: seconds that plain Spark, given files for the capacity and no more, is behind when the burst
      ends, over ours.
    """
    calm_s, burst_s, step_s = (10.0, 20.0, 10.0) if quick else (20.0, 60.0, 15.0)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home, spark = Path(folder), build_session("bench shedding", conf=CONF)
        _run(spark, home, "warm", lambda _: FIRST_RATE, step_s)
        capacity = _capacity(spark, home, step_s, say)
        say(f"the capacity is {capacity:,.0f} rows/s")
        burst = _Burst(capacity, calm_s, calm_s + burst_s)
        told, near = _shed(spark, home, burst)
        kept = told["kept_rows_per_s"]
        say(f"kept {kept:,} of {BURST * capacity:,.0f} rows/s, at most {told['settled']} epochs behind")
        answering = _answering(spark, home, 2 * calm_s)
        say(f"where answers cost, {answering['shed']:,} rows are shed, answers come {answering['late_s']} s late")
        figure = two_queries(spark, home, calm_s + burst_s, say)
        most = None, max(1, round(TRIGGER_S / TICK_S))
        files, ends = (_Files(burst.file_rows, each) for each in most), (burst.end_s, burst.seconds)
        spark_free, spark_fixed = (_plain_spark(spark, home, burst.rate, ends, each) for each in files)
    correct = told["ledger_balances"] and answering["shed"] == 0 and answering["late_s"] > 0
    correct &= near.groups > 0 and near.within >= 0.99 * near.groups
    return result(
        "shedding",
        correct,
        {
            "kept_over_capacity": kept / capacity,
            "lag_epochs_after": told["settled"],
            "vs_throttled_spark": spark_fixed["lag_s_at_the_end_of_the_burst"] / max(told["lag_s"], 1e-3),
        },
        {
            "capacity_rows_per_s": round(capacity),
            **told,
            "groups_of_30_kept": near.groups,
            "within_three_errors": near.within,
            "vanished_groups": near.vanished,
            "answering": answering,
            "two_queries": figure,
            "spark_fixed_intake": spark_fixed,
            "spark_free_intake": spark_free,
        },
    )


@dataclass(frozen=True)
class _Burst:
    """The rate of a feed: half the capacity, but for the seconds between `begin_s` and `end_s`; as long calm after."""

    capacity: float
    begin_s: float
    end_s: float

    def rate(self, at: float) -> float:
        return self.capacity * (BURST if self.begin_s <= at < self.end_s else 0.5)

    @property
    def seconds(self) -> float:
        return self.begin_s + self.end_s

    @property
    def file_rows(self) -> int:
        return max(1, round(self.capacity * TICK_S))


def _shed(spark: SparkSession, home: Path, burst: _Burst) -> tuple[dict[str, Any], _Near]:
    """The engine through a burst: what it says of itself, and how near its scaled sums are."""
    seen, feed, out = _run(
        spark, home, "burst", burst.rate, burst.seconds, file_rows=burst.file_rows, shedding="fit", objective="fair"
    )
    times_s = (feed.began_s + burst.begin_s, feed.began_s + burst.end_s, feed.began_s + burst.seconds)
    return _told(seen, feed, times_s), _near(out)


def _told(seen: Seen, feed: Feed, times_s: tuple[float, float, float]) -> dict[str, Any]:
    """What the run through the burst says of itself, given when the burst began and ended, and the feed."""
    begin, end, last = times_s
    entry = seen.manifests[-1][1].ledger["r"]
    lags = seen.lags(begin, last)
    settled = [lag for at, lag in lags if at > begin + 3 * TRIGGER_S]
    during = seen.lags(begin, end)
    return {
        "rows": feed.rows,
        "shed": entry.shed,
        "late": entry.late,
        "ledger_balances": feed.rows == entry.rows_in == entry.used + entry.late + entry.shed + entry.rejected,
        "kept_rows_per_s": round(_kept_rows(seen, begin, end)),
        "lags_epochs": [round(lag, 2) for _, lag in lags],
        "settled": round(max(settled, default=math.inf), 2),
        "lag_s": round(during[-1][1] * TRIGGER_S, 2) if during else math.inf,
    }


def _kept_rows(seen: Seen, begin_s: float, end_s: float) -> float:
    """Rows per second that queries kept on average, from the first to the last epoch that ended in a time."""
    inside = [(at, manifest.shedding.queries) for at, manifest in seen.manifests if begin_s <= at < end_s]
    if len(inside) < 2:
        return 0.0
    (began_s, first), (ended_s, last) = inside[0], inside[-1]

    def kept(account: Shed) -> int:
        return account.rows - account.shed

    total = sum(kept(last[name]) - kept(first.get(name, Shed())) for name in last)
    return total / len(last) / (ended_s - began_s)


def _answering(spark: SparkSession, home: Path, seconds: float) -> dict[str, Any]:
    """Few rows, and answers that take longer than an epoch: answers come late, and nothing is shed."""
    # Nearly every row of a window is a group of its own, in every query.
    key = "seq % 20000"
    queries = {
        f"q{size}": f"SELECT {key} AS s, PERCENTILE(v, 0.{size}) AS v FROM r [WINDOW {size} s SLIDE 1 s] GROUP BY {key}"
        for size in range(10, 50)
    }
    seen, feed, _ = _run(spark, home, "answering", lambda _: FIRST_RATE, seconds, queries, shedding="fit")
    last = seen.manifests[-1][1]
    late = max((query.waiting_us for _, m in seen.manifests for query in m.queries.values()), default=0)
    acting = {name for each in seen.decisions.values() if each.shedding is not None for name in each.shedding.acting}
    return {"rows": feed.rows, "shed": last.ledger["r"].shed, "late_s": late / 1e6, "acting": sorted(acting)}
