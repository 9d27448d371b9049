"""Values at the edges of their types, and what is done with results, against Spark's batch SQL over the same rows.

Two pipelines with many queries: the papers' form in one bin, Spark's form in three. Every window of `[WINDOW 60 s SLIDE
20 s]` is one of `window(ts, '60 seconds', '20 seconds')`, too, so both forms have one judge. A query that Spark's batch
refuses must fail with a sentence, and must not have written anything that is wrong.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from world import START, write_epochs

import headrace as hr

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("i", pa.int32()), ("l", pa.int64()),
        ("huge", pa.int64()), ("w", pa.decimal128(38, 10)), ("over", pa.decimal128(38, 10)),
        ("d", pa.decimal128(12, 2)), ("y", pa.float64()), ("zero", pa.int32()),
    ]
)  # fmt: skip
DDL = (
    "ts TIMESTAMP, k STRING, i INT, l BIGINT, huge BIGINT, w DECIMAL(38,10), over DECIMAL(38,10), d DECIMAL(12,2),"
    " y DOUBLE, zero INT"
)
# Two of these fit in DECIMAL(38,10), and three do not: 0.4 of the greatest value.
MUCH = Decimal("3999999999999999999999999999.1234567891")
SPECIALS = [math.inf, -math.inf, 0.0, 1.5, math.nan, -2.5, 0.1, 0.3]


def rows() -> list[pa.Table]:
    """Six epochs of 20 s; a key has one great value in every other pane, so that a window's sum fits and a sum over all
    panes does not. Only in the last epochs there is a window whose `over` or `huge` does not fit."""
    rng = random.Random(12)
    tables = []
    for epoch in range(6):
        made: list[dict[str, Any]] = []
        for k in range(5):
            for n in range(1 + rng.randint(0, 3) + k):
                great = n == 0 and epoch % 2 == 0
                late = epoch == 5 and n < 3
                made.append(
                    {
                        "ts": START // 20_000_000 * 20_000_000 + epoch * 20_000_000 + n * 1_000_003 + k,
                        "k": None if k == 4 else f"k{k}",
                        "i": rng.choice([None, *range(-3, 9)]),
                        "l": rng.choice([None, 2**53 + 1, -(2**53), 7]),
                        "huge": 2**62 if late else rng.randint(-9, 9),
                        "w": MUCH if great else rng.choice([None, Decimal("-1.5"), Decimal("0.0000000001")]),
                        "over": MUCH if great or late else Decimal(1),
                        "d": rng.choice([None, Decimal("9999999999.99"), Decimal("-0.01")]),
                        "y": rng.choice([None, *SPECIALS]) if k else SPECIALS[(epoch + n) % len(SPECIALS)],
                        "zero": 0,
                    }
                )
        tables.append(pa.Table.from_pylist(made, SCHEMA))
    return tables


@dataclass(frozen=True)
class Case:
    """A SELECT list with what follows GROUP BY; what Spark asks of windows `w` with their rows; and the sink."""

    select: str
    tail: str = ""
    judge: str | None = None
    memory: bool = False
    cause: str | None = None  # of the failure that Spark's batch has, too
    absorbing: bool = False  # fails over rows: to find out who does takes a job for each query, so one world has these


PER_WINDOW = "SELECT window_start, window_end, {} FROM windows GROUP BY window_start, window_end, k"


def first(order: str, inner: str, place: str = "row_number()", most: int = 2) -> str:
    found = f"SELECT *, {place} OVER (PARTITION BY window_end ORDER BY {order}) AS place FROM ({inner})"
    return f"SELECT * EXCEPT (place) FROM ({found}) WHERE place <= {most}"


COUNTS = "SELECT window_start, window_end, k, count(*) AS n FROM windows GROUP BY window_start, window_end, k"
DISTINCT_COUNTS = "SELECT DISTINCT window_start, window_end, n FROM (" + COUNTS + ")"
CASES: dict[str, Case] = {
    "sums of wide decimals whose running sums do not fit": Case("k, SUM(w) AS a, SUM(w) FILTER (WHERE i > 0) AS b"),
    "and what Spark makes of them": Case("k, SUM(w) + CAST(0 AS DECIMAL(10,2)) AS a", " HAVING COUNT(*) > 0"),
    "sums of distinct wide decimals": Case("k, SUM(DISTINCT w) AS a, COUNT(DISTINCT w) AS b"),
    "averages of wide decimals": Case("k, AVG(CAST(w / 100000 AS DECIMAL(38,10))) AS a, AVG(d) AS b"),
    "sums and averages of other numbers": Case(
        "k, SUM(i) AS a, SUM(l) AS b, SUM(d) AS c, AVG(i) AS e, SUM(DISTINCT l) AS f, AVG(DISTINCT d) AS g"),
    "quantiles of infinities, NaN and zeros": Case(
        "k, MEDIAN(y) AS a, PERCENTILE(y, 0.3) AS b, PERCENTILE(y, 0.9) AS c,"
        " PERCENTILE_DISC(0.4) WITHIN GROUP (ORDER BY y) AS e, MIN(y) AS f, MAX(y) AS g"),
    "distinct counts, then their order, then a limit": Case(
        "DISTINCT COUNT(*) AS n", " ORDER BY n DESC LIMIT 2", first("n DESC", DISTINCT_COUNTS)),
    "the same in memory": Case(
        "DISTINCT COUNT(*) AS n", " ORDER BY n DESC LIMIT 2", first("n DESC", DISTINCT_COUNTS), memory=True),
    "a limit with ties": Case(
        "k, COUNT(*) AS n", " ORDER BY n LIMIT 1 WITH TIES", first("n", COUNTS, "rank()", 1)),
    "a limit with ties that Spark finishes": Case(
        "k, COUNT(*) + 0 AS n", " HAVING COUNT(*) > 0 ORDER BY COUNT(*) LIMIT 1 WITH TIES",
        first("n", COUNTS, "rank()", 1)),
    "a limit with ties in memory": Case(
        "k, COUNT(*) AS n", " ORDER BY n LIMIT 1 WITH TIES", first("n", COUNTS, "rank()", 1), memory=True),
    "distinct counts with ties": Case(
        "DISTINCT COUNT(*) AS n", " ORDER BY n LIMIT 1 WITH TIES", first("n", DISTINCT_COUNTS, "rank()", 1)),
    "no row": Case("k, COUNT(*) AS n", " ORDER BY n LIMIT 0", first("n", COUNTS, most=0)),
    "no row, by Spark": Case("k, COUNT(*) + 0 AS n", " ORDER BY k LIMIT 0", first("n", COUNTS, most=0)),
    "columns that are never null": Case("k, COUNT(*) AS n, coalesce(SUM(i), 0L) AS v, 1 AS one"),
    "the same by a job of its own": Case("DISTINCT k, COUNT(*) AS n, coalesce(SUM(i), 0L) AS v, 1 AS one"),
    "a sum of wide decimals that does not fit": Case(
        "k, SUM(over) AS a", cause=r"^SUM\(r.over\) exceeds DECIMAL\(38,10\) in the window ending .* UTC; CAST its"),
    "an average of wide decimals that does not fit": Case(
        "k, AVG(w) AS a", cause=r"^AVG\(r.w\) exceeds DECIMAL\(38,14\) in the window ending .* UTC; CAST its argument"),
    "a sum of distinct decimals that does not fit": Case(
        "k, SUM(DISTINCT CAST(over + second(ts) AS DECIMAL(38,10))) AS a",
        cause=r"^SUM\(DISTINCT CAST\(r.over \+ SECOND\(r.ts\) AS DECIMAL\(38, 10\)\)\) exceeds DECIMAL\(38,10\) in"),
    "a sum of bigints that does not fit": Case(
        "k, SUM(huge) AS a", cause=r"^SUM\(r.huge\) exceeds BIGINT in the window ending .*; CAST its argument to D"),
    "the same where Spark finishes": Case(
        "k, SUM(huge) % 10 AS a", cause=r"^SUM\(r.huge\) exceeds BIGINT in the window ending .*"),
    "bigints multiplied": Case(
        "k, MAX(l * 4096) AS a", cause=r"^in r.l \* 4096: .*overflow.* \(ARITHMETIC_OVERFLOW", absorbing=True),
    "division by zero": Case(
        "k, SUM(i / zero) AS a", cause=r"^in r.i / r.zero: Division by zero.*\(DIVIDE_BY_ZERO\)$", absorbing=True),
    "a cast of text": Case(
        "k, SUM(CAST(k AS INT)) AS a", cause=r"^in CAST\(r.k AS INT\): .*\(CAST_INVALID_INPUT\)$", absorbing=True),
    "division of aggregates by zero": Case(
        "k, COUNT(*) / SUM(zero) AS a", cause=r"^in COUNT\(\*\) / SUM\(r.zero\): Division by zero"),
}  # fmt: skip
# Row windows: the SELECT list, and the cause of a failure.
ROWS: dict[str, tuple[str, str | None]] = {
    "wide decimals over rows": (
        "SUM(w) AS a, SUM(DISTINCT w) AS b, AVG(CAST(w / 100000 AS DECIMAL(38,10))) AS c, SUM(l) AS d", None),
    "quantiles over rows": (
        "MEDIAN(y) AS a, PERCENTILE(y, 0.3) AS b, PERCENTILE_DISC(0.4) WITHIN GROUP (ORDER BY y) AS c", None),
    "a sum over rows that does not fit": (
        "SUM(over) AS a", r"^SUM\(r.over\) exceeds DECIMAL\(38,10\) in one of its windows; CAST"),
    "a sum of bigints over rows that does not fit": (
        "SUM(huge) AS a", r"^SUM\(r.huge\) exceeds BIGINT in one of its windows; CAST"),
}  # fmt: skip
PER_ROW = """
    WITH n AS (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM r)
    SELECT a.ts, a.k, {} FROM n a JOIN n b ON a.k <=> b.k AND b.n BETWEEN a.n - 2 AND a.n GROUP BY a.ts, a.k
