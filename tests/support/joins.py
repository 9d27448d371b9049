"""Two random streams as files, one file of each per epoch, and DuckDB as the judge of what a join of them says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from world import SECOND, START, admit, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.model import JoinWay
from headrace.policies import JoinStats

SCHEMA = "ts TIMESTAMP, k INT, s STRING, x DOUBLE, n BIGINT"
ARROW = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("k", pa.int32()), ("s", pa.string()), ("x", pa.float64()), ("n", pa.int64())]
)
LATENESS_S = {"l": 7, "r": 3}
# What is selected in Spark's words and in DuckDB's, the condition in both, and by whom pairs are finished.
PREDICATES = {
    "equal": ("l.n, r.n AS m", "l.n, r.n", "l.k = r.k", "l.k = r.k"),
    "two keys": ("l.n, r.n AS m, l.s", "l.n, r.n, l.s", "l.k = r.k AND l.s = r.s", "l.k = r.k AND l.s = r.s"),
    "equal and less": ("l.n, r.n AS m", "l.n, r.n", "l.k = r.k AND l.x < r.x", "l.k = r.k AND l.x < r.x"),
    "floats": ("l.n, r.n AS m", "l.n, r.n", "l.x = r.x", "l.x = r.x"),
    "mixed types": ("l.n, r.n AS m", "l.n, r.n", "l.k = r.n % 7", "l.k = r.n % 7"),
    "band": (
        "l.n, r.n AS m",
        "l.n, r.n",
        "l.x BETWEEN r.x - 1.5 AND r.x + 1.5",
        "l.x >= r.x - 1.5 AND l.x <= r.x + 1.5",
    ),
    "one sided": ("l.n, r.n AS m", "l.n, r.n", "l.k < r.k", "l.k < r.k"),
    "expression": (
        "l.n + r.n AS t, upper(l.s) AS u",
        "l.n + r.n, upper(l.s)",
        "(l.k + r.k) % 3 = 1 AND l.s <> r.s",
        "(l.k + r.k) % 3 = 1 AND l.s <> r.s",
    ),
    "equal and expression": (
        "l.n, r.n AS m",
        "l.n, r.n",
        "l.k = r.k AND (l.n + r.n) % 2 = 0",
        "l.k = r.k AND (l.n + r.n) % 2 = 0",
    ),
    "true": ("l.n, r.n AS m", "l.n, r.n", "TRUE", "TRUE"),
}
RANGES = [(4, 9), (6, 0), (3, 3)]


def sql(select: str, on: str, ranges: tuple[float, float], how: str = "") -> str:
    return f"SELECT {select} FROM l [RANGE {ranges[0]} s] {how} JOIN r [RANGE {ranges[1]} s] ON {on}"


def make_side(
    rng: np.random.Generator, epochs: int, rows: int, step_s: float, keys: int, hot: float = 0.0
) -> list[pa.Table]:
    """Rows in disorder, some late, with nulls, NaN and -0.0 among the values, and a key that has a share of its own."""
    tables, now, serial = [], START, 0
    for epoch in range(epochs):
        n = int(rng.integers(0, rows + 1))
        ts = now + rng.integers(0, int(step_s * SECOND), n)
        ts -= np.where(rng.random(n) < 0.3, rng.integers(0, 10 * SECOND, n), 0)
        # Whole seconds are common, so that rows lie exactly on the edges of windows.
        ts = np.where(rng.random(n) < 0.5, ts // SECOND * SECOND, ts)
        k = np.where(rng.random(n) < hot, 0, rng.integers(0, keys, n))
        specials = [float("nan"), -0.0, 0.0, float("inf"), 1.5, -2.5]
        x = [specials[rng.integers(0, 6)] if rng.random() < 0.3 else float(rng.integers(-20, 20)) for _ in range(n)]
        tables.append(
            pa.Table.from_pydict(
                {
                    "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                    "k": [None if rng.random() < 0.05 else int(v) for v in k],
                    "s": [None if rng.random() < 0.05 else f"w{rng.integers(0, 4)}" for _ in range(n)],
                    "x": [None if rng.random() < 0.05 else v for v in x],
                    "n": list(range(serial, serial + n)),
                },
                schema=ARROW,
            )
        )
        serial += n
        # Every so often nothing happens for longer than a window.
        now += int(step_s * SECOND) + (40 * SECOND if epoch % 5 == 4 else 0)
    return tables


def judged(
    left: Sequence[pa.Table], right: Sequence[pa.Table], select: str, on: str, ranges_s: tuple[float, float], how: str
) -> list[tuple[Any, ...]]:
    """The join of the admitted rows, by DuckDB; `ranges_s` are those of the left and of the right side."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, tables in (("l", left), ("r", right)):
        connection.register(f"{name}_rows", admit(tables, LATENESS_S[name]).rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")
    w_left, w_right = (int(s * SECOND) for s in ranges_s)
    within = f"((r.t BETWEEN l.t - {w_right} AND l.t) OR (l.t BETWEEN r.t - {w_left} AND r.t))"
    return connection.execute(f"SELECT {select} FROM l {how} JOIN r ON ({on}) AND {within}").fetchall()


def near(a: str, b: str, a_s: int, b_s: int) -> str:
    """The window condition of two rows, in DuckDB's words."""
    return f"{b}.t - {a}.t BETWEEN {-b_s * SECOND} AND {a_s * SECOND}"


def windows(rows: str, select: str, group_by: str, size_s: int, slide_s: int, having: str = "true") -> str:
    """The SELECT over all windows that hold rows, which have a time `t`; `z` is a window's end."""
    size, slide = size_s * SECOND, slide_s * SECOND
    return f"""
        WITH rows AS ({rows}), w AS (
            SELECT e - {size} AS a, e AS z FROM (SELECT min(t) AS f, max(t) AS g FROM rows),
            range(f // {slide} * {slide} + {slide}, g + {size} + 1, {slide}) x(e))
        SELECT {select} FROM w JOIN rows ON rows.t >= w.a AND rows.t < w.z
        GROUP BY w.a, w.z{", " if group_by else ""}{group_by} HAVING {having}
    """


def database(left: Any, right: Any) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, tables in (("l", left), ("r", right)):
        connection.register(f"{name}_rows", admit(tables, LATENESS_S[name]).rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")
    return connection


def pipeline(spark: Any, home: Path, queries: dict[str, str]) -> hr.Pipeline:
    pipe = hr.Pipeline("joins")
    for name in ("l", "r"):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness=f"{LATENESS_S[name]} seconds")
    for name, sql in queries.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / name)))
    return pipe


