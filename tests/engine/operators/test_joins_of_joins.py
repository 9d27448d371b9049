"""Self-joins, joins of three streams, and aggregates over joins, judged by DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest
from joins import LATENESS_S, judged, make_side, play
from world import SECOND, admit, assert_same


def near(a: str, b: str, a_s: int, b_s: int) -> str:
    """The window condition of two rows, in DuckDB's words."""
    return f"{b}.t - {a}.t BETWEEN {-b_s * SECOND} AND {a_s * SECOND}"


def database(left: Any, right: Any) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, tables in (("l", left), ("r", right)):
        connection.register(f"{name}_rows", admit(tables, LATENESS_S[name]).rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")
    return connection


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, dict[str, list[tuple[Any, ...]]]]:
    rng = np.random.default_rng(21)
    left, right = make_side(rng, 8, 30, 3, 6, hot=0.3), make_side(rng, 8, 30, 3, 6)
    queries = {
        "self": "SELECT a.n, b.n AS m FROM l AS a [RANGE 2 s] JOIN l AS b [RANGE 5 s] ON a.k = b.k AND a.n < b.n",
        "three": "SELECT a.n, b.n AS m, c.n AS o FROM l AS a [RANGE 5 s] JOIN r AS b [RANGE 3 s] ON a.k = b.k "
        "JOIN l AS c [RANGE 4 s] ON c.s = b.s",
        "three_left": "SELECT a.n, b.n AS m, c.n AS o FROM l AS a [RANGE 5 s] JOIN r AS b [RANGE 3 s] ON a.k = b.k "
        "LEFT JOIN l AS c [RANGE 4 s] ON c.s = b.s AND c.n % 3 = 0",
        "left_left": "SELECT a.n, b.n AS m, c.n AS o FROM l AS a [RANGE 8 s] LEFT JOIN r AS b [RANGE 1 s] ON a.k = b.k "
        "AND a.n % 2 = 0 LEFT JOIN l AS c [RANGE 4 s] ON c.s = a.s AND c.n % 3 = 0",
        "counted": "SELECT k, COUNT(*) AS n, SUM(m) AS t FROM (SELECT l.k, r.n AS m FROM l [RANGE 4 s] "
        "JOIN r [RANGE 6 s] ON l.k = r.k) AS j [WINDOW 10 s SLIDE 5 s] GROUP BY k",
        "dated": "SELECT r.s, COUNT(DISTINCT l.n) AS n FROM l [RANGE 4 s] JOIN r [RANGE 6 s] ON l.k = r.k "
        "GROUP BY window(r.ts, '10 seconds'), r.s",
        "unmatched": "SELECT COUNT(*) AS n, COUNT(m) AS met FROM (SELECT l.n AS n, r.n AS m FROM l [RANGE 4 s] "
        "LEFT JOIN r [RANGE 2 s] ON l.k = r.k) AS j [WINDOW 10 s] GROUP BY n % 2",
    }
    home = tmp_path_factory.mktemp("joins")
    return left, right, play(spark, home, left, right, queries, restart=4, flush=True)


def test_a_stream_joined_with_itself(played: Any) -> None:
    left, right, found = played
    sql = f"SELECT a.n, b.n FROM l a JOIN l b ON a.k = b.k AND a.n < b.n AND {near('a', 'b', 2, 5)}"
    wanted = database(left, right).execute(sql).fetchall()
    assert wanted
    assert_same(found["self"], wanted)


TRIPLES = f"""
    FROM (SELECT a.n AS an, b.n AS bn, b.s, a.t AS at, b.t AS bt, greatest(a.t, b.t) AS t
          FROM l a JOIN r b ON a.k = b.k AND {near("a", "b", 5, 3)}) p
    %s JOIN l c ON c.s = p.s AND {near("p", "c", 3, 4)}
        AND c.t - p.at <= {5 * SECOND} AND c.t - p.bt <= {3 * SECOND} %s
"""


