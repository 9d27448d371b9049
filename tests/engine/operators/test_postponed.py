"""Answers within a budget that binds: executions are put off, and what is answered, early or late, is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.model import EpochDecision

LATENESS_S = 60
PANE_S = 5
# Shorter than any epoch on Spark: answers get the least share of it, less than one execution takes.
TRIGGER = "50 ms"
# By query its window, its SELECT list, its keys and its filter; each is a group of its own.
QUERIES = {
    "by_k": ("[WINDOW 20 s SLIDE 5 s]", 20, "k, COUNT(*) AS n, SUM(i) AS i", "k", "true"),
    "by_g": ("[WINDOW 30 s SLIDE 5 s]", 30, "g, COUNT(*) AS n, MAX(x) AS x", "g", "true"),
    "few": ("[WINDOW 20 s SLIDE 10 s]", 20, "k, g, COUNT(i) AS n", "k, g", "i > 0"),
}
EACH = ("s, COUNT(*) AS n, AVG(i) AS a", "s")


def sql_of(query: str) -> str:
    window, _, select, keys, where = QUERIES[query]
    return f"SELECT {select} FROM r {window} WHERE {where} GROUP BY {keys}"


def run(spark: Any, home: Path) -> tuple[list[EpochDecision], list[Manifest]]:
    """All files of a folder, one in each epoch, and a flush: what was decided, and what epochs left."""
    decisions, manifests = list[EpochDecision](), list[Manifest]()
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("postponed").stream("r", rows, time="ts", lateness=f"{LATENESS_S} s")
    for name in QUERIES:
        pipe.query(name, sql_of(name), sink=hr.parquet(str(home / name)))
    select, keys = EACH
    pipe.query("each", f"SELECT {select} FROM r GROUP BY window(ts, '20 s', '5 s'), {keys}",
               sink=hr.parquet(str(home / "each")))  # fmt: skip
    hooks = Hooks(on_decision=decisions.append, on_epoch=manifests.append)
    started = pipe.start(spark, str(home / "state"), trigger=TRIGGER, hooks=hooks)
    started.process_all_available()
    started.flush()
    started.stop()
    return decisions, manifests


def test_what_a_budget_puts_off_is_answered_later_and_every_answer_equals_duckdbs(spark: Any, tmp_path: Path):
    made = make_epochs(seed=5, epochs=10)
    write_epochs(tmp_path / "in", made)
    decisions, manifests = run(spark, tmp_path)

    budgets = [d.schedule.budget_s for d in decisions if d.schedule is not None and d.flush is None]
    assert budgets, "epochs are decided"
    assert all(budget is not None and budget <= 0.05 for budget in budgets), "the budget binds"
    postponed = {name for manifest in manifests for name, state in manifest.queries.items() if state.waiting_us > 0}
    assert postponed, "something was put off"
    assert all(state.failed is None and not state.waiting_us for state in manifests[-1].queries.values())

    rows = admit(made, LATENESS_S).rows
    for name in QUERIES:
        answers = results(tmp_path / name)
        assert answers
        assert_same(answers, wanted(rows, name, {end for _, end, *_ in answers}))
    # Fixed windows are answered each, however late.
    select, keys = EACH
    assert_same(results(tmp_path / "each"), expected(rows, select, keys, 20, 5, True))


def wanted(rows: pa.Table, query: str, ends: set[Any]) -> list[tuple[Any, ...]]:
    """What DuckDB answers for the windows of a query with these ends."""
    _, size_s, select, keys, where = QUERIES[query]
    return [row for row in expected(rows, select, keys, size_s, PANE_S, False, where) if row[1] in ends]
