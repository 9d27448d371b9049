"""The demo: a small network, watched by four queries that share one pass over its packets."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from headrace.cli.running import run_pipeline
from headrace.language import load_pipeline

__all__ = ["run_demo"]

PIPELINE = """\
name: demo
streams:
  packets:
    # 40 rounds of 25,000 packets, 2,000 a second, from 50 hosts of which a few send the most; up to 3 s out of order
    source: {format: synthetic, options: {rate: 2000, rows: 1000000, epoch: 25000, keys: 50, skew: 2,
                                          disorder: 3 seconds, seed: 7}}
    lateness: 2 seconds
queries:
  top_talkers:
    sql: >
      SELECT key AS host, SUM(amount) AS bytes, COUNT(*) AS packets
      FROM packets [WINDOW 1 min SLIDE 10 s]
      GROUP BY key ORDER BY bytes DESC LIMIT 5
  traffic:
    sql: SELECT COUNT(*) AS packets, AVG(amount) AS mean_size FROM packets [WINDOW 30 s SLIDE 10 s]
  delays:
    sql: >
      SELECT MEDIAN(value) AS median_ms, PERCENTILE(value, 0.99) AS p99_ms, approx_count_distinct(seq) AS flows
      FROM packets GROUP BY window(ts, '20 seconds')
  jumbo_share:
    sql: >
      SELECT key AS host, COUNT(*) FILTER (WHERE amount > 1400) * 100.0 / COUNT(*) AS percent
      FROM packets [WINDOW 1 min SLIDE 20 s] GROUP BY key HAVING COUNT(*) > 1000
output: out
engine: {trigger: 0 seconds, checkpoint: state}
"""


def run_demo(folder: Path | None) -> None:
    """Writes the demo's pipeline file, runs it, and shows what it found."""
    console = Console()
    home = folder or Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    spec = home / "pipeline.yml"
    spec.write_text(PIPELINE)
    console.print(
        "A stream of a million packets, four continuous queries, one Spark application.\n"
        f"The pipeline file is {spec}; starting Spark takes some seconds.",
        highlight=False,
        soft_wrap=True,
    )
    manifest = run_pipeline(load_pipeline(spec), once=True, flush=True, master=None, conf={})
    console.print()
    rows = pq.read_table(home / "out" / "top_talkers").sort_by([("window_end", "descending"), ("bytes", "descending")])
    table = Table(title="top_talkers: the last full minute", title_justify="left")
    for name in ("window_end", "host", "bytes", "packets"):
        table.add_column(name, justify="left" if name in ("window_end", "host") else "right")
    last_us = manifest.clocks["packets"].last_us or 0
    full = [row for row in rows.to_pylist() if row["window_end"].timestamp() * 1e6 <= last_us]
    for row in full[:5]:
        table.add_row(f"{row['window_end']:%H:%M:%S}", row["host"], f"{row['bytes']:,}", f"{row['packets']:,}")
    console.print(table)
    entry = manifest.ledger["packets"]
    console.print(
        f"Every row is accounted for: {entry.rows_in:,} in = {entry.used:,} used + {entry.late:,} late + "
        f"{entry.shed:,} shed + {entry.rejected:,} rejected.\n"
        f"Answers are Parquet files under {home / 'out'}. Look around:\n"
        f"  headrace status {home / 'state'}\n"
        f"  headrace explain {spec}",
        highlight=False,
        soft_wrap=True,
    )
