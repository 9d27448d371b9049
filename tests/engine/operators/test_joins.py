"""Windowed joins equal DuckDB's, none missing, none twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joins import PREDICATES, RANGES, judged, make_side, pipeline, play, sql
from world import assert_same, results, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest


def test_every_predicate_across_a_restart(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    left, right = make_side(rng, 9, 60, 3, 7, hot=0.3), make_side(rng, 9, 40, 3, 7)
    names = {name: name.replace(" ", "_") for name in PREDICATES}
    queries = {
        names[name]: sql(select, on, RANGES[i % 3]) for i, (name, (select, _, on, _)) in enumerate(PREDICATES.items())
    }
    found = play(spark, tmp_path, left, right, queries, restart=5)
    for i, (name, (_, select, _, on)) in enumerate(PREDICATES.items()):
        wanted = judged(left, right, select, on, RANGES[i % 3], "")
        assert wanted, f"'{name}' must have results to compare"
        assert_same(found[names[name]], wanted)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "FULL"])
def test_outer_joins_give_unmatched_rows_once(spark: Any, tmp_path: Path, how: str) -> None:
    rng = np.random.default_rng(12)
    left, right = make_side(rng, 9, 40, 3, 9, hot=0.3), make_side(rng, 9, 40, 3, 9)
    kinds = ("equal", "band", "equal and expression")
    names = {name: name.replace(" ", "_") for name in kinds}
    queries = {names[n]: sql(PREDICATES[n][0], PREDICATES[n][2], RANGES[i], how) for i, n in enumerate(kinds)}
    if how == "LEFT":
        on = "l.k = r.k AND (l.n + r.n) % 2 = 0"
        for half in ("anti", "semi"):
            queries[half] = sql("n, upper(s) AS u", on, RANGES[0], f"LEFT {half}") + " WHERE x > -5"
            queries[f"{half}_plain"] = sql(
                "n, s", "l.k = r.k AND r.n % 3 > 0 AND l.n % 5 > 0", RANGES[1], f"LEFT {half}"
            )
    found = play(spark, tmp_path, left, right, queries, restart=5, flush=True)
    for i, name in enumerate(kinds):
        assert_same(found[names[name]], judged(left, right, PREDICATES[name][1], PREDICATES[name][3], RANGES[i], how))
    if how == "LEFT":
        # NaN is greater than any number.
        rows = judged(left, right, "l.n, upper(l.s), r.n, l.x > -5", on, RANGES[0], "LEFT")
        plain = "l.k = r.k AND r.n % 3 > 0 AND l.n % 5 > 0"
        more = judged(left, right, "l.n, l.s, r.n", plain, RANGES[1], "LEFT")
        for half in ("anti", "semi"):
            wanted = {(n, s) for n, s, other, fits in rows if (other is None) == (half == "anti") and fits}
            wanted_plain = {(n, s) for n, s, other in more if (other is None) == (half == "anti")}
            assert wanted
            assert wanted_plain
            assert_same(found[half], list(wanted))
            assert_same(found[f"{half}_plain"], list(wanted_plain))


def test_joins_where_spark_carries_state(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    left, right = make_side(rng, 5, 40, 3, 9, hot=0.3), make_side(rng, 5, 40, 3, 9)
    queries = {
        "inner": sql("l.n, r.n AS m", "l.k = r.k", (4, 9)),
        "outer": sql("l.n, r.n AS m", "l.k = r.k AND (l.n + r.n) % 2 = 0", (4, 9), "FULL"),
    }
    spark.conf.set("spark.headrace.state.io", "spark")
    try:
        found = play(spark, tmp_path, left, right, queries, restart=3, flush=True, bins=2)
    finally:
        spark.conf.unset("spark.headrace.state.io")
    assert_same(found["inner"], judged(left, right, "l.n, r.n", "l.k = r.k", (4, 9), ""))
    assert_same(found["outer"], judged(left, right, "l.n, r.n", "l.k = r.k AND (l.n + r.n) % 2 = 0", (4, 9), "FULL"))


def test_a_join_that_comes_while_others_run_is_about_rows_from_then_on(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(14)
    left, right = make_side(rng, 8, 60, 3, 5), make_side(rng, 8, 60, 3, 5)
    first = sql("l.n, r.n AS m", "l.k = r.k", (4, 9))
    second = sql("l.n, r.n AS m, l.s", "l.k = r.k AND l.x < r.x", (9, 9))
    for name, tables in (("l", left), ("r", right)):
        write_epochs(tmp_path / name, tables[:4])
    run = pipeline(spark, tmp_path, {"first": first}).start(spark, str(tmp_path / "state"), trigger="0 seconds")
    try:
        run.process_all_available()
        run.add_query("second", second, sink=hr.parquet(str(tmp_path / "second")))
        for name, tables in (("l", left), ("r", right)):
            write_epochs(tmp_path / name, tables[4:], 4)
        run.process_all_available()
        run.drop_query("first")
    finally:
        run.stop()
    assert_same(results(tmp_path / "first"), judged(left, right, "l.n, r.n", "l.k = r.k", (4, 9), ""))
    seen = [sum(table.num_rows for table in tables[:4]) for tables in (left, right)]
    wanted = judged(left, right, "l.n, r.n, l.s", "l.k = r.k AND l.x < r.x", (9, 9), "")
    new = [row for row in wanted if row[0] >= seen[0] and row[1] >= seen[1]]
    assert 0 < len(new) < len(wanted)
    assert_same(results(tmp_path / "second"), new)


def test_a_join_that_comes_again_does_not_see_rows_of_its_earlier_life(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(16)
    left, right = make_side(rng, 9, 60, 3, 5), make_side(rng, 9, 60, 3, 5)
    on, ranges = "l.k = r.k", (60, 60)
    joins = {"stays": sql("l.n, r.n AS m", on, ranges), "comes": sql("r.n, l.n AS m", on, ranges)}

    def write(first: int, last: int) -> None:
        for name, tables in (("l", left), ("r", right)):
            write_epochs(tmp_path / name, tables[first:last], first)

    write(0, 3)
    run = pipeline(spark, tmp_path, joins).start(spark, str(tmp_path / "state"), trigger="0 seconds")
    try:
        run.process_all_available()
        run.drop_query("comes")
        write(3, 6)
        run.process_all_available()
        run.add_query("comes", joins["comes"], sink=hr.parquet(str(tmp_path / "again")))
        write(6, 9)
        run.process_all_available()
    finally:
        run.stop()
    wanted = judged(left, right, "l.n, r.n", on, ranges, "")
    assert_same(results(tmp_path / "stays"), wanted)
    seen = [sum(table.num_rows for table in tables[:6]) for tables in (left, right)]
    again = [(m, n) for n, m in wanted if n >= seen[0] and m >= seen[1]]
    assert again
    assert_same(results(tmp_path / "again"), again)


def test_a_join_that_fails_does_not_disturb_another(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(15)
    left, right = make_side(rng, 3, 60, 3, 5), make_side(rng, 3, 60, 3, 5)
    queries = {
        "good": sql("l.n, r.n AS m", "l.k = r.k", (4, 9)),
        "bad": sql("l.n, r.n AS m", "l.k = r.k AND 1 DIV (l.n - r.n * 0 - 7) > 5", (4, 9)),
    }
    seen: list[Manifest] = []
    found = play(spark, tmp_path, left, right, queries, hooks=Hooks(on_epoch=seen.append))
    assert_same(found["good"], judged(left, right, "l.n, r.n", "l.k = r.k", (4, 9), ""))
    assert "DIVIDE_BY_ZERO" in (seen[-1].queries["bad"].failed or "")
