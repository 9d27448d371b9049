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


# One more, that comes while the others run.
NEWCOMER = PacketQuery("newcomer", ("src",), None, size_s=33, slide_s=7)


def start(spark: Any, home: Path, manifests: list[Manifest], once: bool) -> hr.Run:
    pipe = hr.Pipeline("packets")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe.stream("packets", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for query in QUERIES:
        pipe.query(query.name, query.sql, sink=hr.parquet(str(home / "out" / query.name)))
    hooks = Hooks(clock_us=CLOCK.clock_us, on_epoch=manifests.append)
    return pipe.start(spark, str(home / "state"), "0 seconds", once=once, hooks=hooks)


def admitted(connection: duckdb.DuckDBPyConnection, files: list[Path]) -> list[int]:
    """Table `packets`: the rows that are not late, epoch by epoch, each epoch one file; the watermarks after each."""
    connection.execute("SET TimeZone = 'UTC'")
    watermark, watermarks = 0, []
    for number, file in enumerate(files):
        rows = f"SELECT *, epoch_us(ts) AS t FROM read_parquet('{file}') WHERE epoch_us(ts) >= {watermark}"
        connection.execute(f"CREATE TABLE packets AS {rows}" if number == 0 else f"INSERT INTO packets {rows}")
        found = connection.execute("SELECT max(t) FROM packets").fetchone()
        assert found is not None
        watermark = found[0] - LATENESS_S * 1_000_000
        watermarks.append(watermark)
    return watermarks


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
    run 2    epochs 6..8     the same queries go on
             epochs 9..11    one more has come
    """
    write_packets(tmp_path / "all", 12, 4000, late=0.02, files=1, addresses=60)
    files = sorted((tmp_path / "all").glob("*.parquet"))
    (tmp_path / "in").mkdir()
    manifests: list[Manifest] = []

    def arrive(some: list[Path]) -> None:
        for file in some:
            file.rename(tmp_path / "in" / file.name)

    arrive(files[:6])
    start(spark, tmp_path, manifests, once=True).await_termination()
    arrive(files[6:9])
    run = start(spark, tmp_path, manifests, once=False)
    run.process_all_available()
    run.add_query(NEWCOMER.name, NEWCOMER.sql, sink=hr.parquet(str(tmp_path / "out" / NEWCOMER.name)))
    arrive(files[9:])
    run.process_all_available()
    run.stop()
    assert manifests[-1].epoch == 11
    assert manifests[-1].ledger["packets"].late > 0
    assert {state.failed for state in manifests[-1].queries.values()} == {None}
    assert len(manifests[-1].coverage) == 8, "one synopsis per group, percentiles also by value"
    jobs = {m.observed.jobs for m in manifests if m.observed.due}
    assert jobs <= {2, 3}, "one to absorb, one to answer all, sometimes one to merge chunks"

    connection = duckdb.connect()
    watermarks = admitted(connection, sorted((tmp_path / "in").glob("*.parquet")))
    for query in (*QUERIES, NEWCOMER):
        parts = []
        for file in sorted((tmp_path / "out" / query.name).glob("epoch-*.parquet")):
            parts.append(pl.read_parquet(file).with_columns(epoch=int(file.name.split("-")[1])))
        ours = pl.concat(parts).with_columns(e=pl.col("window_end").dt.epoch("us"))
        ends = ours["e"].unique().sort().to_list()
        assert all(b - a <= query.slide_s * 1_000_000 for a, b in pairwise(ends)), query
        column = "bytes" if query.fraction is None else "length"
        found = sorted(ours.select("e", *query.keys, column).rows())
        right = sorted(wanted(connection, query, ends))
        assert [row[:-1] for row in found] == [row[:-1] for row in right], query
        assert all(abs(a[-1] - b[-1]) <= 1e-9 * max(1.0, abs(b[-1])) for a, b in zip(found, right, strict=True)), query
        answered = ours.group_by("e").agg(pl.col("epoch").min()).rows()
        if query is not NEWCOMER:
            # No epoch leaves a query with a window that is due by its SLIDE, also when another query comes in between.
            for epoch in range(6, 12):
                newest = max(end for end, of_epoch in answered if of_epoch <= epoch)
                assert newest + query.slide_s * 1_000_000 > watermarks[epoch], (query, epoch)
        else:
            first_end, first_epoch = min(answered)
            assert first_epoch == 9, "it answers in the first epoch it sees"
            assert first_end <= watermarks[8], "and a window that closed before it came"
