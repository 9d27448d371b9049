"""Tables that change between epochs, streams that are looked up in them, and DuckDB as the judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from world import SCHEMA, SECOND, START, results, write_epochs

import headrace as hr
from headrace.engine import Hooks

LATENESS_S = 20
HOSTS = "k STRING, zone INT, least INT, note STRING"
# Every epoch is half an hour after the one before, so that a table with `refresh: 1 hour` is read in every other one.
EVERY_S, REFRESH = 1800, "1 hour"
ZONES = [("0", "north"), ("1", "south"), ("1", "far south"), ("3", "")]


def make_hosts(seed: int) -> pa.Table:
    """Keys that rows have and others, some twice, some NULL, with NULLs beside them."""
    rng = np.random.default_rng(seed)
    n = 14
    keys = [None if rng.random() < 0.15 else f"k{rng.integers(0, 10)}" for _ in range(n)]
    return pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "zone": pa.array([None if rng.random() < 0.2 else int(rng.integers(0, 4)) for _ in range(n)], pa.int32()),
            "least": pa.array([int(v) for v in rng.integers(-800, 800, n)], pa.int32()),
            "note": pa.array([f"v{seed} {i}" for i in range(n)]),
        }
    )


def write_hosts(home: Path, table: pa.Table) -> None:
    """Puts another content in place of the table's file, all at once."""
    (home / "hosts").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, home / "hosts.tmp")
    (home / "hosts.tmp").rename(home / "hosts" / "all.parquet")


def write_zones(home: Path) -> None:
    lines = ["zone,title", *(f"{zone},{title}" for zone, title in ZONES)]
    (home / "zones.csv").write_text("\n".join(lines) + "\n")


def pipeline(spark: Any, home: Path, queries: dict[str, str], **table: Any) -> hr.Pipeline:
    """Streams r and r2, the table hosts that is read again every hour, and zones, that is read at every start."""
    pipe = hr.Pipeline("lookups")
    for name in ("r", "r2"):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness=f"{LATENESS_S} seconds")
    pipe.table("hosts", str(home / "hosts"), schema=HOSTS, **{"refresh": REFRESH, **table})
    pipe.table("zones", str(home / "zones.csv"), format="csv", header=True)
    for name, sql in queries.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / "out" / name)))
    return pipe


def hooks(changing: Callable[[int], None] = lambda epoch: None, **rest: Any) -> Hooks:
    """The clock of the epochs; `changing` is called between an epoch, -1 before the first, and the next."""

    def clock(epoch: int) -> int:
        changing(epoch - 1)
        return START + (30 * 86_400 + epoch * EVERY_S) * SECOND

    return Hooks(clock_us=clock, **rest)


def admitted(epochs: Sequence[pa.Table]) -> pa.Table:
    """The rows that are admitted, each with the number of its epoch as `e`."""
    watermark, kept = -math.inf, []
    for number, table in enumerate(epochs):
        ts = table["ts"].cast(pa.int64()).to_numpy()
        fine = ts >= watermark
        mine = table.filter(pa.array(fine))
        kept.append(mine.append_column("e", pa.array([number] * mine.num_rows, pa.int32())))
        if fine.any():
            watermark = max(watermark, int(ts[fine].max()) - LATENESS_S * SECOND)
    return pa.concat_tables(kept)


def database(one: Sequence[pa.Table], two: Sequence[pa.Table], used: Sequence[pa.Table]) -> duckdb.DuckDBPyConnection:
    """DuckDB with the admitted rows, and with hosts as each epoch `e` used it."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, epochs in (("r", one), ("r2", two)):
        connection.register(f"{name}_rows", admitted(epochs))
        connection.execute(f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")
    whole = pa.concat_tables(
        table.append_column("e", pa.array([number] * table.num_rows, pa.int32())) for number, table in enumerate(used)
    )
    connection.register("whole", whole)
    connection.execute("CREATE TABLE hosts AS SELECT * FROM whole")
    connection.execute("CREATE TABLE zones (zone VARCHAR, title VARCHAR)")
    connection.executemany("INSERT INTO zones VALUES (?, ?)", [(zone, title or None) for zone, title in ZONES])
    return connection


def found(home: Path, name: str) -> list[tuple[Any, ...]]:
    return results(home / "out" / name)


__all__ = ["admitted", "database", "found", "hooks", "make_hosts", "pipeline", "write_epochs", "write_hosts",
           "write_zones"]  # fmt: skip
