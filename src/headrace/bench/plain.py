"""Plain Spark in a process of its own, with Spark's own settings, taking turns with the engine in a benchmark.

python -m headrace.bench.plain    reads a JSON request per line, answers each with a JSON line
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.bench.measure import batch_seconds

__all__ = ["PlainSpark", "empty_batches", "joined", "many", "measured", "windowed"]


class PlainSpark:
    """The other side of a benchmark: `ask` has it run something and gives what it measured."""

    def __enter__(self) -> PlainSpark:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.bench.plain"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Runs `windowed`, `joined`, `many` or `empty` over a folder of files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("plain Spark's process ended")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def windowed(spark: Any, source: str, out: str, files: int, schema: str, size: str, slide: str, late: str) -> Any:
    """What the engine's documentation is measured against: `window()` with a watermark, into Parquet."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    answers = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", files)
        .parquet(source)
        .withWatermark("ts", late)
        .groupBy(F.window("ts", size, slide), "k")
        .agg(F.sum("v").alias("v"), F.count("*").alias("n"))
        .selectExpr("window.start AS window_start", "window.end AS window_end", "k", "v", "n")
    )
    return answers.writeStream.format("parquet").option("path", str(Path(out) / "q"))


def many(
    spark: Any,
    source: str,
    out: str,
    files: int,
    schema: str,
    late: str,
    queries: list[dict[str, Any]],
    skip: int,
    batches: int,
    limit_s: float,
) -> dict[str, Any]:
    """One StreamingQuery per windowed query, all at once; rows per second after `skip` batches, within a time limit."""
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(source).withWatermark("ts", late)
    running = [_started(rows, Path(out), query) for query in queries]

    def done() -> list[int]:
        return [sum(p["numInputRows"] for p in query.recentProgress) for query in running]

    total, began = _rows_in(source), time.monotonic()
    while min(done()) < skip * total // batches and time.monotonic() - began < limit_s:
        time.sleep(0.05)
    # The first batches are over for all: from here on rows count, until all are through or time is up. Where the time
    # was not even enough for those, they are what counts.
    before = done()
    if min(before) < skip * total // batches:
        before = [0] * len(running)
    else:
        began = time.monotonic()
    while min(done()) < total and time.monotonic() - began < limit_s:
        time.sleep(0.05)
    seconds, after = time.monotonic() - began, done()
    for query in running:
        query.stop()
    # A row has been through when it has been through all queries; a batch under way counts as done.
    slowest = min(b - a for a, b in zip(before, after, strict=True))
    under_way = 0 if min(after) >= total else total // batches
    return {"rows_per_s": (slowest + under_way) / seconds, "seconds": seconds, "finished": min(after) >= total}


def _started(rows: Any, out: Path, query: dict[str, Any]) -> Any:
    """A StreamingQuery of its own for one windowed query."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    answers = (
        rows.groupBy(F.window("ts", f"{query['size']} seconds", f"{query['slide']} seconds"), *query["keys"])
        .agg(F.expr(query["value"]).alias("v"))
        .selectExpr("window.start AS window_start", "window.end AS window_end", *query["keys"], "v")
    )
    writer = answers.writeStream.format("parquet").option("path", str(out / query["name"]))
    writer = writer.option("checkpointLocation", str(out / "state" / query["name"]))
    return writer.trigger(processingTime="0 seconds").start()


def joined(
    spark: Any,
    left: str,
    right: str,
    out: str,
    files: tuple[int, int],
    schema: str,
    on: str,
    range_s: int,
    late: str,
    skip: int,
    limit_s: float,
) -> dict[str, Any]:
    """Spark's stream-stream join with watermarks and a time range, into Parquet; or what it says against it."""
    sides = []
    for name, source, at_once in (("l", left, files[0]), ("r", right, files[1])):
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", at_once).parquet(source)
        sides.append(rows.withWatermark("ts", late).alias(name))
    near = f"INTERVAL {range_s} SECONDS"
    within = f"r.ts >= l.ts - {near} AND r.ts <= l.ts + {near}"
    from pyspark.sql.functions import expr

    pairs = sides[0].join(sides[1], expr(f"{on} AND {within}")).selectExpr("l.n AS n", "r.n AS m")
    writer = pairs.writeStream.format("parquet").option("path", str(Path(out) / "q"))
    writer = writer.option("checkpointLocation", str(Path(out) / "state")).trigger(processingTime="0 seconds")
    try:
        query = writer.start()
    except Exception as refusal:
        return {"refused": str(refusal).splitlines()[0]}
    total = _rows_in(left) + _rows_in(right)
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if query.exception() is not None:
            return {"refused": str(query.exception()).splitlines()[0]}
        batches = [p for p in query.recentProgress if p["numInputRows"]]
        if sum(p["numInputRows"] for p in batches) >= total:
            break
        time.sleep(0.05)
    elapsed = time.monotonic() - began
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    finished = sum(p["numInputRows"] for p in batches) >= total
    query.stop()
    rows = sum(p["numInputRows"] for p in batches[skip:])
    seconds = sum(p["durationMs"]["triggerExecution"] for p in batches[skip:]) / 1000
    if not finished:
        # The batch under way counts as done, and so does the time it has taken so far.
        rows += batches[-1]["numInputRows"] if batches else total
        seconds = elapsed - sum(p["durationMs"]["triggerExecution"] for p in batches[:skip]) / 1000
    return {"rows_per_s": rows / seconds, "seconds": seconds, "finished": finished, "batches": len(batches)}


def _rows_in(folder: str) -> int:
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(file).num_rows) for file in Path(folder).glob("*.parquet"))


def empty_batches(spark: Any, source: str, files: int, schema: str) -> Any:
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(source)
    return rows.writeStream.foreachBatch(lambda batch, number: None)


def measured(writer: Any, out: str, skip: int) -> dict[str, Any]:
    began = time.monotonic()
    query = writer.option("checkpointLocation", str(Path(out) / "state")).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    seconds = time.monotonic() - began
    query.stop()
    return {"seconds": seconds, "batch_s": batch_seconds(query, skip)}


def main() -> None:
    """Answers requests until there are no more."""
    import os

    from pyspark.sql import SparkSession

    # Spark's defaults, but for what nobody on one machine would leave: as many shuffle partitions as cores.
    builder = SparkSession.builder.master("local[*]").config("spark.sql.shuffle.partitions", str(os.cpu_count()))
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    for line in sys.stdin:
        request = json.loads(line)
        what, out, skip = request.pop("what"), request.pop("out"), request.pop("skip")
        if what in ("many", "joined"):
            side = many if what == "many" else joined
            print(json.dumps(side(spark, out=out, skip=skip, **request)), flush=True)
            continue
        writer = windowed(spark, out=out, **request) if what == "windowed" else empty_batches(spark, **request)
        print(json.dumps(measured(writer, out, skip)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
