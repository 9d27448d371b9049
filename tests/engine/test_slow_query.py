"""A query that makes an epoch hang is found, and fails with the numbers; the others go on, and lose no row."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from world import START, results

import headrace as hr
from headrace.engine import Hooks

FILES, ROWS = 60, 1


def test_who_makes_an_epoch_hang_fails_alone(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        texts = ["".join(rng.choices("abcd", k=6_000)) for _ in range(ROWS)]
        times = pa.array([START + file * ROWS + n for n in range(ROWS)], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times, "s": texts}), tmp_path / "in" / f"{file}.parquet")
    rows = spark.readStream.schema("ts TIMESTAMP, s STRING").parquet(str(tmp_path / "in"))
    window = "FROM r [WINDOW 60 s SLIDE 60 s]"
    pipe = hr.Pipeline("slow").stream("r", rows, time="ts", lateness="0 seconds")
    pipe.query("good", f"SELECT COUNT(*) AS n, MAX(length(s)) AS m {window}", sink=hr.parquet(str(tmp_path / "good")))
    # Each row takes some 40 million steps.
    pipe.query("slow", f"SELECT MAX(levenshtein(s, reverse(s))) AS m {window}", sink=hr.parquet(str(tmp_path / "slow")))
    notes: list[str] = []
    spark.conf.set("spark.headrace.patience", "3")
    try:
        run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=Hooks(on_note=notes.append))
        run.await_termination()
    finally:
        spark.conf.unset("spark.headrace.patience")
    queries = run.status["queries"]
    assert (queries["good"]["state"], queries["slow"]["state"]) == ("running", "failed"), notes
    cause = r"took over \d+ s for 60 rows, which take .* s without it; the limit is 3 times .*"
    assert re.fullmatch(cause, queries["slow"]["cause"]), queries["slow"]["cause"]
    assert any("each query is tried alone" in note for note in notes)
    end = START // 60_000_000 * 60_000_000 + 60_000_000
    found = [(row[1], *row[2:]) for row in results(tmp_path / "good")]
    assert found == [(datetime.fromtimestamp(end / 1e6, UTC), FILES * ROWS, 6_000)]
    assert run.progress.ledger["r"].used == FILES * ROWS