"""
JUDGED: dict[str, Any] = {}


def sql_of(case: Case, hopping: bool) -> str:
    if hopping:
        source, keys = "r", "window(ts, '60 seconds', '20 seconds'), k"
    else:
        source, keys = "r [WINDOW 60 s SLIDE 20 s]", "k"
    return f"SELECT {case.select} FROM {source} GROUP BY {keys}{case.tail}"


@dataclass(frozen=True)
class World:
    home: Path
    spark: Any
    run: Any

    def found(self, name: str) -> list[tuple[Any, ...]]:
        folder = self.home / query(name)
        if not folder.exists():
            table = self.run.table(query(name))
            return [] if table is None else [tuple(row.values()) for row in table.to_pylist()]
        return [tuple(row.values()) for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()]

    def judged(self, sql: str) -> list[tuple[Any, ...]]:
        """What Spark's batch says, asked once; raises what it raises."""
        if sql not in JUDGED:
            JUDGED[sql] = [tuple(row.values()) for row in self.spark.sql(sql).toArrow().to_pylist()]
        found: list[tuple[Any, ...]] = JUDGED[sql]
        return found


def query(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower())


@pytest.fixture(
    scope="module", params=[(1, False), (3, True)], ids=["the papers' form, one bin", "Spark's, three bins"]
)
def world(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    bins, hopping = request.param
    home = tmp_path_factory.mktemp("corners")
    tables = rows()
    write_epochs(home / "in", tables)
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("corners").stream("r", stream, time="ts", lateness="20 seconds")
    for name, case in CASES.items():
        if case.absorbing and hopping:
            continue
        sink = hr.memory() if case.memory else hr.parquet(str(home / query(name)))
        pipe.query(query(name), sql_of(case, hopping), sink=sink)
    for name, (select, _) in ROWS.items():
        sql = f"SELECT ts, k, {select} FROM r [PARTITION BY k ROWS 3]"
        pipe.query(query(name), sql, sink=hr.parquet(str(home / query(name))))
    run = pipe.start(spark, str(home / "state"), bins=bins, once=True, flush=True)
    run.await_termination()
    spark.read.parquet(str(home / "in")).createOrReplaceTempView("r")
    first, last = START // 20_000_000 * 20, START // 1_000_000 + 200
    spark.sql(
        f"SELECT timestamp_seconds(e - 60) AS window_start, timestamp_seconds(e) AS window_end, r.* FROM r JOIN"
        f" (SELECT explode(sequence({first}, {last}, 20)) AS e) ON ts >= timestamp_seconds(e - 60)"
        f" AND ts < timestamp_seconds(e)"
    ).createOrReplaceTempView("windows")
    return World(home, spark, run)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12)
    return type(a) is type(b) and bool(a == b)


