"""Keyed state that moves, against state that stays where it was hashed, and against Spark's own state."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.bench.cluster import LocalCluster, SlowedDown, executor_of
from headrace.bench.flux_work import Work, filtering, rolling, with_state, with_tables
from headrace.bench.measure import Say, peak_bytes, result
from headrace.engine import Hooks, Manifest, build_session
from headrace.model import KeyedMeasures, KeyedState
from headrace.policies.keyed.decide import MEMORY_SHARE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_flux"]

SCHEMA = "ts TIMESTAMP, k INT, v DOUBLE"
START_US = 1_704_067_200_000_000
# What state is kept for: a filter of outliers that sorts the last 1000 values twice for each row, some 40 microseconds
# of work, as the paper's group-by; and a median over the last 5000 rows, which takes about one.
FILTERED, LAST = 1000, 5000
FILTER = "SELECT k, ts, v FROM r [PARTITION BY k]"
MEDIAN = f"SELECT k, ts, MEDIAN(v) AS m FROM r [PARTITION BY k ROWS {LAST}]"
RESULTS = "k INT, ts TIMESTAMP, m DOUBLE, d DOUBLE"
# How many rows DuckDB looks at to judge a query, and its functions for our columns.
JUDGES = {FILTER: (FILTERED, {"m": "median", "d": "mad"}), MEDIAN: (LAST, {"m": "median"})}
# Files are many so that the executor which has time takes the next one: rows are absorbed where there is room, too.
EXECUTORS, MINIS, KEYS, FILES = 2, 64, 60, 8
TROUBLES = ("skew", "slow", "memory")
# Epochs after which an alternating skew changes sides, and the bytes an epoch may then move.
ALTERNATES, ALTERNATING_BUDGET = 3, 1 << 20
# The share of the time in which the slowed executor runs.
SPEED = 0.4
CONF = {
    "spark.executor.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.headrace.flux.minis": str(MINIS),
}
# Epochs in which everything is compiled and state grows; then some without trouble, then trouble begins.
WARM, CALM = 4, 4


@dataclass
class _Side:
    """What a run did: rows per second of each epoch, what its keyed operator observed, and if its results are right."""

    rates: list[float] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)
    moves: int = 0
    moved_bytes: int = 0
    correct: bool = False

    @property
    def verdict(self) -> str:
        return "equal DuckDB's" if self.correct else "DIFFER from DuckDB's"

    @property
    def calm(self) -> float:
        """Rows per second before trouble began."""
        return statistics.median(self.rates[WARM : WARM + CALM])

    @property
    def steady(self) -> float:
        """Rows per second in the last third of the epochs with trouble."""
        troubled = self.rates[WARM + CALM :]
        return statistics.median(troubled[-max(3, len(troubled) // 3) :])

    @property
    def step_share(self) -> float:
        """The share of an epoch that bins are at work in, in the end."""
        return float(statistics.median(each["step_s"] / each["epoch_s"] for each in self.observed[-3:]))

    def recovered_s(self) -> float | None:
        """Seconds of trouble until an epoch first runs at nine tenths of the steady rate; None: it never does."""
        passed = 0.0
        for number, rate in enumerate(self.rates[WARM + CALM :], WARM + CALM):
            if number > WARM + CALM and rate >= 0.9 * self.steady:
                return round(passed, 2)
            passed += self.observed[number]["epoch_s"]
        return None

    def measures(self) -> dict[str, Any]:
        return {
            "rows_per_s": [round(rate) for rate in self.rates],
            "calm_rows_per_s": round(self.calm),
            "steady_rows_per_s": round(self.steady),
            "recovered_s": self.recovered_s(),
            "moves": self.moves,
            "moved_bytes": self.moved_bytes,
            "loaded_bytes": [each["loaded_bytes"] for each in self.observed],
            "waiting": [each["waiting"] for each in self.observed],
            "longest_epoch_s": max(each["epoch_s"] for each in self.observed[WARM:]),
        }


def bench_flux(quick: bool, say: Say) -> dict[str, Any]:
    """A filter of outliers (median and median deviation of a key's last 1000 values, for each row), a function of the
    user's, over 60 keys on two executors of one core each, a real cluster. Ratios:

    - `skew_vs_static`: rows per second with moves over without, when 80 % of the rows come to have 20 % of the keys,
      which all hash to the first bin, and to one partition of Spark's own state; `skew_vs_ideal`: over the rate before,
      when keys were even.
    - `slow_vs_static`: the same when one executor comes to run 40 % of the time; `slow_vs_ideal`: over 1.4 / 2 of the
      rate before, the sum of what both can do.
    - `memory_vs_static`: the same when the memory of one bin is halved, so that its state does not fit any more.
    - `vs_spark_state`: rows per second with moves over `applyInPandasWithState` with the same function, both skewed.
    - `rows_vs_spark`: MEDIAN over the last 5000 rows of a key in SQL over `applyInPandasWithState` with pandas'
      rolling median, keys even.
    - `alternating_vs_static` (not with --quick): the skew changes sides every three epochs; an epoch may move 1 MiB.

    `correct` compares the results of some keys with DuckDB's, and counts those of all.
    """
    epochs, rows = (WARM + CALM + 9, 40_000) if quick else (WARM + CALM + 24, 80_000)
    troubles = TROUBLES if quick else (*TROUBLES, "alternating")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        with LocalCluster(home / "cluster", EXECUTORS) as cluster:
            spark = build_session("bench flux", cluster.url, CONF)
            try:
                ground = _Ground(spark, home, _Keys.found(spark), epochs, rows, say)
                ground.warm_up()
                even, plain_even = ground.even()
                sides = {"rows": even, **ground.troubled(troubles)}
                plain = ground.spark_state()
            finally:
                spark.stop()
    measures = {name: side.measures() for name, side in sides.items()} | {
        "trouble_at_epoch": WARM + CALM,
        "spark_state_rows_per_s": round(plain),
        "spark_rows_rows_per_s": round(plain_even),
        "peak_bytes": peak_bytes(),
    }
    ratios = {**_ratios(sides, troubles, plain), "rows_vs_spark": sides["rows"].steady / plain_even}
    return result("flux", all(side.correct for side in sides.values()), ratios, measures)


def _ratios(sides: Mapping[str, _Side], troubles: Sequence[str], plain: float) -> dict[str, float]:
    ideal = {"skew": sides["skew_flux"].calm, "slow": sides["slow_flux"].calm * (1 + SPEED) / 2}
    return {
        **{f"{t}_vs_static": sides[f"{t}_flux"].steady / sides[f"{t}_static"].steady for t in troubles},
        **{f"{t}_vs_ideal": sides[f"{t}_flux"].steady / ideal[t] for t in ideal},
        "vs_spark_state": sides["skew_flux"].steady / plain,
    }


@dataclass(frozen=True)
class _Ground:
    """Where all sides run: a session on the cluster, a folder, and how many rows each run reads."""

    spark: SparkSession
    home: Path
    keys: _Keys
    epochs: int
    rows: int
    say: Say

    def warm_up(self) -> None:
        self.say("warming up")
        _write(self.home / "rows_warm", self.keys, WARM + CALM, self.rows, "none")
        _run(self.spark, self.home / "rows_warm", self.home / "warm", "off", "none")

    def even(self) -> tuple[_Side, float]:
        """A median over rows in SQL, and rows per second of what a user of Spark would write for it; keys are even."""
        source, epochs = self.home / "rows_even", WARM + CALM + 6
        _write(source, self.keys, epochs, 5 * self.rows, "none")
        side = _run(self.spark, source, self.home / "rows", "auto", "none", MEDIAN)
        plain = _spark_state(self.spark, source, self.home / "plain_rows", rolling(LAST), epochs)
        side.correct = _same(source, self.home / "rows" / "out", self.keys, MEDIAN)
        self.say(
            f"median of {LAST} rows: {side.steady:,.0f} rows/s, applyInPandasWithState with pandas' "
            f"rolling median: {plain:,.0f}; results {side.verdict}"
        )
        return side, plain

    def troubled(self, troubles: Sequence[str]) -> dict[str, _Side]:
        """The filter of outliers under each trouble, without moves and with them."""
        self.say(f"writing {len(troubles) * self.epochs * self.rows:,} rows")
        sides: dict[str, _Side] = {}
        for trouble in troubles:
            source = self.home / f"rows_{trouble}"
            _write(source, self.keys, self.epochs, self.rows, trouble)
            for moves, called in (("off", "static"), ("auto", "flux")):
                name = f"{trouble}_{called}"
                sides[name] = side = _run(self.spark, source, self.home / name, moves, trouble)
                side.correct = _same(source, self.home / name / "out", self.keys, FILTER)
                self.say(
                    f"{name}: {side.calm:,.0f} rows/s, with trouble {side.steady:,.0f} in the end, {side.moves} moves, "
                    f"{side.step_share:.0%} of the time in the step; results {side.verdict}"
                )
        return sides

    def spark_state(self) -> float:
        """Rows per second of Spark's own keyed state over the skewed rows."""
        source, work = self.home / "rows_skew", filtering(FILTERED)
        plain = _spark_state(self.spark, source, self.home / "plain", work, self.epochs)
        self.say(f"applyInPandasWithState, skewed: {plain:,.0f} rows/s")
        return plain


@dataclass(frozen=True)
class _Keys:
    """All keys, and those that are hot when their bin is: a fifth of all, and all of one bin."""

    every: tuple[int, ...]
    hot: tuple[tuple[int, ...], ...]  # by bin

    @classmethod
    def found(cls, spark: SparkSession) -> _Keys:
        """Keys whose place is known before anything runs: in one bin of ours, and in one partition of Spark's state."""
        ours, theirs = "xxhash64(CAST(id AS INT))", f"pmod(hash(CAST(id AS INT)), {EXECUTORS})"
        hashes = spark.sql(f"SELECT {ours} AS ours, {theirs} AS theirs FROM range(500) ORDER BY id").collect()
        minis = (pl.Series([row.ours for row in hashes], dtype=pl.Int64) % (EXECUTORS * MINIS)).to_list()
        # At first mini-partitions go round the bins.
        places = [(mini % EXECUTORS, row.theirs) for mini, row in zip(minis, hashes, strict=True)]
        of_bin = [[key for key, place in enumerate(places) if place == (bin_, bin_)] for bin_ in range(EXECUTORS)]
        hot = tuple(tuple(keys[: KEYS // 5]) for keys in of_bin)
        others = [key for key in range(KEYS) if key not in {key for keys in hot for key in keys}]
        return cls((*hot[0], *hot[1], *others)[:KEYS], hot)


def _write(folder: Path, keys: _Keys, epochs: int, rows: int, trouble: str) -> None:
    """Files of rows in the order of their time; with skew, from some epoch on 80 % of them are of the hot keys."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(17)
    every, hot = np.array(keys.every, np.int32), [np.array(some, np.int32) for some in keys.hot]
    for number in range(epochs * FILES):
        n = rows // FILES
        epoch = number // FILES - WARM - CALM
        chosen = rng.choice(every, n)
        if epoch >= 0 and trouble in ("skew", "alternating"):
            side = epoch // ALTERNATES % EXECUTORS if trouble == "alternating" else 0
            chosen = np.where(rng.random(n) < 0.8, rng.choice(hot[side], n), chosen).astype(np.int32)
        ts = START_US + (number * n + np.arange(n)) * 10
        table = pa.table(
            {
                "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                "k": pa.array(chosen),
                "v": pa.array(rng.normal(100, 20, n)),
            }
        )
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _run(spark: SparkSession, source: Path, home: Path, moves: str, trouble: str, sql: str = FILTER) -> _Side:
    side, slowed = _Side(), list[SlowedDown]()
    spark.conf.set("spark.headrace.flux.moves", moves)
    if trouble == "alternating":
        spark.conf.set("spark.headrace.flux.budget", str(ALTERNATING_BUDGET))
    ended = [time.monotonic()]

    def note(manifest: Manifest) -> None:
        now = time.monotonic()
        measures, state = manifest.observed.flows["q"], manifest.flows["q"]
        assert isinstance(measures, KeyedMeasures)
        assert isinstance(state, KeyedState)
        seen = {**asdict(measures), **manifest.observed.steps_s, "epoch_s": now - ended[0]}
        if sum(manifest.observed.rows.values()):
            # Rows that got their result: those of mini-partitions on disk may wait.
            side.rates.append(seen["rows"] / (now - ended[0]))
            side.observed.append(seen)
        side.moves, side.moved_bytes = state.moves, state.moved_bytes
        if manifest.epoch == WARM + CALM - 1:
            if trouble == "slow":
                slowed.append(SlowedDown(executor_of(int(str(measures.places[0]).rpartition(":")[2])), SPEED))
            if trouble == "memory":
                # Until now there was room for half as much again; now the first bin has half of that.
                room = 1.5 * sum(state.state_bytes) / EXECUTORS / MEMORY_SHARE
                spark.conf.set("spark.headrace.flux.memory", f"{room / 2:.0f},{room * 2:.0f}")
        ended[0] = time.monotonic()

    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).parquet(str(source))
    pipe = hr.Pipeline("flux").stream("r", rows, time="ts")
    step = hr.step(with_tables(filtering(FILTERED)), state="k INT, v DOUBLE", results=RESULTS)
    pipe.query("q", sql, sink=hr.parquet(str(home / "out")), step=step if sql == FILTER else None)
    try:
        pipe.start(spark, str(home / "state"), once=True, flush=True, hooks=Hooks(on_epoch=note)).await_termination()
    finally:
        for each in slowed:
            each.end()
        for name in ("budget", "memory", "moves"):
            spark.conf.unset(f"spark.headrace.flux.{name}")
    return side


def _same(source: Path, out: Path, keys: _Keys, sql: str) -> bool:
    """Whether every row has one result, and those of some keys equal DuckDB's."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    connection.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{source}/*.parquet')")
    connection.execute(f"CREATE VIEW ours AS SELECT * FROM read_parquet('{out}/*.parquet')")
    counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchall() for name in ("rows", "ours")]
    some = ", ".join(str(key) for key in (*keys.hot[0][:2], *keys.hot[1][:2]))
    last, functions = JUDGES[sql]
    over = f"(PARTITION BY k ORDER BY ts ROWS BETWEEN {last - 1} PRECEDING AND CURRENT ROW)"
    judged = ", ".join(f"round({function}(v) OVER {over}, 9)" for function in functions.values())
    theirs = f"SELECT k, ts, {judged} FROM rows WHERE k IN ({some})"
    ours = f"SELECT k, ts, {', '.join(f'round({column}, 9)' for column in functions)} FROM ours WHERE k IN ({some})"
    missing = connection.execute(f"SELECT count(*) FROM ({theirs} EXCEPT ALL {ours})").fetchall()
    return counts[0] == counts[1] and missing == [(0,)]


def _spark_state(spark: SparkSession, source: Path, out: Path, work: Work, epochs: int) -> float:
    """Rows per second of Spark's own keyed state over the same rows, once it is warm."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).parquet(str(source))
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(EXECUTORS))
    kept = rows.groupBy("k").applyInPandasWithState(with_state(work), RESULTS, "held BINARY", "append", "NoTimeout")
    writer = kept.writeStream.format("parquet").option("checkpointLocation", str(out / "state"))
    query = writer.trigger(availableNow=True).start(str(out / "results"))
    query.awaitTermination()
    spark.conf.set("spark.sql.shuffle.partitions", str(before))
    progress = [p for p in query.recentProgress if p.numInputRows]
    steady = progress[-max(3, (epochs - WARM - CALM) // 3) :]
    return sum(p.numInputRows for p in steady) / (sum(p.durationMs["triggerExecution"] for p in steady) / 1000)
