"""The workload of the paper on synchronised schedules: 240 queries in eight groups, every answer DuckDB's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import headrace as hr
from headrace.bench.packets import SCHEMA, PacketQuery, packet_queries, write_packets
from headrace.engine import Hooks, Manifest

LATENESS_S = 3
QUERIES = packet_queries(30)
CLOCK = Hooks(clock_us=lambda epoch: 1_704_067_200_000_000 + 600_000_000)


def run_over(spark: Any, home: Path) -> list[Manifest]:
    manifests: list[Manifest] = []
    pipe = hr.Pipeline("packets")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe.stream("packets", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for query in QUERIES:
        pipe.query(query.name, query.sql, sink=hr.parquet(str(home / "out" / query.name)))
    hooks = Hooks(clock_us=CLOCK.clock_us, on_epoch=manifests.append)
    run = pipe.start(spark, str(home / "state"), once=True, hooks=hooks)
    run.await_termination()
    return manifests


def admitted(connection: duckdb.DuckDBPyConnection, files: list[Path]) -> None:
    """Table `packets`: the rows that are not late, epoch by epoch, each epoch one file."""
    connection.execute("SET TimeZone = 'UTC'")
    watermark = 0
    for number, file in enumerate(files):
        rows = f"SELECT *, epoch_us(ts) AS t FROM read_parquet('{file}') WHERE epoch_us(ts) >= {watermark}"
        connection.execute(f"CREATE TABLE packets AS {rows}" if number == 0 else f"INSERT INTO packets {rows}")
        found = connection.execute("SELECT max(t) FROM packets").fetchone()
        assert found is not None
        watermark = found[0] - LATENESS_S * 1_000_000


def wanted(connection: duckdb.DuckDBPyConnection, query: PacketQuery, ends: list[int]) -> list[tuple[Any, ...]]:
    """All answers of a query at these window ends."""
    keys = ", ".join(f"p.{key}" for key in query.keys)
    value = "sum(length)::BIGINT" if query.fraction is None else f"quantile_cont(length, {query.fraction})"
    connection.execute("CREATE OR REPLACE TEMP TABLE w (e BIGINT)")
    connection.executemany("INSERT INTO w VALUES (?)", [[end] for end in ends])
    sql = f"""
        SELECT w.e, {keys}, {value} AS v FROM w JOIN packets p ON p.t >= w.e - {query.size_s * 1_000_000} AND p.t < w.e
        GROUP BY w.e, {keys}
    """
    if query.fraction is None:
        sql += f"QUALIFY row_number() OVER (PARTITION BY w.e ORDER BY v DESC, {keys}) <= {query.k}"
    return connection.execute(sql).fetchall()


@pytest.mark.timeout(600)
def test_240_queries_in_eight_groups_answer_as_duckdb_does(spark: Any, tmp_path: Path) -> None:
    """
    run 1    epochs 0..5     rows up to a minute late among them
    run 2    epochs 6..11    the same queries go on
    """
    write_packets(tmp_path / "all", 12, 4000, late=0.02, files=1, addresses=60)
    files = sorted((tmp_path / "all").glob("*.parquet"))
    (tmp_path / "in").mkdir()
    manifests: list[Manifest] = []
    for half in (files[:6], files[6:]):
        for file in half:
            file.rename(tmp_path / "in" / file.name)
        manifests += run_over(spark, tmp_path)
    assert manifests[-1].ledger["packets"].late > 0
    assert {state.failed for state in manifests[-1].queries.values()} == {None}
    assert len(manifests[-1].coverage) == 8, "one synopsis per group, percentiles also by value"
    jobs = {m.observed["jobs"] for m in manifests if m.observed["due"]}
    assert jobs <= {2, 3}, "one to absorb, one to answer all, sometimes one to merge chunks"

    connection = duckdb.connect()
    admitted(connection, sorted((tmp_path / "in").glob("*.parquet")))
    for query in QUERIES:
        ours = pl.concat([pl.read_parquet(file) for file in sorted((tmp_path / "out" / query.name).glob("*.parquet"))])
        ours = ours.with_columns(e=pl.col("window_end").dt.epoch("us"))
        ends = ours["e"].unique().sort().to_list()
        assert all(b - a <= query.slide_s * 1_000_000 for a, b in pairwise(ends)), query
        column = "bytes" if query.fraction is None else "length"
        found = sorted(ours.select("e", *query.keys, column).rows())
        right = sorted(wanted(connection, query, ends))
        assert [row[:-1] for row in found] == [row[:-1] for row in right], query
        assert all(abs(a[-1] - b[-1]) <= 1e-9 * max(1.0, abs(b[-1])) for a, b in zip(found, right, strict=True)), query