def order(row: tuple[Any, ...]) -> list[str]:
    return [f"{v:.9g}" if isinstance(v, float | Decimal) else str(v) for v in row]


def assert_equal(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    assert len(found) == len(wanted)
    for mine, yours in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True):
        assert all(map(same, mine, yours)), f"{mine} is not {yours}"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cause is None])
def test_answers_equal_sparks_batch(world: World, name: str) -> None:
    case = CASES[name]
    assert world.run.status["queries"][query(name)]["cause"] is None
    wanted = world.judged(case.judge or PER_WINDOW.format(case.select.removeprefix("DISTINCT ")) + case.tail)
    assert bool(wanted) == ("LIMIT 0" not in case.tail)
    assert_equal(world.found(name), wanted)


def refuse(world: World, sql: str) -> None:
    from pyspark.errors import PySparkException

    if sql not in JUDGED:
        with pytest.raises(PySparkException):
            world.judged(sql)
        JUDGED[sql] = []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cause is not None])
def test_what_sparks_batch_refuses_fails_with_a_sentence(world: World, name: str) -> None:
    case = CASES[name]
    if query(name) not in world.run.status["queries"]:
        assert case.absorbing
        return
    refuse(world, PER_WINDOW.format(case.select))
    state = world.run.status["queries"][query(name)]
    assert state["state"] == "failed"
    assert re.search(case.cause or "", state["cause"]), state["cause"]
    assert "\n" not in state["cause"]
    # Windows before the one that does not fit were answered, and right.
    right = f"(SELECT * FROM windows WHERE window_end <= timestamp_seconds({START // 20_000_000 * 20 + 80}))"
    if "huge)" in case.select or "(over)" in case.select:
        shown = world.judged(PER_WINDOW.format(case.select).replace("windows", right))
        found = world.found(name)
        assert all(any(all(map(same, mine, yours)) for yours in shown) for mine in found)


@pytest.mark.parametrize("name", ROWS)
def test_row_windows_equal_sparks_batch(world: World, name: str) -> None:
    select, cause = ROWS[name]
    judge = PER_ROW.format(re.sub(r"\b(w|l|y|over|huge)\b(?=[), ])", r"b.\1", select))
    state = world.run.status["queries"][query(name)]
    if cause is None:
        assert state["cause"] is None
        assert_equal(world.found(name), world.judged(judge))
    else:
        assert re.search(cause, state["cause"]), state["cause"]
        refuse(world, judge)


def test_all_files_of_a_query_have_one_schema_in_which_everything_may_be_null(world: World) -> None:
    seen = 0
    for folder in {path.parent for path in world.home.rglob("epoch-*.parquet")}:
        schemas = {str(pq.read_schema(file).remove_metadata()) for file in folder.glob("*.parquet")}
        assert len(schemas) == 1
        assert "not null" not in schemas.pop()
        seen += 1
    assert seen > len(CASES) / 2