def test_three_streams(played: Any) -> None:
    left, right, found = played
    wanted = database(left, right).execute("SELECT an, bn, c.n" + TRIPLES % ("", "")).fetchall()
    assert wanted
    assert_same(found["three"], wanted)


def test_an_outer_join_over_a_join(played: Any) -> None:
    left, right, found = played
    wanted = database(left, right).execute("SELECT an, bn, c.n" + TRIPLES % ("LEFT", "AND c.n % 3 = 0")).fetchall()
    assert any(row[2] is None for row in wanted)
    assert_same(found["three_left"], wanted)


def test_a_row_without_a_match_meets_others_within_its_own_range(played: Any) -> None:
    left, right, found = played
    sql = f"""
        SELECT p.an, p.bn, c.n
        FROM (SELECT a.n AS an, b.n AS bn, a.s, a.t AS at, b.t AS bt, greatest(a.t, coalesce(b.t, a.t)) AS t
              FROM l a LEFT JOIN r b ON a.k = b.k AND a.n % 2 = 0 AND {near("a", "b", 8, 1)}) p
        LEFT JOIN l c ON c.s = p.s AND c.n % 3 = 0 AND {near("p", "c", 8, 4)}
            AND c.t - p.at <= {8 * SECOND} AND coalesce(c.t - p.bt <= {1 * SECOND}, true)
    """
    wanted = database(left, right).execute(sql).fetchall()
    assert any(row[1] is None and row[2] is not None for row in wanted)
    assert_same(found["left_left"], wanted)


def windows(pairs: str, select: str, group_by: str, size_s: int, slide_s: int) -> str:
    """The SELECT over all windows that hold pairs, which have a time `t`."""
    size, slide = size_s * SECOND, slide_s * SECOND
    return f"""
        WITH pairs AS ({pairs}), w AS (
            SELECT e - {size} AS a, e AS z FROM (SELECT min(t) AS f, max(t) AS g FROM pairs),
            range(f // {slide} * {slide} + {slide}, g + {size} + 1, {slide}) x(e))
        SELECT make_timestamptz(w.a), make_timestamptz(w.z), {select}
        FROM w JOIN pairs ON pairs.t >= w.a AND pairs.t < w.z GROUP BY w.a, w.z, {group_by}
    """


def test_an_aggregate_over_a_join_is_dated_by_the_later_row(played: Any) -> None:
    left, right, found = played
    pairs = f"SELECT l.k, r.n AS m, greatest(l.t, r.t) AS t FROM l JOIN r ON l.k = r.k AND {near('l', 'r', 4, 6)}"
    wanted = database(left, right).execute(windows(pairs, "k, count(*), sum(m)::bigint", "k", 10, 5)).fetchall()
    assert_same(found["counted"], wanted)


def test_an_aggregate_over_a_join_can_be_dated_by_one_side(played: Any) -> None:
    left, right, found = played
    pairs = f"SELECT r.s, l.n, r.t FROM l JOIN r ON l.k = r.k AND {near('l', 'r', 4, 6)}"
    wanted = database(left, right).execute(windows(pairs, "s, count(DISTINCT n)", "s", 10, 10)).fetchall()
    assert_same(found["dated"], wanted)


def test_an_aggregate_over_an_outer_join(played: Any) -> None:
    left, right, found = played
    pairs = f"""SELECT l.n, r.n AS m, coalesce(greatest(l.t, r.t), l.t) AS t
                FROM l LEFT JOIN r ON l.k = r.k AND {near("l", "r", 4, 2)}"""
    wanted = database(left, right).execute(windows(pairs, "count(*), count(m)", "n % 2", 10, 10)).fetchall()
    assert_same(found["unmatched"], wanted)


def test_the_judge_of_two_streams_agrees(played: Any) -> None:
    """The helper of the other tests and this file's condition say the same."""
    left, right, _ = played
    sql = f"SELECT l.n, r.n FROM l JOIN r ON l.k = r.k AND {near('l', 'r', 4, 6)}"
    assert_same(database(left, right).execute(sql).fetchall(), judged(left, right, "l.n, r.n", "l.k = r.k", (4, 6), ""))
