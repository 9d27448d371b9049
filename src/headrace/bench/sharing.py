"""Many sliding-window queries over the same packets: shared, against one StreamingQuery each in plain Spark."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

import headrace as hr
from headrace.bench.measure import Say, peak_bytes, result
from headrace.bench.packets import SCHEMA, PacketQuery, packet_queries, write_packets
from headrace.bench.plain import PlainSpark
from headrace.engine import Hooks, Manifest, build_session
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_policies", "bench_sharing"]

ROWS, LATENESS_S, FILES = 200_000, 2, 2
# Epochs left out of rates: everything is compiled and windows fill up.
WARM = 4
GROUPS = 8
# Plain Spark is given so long after its first batch; a batch under way then counts in its favour.
LIMIT_S = 120.0


@dataclass(frozen=True)
class _Outcome:
    rows_per_s: float
    epoch_s: float
    jobs: float
    state_bytes: int
    answers: float


def bench_sharing(quick: bool, say: Say) -> dict[str, Any]:
    """The paper's workload in eight groups, epochs of 200,000 rows and 10 s of event time. Ratios:

    - `vs_spark_8`, `vs_spark_40`: rows per second over plain Spark's, one StreamingQuery each, at 8 and 40 queries.
    - `rows_240_over_8`, `jobs_240_over_8`: rows per second, and Spark jobs per epoch, at 240 queries over those at 8.

    Plain Spark answers the windows without the top k, which it cannot cut per window; `correct` compares answers of all
    sizes with DuckDB's.
    """
    epochs, spark_epochs = (8, 4) if quick else (16, 5)
    sizes = (1, 5) if quick else (1, 5, 30)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        say(f"writing {epochs * ROWS:,} rows")
        write_packets(home / "rows", epochs, ROWS)
        write_packets(home / "few", spark_epochs, ROWS)
        plain = _plain_spark(home, (1,) if quick else (1, 5), spark_epochs, say)
        spark = build_session("bench sharing", conf={"spark.driver.memory": "4g"})
        outcomes: dict[int, _Outcome] = {}
        correct = True
        for per_group in sizes:
            queries = packet_queries(per_group)
            out = home / f"headrace{per_group}"
            outcomes[len(queries)] = outcome = _headrace(spark, home / "rows", out, queries)
            same = _same(home / "rows", out, queries)
            correct &= same
            say(
                f"headrace, {len(queries)} queries: {outcome.rows_per_s:,.0f} rows/s, {outcome.jobs} jobs per epoch, "
                f"answers {'equal DuckDB' if same else 'DIFFER from DuckDB'}"
            )
    last = max(outcomes)
    ratios = {f"vs_spark_{n}": outcomes[n].rows_per_s / rate for n, rate in plain.items()}
    ratios[f"rows_{last}_over_8"] = outcomes[last].rows_per_s / outcomes[8].rows_per_s
    ratios[f"jobs_{last}_over_8"] = outcomes[last].jobs / outcomes[8].jobs
    measures: dict[str, Any] = {f"spark_{n}_rows_per_s": round(rate) for n, rate in plain.items()}
    for n, outcome in outcomes.items():
        measures |= {
            f"headrace_{n}_rows_per_s": round(outcome.rows_per_s),
            f"headrace_{n}_epoch_s": round(outcome.epoch_s, 3),
            f"headrace_{n}_jobs_per_epoch": outcome.jobs,
            f"headrace_{n}_answers_per_epoch": outcome.answers,
            f"headrace_{n}_state_bytes": outcome.state_bytes,
        }
    return result("sharing", correct, ratios, {**measures, "peak_bytes": peak_bytes()})


def _plain_spark(home: Path, sizes: Sequence[int], epochs: int, say: Say) -> dict[int, float]:
    """Rows per second of plain Spark, by the number of queries."""
    rates: dict[int, float] = {}
    with PlainSpark() as other:
        for per_group in sizes:
            queries = packet_queries(per_group)
            found = other.ask(
                "many", source=home / "few", out=home / f"spark{per_group}", skip=1, files=FILES, schema=SCHEMA,
                late=f"{LATENESS_S} seconds", queries=[_plain(query) for query in queries], batches=epochs,
                limit_s=LIMIT_S,
            )  # fmt: skip
            rates[GROUPS * per_group] = found["rows_per_s"]
            how = "" if found["finished"] else f", stopped after {found['seconds']:.0f} s"
            say(f"plain Spark, {len(queries)} queries: {found['rows_per_s']:,.0f} rows/s{how}")
    return rates


def _plain(query: PacketQuery) -> dict[str, Any]:
    value = "sum(length)" if query.fraction is None else f"percentile(length, {query.fraction})"
    return {"name": query.name, "keys": query.keys, "value": value, "size": query.size_s, "slide": query.slide_s}


def _headrace(
    spark: SparkSession,
    source: Path,
    out: Path,
    queries: Sequence[PacketQuery],
) -> _Outcome:
    manifests, ended = _run(spark, source, out, queries)
    observed = [m.observed for m in manifests]
    steady = observed[WARM:]
    return _Outcome(
        rows_per_s=ROWS * len(steady) / (ended[-1] - ended[WARM - 1]),
        epoch_s=statistics.median(o.seconds for o in steady),
        jobs=round(statistics.mean(o.jobs for o in steady if o.due), 2),
        state_bytes=max(o.state_bytes for o in observed),
        answers=round(statistics.mean(sum(o.due.values()) for o in steady), 1),
    )


def _run(
    spark: SparkSession,
    source: Path,
    out: Path,
    queries: Sequence[PacketQuery],
) -> tuple[list[Manifest], list[float]]:
    """Runs queries over all files as fast as it goes: what each epoch left, and when it ended."""
    manifests: list[Manifest] = []
    ended: list[float] = []

    def note(manifest: Manifest) -> None:
        manifests.append(manifest)
        ended.append(time.monotonic())

    pipe = hr.Pipeline("sharing")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).parquet(str(source))
    pipe.stream("packets", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for query in queries:
        pipe.query(query.name, query.sql, sink=hr.parquet(str(out / query.name)))
    run = pipe.start(spark, str(out / "state"), trigger="0 seconds", hooks=Hooks(on_epoch=note))
    run.process_all_available()
    run.stop()
    return manifests, ended


def _same(source: Path, out: Path, queries: Sequence[PacketQuery], most: int = 24) -> bool:
    """Whether every answer of a sample of queries, over all groups, equals DuckDB's over the same rows."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE packets AS SELECT *, epoch_us(ts) AS t FROM read_parquet('{source}/*.parquet')")
    for query in queries[:: max(1, len(queries) // most)]:
        files = sorted((out / query.name).glob("*.parquet"))
        if not files:
            continue
        ours = pl.concat([pl.read_parquet(file) for file in files])
        if not _equal(connection, query, ours):
            return False
    return True


def _equal(connection: duckdb.DuckDBPyConnection, query: PacketQuery, ours: pl.DataFrame) -> bool:
    keys = ", ".join(query.keys)
    for end in sorted(ours["window_end"].unique())[-3:]:
        mine = ours.filter(pl.col("window_end") == end)
        last = int(end.timestamp() * 1_000_000)
        inside = f"t >= {last - query.size_s * 1_000_000} AND t < {last}"
        if query.fraction is None:
            sql = f"SELECT {keys}, sum(length)::BIGINT AS v FROM packets WHERE {inside} GROUP BY {keys} "
            sql += f"ORDER BY v DESC, {keys} LIMIT {query.k}"
        else:
            value = f"quantile_cont(length, {query.fraction})"
            sql = f"SELECT {keys}, {value} AS v FROM packets WHERE {inside} GROUP BY {keys}"
        theirs = sorted(connection.execute(sql).fetchall())
        column = "bytes" if query.fraction is None else "length"
        found = sorted(mine.select(*query.keys, column).rows())
        if len(found) != len(theirs):
            return False
        if any(
            a[:-1] != b[:-1] or abs(a[-1] - b[-1]) > 1e-9 * max(1.0, abs(b[-1]))
            for a, b in zip(found, theirs, strict=True)
        ):
            return False
    return True


POLICIES = ("none", "aggressive", "conservative", "hybrid", "hybrid-late", "hybrid-late-pending")
# A second of event time, and so a pane, per epoch; so many of them are there at the start, for the longest windows.
PANE_ROWS, HISTORY = 15_000, 100
# Triggers come so much faster than the engine could answer everything.
OVERLOAD = 1.5


def bench_policies(quick: bool, say: Say) -> dict[str, Any]:
    """The six schedules on the real engine when an epoch's budget is too short for all that is due. Ratios:

    - `hybrid_over_conservative`, `late_pending_over_hybrid`: re-executions per second.
    - `hybrid_lateness_over_conservative`, `late_pending_lateness_over_hybrid`: panes beyond the slide, on average.

    As in the paper an epoch brings a pane of one second. First all that is due is answered, which tells how long an
    epoch takes then; after that files arrive 1.5 times faster, in real time, one per trigger, for each schedule alike.
    The first quarter of a run is left out.
    """
    per_group, epochs = (5, 20) if quick else (30, 60)
    queries = packet_queries(per_group)
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        write_packets(home / "rows", HISTORY + epochs, PANE_ROWS, files=1, seconds=1)
        spark = build_session("bench sharing", conf={"spark.driver.memory": "4g"})
        full, correct = _paced(spark, home, None, queries, 20, None)
        full_s = statistics.median(m.observed.seconds for m in full.manifests[-15:])
        trigger_s = round(max(0.1, full_s / OVERLOAD), 3)
        say(f"{len(queries)} queries: an epoch takes {full_s:.2f} s; now one every {trigger_s:.2f} s")
        for policy in POLICIES:
            paced, same = _paced(spark, home, policy, queries, epochs, trigger_s)
            table[policy], correct = paced.outcome(queries), correct and same
            say(f"{policy}: {table[policy]['executions_per_s']:.1f} re-executions/s, "
                f"{table[policy]['lateness_panes']:.2f} panes late on average")  # fmt: skip
    rate = {policy: row["executions_per_s"] for policy, row in table.items()}
    late = {policy: max(row["lateness_panes"], 1e-3) for policy, row in table.items()}
    ratios = {
        "hybrid_over_conservative": rate["hybrid"] / rate["conservative"],
        "late_pending_over_hybrid": rate["hybrid-late-pending"] / rate["hybrid"],
        "hybrid_lateness_over_conservative": late["hybrid"] / late["conservative"],
        "late_pending_lateness_over_hybrid": late["hybrid-late-pending"] / late["hybrid"],
    }
    measures = {"policies": table, "queries": len(queries), "full_epoch_s": full_s, "trigger_s": trigger_s}
    return result("sharing --policies", correct, ratios, measures)


@dataclass(frozen=True)
class _Paced:
    """A run over files that came one by one: what each epoch left, and when it ended."""

    manifests: list[Manifest]
    ended: list[float]

    def outcome(self, queries: Sequence[PacketQuery]) -> dict[str, float]:
        """Re-executions per second, and panes beyond the slide, after the first quarter."""
        first = len(self.manifests) // 4
        answers, late = 0, 0.0
        for before, after in pairwise(self.manifests[first:]):
            for query in queries:
                count = after.observed.due.get(query.name, 0)
                begin, end = before.queries[query.name].answered_us, after.queries[query.name].answered_us
                answers += count
                if count and begin is not None and end is not None:
                    late += max(0.0, (end - begin) / count / SECOND_US - query.slide_s) * count
        waiting = [self.manifests[-1].queries[query.name].waiting_us / SECOND_US for query in queries]
        took, epochs = self.ended[-1] - self.ended[first], len(self.manifests) - first - 1
        return {
            "executions_per_s": round(answers / took, 2),
            "lateness_panes": round((late + sum(waiting)) / max(1, answers + sum(1 for w in waiting if w)), 3),
            "epochs": epochs,
            "epoch_s": round(took / max(1, epochs), 3),
        }


def _paced(
    spark: SparkSession,
    home: Path,
    policy: str | None,
    queries: Sequence[PacketQuery],
    epochs: int,
    trigger_s: float | None,
) -> tuple[_Paced, bool]:
    """Runs a schedule over the history and then a file per trigger, or without one a file when the last is done."""
    source, out = home / f"in-{policy}", home / f"out-{policy}"
    source.mkdir()
    files = sorted((home / "rows").glob("*.parquet"))[: HISTORY + epochs]
    manifests: list[Manifest] = []
    ended: list[float] = []

    def note(manifest: Manifest) -> None:
        manifests.append(manifest)
        ended.append(time.monotonic())

    for file in files[:HISTORY]:
        (source / file.name).hardlink_to(file)
    pipe = hr.Pipeline("sharing")
    rows = spark.readStream.schema(SCHEMA).parquet(str(source))
    pipe.stream("packets", rows, time="ts", lateness="0 seconds")
    for query in queries:
        pipe.query(query.name, query.sql, sink=hr.parquet(str(out / query.name)))
    trigger = "0 seconds" if trigger_s is None else f"{round(trigger_s * 1000)} milliseconds"
    run = pipe.start(spark, str(out / "state"), trigger=trigger, schedule=policy, hooks=Hooks(on_epoch=note))
    run.process_all_available()
    manifests.clear()
    ended.clear()
    for file in files[HISTORY:]:
        (source / file.name).hardlink_to(file)
        if trigger_s is None:
            run.process_all_available()
        else:
            time.sleep(trigger_s)
    run.process_all_available()
    run.stop()
    return _Paced(manifests, ended), _same(source, out, queries)
