"""A burst of five times the capacity: what shedding keeps and how late it is, beside plain Spark with a fixed intake.

Files are written while the engines run, with rows dated by the clock, so lag is real.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import headrace as hr
from headrace.bench.burst import SCHEMA, TICK_S, Feed, Seen
from headrace.bench.measure import Say, result
from headrace.bench.shedding_figure import two_queries
from headrace.engine import build_session
from headrace.model import Shed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_shedding"]

VALUES = {"scaled": "SUM(v) AS bytes, COUNT(*) AS n", "median": "MEDIAN(v) AS m", "spread": "STDDEV(v) AS s"}
# Fingerprints that each query takes of a row, of so many copies of some six letters. Rows that are shed have been read,
# so what is kept of a burst of five times the capacity can be nine tenths of it only where a row takes some hundred
# times as long to use as to read.
PRINTS, COPIES = 3, 4000


def _prints(query: str) -> dict[str, str]:
    """By name the fingerprints of a row that a query takes, which are no other query's."""
    names = (f"{query}{number}" for number in range(PRINTS))
    return {name: f"crc32(sha2(repeat(concat(v, '{name[:2]}{name[-1]}'), {COPIES}), 512))" for name in names}


# Queries whose rows cost something, and whose answers are few.
QUERIES = {
    name: f"SELECT k, {', '.join([values, *(f'MAX({sql}) AS {mark}' for mark, sql in _prints(name).items())])} "
    "FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY k"
    for name, values in VALUES.items()
}
# How often the engines look for files.
TRIGGER_S = 2.0
# Rates are tried from the first on, up or down, in these steps; between the last that is held and the first
# that is not the step is halved so many times.
FIRST_RATE, STEP, HALVES = 2_000.0, 1.6, 3
# Before the burst rates change as streams do, between these parts of the capacity: of a stream that does not change
# nobody can tell what an epoch takes from what its rows take.
BURST, CALM = 5.0, (0.35, 0.65)
# The epoch of the burst from which on the lag has to be what it was.
SETTLES = 3
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
    out, seen = home / name, Seen(TRIGGER_S)
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


def _capacity(spark: SparkSession, home: Path, step_s: float, halves: int, say: Say) -> float:
    """The highest constant rate, in rows per second, that is held.

    It is if rows wait for two epochs at most, as they must under the burst. A rate that is not held is tried once more,
    because other work on the machine may have been in its way.
    """

    def holds(rate: float, tries: int = 2) -> bool:
        seen, feed, _ = _run(spark, home, f"rate{rate:.0f}-{tries}", lambda _: rate, step_s, file_rows=_file_rows(rate))
        last = [lag.epochs for lag in seen.lags(feed.began_s + step_s / 2, feed.began_s + step_s)]
        keeps_up = bool(last) and max(last) <= 2.0
        say(f"{rate:,.0f} rows/s: {'held' if keeps_up else 'falls behind'}, {max(last, default=math.inf):.2f} epochs")
        return keeps_up or (tries > 1 and holds(rate, tries - 1))

    rate, step = FIRST_RATE, STEP
    if holds(rate):
        while holds(rate * step):
            rate *= step
    else:
        while not holds(rate := rate / step):
            pass
    for _ in range(halves):
        step = math.sqrt(step)
        rate *= step if holds(rate * step) else 1.0
    return rate


def _file_rows(rate: float) -> int:
    """The most rows of a file: those of a tick at this rate."""
    return max(1, round(rate * TICK_S))


