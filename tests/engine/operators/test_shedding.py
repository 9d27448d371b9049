"""Overload on real Spark: rows are shed as decided, counted to the row, and results say what they lack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from world import SECOND, START, results, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.model import EpochDecision
from headrace.policies.shedding import RowSample

SCHEMA = "ts TIMESTAMP, k STRING, g INT, x DOUBLE, seq BIGINT"
QUERIES = {
    "total": "SELECT COUNT(*) AS n, SUM(x) AS v FROM s [WINDOW 4 s SLIDE 2 s]",
    "by_key": "SELECT k, COUNT(*) AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY k",
    "finished": "SELECT g, COUNT(*) + 1 AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY g HAVING COUNT(*) > 0",
}
# Seconds of an epoch that a row on an edge takes, and those of an epoch without rows: 0.7 s fit an epoch of a second.
ROW_S, FIXED_S = 1e-4, 0.1
# Rows of each epoch, of a second each: what all three synopses can take is 2300.
CALM, BURST = 1000, 12_000
EPOCHS = (CALM, CALM + 200, CALM - 200, CALM, BURST, BURST, CALM, CALM)


def tables(sizes: tuple[int, ...] = EPOCHS) -> list[pa.Table]:
    rng, made, first = np.random.default_rng(5), [], 0
    for epoch, rows in enumerate(sizes):
        times = np.sort(START + epoch * SECOND + rng.integers(0, SECOND, rows))
        made.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "k": [f"k{v}" for v in rng.integers(0, 9, rows)],
                    "g": pa.array(rng.integers(0, 4, rows), pa.int32()),
                    "x": rng.normal(100, 10, rows),
                    "seq": pa.array(range(first, first + rows), pa.int64()),
                }
            )
        )
        first += rows
    return made


def measured(sample: RowSample) -> RowSample:
    """What the epoch would have measured on a machine on which a row costs what it costs here."""
    edge_s = {edge: rows * ROW_S for edge, rows in sample.kept.items()}
    seconds = FIXED_S + sum(edge_s.values())
    return replace(sample, read_s=dict.fromkeys(sample.read_s, 0.0), edge_s=edge_s, seconds=seconds)


class Seen:
    """What a run decided and left."""

    def __init__(self) -> None:
        self.decisions: dict[int, EpochDecision] = {}
        self.manifests: dict[int, Manifest] = {}
        self.notes: list[str] = []

    def hooks(self, probe: Callable[[str], None] = lambda _: None) -> Hooks:
        return Hooks(
            clock_us=lambda epoch: START + (epoch + 100) * SECOND,
            probe=probe,
            on_decision=lambda decision: self.decisions.__setitem__(decision.epoch, decision),
            on_epoch=lambda manifest: self.manifests.__setitem__(manifest.epoch, manifest),
            on_note=self.notes.append,
            measured=measured,
        )

    @property
    def shed_epochs(self) -> list[int]:
        return [e for e, d in self.decisions.items() if d.shedding is not None and d.shedding.sheds]


def pipeline(spark: Any, root: Path, never: tuple[str, ...] = (), weights: dict[str, float] | None = None) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"file://{root}/in")
    pipe = hr.Pipeline("shedding").stream("s", rows, time="ts", lateness="0 seconds")
    for name, sql in QUERIES.items():
        pipe.query(
            name,
            sql,
            sink=hr.parquet(f"{root}/{name}"),
            weight=(weights or {}).get(name, 1.0),
            shedding="never" if name in never else None,
        )
    return pipe


def run(spark: Any, root: Path, seen: Seen, never: tuple[str, ...] = (), **settings: Any) -> None:
    started = pipeline(spark, root, never).start(
        spark, f"{root}/state", trigger="0 seconds", bins=2, hooks=seen.hooks(), **settings
    )
    started.process_all_available()
    started.flush()
    started.stop()


def truth(rows: pa.Table, select: str, group_by: str = "") -> dict[Any, Any]:
    """By window end (and key) a SELECT over all rows of the window."""
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("given", rows)
    db.execute("CREATE TABLE r AS SELECT *, epoch_us(ts) AS t FROM given")
    ends = f"range({START}, {START + 20 * SECOND}, {2 * SECOND})"
    key = f", {group_by}" if group_by else ""
    found = db.execute(
        f"SELECT make_timestamptz(e) AS z{key}, {select} FROM r, {ends} w(e) "
        f"WHERE t >= e - {4 * SECOND} AND t < e GROUP BY e{key}"
    ).fetchall()
    return {row[: 1 + bool(group_by)]: row[-1] for row in found}


def test_a_burst_is_shed_counted_to_the_row_and_told_in_every_result(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, shedding="fit")
    rows, last = pa.concat_tables(made), seen.manifests[max(seen.manifests)]
    assert seen.shed_epochs == [4, 5], "the epochs of the burst, and no other"
    entry = last.ledger["s"]
    assert entry.rows_in == rows.num_rows == entry.used + entry.shed
    assert 0 < entry.shed < 2 * BURST
    for account in last.edges.values():
        assert account.rows == 2 * BURST
    decided = seen.decisions[4].shedding
    assert decided is not None
    used = sum(part * BURST * ROW_S for part in decided.keep.values()) + (3 - len(decided.keep)) * BURST * ROW_S
    assert used == pytest.approx(0.7, rel=0.1)
    assert any(note.startswith("rows are shed:") for note in seen.notes)
    counts = truth(rows, "COUNT(*)")
    for _, end, n, _, kept in results(tmp_path / "total"):
        if (end,) in counts:
            assert kept == pytest.approx(n / counts[(end,)])
    shed = {end: kept for _, end, _, _, kept in results(tmp_path / "total")}
    assert min(shed.values()) < 0.9
    by_key = results(tmp_path / "by_key")
    sums: dict[Any, int] = {}
    for _, end, _, n, _ in by_key:
        sums[end] = sums.get(end, 0) + n
    for _, end, _, _, kept in by_key:
        assert kept == pytest.approx(sums[end] / counts[(end,)])
    finished = results(tmp_path / "finished")
    assert finished
    assert all(0 < kept <= 1 for *_, kept in finished)
    first = min(shed)
    assert shed[first] == 1.0


def test_a_query_with_never_loses_nothing_while_the_others_do(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, never=("by_key",), shedding="central", objective="fair")
    assert seen.shed_epochs == [4, 5]
    wanted = truth(pa.concat_tables(made), "COUNT(*)", "k")
    found = {(end, key): n for _, end, key, n in results(tmp_path / "by_key")}
    assert found == wanted
    assert min(kept for *_, kept in results(tmp_path / "total")) < 1


def test_where_shedding_is_off_nothing_is_lost_and_a_note_says_what_would_have_been(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen)
    last = seen.manifests[max(seen.manifests)]
    assert seen.shed_epochs == []
    assert last.ledger["s"].shed == 0
    assert any(note.startswith("the lag grows:") and "would be kept" in note for note in seen.notes)
    decided = seen.decisions[4].shedding
    assert decided is not None
    assert decided.waiting_s == pytest.approx(3 * BURST * ROW_S, rel=0.1)
    assert len(results(tmp_path / "total")[0]) == 4, "without shedding there is no column of what was kept"
