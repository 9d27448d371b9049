"""Queries that Spark SQL finishes share one job, whatever their columns and types; DuckDB is the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.engine.operators.slots import slots_of
from headrace.language import bind_query, parse_schema
from headrace.model import Stream

WINDOW = "[WINDOW 60 s SLIDE 20 s]"
Row = tuple[Any, ...]
# SQL of the query; what DuckDB selects by which keys; whether a row of it is wanted, and what of it.
CASES: dict[str, tuple[str, str, str, Callable[[Row], bool], Callable[[Row], Row]]] = {
    "having": (
        f"SELECT k, SUM(i) AS v FROM r {WINDOW} GROUP BY k HAVING COUNT(*) > 5 AND MAX(s) <> 'a0'",
        "k, sum(i)::bigint, count(*), max(s)", "k", lambda r: r[4] > 5 and r[5] is not None, lambda r: r[:4],
    ),
    "other types in the same places": (
        f"SELECT g, concat(MAX(s), '!') AS v, COUNT(*) AS n FROM r {WINDOW} GROUP BY g",
        "g, max(s) || '!', count(*)", "g", lambda r: True, lambda r: r,
    ),
    "no key": (
        f"SELECT SUM(i) * 2 AS v, COUNT(*) > 3 AS many FROM r {WINDOW}",
        "sum(i)::bigint * 2, count(*) > 3", "", lambda r: True, lambda r: r,
    ),
    "the key computed": (
        f"SELECT upper(k) AS u, MIN(day) AS d FROM r {WINDOW} GROUP BY k HAVING MIN(day) IS NOT NULL",
        "upper(k), min(day)", "k", lambda r: r[3] is not None, lambda r: r,
    ),
}  # fmt: skip


def start(
    spark: Any, home: Path, queries: dict[str, str], manifests: list[Manifest] | None = None, bins: int = 2
) -> None:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("slots").stream("r", rows, time="ts", lateness="20 seconds")
    for name, sql in queries.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / name)))
    hooks = Hooks(on_epoch=[].append if manifests is None else manifests.append)
    pipe.start(spark, str(home / "state"), bins=bins, once=True, flush=True, hooks=hooks).await_termination()


@pytest.mark.parametrize(("io", "bins"), [("arrow", 1), ("arrow", 2), ("spark", 2)])
def test_answers_equal_duckdb_in_a_fixed_number_of_jobs(spark: Any, tmp_path: Path, io: str, bins: int) -> None:
    tables = make_epochs(seed=61, epochs=5)
    write_epochs(tmp_path / "in", tables)
    queries = {f"q{number}": case[0] for number, case in enumerate(CASES.values())}
    top = f"SELECT s, COUNT(*) + 0 AS n FROM r {WINDOW} GROUP BY s ORDER BY COUNT(*) DESC, s LIMIT 2"
    manifests: list[Manifest] = []
    spark.conf.set("spark.headrace.state.io", io)
    try:
        start(spark, tmp_path, {**queries, "top": top}, manifests, bins)
    finally:
        spark.conf.unset("spark.headrace.state.io")
    rows = admit(tables, 20).rows
    for number, (_, select, keys, wanted, of) in enumerate(CASES.values()):
        found = [of(row) for row in expected(rows, select, keys, 60, 20, False) if wanted(row)]
        assert_same(results(tmp_path / f"q{number}"), found)
    ranked: dict[Any, list[Row]] = {}
    for row in expected(rows, "s, count(*)", "s", 60, 20, False):
        ranked.setdefault(row[1], []).append(row)
    by = lambda r: (-r[3], r[2] is not None, r[2] or "")  # noqa: E731 - NULL comes first where ORDER BY ascends
    assert_same(results(tmp_path / "top"), [row for some in ranked.values() for row in sorted(some, key=by)[:2]])
    # To absorb, to finish all of them; now and then to merge.
    assert max(m.observed.jobs for m in manifests) <= 3


def test_only_the_query_that_fails_is_failed(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(seed=62, epochs=3)
    write_epochs(tmp_path / "in", tables)
    sql, select, keys, wanted, of = CASES["having"]
    manifests: list[Manifest] = []
    bad = f"SELECT k, 1 / (COUNT(*) - COUNT(*)) AS v FROM r {WINDOW} GROUP BY k"
    start(spark, tmp_path, {"good": sql, "bad": bad}, manifests)
    assert "DIVIDE_BY_ZERO" in (manifests[-1].queries["bad"].failed or "")
    assert manifests[-1].queries["good"].failed is None
    found = [of(row) for row in expected(admit(tables, 20).rows, select, keys, 60, 20, False) if wanted(row)]
    assert_same(results(tmp_path / "good"), found)


def test_the_table_has_a_column_per_place_and_type() -> None:
    stream = Stream("r", tuple(parse_schema(SCHEMA)), "ts", 0)
    sql = [case[0] for case in CASES.values()]
    sql += [f"SELECT DISTINCT COUNT(*) + 1 AS n FROM r {WINDOW} GROUP BY k",
            f"SELECT k, COUNT(*) + 1 AS n FROM r {WINDOW} GROUP BY k ORDER BY COUNT(*) * SUM(i) LIMIT 1"]  # fmt: skip
    queries = [bind_query(f"q{n}", text, {"r": stream}) for n, text in enumerate(sql)]
    slots, fitting = slots_of(queries)
    assert fitting == [0, 1, 2, 3], "neither DISTINCT nor an order by expressions"
    columns = [(name, str(type_)) for name, type_ in slots.columns]
    assert ("c0_0", "STRING") in columns
    assert ("c0_1", "INT") in columns
    assert len({name for name, _ in columns}) == len(columns)
    assert len({(name.partition("_")[0], type_) for name, type_ in columns}) == len(columns)
