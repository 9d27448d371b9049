"""Two sites that run: answers from panes made where rows are born, beside shipping everything to where they are wanted.

The same stream is born at both sites, so that neither has all of it. The field sends panes of the rows that pass the
filter (optimal), or whole rows (warehouse); the hub has the answers.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.bench.measure import Say
from headrace.engine import Hooks, Manifest, build_session, start
from headrace.engine.links.folder import LinkFolder
from headrace.engine.state.storage import open_storage
from headrace.language import load_pipeline
from headrace.sites import cut_as_placed
from headrace.sites.running import ends_of, is_sent_more

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_two_sites"]

PIPELINE = """\
streams:
  readings:
    source: {format: parquet, path: '%IN/{site}', options: {maxFilesPerTrigger: 1}}
    schema: ts TIMESTAMP, device INT, region INT, status INT, ms INT, bytes BIGINT, temperature DOUBLE, url STRING
    time: ts
    rate: 50000 rows/s
queries:
  errors: {sql: "SELECT device, COUNT(*) AS n, SUM(bytes) AS bytes, AVG(ms) AS ms FROM readings WHERE status >= 400
                 GROUP BY window(ts, '2 minutes', '1 minute'), device"}
  slow: {sql: "SELECT region, percentile(ms, 0.95) AS p95, COUNT(DISTINCT device) AS devices FROM readings
               WHERE status >= 400 GROUP BY window(ts, '2 minutes', '1 minute'), region"}
sites: {field: {streams: [readings]}, hub: {streams: [readings], proxy: true}}
network: {latency_ms: {field-hub: 40}}
placement: {strategy: %STRATEGY}
engine: {trigger: 0 seconds, checkpoint: state}
"""
STRATEGIES = ("warehouse", "optimal")
# Rows of a file, which is an epoch of its site and half a minute of event time; files by site, and in a quick run.
FILE_ROWS, FILES, QUICK_FILES = 100_000, 16, 8
# By birthplace what the stream is called there: the hub reads it under its own name as it is received.
BIRTHS = {"field": "readings", "hub": "readings_at_hub"}
FILE_US, SLIDE_US = 30_000_000, 60_000_000
DEVICES, REGIONS, LONGEST_MS = 500, 8, 400
START_US = 1_704_067_200_000_000


@dataclass
class _Seen:
    """When which manifest was committed."""

    epochs: list[tuple[float, Manifest]] = field(default_factory=list)

    def hooks(self) -> Hooks:
        return Hooks(on_epoch=lambda manifest: self.epochs.append((time.monotonic(), manifest)))


def run_two_sites(quick: bool, say: Say) -> tuple[bool, dict[str, float], dict[str, Any]]:
    """Whether all answers are as they should be, ratios, and by strategy bytes, seconds of answers and rows/s.

    `bytes_vs_warehouse` is what shipping everything sends between the sites over what the optimal placement sends. The
    latency of an answer is from the commit of the last epoch whose rows close its window, at either birthplace, to the
    commit of the answer. Both sites share one machine and one Spark; the network's latency is not part of it.
    """
    found: dict[str, dict[str, Any]] = {}
    correct = True
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        rows = _write(home / "in", QUICK_FILES if quick else FILES)
        spark = build_session("bench placement", conf={"spark.driver.memory": "2g"})
        # One run before is for the compilers behind both; bytes do not need it.
        for strategy in STRATEGIES if quick else (STRATEGIES[0], *STRATEGIES):
            out = home / f"run{len(list(home.iterdir()))}"
            told = _run(spark, out, home / "in", strategy)
            same = all(_same(_read(out / "out" / name), wanted) for name, wanted in _expected(rows).items())
            correct, found[strategy] = correct and same, told
            say(f"{strategy}: {told['bytes']:,} bytes, answers {told['latency_s']:.2f} s after their rows, "
                f"{told['rows_per_s']:,} rows/s, results {'as they should be' if same else 'DIFFER'}")  # fmt: skip
    ours, theirs = found["optimal"], found["warehouse"]
    ratios = {
        "bytes_vs_warehouse": theirs["bytes"] / ours["bytes"],
        "latency_vs_warehouse": ours["latency_s"] / theirs["latency_s"],
        "rows_vs_warehouse": ours["rows_per_s"] / theirs["rows_per_s"],
    }
    return correct, ratios, found


def _run(spark: SparkSession, home: Path, source: Path, strategy: str) -> dict[str, Any]:
    """All sites beside each other, until all rows are answered."""
    home.mkdir()
    (home / "p.yml").write_text(PIPELINE.replace("%IN", str(source)).replace("%STRATEGY", strategy))
    parts = cut_as_placed(load_pipeline(home / "p.yml"))
    seen = {site: _Seen() for site in parts}
    began = time.monotonic()
    runs = {
        site: start(part.pipeline, spark, hooks=seen[site].hooks(), ends=ends_of(part)) for site, part in parts.items()
    }
    more = True
    while more:
        for run in runs.values():
            run.process_all_available()
        more = any(is_sent_more(part, open_storage) for part in parts.values())
    for run in runs.values():
        run.stop()
    links = [link for part in parts.values() for link in part.sends if link.sender != link.receiver]
    folders = [LinkFolder(link, open_storage(str(home / "state/links" / link.id))) for link in links]
    rows = sum(seen[site].epochs[-1][1].ledger[stream].used for site, stream in BIRTHS.items())
    return {
        "bytes": sum(folder.epoch(folder.sent()[-1]).total_bytes for folder in folders),
        "latency_s": round(_latency_s(seen), 3),
        "rows_per_s": round(rows / (seen["hub"].epochs[-1][0] - began)),
        "links": len(links),
        "panes": sum(link.panes is not None for link in links),
    }


def _latency_s(seen: dict[str, _Seen]) -> float:
    """The median over windows."""
    closed = {
        site: [(at, mark) for at, m in seen[site].epochs if (mark := m.clocks[stream].watermark_us) is not None]
        for site, stream in BIRTHS.items()
    }
    answered = [(at, until) for at, m in seen["hub"].epochs if (until := m.queries["errors"].answered_us) is not None]
    ends = range(START_US + SLIDE_US, answered[-1][1] + 1, SLIDE_US)
    found = [_first(answered, end) - max(_first(marks, end) for marks in closed.values()) for end in ends]
    return float(np.median(found))


def _first(epochs: list[tuple[float, int]], end_us: int) -> float:
    """When event time came so far."""
    return next(at for at, until in epochs if until >= end_us)


def _write(home: Path, files: int) -> pl.DataFrame:
    """Rows in disorder, a quarter of which have failed, for each birthplace."""
    rng, made = np.random.default_rng(11), []
    for site, number in itertools.product(BIRTHS, range(files)):
        n = FILE_ROWS
        device = rng.integers(0, DEVICES, n)
        table = pa.table(
            {
                "ts": pa.array(START_US + number * FILE_US + rng.integers(0, FILE_US, n), pa.timestamp("us", "UTC")),
                "device": pa.array(device, pa.int32()),
                "region": pa.array(device % REGIONS, pa.int32()),
                "status": pa.array(rng.choice([200, 204, 302, 404, 500], n, p=[0.5, 0.15, 0.1, 0.2, 0.05]), pa.int32()),
                "ms": pa.array(rng.integers(0, LONGEST_MS, n), pa.int32()),
                "bytes": pa.array(rng.integers(0, 1 << 20, n), pa.int64()),
                "temperature": pa.array(rng.normal(20, 5, n), pa.float64()),
                "url": pa.array([f"/items/{item}" for item in rng.integers(0, 1_000_000, n)], pa.string()),
            }
        )
        path = home / site / f"{number:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        made.append(pl.from_arrow(table.drop_columns(["url", "temperature"])))
    return pl.concat(frame for frame in made if isinstance(frame, pl.DataFrame))


def _expected(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The answers over all rows at once, by Polars."""
    pane = pl.col("ts").dt.timestamp("us") // SLIDE_US * SLIDE_US
    failed = rows.filter(pl.col("status") >= 400).with_columns(end=pane + SLIDE_US)
    both = pl.concat([failed, failed.with_columns(pl.col("end") + SLIDE_US)])
    errors = both.group_by("end", "device").agg(
        n=pl.len().cast(pl.Int64), bytes=pl.col("bytes").sum(), ms=pl.col("ms").mean().round(6)
    )
    slow = both.group_by("end", "region").agg(
        p95=pl.col("ms").quantile(0.95, "linear").round(6), devices=pl.col("device").n_unique().cast(pl.Int64)
    )
    return {"errors": errors.sort("end", "device"), "slow": slow.sort("end", "region")}


def _same(found: pl.DataFrame, wanted: pl.DataFrame) -> bool:
    """Whether all windows are answered that rows have closed, and as they should be."""
    until = wanted["end"].max()
    assert isinstance(until, int)
    # The last row of the last file is before the end of its minute.
    return found.equals(wanted.filter(pl.col("end") <= until - 2 * SLIDE_US))


def _read(out: Path) -> pl.DataFrame:
    found = pl.read_parquet(out / "*.parquet").with_columns(end=pl.col("window_end").dt.timestamp("us"))
    rest = [name for name in found.columns if name not in ("end", "window_start", "window_end")]
    floats = (pl.col(pl.Float64).round(6),)
    return found.select("end", *rest).with_columns(floats).sort("end", rest[0])
