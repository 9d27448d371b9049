"""Names, NULLs and hints mean what they mean in Spark's batch SQL: the same text over the same rows of one window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr

ROWS = [
    # k, v, u, d
    ("k1", 1, "A", 1.5), ("k1", 3, "C", None), ("K1", 4, "D", 0.0), ("k2", 2, "B", 2.5), ("k2", 2, None, 2.5),
    ("a|b", 7, "c", -1.0), ("a", 7, "b|c", 8.0), (None, 9, "E", 3.0), ("a", None, "b|c", 8.0), ("k1", 1, "A", 1.0),
]  # fmt: skip
BY = "GROUP BY window(ts, '1 hour')"
SAME = {
    "HAVING takes a grouped column over an alias":
        f"SELECT upper(k) AS k, COUNT(*) AS n FROM r {BY}, k HAVING k = 'k1'",
    "HAVING takes no alias of a grouped column": f"SELECT upper(k) AS k, COUNT(*) AS n FROM r {BY}, k HAVING k = 'K1'",
    "HAVING takes a column grouped under its table's name":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, r.v HAVING v > 2",
    "HAVING takes an alias if the column is not grouped":
        f"SELECT upper(k) AS k, COUNT(*) AS n FROM r {BY}, upper(k) HAVING k = 'K1'",
    "HAVING takes the alias that GROUP BY's position means":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, 1 HAVING v < -2",
    "HAVING takes a grouped expression whole": f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, -v HAVING -v < -2",
    "HAVING takes a grouped expression and an alias":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, -v HAVING -v + v < -4",
    "HAVING takes a grouped column where it is part of another key":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, -v, v HAVING v < -2",
    "HAVING with two names crossed": f"SELECT k AS v, v AS k, COUNT(*) AS n FROM r {BY}, k, v HAVING v = 2",
    "HAVING takes an aggregate of a column, not of an alias":
        f"SELECT k AS u, MAX(v) AS v FROM r {BY}, k HAVING MAX(u) = 'C'",
    "HAVING takes an alias of an aggregate": f"SELECT k AS x, MAX(v) + 10 AS v FROM r {BY}, k HAVING v = 13",
    "HAVING in a lambda": f"SELECT upper(k) AS k, COUNT(*) AS n FROM r {BY}, k HAVING exists(array(1), x -> k = 'k1')",
    "HAVING over GROUP BY ALL":
        "SELECT window(ts, '1 hour') AS w, -v AS v, COUNT(*) AS n FROM r GROUP BY ALL HAVING v < -2",
    "ORDER BY takes an alias over a grouped column":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, v ORDER BY v NULLS LAST LIMIT 1",
    "ORDER BY takes a column by its table's name":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, v ORDER BY r.v NULLS LAST LIMIT 1",
    "ORDER BY takes aliases inside expressions":
        f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, -v ORDER BY -v NULLS LAST LIMIT 1",
    "HAVING and ORDER BY of one name": f"SELECT -v AS v, COUNT(*) AS n FROM r {BY}, v HAVING v > 2 ORDER BY v",
    "HAVING NULL keeps nothing": f"SELECT k, COUNT(*) AS n FROM r {BY}, k HAVING NULL",
    "aggregates of NULL":
        f"SELECT SUM(NULL) AS a, AVG(NULL) AS b, COUNT(NULL) AS c, bool_or(NULL) AS d, median(NULL) AS e, "
                          f"approx_count_distinct(NULL) AS f, stddev(NULL) AS g FROM r {BY}",
    "types with lengths that Spark ignores":
        f"SELECT MAX(CAST(u AS VARCHAR(1))) AS a, MAX(CAST(k AS CHAR(5))) AS b FROM r {BY}",
    "a column after its alias":
        f"SELECT k, v + 1 AS w1, w1 * 2 AS w2, SUM(v) AS s, s / 2 + w2 AS h FROM r {BY}, k, v",
    "an alias in an alias in a subquery":
        f"SELECT z, COUNT(*) AS n FROM (SELECT ts, v AS d, d AS y, upper(k) AS z FROM r) AS x {BY}, z",
    "all columns but some":
        f"SELECT MAX(u) AS a, COUNT(*) AS n FROM (SELECT * EXCEPT (d, k) FROM r) AS x {BY}, v",
    "LIKE ANY": f"SELECT COUNT(*) AS n FROM r WHERE k LIKE ANY ('k%', '%b') {BY}",
    "NOT LIKE ANY": f"SELECT COUNT(*) AS n FROM r WHERE k NOT LIKE ANY ('k%', '%b', 'a') {BY}",
    "LIKE ALL": f"SELECT COUNT(*) AS n FROM r WHERE k LIKE ALL ('k%', '%2') {BY}",
    "NOT LIKE ALL beside OR": f"SELECT COUNT(*) AS n FROM r WHERE k NOT LIKE ALL ('k%', '%2') OR v = 2 {BY}",
    "ILIKE SOME": f"SELECT COUNT(*) AS n FROM r WHERE k ILIKE SOME ('K1', 'A') {BY}",
    "calls with words between arguments":
        "SELECT MAX(position('|' IN k)) AS a, MAX(substring(k FROM 2 FOR 2)) AS b, MIN(substr(k FROM 2)) AS c, "
        f"MAX(overlay(k PLACING 'xy' FROM 2)) AS d, MAX(overlay(k PLACING 'xy' FROM 2 FOR 1)) AS e FROM r {BY}",
    "raw strings": f"SELECT COUNT(*) AS n, MAX(r'a\\d') AS a FROM r WHERE k RLIKE r'^k\\d$' {BY}",
    "a union of days and times":
        "SELECT w, COUNT(*) AS n FROM (SELECT ts, DATE '2024-01-01' AS w FROM r UNION ALL SELECT ts, ts AS w FROM r) x "
        f"{BY}, w",
    "distinct of several":
        f"SELECT COUNT(DISTINCT k, u) AS a, COUNT(DISTINCT v, u) AS b, COUNT(DISTINCT ts, v) AS c FROM r {BY}",
    "a NULL with a type": f"SELECT MIN(CAST(NULL AS STRING)) AS a, CAST(NULL AS INT) AS b FROM r {BY}",
}  # fmt: skip
# What a hint says, and what it stands for.
HINTS = {
    **{f"percentile_disc({p}) WITHIN GROUP (ORDER BY {x} DESC)": f"- percentile_disc({p}) WITHIN GROUP (ORDER BY - {x})"
       for p in (0, 0.25, 0.5, 0.6, 0.99, 1) for x in ("v", "d")},
}  # fmt: skip


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Any], list[Any]]]:
    """Ours and Spark's rows of every query, from one pipeline."""
    home: Path = tmp_path_factory.mktemp("agrees")
    texts = {f"same_{i}": sql for i, sql in enumerate(SAME.values())}
    texts |= {f"hint_{i}": f"SELECT {hint} AS x FROM r {BY}" for i, hint in enumerate(HINTS.values())}
    judge = {**texts, **{f"hint_{i}": f"SELECT {asked} AS x FROM r {BY}" for i, asked in enumerate(HINTS)}}
    rows = spark.createDataFrame(ROWS, "k STRING, v INT, u STRING, d DOUBLE").selectExpr(
        "timestamp_micros(1577836800000000 + coalesce(v, 0)) AS ts", "*"
    )
    rows.coalesce(1).write.parquet(str(home / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(home / "in"))
    pipe = hr.Pipeline("agrees").stream("r", stream, time="ts")
    for name, sql in texts.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / name)))
    # Of what type this is only Spark knows: none.
    pipe.query("void", f"SELECT MAX(array()[0]) AS x FROM r {BY}", sink=hr.parquet(str(home / "void")))
    run = pipe.start(spark, str(home / "state"), once=True, flush=True)
    run.await_termination()
    failed = {name: query.failed for name, query in run.progress.queries.items() if query.failed}
    assert list(failed) == ["void"], failed
    assert "is always NULL and has no type of its own" in failed["void"]
    rows.createOrReplaceTempView("r")
    return {name: (_results(spark, home / name), _rows(spark.sql(judge[name]))) for name in texts}


def _results(spark: Any, path: Path) -> list[Any]:
    if not path.exists() or not list(path.glob("*.parquet")):
        return []
    return _rows(spark.read.parquet(str(path)).drop("window_start", "window_end"))


def _rows(frame: Any) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("number", [pytest.param(i, id=name) for i, name in enumerate(SAME)])
def test_the_same_text_means_the_same(number: int, played: dict[str, tuple[list[Any], list[Any]]]) -> None:
    ours, sparks = played[f"same_{number}"]
    assert ours == sparks


@pytest.mark.parametrize("number", [pytest.param(i, id=f"what is said of {name}") for i, name in enumerate(HINTS)])
def test_a_hint_gives_what_was_asked_for(number: int, played: dict[str, tuple[list[Any], list[Any]]]) -> None:
    ours, sparks = played[f"hint_{number}"]
    assert ours == sparks
    assert len(ours) == 1
