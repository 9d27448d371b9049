"""One failing query is marked failed with its cause; the others' answers are unaffected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import start
from headrace.language import bind_query, parse_schema
from headrace.model import EngineSettings, Pipeline, SinkSpec, Stream

GOOD = "SELECT k, SUM(i) AS v FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"
BAD = {
    "in a filter": ("SELECT COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] WHERE 1 / g > 0", "DIVIDE_BY_ZERO"),
    "in an argument": ("SELECT k, SUM(100 / g) AS v FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k", "DIVIDE_BY_ZERO"),
    "over aggregates": ("SELECT k, 1 / (COUNT(*) - COUNT(*)) AS v FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k",
                        "DIVIDE_BY_ZERO"),
    "in a sum that does not fit": (
        "SELECT SUM(l * 2000) AS v FROM r [WINDOW 60 s SLIDE 20 s]", "(OVERFLOW|conversion|exceed)"),
}  # fmt: skip


def test_failures_are_kept_apart(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=11, epochs=5)
    write_epochs(tmp_path / "in", tables)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("isolated").stream("r", rows, time="ts", lateness="20 seconds")
    pipe.query("good", GOOD, sink=hr.parquet(str(tmp_path / "good")))
    for i, (sql, _) in enumerate(BAD.values()):
        pipe.query(f"bad{i}", sql, sink=hr.parquet(str(tmp_path / f"bad{i}")))
    run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True)
    run.await_termination()
    admission = admit(tables, 20)
    assert_same(results(tmp_path / "good"), expected(admission.rows, "k, sum(i)::bigint", "k", 60, 20, False))
    queries = run.status["queries"]
    assert queries["good"]["state"] == "running"
    for i, (_, cause) in enumerate(BAD.values()):
        assert queries[f"bad{i}"]["state"] == "failed"
        assert re.search(cause, queries[f"bad{i}"]["cause"]), queries[f"bad{i}"]["cause"]
    assert run.progress.ledger["r"].used == admission.rows.num_rows


def test_a_column_that_is_gone_fails_the_queries_that_need_it(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=12, epochs=3)
    write_epochs(tmp_path / "in", tables)
    declared = Stream("r", (*parse_schema(SCHEMA), *parse_schema("gone INT")), "ts", 20_000_000)
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    drifted = "SELECT SUM(gone) AS v FROM r [WINDOW 60 s SLIDE 20 s]"
    queries = tuple(
        bind_query(name, sql, {"r": declared}, sink=SinkSpec("parquet", str(tmp_path / name)))
        for name, sql in (("good", GOOD), ("drifted", drifted))
    )
    pipeline = Pipeline("drift", (declared,), queries, engine=EngineSettings(checkpoint=str(tmp_path / "state")))
    run = start(pipeline, spark, frames={"r": frame}, once=True, flush=True)
    run.await_termination()
    assert_same(results(tmp_path / "good"), expected(admit(tables, 20).rows, "k, sum(i)::bigint", "k", 60, 20, False))
    assert run.status["queries"]["drifted"]["state"] == "failed"
    assert "gone" in run.status["queries"]["drifted"]["cause"]
