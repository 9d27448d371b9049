# ruff: noqa: E501
"""Every aggregate and both window forms against DuckDB, over random streams, with a restart in the middle."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr

LATENESS_S = 20


def _best(of: str, by: str, order: str, condition: str = "") -> str:
    """The value of the row that is first in an order; of equal rows the greatest or the least value, a NULL last."""
    rows = f"list({of} ORDER BY {by} {order}, {of} {order} NULLS LAST) FILTER (WHERE ({by}) IS NOT NULL {condition})"
    return f"({rows})[1]"


def _list(of: str, condition: str = "") -> str:
    return f"coalesce(list({of} ORDER BY {of}) FILTER (WHERE ({of}) IS NOT NULL {condition}), [])"


def _mode(of: str) -> str:
    counts = f"map_values(histogram({of}))"
    return f"map_keys(histogram({of}))[list_position({counts}, list_max({counts}))]"


# id: (Spark select list, group by, DuckDB select list)
AGGREGATES: dict[str, tuple[str, str, str]] = {
    "count of rows": ("COUNT(*) AS n", "", "count(here) AS n"),
    "count of values": ("COUNT(i) AS n", "", "count(i) AS n"),
    "sum of ints by key": ("k, SUM(i) AS v", "k", "k, sum(i)::bigint AS v"),
    "sum of bigints without keys": ("SUM(l) AS v", "", "sum(l)::hugeint AS v"),
    "sum of doubles by key": ("k, SUM(x) AS v", "k", "k, sum(x) AS v"),
    "sum of decimals by key": ("k, SUM(d) AS v", "k", "k, sum(d) AS v"),
    "average of ints": ("AVG(i) AS v", "", "avg(i) AS v"),
    "average of decimals is rounded as Spark rounds": ("g, AVG(d) AS v", "g", "g, round(sum(d)::double / count(d), 6) AS v"),
    "min and max of every kind": (
        "MIN(i) AS a, MAX(i) AS b, MIN(s) AS c, MAX(s) AS d, MIN(day) AS e, MAX(day) AS f, MIN(d) AS g, MAX(ts) AS h",
        "",
        "min(i), max(i), min(s), max(s), min(day), max(day), min(d), max(ts)",
    ),
    "min and max of NaN and infinities": ("g, MIN(y) AS a, MAX(y) AS b", "g", "g, min(y), max(y)"),
    "min and max of booleans": ("g, bool_and(b) AS a, bool_or(b) AS c", "g", "g, bool_and(b), bool_or(b)"),
    "deviation and variance": (
        "k, STDDEV(x) AS a, STDDEV_POP(x) AS b, VARIANCE(i) AS c, VAR_POP(i) AS d",
        "k",
        "k, stddev_samp(x), stddev_pop(x), var_samp(i), var_pop(i)",
    ),
    "distinct ints by key": ("k, COUNT(DISTINCT i) AS v", "k", "k, count(DISTINCT i)"),
    "distinct strings without keys": ("COUNT(DISTINCT s) AS v", "", "count(DISTINCT s)"),
    "distinct doubles have one NaN and one zero": ("g, COUNT(DISTINCT y) AS v", "g", "g, count(DISTINCT y + 0.0)"),
    "sum and average of distinct": ("g, SUM(DISTINCT i) AS a, AVG(DISTINCT i) AS b", "g", "g, sum(DISTINCT i)::bigint, avg(DISTINCT i)"),
    "median by key": ("k, MEDIAN(x) AS v", "k", "k, median(x)"),
    "percentiles": ("k, PERCENTILE(i, 0.9) AS a, PERCENTILE(i, 0.05) AS b", "k", "k, quantile_cont(i, 0.9), quantile_cont(i, 0.05)"),
    "discrete percentile": ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY i) AS v", "", "quantile_disc(i, 0.5)::double"),
    "filters": (
        "k, COUNT(*) FILTER (WHERE i > 0) AS a, SUM(i) FILTER (WHERE b) AS c, COUNT(DISTINCT s) FILTER (WHERE g = 1) AS e",
        "k",
        "k, count(*) FILTER (WHERE i > 0), sum(i) FILTER (WHERE b)::bigint, count(DISTINCT s) FILTER (WHERE g = 1)",
    ),
    "the value of the best row": (
        "g, max_by(s, i) AS a, min_by(i, y) AS b, max_by(y, s) AS c, min_by(s, k) FILTER (WHERE b) AS e, "
        "max_by(s, y) AS f",
        "g",
        f"g, {_best('s', 'i', 'DESC')}, {_best('i', 'y', 'ASC')}, {_best('y + 0.0', 's', 'DESC')}, "
        f"{_best('s', 'k', 'ASC', 'AND b')}, {_best('s', 'y', 'DESC')}",
    ),
    "the first and the last value": (
        "k, first(s) AS a, last(i) AS b, any_value(d) AS c, first(s, true) AS e, last_value(day) IGNORE NULLS AS f",
        "k",
        f"k, {_best('s', 'ts', 'ASC')}, {_best('i', 'ts', 'DESC')}, {_best('d', 'ts', 'ASC')}, "
        f"{_best('s', 'ts', 'ASC', 'AND s IS NOT NULL')}, {_best('day', 'ts', 'DESC', 'AND day IS NOT NULL')}",
    ),
    "the best of no rows": (
        "max_by(s, i) AS a, first(i) AS b", "", f"{_best('s', 'i', 'DESC')}, {_best('i', 'ts', 'ASC', 'AND here')}"),
    "lists and sets": (
        "g, collect_list(i) AS a, collect_set(y) AS b, array_agg(s) FILTER (WHERE i > 0) AS c, array_agg(DISTINCT b) AS e",
        "g",
        f"g, {_list('i')}, list_sort(list_distinct({_list('y + 0.0')})), {_list('s', 'AND i > 0')}, "
        f"list_sort(list_distinct({_list('b')}))",
    ),
    "lists of no rows": ("collect_list(i) AS a, collect_set(s) AS b", "", f"{_list('i')}, list_sort(list_distinct({_list('s')}))"),
    "texts in one": (
        "g, listagg(s, ', ') AS a, string_agg(DISTINCT k, '') WITHIN GROUP (ORDER BY k) AS b, listagg(i) FILTER (WHERE b) AS c",
        "g",
        "g, string_agg(s, ', ' ORDER BY s), string_agg(DISTINCT k, '' ORDER BY k), "
        "string_agg(i::varchar, '' ORDER BY i::varchar) FILTER (WHERE b)",
    ),
    "covariance and correlation": (
        "k, corr(i, l) AS a, covar_pop(i, l) AS b, covar_samp(i, l) AS c",
        "k",
        "k, CASE WHEN regr_count(i, l) > 1 THEN corr(i, l) END, covar_pop(i, l), "
        "CASE WHEN regr_count(i, l) > 1 THEN covar_samp(i, l) END",
    ),
    "regression": (
        "k, regr_count(i, l) AS n, regr_avgx(i, l) AS a, regr_avgy(i, l) AS b, regr_sxx(i, l) AS c, regr_syy(i, l) AS e, "
        "regr_sxy(i, l) AS f, regr_slope(i, l) AS g, regr_intercept(i, l) AS h, regr_r2(i, l) AS r",
        "k",
        "k, regr_count(i, l)::bigint, regr_avgx(i, l), regr_avgy(i, l), regr_sxx(i, l), regr_syy(i, l), regr_sxy(i, l), "
        "CASE WHEN regr_count(i, l) > 1 THEN regr_slope(i, l) END, "
        "CASE WHEN regr_count(i, l) > 1 THEN regr_intercept(i, l) END, CASE WHEN regr_count(i, l) > 1 THEN regr_r2(i, l) END",
    ),
    "skewness and kurtosis": (
        "g, skewness(i) AS a, kurtosis(i) AS b",
        "g",
        # DuckDB has the skewness of a sample.
        "g, CASE count(i) WHEN 0 THEN NULL WHEN 1 THEN NULL WHEN 2 THEN CASE WHEN var_pop(i) > 0 THEN 0.0 END "
        "ELSE skewness(i) * (count(i) - 2) / sqrt(count(i) * (count(i) - 1.0)) END, "
        "CASE WHEN count(i) > 1 THEN kurtosis_pop(i) END",
    ),
    "bits": (
        "k, bit_and(i) AS a, bit_or(l) AS b, bit_xor(i) AS c, bit_xor(g) FILTER (WHERE b) AS e",
        "k",
        "k, bit_and(i), bit_or(l), bit_xor(i), bit_xor(g) FILTER (WHERE b)",
    ),
    "the most frequent value": ("g, mode(s) AS a, mode(y) AS b", "g", f"g, {_mode('s')}, {_mode('y + 0.0')}"),
    "sums that may fail": ("k, try_sum(l) AS a, try_avg(i) AS b, try_sum(DISTINCT i) AS c", "k",
                           "k, sum(l)::hugeint, avg(i), sum(DISTINCT i)::bigint"),
    "arrays of percentiles": (
        "k, percentile(i, array(0.1, 0.5, 1)) AS a, percentile_cont(array(0.9)) WITHIN GROUP (ORDER BY i) AS b",
        "k",
        "k, quantile_cont(i, [0.1, 0.5, 1.0]), quantile_cont(i, [0.9])",
    ),
    "distinct pairs": (
        "g, COUNT(DISTINCT k, y) AS a, COUNT(DISTINCT s, i, b) FILTER (WHERE x IS NOT NULL) AS c",
        "g",
        "g, count(DISTINCT (k, y + 0.0)) FILTER (WHERE k IS NOT NULL AND y IS NOT NULL), "
        "count(DISTINCT (s, i, b)) FILTER (WHERE s IS NOT NULL AND i IS NOT NULL AND b IS NOT NULL AND x IS NOT NULL)",
    ),
    "deviation of distinct": (
        "k, STDDEV(DISTINCT i) AS a, VAR_POP(DISTINCT i) AS b", "k", "k, stddev_samp(DISTINCT i), var_pop(DISTINCT i)"),
    "several keys": ("k, g, COUNT(*) AS n", "k, g", "k, g, count(*)"),
    "keys that are expressions": (
        "i % 3 AS m, upper(s) AS u, COUNT(*) AS n", "i % 3, upper(s)", "i % 3 AS m, upper(s) AS u, count(*)"),
    "keys that are times, dates and decimals": (
        "date_trunc('minute', ts) AS m, day, d > 0 AS p, COUNT(*) AS n",
        "date_trunc('minute', ts), day, d > 0",
        "date_trunc('minute', ts) AS m, day, d > 0 AS p, count(*)",
    ),
    "hours are UTC hours": ("hour(ts) AS h, COUNT(*) AS n", "hour(ts)", "hour(ts)::int AS h, count(*)"),
    "float keys": ("y + 0.0 AS y, COUNT(*) AS n", "y", "y + 0.0 AS y, count(*)"),
    "expressions over aggregates": (
        "k, SUM(i) + COUNT(*) * 2 AS a, SUM(x) / COUNT(x) AS c", "k",
        "k, (sum(i) + count(*) * 2)::bigint, sum(x) / count(x)"),
}  # fmt: skip
WINDOWS = {"the papers' form": (60, 20, False), "Spark's form": (50, 20, True)}


def _group(group_by: str) -> str:
    # DuckDB groups -0.0 and 0.0 alike once they are added to zero.
    return group_by.replace("y", "y + 0.0") if group_by == "y" else group_by


def _sql(select: str, group_by: str, size: int, slide: int, hopping: bool, where: str = "") -> str:
    keys = [group_by] if group_by else []
    if hopping:
        keys.insert(0, f"window(ts, '{size} seconds', '{slide} seconds')")
    window = "" if hopping else f"[WINDOW {size} s SLIDE {slide} s]"
    tail = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {select} FROM r {window} {f'WHERE {where}' if where else ''}{tail}"


@pytest.fixture(scope="module", params=[(1, 1), (2, 3)], ids=["seed 1, one bin", "seed 2, three bins"])
def world(
    request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any, Any]:
    """All queries run over one random stream, stopped and started again half way."""
    seed, bins = request.param
    home = tmp_path_factory.mktemp(f"seed{seed}")
    tables = make_epochs(seed)
    reference: Any = None
    for first, part in ((0, tables[:6]), (6, tables[6:])):
        write_epochs(home / "in", part, first)
        pipe = hr.Pipeline("aggregates")
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
        pipe.stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds")
        for form, (size, slide, hopping) in WINDOWS.items():
            for name, (select, group_by, _) in AGGREGATES.items():
                query = _name(name, form)
                pipe.query(query, _sql(select, group_by, size, slide, hopping), sink=hr.parquet(str(home / query)))
        run = pipe.start(spark, str(home / "state"), bins=bins, once=True, flush=first > 0)
        run.await_termination()
        reference = run.progress
    return home, admit(tables, LATENESS_S), reference


def _name(name: str, form: str) -> str:
    return f"{name} {form}".replace(" ", "_").replace("'", "").lower()


@pytest.mark.parametrize("form", WINDOWS)
@pytest.mark.parametrize("name", AGGREGATES)
def test_answers_equal_duckdb(world: tuple[Path, Any, Any], name: str, form: str) -> None:
    home, admission, _ = world
    select, group_by, duck = AGGREGATES[name]
    del select
    wanted = expected(admission.rows, duck, _group(group_by), *WINDOWS[form])
    found = results(home / _name(name, form))
    assert wanted
    assert_same(found, wanted)


def test_the_ledger_counts_every_row(world: tuple[Path, Any, Any]) -> None:
    home, admission, manifest = world
    del home
    entry = manifest.ledger["r"]
    assert entry.late == admission.late > 0
    assert (entry.used, entry.shed, entry.rejected) == (admission.rows.num_rows, 0, 0)


def test_no_gap_between_window_ends_exceeds_the_slide(world: tuple[Path, Any, Any]) -> None:
    home, _, _ = world
    ends = sorted({row[1] for row in results(home / _name("count of rows", "the papers' form"))})
    assert max((b - a).total_seconds() for a, b in pairwise(ends)) <= 20


def test_state_holds_the_last_windows_and_nothing_older(world: tuple[Path, Any, Any]) -> None:
    """The window that was answered last stays, for one-time queries; what no window to come or to ask for needs goes."""
    manifest = world[2]
    oldest = min(coverage.since_us for coverage in manifest.coverage.values())
    assert all(max(end for _, end in chunk.ends) > oldest for chunk in manifest.chunks)
    assert {path.name for path in (world[0] / "state" / "state").iterdir()} == {c.name for c in manifest.chunks}
