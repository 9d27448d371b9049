"""What the demo runs: its pipeline file, its chapters, and the same windows for plain Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import headrace.kernels.synthetic as synthetic
from headrace.bench.plain import PlainSpark

__all__ = ["CHAPTERS", "PIPELINE", "Chapter", "plain_rows_per_s"]

# Packets: 2,000 a second of event time, from 50 hosts of which a few send the most; up to 3 s out of order.
RATE, ROWS, EPOCH = 2000, 1_200_000, 25_000
PACKETS = {"rate": f"{RATE}", "keys": "50", "skew": "2", "disorder": "3 seconds", "seed": "7"}
TOP_SIZE_S, TOP_SLIDE_S = 60, 10
# What is asked of which group, over windows of which size and slide in seconds.
ASKED = (("bytes", "key", "SUM(amount)"), ("p99", "key", "percentile(value, 0.99)"), ("packets", None, "COUNT(*)"))
SPANS = ((30, 10), (60, 10), (60, 20), (120, 10))
WINDOWS = [(f"{name}_{size}s_{slide}s", key, value, size, slide) for name, key, value in ASKED for size, slide in SPANS]
# Plain Spark reads so many packets in batches of the demo's size, in at most so many seconds.
PLAIN_EPOCHS, PLAIN_LIMIT_S = 4, 30.0


def _query(name: str, key: str | None, value: str, size: int, slide: int) -> str:
    what, by = (f"{key} AS host, ", f" GROUP BY {key}") if key else ("", "")
    if name == "bytes_60s_10s":
        name, by = "top_talkers", f"{by} ORDER BY bytes DESC LIMIT 5"
    asked = name.partition("_")[0] if name != "top_talkers" else "bytes"
    sql = f"SELECT {what}{value} AS {asked} FROM packets [WINDOW {size} s SLIDE {slide} s]{by}"
    return f"  {name}:\n    sql: {sql}\n"


PACKETS_TEXT = ", ".join(f"{name}: {value}" for name, value in PACKETS.items())
PIPELINE = f"""\
name: demo
streams:
  packets:
    # {RATE:,} packets a second of event time, from 50 hosts of which a few send the most; up to 3 s out of order
    source:
      format: synthetic
      options: {{rows: {ROWS}, epoch: {EPOCH}, {PACKETS_TEXT}}}
    lateness: 2 seconds
  alarms:
    # one for a hundred packets, most of them about one host
    source:
      format: synthetic
      options: {{rows: {ROWS // 100}, epoch: {EPOCH // 100}, rate: {RATE // 100}, keys: 50, skew: 8, seed: 8}}
    lateness: 2 seconds
queries:
{"".join(_query(*window) for window in WINDOWS)}output: out
engine: {{trigger: 0 seconds, bins: 2, checkpoint: state}}
"""


@dataclass(frozen=True)
class Chapter:
    """A part of the demo: the epoch it begins at, what the reader is told, and the query that comes, if one does."""

    epoch: int
    title: str
    text: str
    query: str = ""
    sql: str | None = None


CHAPTERS = (
    Chapter(
        0,
        "1 of 3: twelve queries, one pass",
        "Twelve sliding windows over one stream of packets: sums, exact 99th percentiles, counts. The stream is read\n"
        "once; partial aggregates by pane serve all of them, and one Spark job answers whatever is due.",
    ),
    Chapter(
        14,
        "2 of 3: a join comes while the rest runs",
        "`near` joins packets with alarms within a second of each other. Most alarms are about one host: how\n"
        "rows are spread over tasks is decided by what was measured, and may change. The twelve go on.",
        "near",
        "SELECT a.key AS host, p.ts, p.amount FROM alarms [RANGE 1 s] AS a JOIN packets [RANGE 1 s] AS p "
        "ON a.key = p.key AND p.amount > 1400",
    ),
    Chapter(
        26,
        "3 of 3: state by key, in two bins",
        "`recent` gives, with every packet, the median of its host's last 200. Should one bin\n"
        "come to have more work than the other, parts of its state move; what was decided, and why, is shown.",
        "recent",
        "SELECT key AS host, ts, MEDIAN(value) AS median_ms FROM packets [PARTITION BY key ROWS 200]",
    ),
)  # fmt: skip


def plain_rows_per_s(home: Path) -> float:
    """Packets a second that plain Spark gets through all twelve windows, one StreamingQuery each; 0: none in time."""
    source = home / "plain"
    source.mkdir(exist_ok=True)
    for number in range(PLAIN_EPOCHS):
        rows = synthetic.make_rows(PACKETS, number * EPOCH, (number + 1) * EPOCH)
        with pq.ParquetWriter(source / f"{number:03d}.parquet", rows.schema) as writer:
            writer.write_batch(rows)
    queries = [
        {"name": name, "keys": [key] if key else [], "value": value, "size": size, "slide": slide}
        for name, key, value, size, slide in WINDOWS
    ]
    with PlainSpark() as plain:
        found = plain.ask(
            "many", source=source, out=home / "plain_out", skip=1, files=1, late="2 seconds", queries=queries,
            schema="ts TIMESTAMP, key STRING, value DOUBLE, amount INT, seq BIGINT", batches=PLAIN_EPOCHS,
            limit_s=PLAIN_LIMIT_S,
        )  # fmt: skip
    return float(found["rows_per_s"])
