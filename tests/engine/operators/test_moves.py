"""State moves by the policy that production runs, from what epochs measure; results stay what DuckDB says they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from world import SCHEMA, admit, assert_same, make_epochs, results, unique_times, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.model import EpochDecision

LATENESS_S = 20
SQL = "SELECT k, ts FROM r [PARTITION BY k]"


@contextmanager
def settings(spark: Any, **values: str) -> Iterator[None]:
    for name, value in values.items():
        spark.conf.set(f"spark.headrace.flux.{name}", value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(f"spark.headrace.flux.{name}")


class Seen:
    """What a pipeline with one keyed query decided and left, over several runs on one checkpoint."""

    def __init__(self, spark: Any, home: Path) -> None:
        self.spark, self.home = spark, home
        self.manifests: list[Manifest] = []
        self.decisions: list[EpochDecision] = []

    def play(self, sql: str, flush: bool, step: Any = None) -> None:
        rows = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.home / "in"))
        pipe = hr.Pipeline("moves").stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds")
        pipe.query("q", sql, sink=hr.parquet(str(self.home / "out")), step=step)
        hooks = Hooks(on_epoch=self.manifests.append, on_decision=self.decisions.append)
        pipe.start(self.spark, str(self.home / "state"), once=True, flush=flush, hooks=hooks).await_termination()

    @property
    def moves(self) -> list[Any]:
        return [move for decision in self.decisions for move in decision.flows["q"].moves]


def judged(tables: list[pa.Table], sql: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", admit(tables, LATENESS_S).rows)
    return connection.execute(sql).fetchall()


def test_state_that_does_not_fit_moves_to_where_there_is_room(spark: Any, tmp_path: Path) -> None:
    tables, seen = unique_times(make_epochs(seed=91, epochs=8, rows=200)), Seen(spark, tmp_path)
    step = hr.step(slow_count, state="k STRING, n BIGINT", results="k STRING, ts TIMESTAMP")
    # Room for the state of next to no key.
    with settings(spark, minis="8", memory="60,64m"):
        write_epochs(tmp_path / "in", tables[:5])
        seen.play(SQL, flush=False, step=step)
        write_epochs(tmp_path / "in", tables[5:], first=5)
        seen.play(SQL, flush=True, step=step)
    # While all state fits, load alone may move some of it, either way.
    assert any((move.source, move.target) == (0, 1) for move in seen.moves)
    state = seen.manifests[-1].flows["q"]
    held = [
        sum(size for size, owner in zip(state.state_bytes, state.owners, strict=True) if owner == b) for b in (0, 1)
    ]
    assert held[0] < held[1], "the bin with room has most of the state"
    assert_same(results(tmp_path / "out"), judged(tables, "SELECT k, ts FROM r"))


def slow_count(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Counts rows by key; each row takes two milliseconds, whatever else the machine does."""
    time.sleep(0.002 * rows.num_rows)
    both = pl.concat([pl.from_arrow(state), pl.from_arrow(rows).select("k", n=1)], how="vertical_relaxed")
    grown = both.group_by("k", maintain_order=True).agg(pl.col("n").sum()).to_arrow()
    return grown, pa.table({"k": rows["k"], "ts": rows["ts"]})


def test_others_leave_the_bin_of_a_key_that_keeps_it_busy(spark: Any, tmp_path: Path) -> None:
    tables, seen = [], Seen(spark, tmp_path)
    for number, table in enumerate(unique_times(make_epochs(seed=92, epochs=8, rows=200))):
        # Nine rows of ten get one key.
        keys = ["hot" if i % 10 else f"cold{(i + number) % 40}" for i in range(table.num_rows)]
        tables.append(table.set_column(table.schema.get_field_index("k"), "k", pa.array(keys)))
    step = hr.step(slow_count, state="k STRING, n BIGINT", results="k STRING, ts TIMESTAMP")
    with settings(spark, minis="8"):
        write_epochs(tmp_path / "in", tables[:6])
        seen.play(SQL, flush=False, step=step)
        write_epochs(tmp_path / "in", tables[6:], first=6)
        seen.play(SQL, flush=True, step=step)
    assert all(move.reason for move in seen.moves)
    first = next(number for number, decision in enumerate(seen.decisions) if decision.flows["q"].moves)
    busy = [sum(m.observed.flows["q"].busy_s[b] for m in seen.manifests[:first]) for b in (0, 1)]
    busiest = busy.index(max(busy))
    assert seen.decisions[first].flows["q"].moves[0].source == busiest, "what moves first leaves the busy bin"
    assert_same(results(tmp_path / "out"), judged(tables, "SELECT k, ts FROM r"))