def play(
    spark: Any,
    home: Path,
    left: Sequence[pa.Table],
    right: Sequence[pa.Table],
    queries: dict[str, str],
    restart: int | None = None,
    flush: bool = False,
    hooks: Hooks | None = None,
    **settings: Any,
) -> dict[str, list[tuple[Any, ...]]]:
    """Runs joins over the epochs, stopping and starting again after `restart` of them."""
    cuts = [len(left)] if restart is None else [restart, len(left)]
    first = 0
    for cut in cuts:
        write_epochs(home / "l", left[first:cut], first)
        write_epochs(home / "r", right[first:cut], first)
        last = cut == len(left)
        run = pipeline(spark, home, queries).start(
            spark, str(home / "state"), once=True, flush=flush and last, hooks=hooks or Hooks(), **settings
        )
        run.await_termination()
        first = cut
    return {name: results(home / name) for name in queries}


def by_chance(rng: random.Random):  # type: ignore[no-untyped-def]
    """A policy that knows nothing: any way, any roles, any hot keys, any host for any slice, all at random."""

    def choose(stats: JoinStats, wanted: str = "auto", before: JoinWay | None = None, slices: int = 4) -> JoinWay:
        ways = ["split left", "split right", "biclique"]
        ways += ["hash", "hybrid left", "hybrid right"] if stats.equality else []
        way, _, split = rng.choice(ways).partition(" ")
        heavy = sorted({*stats.left.heavy, *stats.right.heavy})
        hot = tuple(key for key in heavy if rng.random() < 0.5) if way == "hybrid" else ()
        hosts = tuple(rng.randrange(len(stats.speeds)) for _ in range(slices))
        return JoinWay(way, split or None, hot, hosts, "by chance")

    return choose
