"""The same rows from Kafka and from files, through the same query, and from Kafka through plain Spark's `window()`."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import headrace as hr
from headrace.bench.broker import Broker
from headrace.bench.ingest import EPOCH_S, SCHEMA, SIZE_S, SLIDE_S, run_on_files, write_rows
from headrace.bench.jars import KAFKA, fetch_jars
from headrace.bench.measure import Say, result
from headrace.engine import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_ingest_kafka"]

TOPIC = "rows"
PARTITIONS = 2
# Messages are cut into epochs a few rows beside where files are: so late that none of them is.
LATENESS_S = EPOCH_S + 5
PIPELINE = """
streams:
  r:
    source:
      format: kafka
      options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, maxOffsetsPerTrigger: {intake}}}
      value: json
    schema: {schema}
    time: ts
    lateness: {lateness} seconds
queries:
  q: {{sql: "SELECT k, SUM(v) AS v, COUNT(*) AS n FROM r GROUP BY window(ts, '{size} s', '{slide} s'), k"}}
output: {out}
engine: {{trigger: 0 seconds, checkpoint: {out}/state}}
"""


def bench_ingest_kafka(quick: bool, say: Say) -> dict[str, Any]:
    """Rows as JSON messages on a broker of its own (KRaft, one node, two partitions), and as Parquet files. Ratios:

    - `kafka_over_files`: rows per second from Kafka over those from files, both by Headrace.
    - `vs_tuned_spark`: rows per second from Kafka over those of plain Spark from Kafka with our settings.
    """
    epochs, per_epoch = (4, 100_000) if quick else (6, 250_000)
    rows = epochs * per_epoch
    jars = fetch_jars(KAFKA)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, Broker(Path(folder) / "broker") as broker:
        home = Path(folder)
        conf = {"spark.driver.memory": "4g", "spark.jars": ",".join(map(str, jars))}
        spark = build_session("bench ingest --source kafka", conf=conf)
        say(f"writing {rows:,} rows as files and as messages")
        write_rows(home / "rows", epochs, per_epoch)
        _send(spark, home / "rows", broker.servers)
        sides: dict[str, Callable[[Path], float]] = {
            "files": lambda out: run_on_files(spark, home / "rows", out, lateness_s=LATENESS_S).seconds,
            "kafka": lambda out: _headrace(spark, broker.servers, per_epoch, out),
            "spark_kafka": lambda out: _spark(spark, broker.servers, per_epoch, out),
        }
        found: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(2 if quick else 4):
            for name, side in sides.items():
                seconds = side(home / f"{name}{turn}")
                say(f"{name}: {rows / seconds:,.0f} rows/s{' (warming up)' if turn == 0 else ''}")
                if turn:
                    found[name].append(seconds)
        correct = _same(home / "files1" / "q", home / "kafka1" / "q")
        say("results are the same" if correct else "RESULTS DIFFER")
    speed = {name: rows / statistics.median(seconds) for name, seconds in found.items()}
    ratios = {
        "kafka_over_files": speed["kafka"] / speed["files"],
        "vs_tuned_spark": speed["kafka"] / speed["spark_kafka"],
    }
    measures = {**{f"{name}_rows_per_s": round(value) for name, value in speed.items()}, "rows": rows}
    return result("ingest --source kafka", correct, ratios, {**measures, "rows_per_epoch": per_epoch})


def _send(spark: SparkSession, source: Path, servers: str) -> None:
    """File by file, so that messages are about in the order of their times, half of each file to each partition."""
    for file in sorted(source.glob("*.parquet")):
        rows = spark.read.schema(SCHEMA).parquet(str(file))
        value = "to_json(struct(*), map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")) AS value"
        messages = rows.selectExpr(value, f"CAST(monotonically_increasing_id() % {PARTITIONS} AS INT) AS partition")
        messages.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", TOPIC).save()


def _headrace(spark: SparkSession, servers: str, per_epoch: int, out: Path) -> float:
    out.mkdir()
    file = out / "pipeline.yml"
    file.write_text(
        PIPELINE.format(servers=servers, topic=TOPIC, intake=per_epoch, schema=SCHEMA, lateness=LATENESS_S,
                        size=SIZE_S, slide=SLIDE_S, out=out)
    )  # fmt: skip
    began = time.monotonic()
    run = hr.Pipeline.from_file(file).start(spark)
    run.process_all_available()
    seconds = time.monotonic() - began
    run.stop()
    return seconds


def _spark(spark: SparkSession, servers: str, per_epoch: int, out: Path) -> float:
    """What one would write without Headrace."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    messages = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", TOPIC)
    messages = messages.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_epoch)
    rows = messages.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("m")).select("m.*")
    answers = (
        rows.withWatermark("ts", f"{LATENESS_S} seconds")
        .groupBy(F.window("ts", f"{SIZE_S} seconds", f"{SLIDE_S} seconds"), "k")
        .agg(F.sum("v").alias("v"), F.count("*").alias("n"))
    )
    writer = answers.writeStream.format("parquet").option("path", str(out / "q"))
    began = time.monotonic()
    query = writer.option("checkpointLocation", str(out / "state")).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    seconds = time.monotonic() - began
    query.stop()
    return seconds


def _same(files: Path, kafka: Path) -> bool:
    """Windows that both sides have answered are the same; the last epochs may end a window apart."""
    order = ["window_end", "k"]
    one, two = (pl.read_parquet(folder / "*.parquet").sort(order) for folder in (files, kafka))
    ends = (frame["window_end"].max() for frame in (one, two))
    last = min(end for end in ends if end is not None)
    one, two = (frame.filter(pl.col("window_end") <= last) for frame in (one, two))
    return one.height > 0 and one.equals(two)
