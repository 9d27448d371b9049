"""The kernel of row windows against DuckDB's window functions: every aggregate, ties, nulls, any split of the rows."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from world import SCHEMA, assert_same, make_epochs

from headrace.engine.operators.specs import spec_of_rows
from headrace.kernels.row_windows import RowsSpec, evaluate, in_order, trim
from headrace.language import bind_query, parse_schema
from headrace.model import Stream
from headrace.planning import RowsPlan, plan_rows

STREAM = Stream("r", parse_schema(SCHEMA), "ts")
# id: (our select list, DuckDB's, with {} where OVER (...) goes)
AGGREGATES: dict[str, tuple[str, str]] = {
    "count of rows": ("COUNT(*) AS a", "count(*) {}"),
    "count of values": ("COUNT(i) AS a", "count(i) {}"),
    "sums of every kind": (
        "SUM(i) AS a, SUM(l) AS b, SUM(x) AS c, SUM(d) AS e", "sum(i) {}, sum(l) {}, sum(x) {}, sum(d) {}"),
    "averages": ("AVG(i) AS a, AVG(x) AS b", "avg(i) {}, avg(x) {}"),
    "minima and maxima": (
        "MIN(i) AS a, MAX(x) AS b, MIN(s) AS c, MAX(day) AS e, MIN(b) AS f",
        "min(i) {}, max(x) {}, min(s) {}, max(day) {}, min(b) {}"),
    "NaN and infinities": ("MIN(y) AS a, MAX(y) AS b", "min(y) {}, max(y) {}"),
    "deviations": (
        "STDDEV(x) AS a, VAR_POP(i) AS b, VARIANCE(i) AS c, STDDEV_POP(x) AS e",
        "stddev_samp(x) {}, var_pop(i) {}, var_samp(i) {}, stddev_pop(x) {}"),
    "quantiles": (
        "MEDIAN(x) AS a, PERCENTILE(i, 0.9) AS b, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY i) AS c",
        "median(x) {}, quantile_cont(i, 0.9) {}, (quantile_disc(i, 0.3) {})::double"),
    "approximate quantiles are exact": ("approx_percentile(i, 0.5) AS a", "quantile_disc(i, 0.5) {}"),
    "distinct values": (
        "COUNT(DISTINCT s) AS a, approx_count_distinct(g) AS b, SUM(DISTINCT g) AS c, AVG(DISTINCT i) AS e",
        "count(DISTINCT s) {}, count(DISTINCT g) {}, (sum(DISTINCT g) {})::bigint, avg(DISTINCT i) {}"),
    "the value of the best row": (
        "max_by(s, i) AS a, min_by(i, s) AS b, first(s) AS c, last(g, true) AS e",
        "(list(s ORDER BY i DESC, s DESC NULLS LAST) FILTER (WHERE i IS NOT NULL) {})[1], "
        "(list(i ORDER BY s, i NULLS LAST) FILTER (WHERE s IS NOT NULL) {})[1], "
        "(list(s ORDER BY r.ts, s NULLS LAST) {})[1], "
        "(list(g ORDER BY r.ts DESC, g DESC NULLS LAST) FILTER (WHERE g IS NOT NULL) {})[1]"),
    "lists, sets and the most frequent": (
        "collect_list(i) AS a, collect_set(y) AS b, mode(g) AS c",
        "coalesce(list(i ORDER BY i) FILTER (WHERE i IS NOT NULL) {}, []), "
        "coalesce(list_sort(list_distinct(list(y + 0.0) FILTER (WHERE y IS NOT NULL) {})), []), "
        "map_keys(histogram(g) {})[list_position(map_values(histogram(g) {}), list_max(map_values(histogram(g) {})))]"),
    "pairs": (
        "covar_pop(i, l) AS a, regr_count(i, l) AS b, regr_slope(i, l) AS c",
        "covar_pop(i, l) {}, (regr_count(i, l) {})::bigint, "
        "CASE WHEN (regr_count(i, l) {}) > 1 THEN regr_slope(i, l) {} END"),
    "shape and bits": (
        "kurtosis(i) AS a, bit_and(i) AS b, bit_or(l) AS c, bit_xor(g) AS e",
        "CASE WHEN (count(i) {}) > 1 THEN kurtosis_pop(i) {} END, bit_and(i) {}, bit_or(l) {}, bit_xor(g) {}"),
    "sums that may fail, deviations of distinct": (
        "try_sum(i) AS a, try_avg(i) AS b, STDDEV(DISTINCT g) AS c",
        "sum(i) {}, avg(i) {}, stddev_samp(DISTINCT g) {}"),
    "filters": (
        "COUNT(*) FILTER (WHERE i > 0) AS a, SUM(i) FILTER (WHERE b) AS c, MEDIAN(x) FILTER (WHERE g = 1) AS e",
        "count(*) FILTER (WHERE i > 0) {}, sum(i) FILTER (WHERE b) {}, median(x) FILTER (WHERE g = 1) {}"),
}  # fmt: skip


def plan(select: str, n: int, keys: str = "k") -> RowsPlan:
    query = bind_query("q", f"SELECT ts, {select} FROM r [PARTITION BY {keys} ROWS {n}]", {"r": STREAM})
    return plan_rows(query)


def numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column("i_", pa.array(range(rows.num_rows)))


def stored(made: RowsPlan, rows: pa.Table) -> pl.DataFrame:
    """The rows as the store keeps them; DuckDB evaluates what Spark would."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", numbered(rows))
    connection.execute("CREATE MACRO NAMED_STRUCT(a, x, b, y) AS {'of': x, 'by': y}")
    connection.execute("CREATE MACRO double(x) AS x::DOUBLE")
    store = made.stores[0]
    named = zip(store.feeds[0].columns, store.columns, strict=True)
    columns = ", ".join(f"{sql} AS {column.name}" for sql, column in named).replace("`", '"')
    found = pl.from_arrow(connection.sql(f"SELECT epoch_us(ts) AS p, {columns} FROM r ORDER BY i_").to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def judged(made: RowsPlan, rows: pa.Table, duck: str, n: int) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("kept", stored(made, rows).with_row_index("j_").to_arrow())
    connection.register("r", numbered(rows))
    # The documented order: key, time, then the kept columns one by one, nulls first.
    types = {column.name: column.type for column in made.stores[0].columns}
    # A pair is in the order of its parts.
    parts = [f"{name}{part}" for name in made.ties for part in ((".of", ".by") if types[name].is_nested else ("",))]
    ties = ", ".join(f"kept.{part} NULLS FIRST" for part in parts)
    over = f"OVER (PARTITION BY r.k ORDER BY r.ts, {ties} ROWS BETWEEN {n - 1} PRECEDING AND CURRENT ROW)"
    return connection.execute(f"SELECT r.ts, {duck.replace('{}', over)} FROM r JOIN kept ON i_ = j_").fetchall()


def whole(spec: RowsSpec, rows: pl.DataFrame) -> pl.DataFrame:
    ordered, group = in_order(rows, spec)
    return evaluate(ordered, group, np.ones(ordered.height, bool), spec)


def rows_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in frame.to_arrow().to_pylist()]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    table = pa.concat_tables(make_epochs(seed=5, epochs=5, rows=200))
    # Times to the second: many ties.
    seconds = table["ts"].cast(pa.int64()).to_numpy() // 1_000_000 * 1_000_000
    return table.set_column(0, "ts", pa.array(seconds, pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
@pytest.mark.parametrize("name", AGGREGATES)
def test_every_aggregate(name: str, n: int, rows: pa.Table) -> None:
    ours, duck = AGGREGATES[name]
    made = plan(ours, n)
    assert_same(rows_of(whole(spec_of_rows(made), stored(made, rows))), judged(made, rows, duck, n))


def test_top_k_counts_values_of_the_window(rows: pa.Table) -> None:
    made = plan("approx_top_k(g, 2) AS a", 6)
    found = whole(spec_of_rows(made), stored(made, rows))["a0"].to_list()
    (listed,) = plan_lists(rows, 6)
    for top, values in zip(found, listed, strict=True):
        counts = {v: values.count(v) for v in set(values) - {None}}
        wanted = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
        assert [(item["item"], item["count"]) for item in top or []] == wanted


def plan_lists(rows: pa.Table, n: int) -> tuple[list[list[Any]]]:
    made = plan("approx_top_k(g, 2) AS a", n)
    spec = spec_of_rows(made)
    ordered, group = in_order(stored(made, rows), spec)
    values = ordered[made.arguments[0][1] or ""].to_list()
    return ([values[max(i - n + 1, int(np.argmax(group == group[i]))) : i + 1] for i in range(len(values))],)


@pytest.mark.parametrize("n", [1, 3, 50])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_bit_by_bit_give_the_same_results_as_all_at_once(n: int, seed: int, rows: pa.Table) -> None:
    made = plan("SUM(i) AS a, MEDIAN(x) AS b, COUNT(DISTINCT s) AS c, MIN(s) AS e", n)
    spec, frame = spec_of_rows(made), stored(made, rows)
    rng = np.random.default_rng(seed)
    frame = frame[rng.permutation(frame.height)]
    cuts = sorted(int(cut) for cut in rng.integers(0, frame.height, 4))
    times = frame["p"].to_numpy()
    state, done, found = frame.clear(), -(2**62), []
    for first, last in zip([0, *cuts], [*cuts, frame.height], strict=True):
        # Whatever comes later bounds what is final now.
        final_us = int(times[last:].min()) if last < frame.height else 2**62
        ordered, group = in_order(pl.concat([state, frame[first:last]]), spec)
        time = ordered["p"].to_numpy()
        final = time < final_us
        found.append(evaluate(ordered, group, final & (time >= done), spec))
        state, done = trim(ordered, group, final, spec), max(done, final_us)
    assert_same(rows_of(pl.concat(found)), rows_of(whole(spec, frame)))
    assert state.group_by(spec.keys).len()["len"].max() in (None, *range(n)), "n - 1 rows of a key are kept, no more"


def test_the_order_of_arrival_does_not_matter(rows: pa.Table) -> None:
    made = plan("s, SUM(i) AS a, MAX(day) AS b", 3)
    spec, frame = spec_of_rows(made), stored(made, rows)
    assert_same(rows_of(whole(spec, frame.reverse())), rows_of(whole(spec, frame)))


def test_no_rows_make_no_results(rows: pa.Table) -> None:
    for ours, _ in AGGREGATES.values():
        made = plan(ours, 3)
        assert whole(spec_of_rows(made), stored(made, rows).clear()).is_empty()
