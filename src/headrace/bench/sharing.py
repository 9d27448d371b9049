"""Many sliding-window queries over the same packets: shared, against one StreamingQuery each in plain Spark."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

import headrace as hr
from headrace.bench.measure import Say, peak_bytes, result
from headrace.bench.packets import SCHEMA, PacketQuery, packet_queries, write_packets
from headrace.bench.plain import PlainSpark
from headrace.engine import Hooks, Manifest, build_session

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
        plain: dict[int, float] = {}
        with PlainSpark() as other:
            for per_group in (1,) if quick else (1, 5):
                queries = packet_queries(per_group)
                found = other.ask(
                    "many", source=home / "few", out=home / f"spark{per_group}", skip=1, files=FILES, schema=SCHEMA,
                    late=f"{LATENESS_S} seconds", queries=[_plain(query) for query in queries], batches=spark_epochs,
                    limit_s=LIMIT_S,
                )  # fmt: skip
                plain[GROUPS * per_group] = found["rows_per_s"]
                how = "" if found["finished"] else f", stopped after {found['seconds']:.0f} s"
                say(f"plain Spark, {len(queries)} queries: {found['rows_per_s']:,.0f} rows/s{how}")
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


def _plain(query: PacketQuery) -> dict[str, Any]:
    value = "sum(length)" if query.fraction is None else f"percentile(length, {query.fraction})"
    return {"name": query.name, "keys": query.keys, "value": value, "size": query.size_s, "slide": query.slide_s}


def _headrace(
    spark: SparkSession,
    source: Path,
    out: Path,
    queries: Sequence[PacketQuery],
    trigger: str = "0 seconds",
    schedule: str | None = None,
) -> _Outcome:
    manifests, ended = _run(spark, source, out, queries, trigger, schedule)
    observed = [m.observed for m in manifests]
    steady = observed[WARM:]
    return _Outcome(
        rows_per_s=ROWS * len(steady) / (ended[-1] - ended[WARM - 1]),
        epoch_s=statistics.median(o["seconds"] for o in steady),
        jobs=round(statistics.mean(o["jobs"] for o in steady if o["due"]), 2),
        state_bytes=max(o["state_bytes"] for o in observed),
        answers=round(statistics.mean(sum(o["due"].values()) for o in steady), 1),
    )


def _run(
    spark: SparkSession,
    source: Path,
    out: Path,
    queries: Sequence[PacketQuery],
    trigger: str,
    schedule: str | None,
) -> tuple[list[Manifest], list[float]]:
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
    run = pipe.start(spark, str(out / "state"), trigger=trigger, schedule=schedule, hooks=Hooks(on_epoch=note))
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


def bench_policies(quick: bool, say: Say) -> dict[str, Any]:
    """The six schedules on the real engine when an epoch's budget is too short for all that is due.

    Rows arrive as files in real time, an epoch's worth per trigger; re-executions per second and mean lateness per
    query (extra panes beyond its slide) are reported for each.
    """
    per_group, seconds = (5, 10) if quick else (30, 25)
    queries = packet_queries(per_group)
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        write_packets(home / "rows", seconds, 20_000, files=1)
        spark = build_session("bench sharing", conf={"spark.driver.memory": "4g"})
        _run(spark, home / "rows", home / "warm", queries, "0 seconds", None)
        for policy in POLICIES:
            table[policy] = _overloaded(spark, home, policy, queries, seconds)
            say(f"{policy}: {table[policy]['executions_per_s']:.1f} re-executions/s, "
                f"{table[policy]['lateness_panes']:.2f} panes late on average")  # fmt: skip
    rate = {policy: row["executions_per_s"] for policy, row in table.items()}
    ratios = {
        "hybrid_over_conservative": rate["hybrid"] / rate["conservative"],
        "late_pending_over_hybrid": rate["hybrid-late-pending"] / rate["hybrid"],
    }
    return result("sharing --policies", True, ratios, {"policies": table, "queries": len(queries)})


def _overloaded(
    spark: SparkSession, home: Path, policy: str, queries: Sequence[PacketQuery], seconds: int
) -> dict[str, float]:
    source, out = home / f"in-{policy}", home / f"out-{policy}"
    source.mkdir()
    files = sorted((home / "rows").glob("*.parquet"))

    def feed() -> None:
        for file in files:
            (source / file.name).hardlink_to(file)
            time.sleep(1.0)

    pipe = hr.Pipeline("sharing")
    rows = spark.readStream.schema(SCHEMA).parquet(str(source))
    pipe.stream("packets", rows, time="ts", lateness="0 seconds")
    for query in queries:
        pipe.query(query.name, query.sql, sink=hr.parquet(str(out / query.name)))
    manifests: list[Manifest] = []
    feeder = threading.Thread(target=feed)
    run = pipe.start(
        spark, str(out / "state"), trigger="1 second", schedule=policy, hooks=Hooks(on_epoch=manifests.append)
    )
    began = time.monotonic()
    feeder.start()
    feeder.join()
    took = time.monotonic() - began
    run.stop()
    states = manifests[-1].queries
    late = []
    for query in queries:
        gap = states[query.name].gap_us
        late.append(
            max(0.0, (gap or 0.0) / 1_000_000 - query.slide_s) if gap else float(states[query.name].waiting_us) / 1e6
        )
    answers = sum(sum(m.observed["due"].values()) for m in manifests)
    return {"executions_per_s": round(answers / took, 2), "lateness_panes": round(statistics.mean(late), 3)}