def _reading(spark: SparkSession, home: Path, rate: float, seconds: float) -> float:
    """Seconds of an epoch that reads rows at a rate and uses none: no row passes the filters of its queries."""
    queries = {name: sql.replace(" GROUP BY", " WHERE v < 0 GROUP BY") for name, sql in QUERIES.items()}
    seen, feed, _ = _run(spark, home, f"read{rate:.0f}", lambda _: rate, seconds, queries, _file_rows(rate))
    begin_s, end_s = feed.began_s + seconds / 2, feed.began_s + seconds
    inside = [manifest.observed.seconds for at, manifest in seen.manifests if begin_s <= at < end_s]
    return statistics.median(inside) if inside else math.inf


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
    prints = {name: sql for query in VALUES for name, sql in _prints(query).items()}
    printed = rows.select("ts", "k", "v", *(F.expr(sql).alias(name) for name, sql in prints.items()))
    values = (text.partition(" AS ")[0] for each in VALUES.values() for text in each.split(", "))
    marks = map(F.max, prints)
    answers = printed.groupBy(F.window("ts", "4 seconds", "2 seconds"), "k").agg(*map(F.expr, values), *marks)
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

    - `kept_over_capacity`: rows per second that queries kept during the burst, over the capacity: the highest constant
      rate that is held.
    - `kept_over_allowed`: the same over what the capacity allows when five times as many rows have to be read.
    - `lag_epochs_after`: the most epochs that rows waited, from the third epoch on that began in the burst.
    - `vs_throttled_spark`: seconds that plain Spark, given files for the capacity and no more, is behind when the burst
      ends, over ours.
    """
    calm_s, burst_s, step_s, halves = (16.0, 24.0, 12.0, 1) if quick else (24.0, 60.0, 20.0, HALVES)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home, spark = Path(folder), build_session("bench shedding", conf=CONF)
        _run(spark, home, "warm", lambda _: FIRST_RATE, step_s)
        capacity = _capacity(spark, home, step_s, halves, say)
        reads = [_reading(spark, home, capacity * times, step_s) for times in (1.0, BURST)]
        allowed = capacity * max(0.0, TRIGGER_S - reads[1]) / max(1e-3, TRIGGER_S - reads[0])
        say(f"the capacity is {capacity:,.0f} rows/s; if {BURST:g} times as many are read, it allows {allowed:,.0f}")
        burst = _Burst(capacity, calm_s, calm_s + burst_s)
        told, near = _shed(spark, home, burst)
        kept = told["kept_rows_per_s"]
        say(f"kept {kept:,} of {BURST * capacity:,.0f} rows/s, at most {told['settled']} epochs behind")
        answering = _answering(spark, home, 2 * calm_s)
        say(f"where answers cost, {answering['shed']:,} rows are shed, answers come {answering['late_s']} s late")
        figure = two_queries(spark, home, burst_s, say)
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
            "kept_over_allowed": kept / max(1.0, allowed),
            "lag_epochs_after": told["settled"],
            "vs_throttled_spark": spark_fixed["lag_s_at_the_end_of_the_burst"] / max(told["lag_s"], 1e-3),
        },
        {
            "capacity_rows_per_s": round(capacity),
            "allowed_rows_per_s": round(allowed),
            "reading_s": [round(each, 3) for each in reads],
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
    """The rate of a feed: about half the capacity, but for the seconds between `begin_s` and `end_s`; as long calm
    after as before."""

    capacity: float
    begin_s: float
    end_s: float

    def rate(self, at: float) -> float:
        calm = CALM[int(at / TRIGGER_S) % len(CALM)]
        return self.capacity * (BURST if self.begin_s <= at < self.end_s else calm)

    @property
    def seconds(self) -> float:
        return self.begin_s + self.end_s

    @property
    def file_rows(self) -> int:
        return _file_rows(self.capacity)


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
    # Two epochs may be behind: they take what came before anybody could know that it was too much.
    settled = [lag.epochs for lag in lags if lag.began_s >= begin][SETTLES - 1 :]
    during = seen.lags(begin, end)
    return {
        "rows": feed.rows,
        "shed": entry.shed,
        "late": entry.late,
        "ledger_balances": feed.rows == entry.rows_in == entry.used + entry.late + entry.shed + entry.rejected,
        "kept_rows_per_s": round(_kept_rows(seen, begin, end)),
        "lags_epochs": [round(lag.epochs, 2) for lag in lags],
        "settled": round(max(settled, default=math.inf), 2),
        "lag_s": round(during[-1].epochs * TRIGGER_S, 2) if during else math.inf,
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
