"""Rows looked up in tables, judged by DuckDB: every epoch in the snapshot that its decision names, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lookups import database, found, hooks, make_hosts, pipeline, write_hosts, write_zones
from world import assert_same, make_epochs, unique_times, write_epochs

import headrace as hr
from headrace.errors import EngineError, SpecError

EPOCHS = 4
JOIN = "FROM r JOIN hosts AS h ON r.k = h.k"
# By query its SQL, and DuckDB's: there a row meets the rows of hosts that its own epoch has seen.
QUERIES = {
    "inner": (f"SELECT r.k, r.i, h.zone, h.note {JOIN} WHERE r.i > 0 AND (h.zone <> 2 OR r.b)",
              "SELECT r.k, r.i, h.zone, h.note FROM r JOIN hosts h ON r.k = h.k AND r.e = h.e "
              "WHERE r.i > 0 AND (h.zone <> 2 OR r.b)"),
    "left": ("SELECT r.ts, r.i, h.note FROM r LEFT JOIN hosts AS h ON r.g = h.zone AND r.i > h.least",
             "SELECT r.ts, r.i, h.note FROM r LEFT JOIN hosts h ON r.g = h.zone AND r.i > h.least AND r.e = h.e"),
    "semi": ("SELECT r.ts, r.k FROM r LEFT SEMI JOIN hosts AS h ON r.k = h.k",
             "SELECT r.ts, r.k FROM r SEMI JOIN hosts h ON r.k = h.k AND r.e = h.e"),
    "anti": ("SELECT k, i FROM r LEFT ANTI JOIN hosts AS h ON r.k = h.k AND h.zone > 1 WHERE i < 500",
             "SELECT k, i FROM r ANTI JOIN hosts h ON r.k = h.k AND h.zone > 1 AND r.e = h.e WHERE i < 500"),
    "chain": ("SELECT r.i, h.note, z.title FROM r JOIN hosts AS h USING (k) "
              "LEFT JOIN zones AS z ON z.zone = CAST(h.zone AS STRING) AND r.i > 0",
              "SELECT r.i, h.note, z.title FROM r JOIN hosts h ON r.k = h.k AND r.e = h.e "
              "LEFT JOIN zones z ON z.zone = CAST(h.zone AS VARCHAR) AND r.i > 0"),
    "filtered": ("SELECT u.i, d.twice FROM (SELECT k, i FROM r WHERE b UNION ALL SELECT k, i FROM r2) AS u "
                 "JOIN (SELECT k AS name, zone * 2 AS twice FROM hosts WHERE zone > 0) AS d ON u.k = d.name",
                 "SELECT u.i, h.zone * 2 FROM (SELECT k, i, e FROM r WHERE b UNION ALL SELECT k, i, e FROM r2) u "
                 "JOIN hosts h ON u.k = h.k AND h.zone > 0 AND u.e = h.e"),
    "counted": ("SELECT h.zone, COUNT(*) AS n, SUM(r.i) AS s FROM r LEFT JOIN hosts AS h ON r.k = h.k "
                "GROUP BY window(r.ts, '30 seconds'), h.zone",
                "SELECT make_timestamptz(t // 30000000 * 30000000), "
                "make_timestamptz(t // 30000000 * 30000000 + 30000000), h.zone, count(*), sum(r.i)::bigint "
                "FROM r LEFT JOIN hosts h ON r.k = h.k AND r.e = h.e GROUP BY ALL"),
    "last": ("SELECT r.ts, r.k, h.note, SUM(h.least) AS s FROM r [PARTITION BY zone ROWS 3] "
             "JOIN (SELECT k, z AS zone, note, least FROM (SELECT k, zone AS z, note, least FROM hosts) AS x) AS h "
             "ON r.k = h.k AND r.i % 14 = CAST(split(h.note, ' ')[1] AS INT)",
             "SELECT r.ts, r.k, h.note, sum(h.least) OVER (PARTITION BY h.zone ORDER BY r.t "
             "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)::bigint FROM r JOIN hosts h ON r.k = h.k AND r.e = h.e "
             "AND r.i % 14 = CAST(split(h.note, ' ')[2] AS INT)"),
    "before_a_join": ("SELECT a.i, b.i AS j, h.note FROM r AS a [RANGE 3 s] JOIN hosts AS h ON a.k = h.k "
                      "JOIN r2 AS b [RANGE 2 s] ON b.k = a.k AND b.g = h.zone",
                      "SELECT a.i, b.i, h.note FROM r a JOIN hosts h ON a.k = h.k AND a.e = h.e "
                      "JOIN r2 b ON b.k = a.k AND b.g = h.zone AND b.t - a.t BETWEEN -2000000 AND 3000000"),
    "after_a_join": ("SELECT a.i, b.i AS j, h.note FROM r AS a [RANGE 3 s] JOIN r2 AS b [RANGE 2 s] ON b.k = a.k "
                     "LEFT JOIN hosts AS h ON b.g = h.zone AND a.k = h.k",
                     "SELECT a.i, b.i, h.note FROM r a JOIN r2 b ON b.k = a.k "
                     "AND b.t - a.t BETWEEN -2000000 AND 3000000 "
                     "LEFT JOIN hosts h ON b.g = h.zone AND a.k = h.k AND greatest(a.e, b.e) = h.e"),
    "after_windows": ("SELECT m.g, m.n, z.title FROM (SELECT g, COUNT(*) AS n FROM r "
                      "GROUP BY window(ts, '30 seconds'), g) AS m LEFT JOIN zones AS z ON CAST(m.g AS STRING) = z.zone",
                      "SELECT m.g, m.n, z.title FROM (SELECT g, count(*) AS n FROM r GROUP BY t // 30000000, g) m "
                      "LEFT JOIN zones z ON CAST(m.g AS VARCHAR) = z.zone"),
}  # fmt: skip


def test_lookups_equal_duckdb_across_refreshes_and_a_restart(spark: Any, tmp_path: Path) -> None:
    one, two = unique_times(make_epochs(seed=41, epochs=EPOCHS, rows=100)), make_epochs(seed=42, epochs=EPOCHS, rows=60)
    versions = [make_hosts(seed) for seed in range(EPOCHS)]
    write_zones(tmp_path)
    seen: list[Any] = []

    def changing(epoch: int) -> None:
        write_hosts(tmp_path, versions[min(epoch + 1, EPOCHS - 1)])

    # Read in epochs 0 and 2, and not again because of the restart after epoch 2.
    changing(-1)
    for first, last in ((0, 3), (3, EPOCHS)):
        write_epochs(tmp_path / "r", one[first:last], first)
        write_epochs(tmp_path / "r2", two[first:last], first)
        pipe = pipeline(spark, tmp_path, {name: sql for name, (sql, _) in QUERIES.items()})
        told = hooks(changing, on_decision=seen.append)
        pipe.start(spark, str(tmp_path / "state"), once=True, flush=last == EPOCHS, hooks=told).await_termination()
    connection = database(one, two, [versions[epoch // 2 * 2] for epoch in range(EPOCHS)])
    for name, (_, judge) in QUERIES.items():
        wanted = connection.execute(judge).fetchall()
        assert len(wanted) >= 5, name
        try:
            assert_same(found(tmp_path, name), wanted)
        except AssertionError as other:
            raise AssertionError(f"{name}: {other}") from other
    hosts = [decision.tables["hosts"] for decision in seen]
    assert [each.folder[:9] for each in hosts[:EPOCHS]] == [f"{n:09d}" for n in (0, 0, 2, 2)]
    assert hosts[2].reason == "refresh every 1 h"
    assert [decision.tables["zones"].folder[:9] for decision in seen[:EPOCHS]] == ["000000000"] * 3 + ["000000003"]
    for name, snapshot in seen[-1].tables.items():
        kept = [path.name for path in (tmp_path / "state" / "tables" / name).iterdir()]
        assert kept == [snapshot.folder], "older snapshots are gone"


@pytest.mark.parametrize("point", ["after-snapshots", "before-manifest"])
def test_a_replay_looks_up_in_what_the_epoch_had(point: str, spark: Any, tmp_path: Path) -> None:
    """The driver dies in an epoch that refreshes; by the next start the table holds something else."""
    one, two = make_epochs(seed=43, epochs=3, rows=80), make_epochs(seed=44, epochs=3, rows=20)
    versions = [make_hosts(seed) for seed in range(3)]
    queries, begun = {name: QUERIES[name][0] for name in ("inner", "counted")}, list[int]()
    write_zones(tmp_path)
    write_epochs(tmp_path / "r", one[:2])
    write_epochs(tmp_path / "r2", two[:2])
    write_hosts(tmp_path, versions[0])

    def strike(where: str) -> None:
        if where == point and begun[-1] == 1:
            raise RuntimeError("as if the driver had been killed")

    def changing(epoch: int) -> None:
        begun.append(epoch + 1)
        write_hosts(tmp_path, versions[epoch + 1])

    # Every epoch reads the table.
    pipe = pipeline(spark, tmp_path, queries, refresh="30 min")
    run = pipe.start(spark, str(tmp_path / "state"), once=True, hooks=hooks(changing, probe=strike))
    with pytest.raises(hr.HeadraceError, match="as if the driver had been killed"):
        run.await_termination()
    write_hosts(tmp_path, versions[2])
    write_epochs(tmp_path / "r", one[2:], 2)
    write_epochs(tmp_path / "r2", two[2:], 2)
    pipe = pipeline(spark, tmp_path, queries, refresh="30 min")
    pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=hooks()).await_termination()
    # What was read and not decided on is as if it had not been read.
    second = versions[2 if point == "after-snapshots" else 1]
    connection = database(one, two, [versions[0], second, versions[2]])
    for name in queries:
        assert_same(found(tmp_path, name), connection.execute(QUERIES[name][1]).fetchall())
    assert len(list((tmp_path / "state" / "tables" / "hosts").iterdir())) == 1


def test_a_table_that_is_gone_is_kept_or_stops_the_run(spark: Any, tmp_path: Path) -> None:
    one, two = make_epochs(seed=45, epochs=3, rows=60), make_epochs(seed=46, epochs=3, rows=20)
    first, last = make_hosts(1), make_hosts(2)
    queries, told = {"inner": QUERIES["inner"][0]}, list[str]()
    write_zones(tmp_path)
    write_epochs(tmp_path / "r", one[:2])
    write_epochs(tmp_path / "r2", two[:2])

    def start(on_error: str, changing: Any = lambda epoch: None) -> Any:
        pipe = pipeline(spark, tmp_path, queries, on_error=on_error, refresh="30 min")
        run = pipe.start(spark, str(tmp_path / "state"), once=True, hooks=hooks(changing, on_note=told.append))
        run.await_termination()
        return run

    def going(epoch: int) -> None:
        if epoch == 0:
            (tmp_path / "hosts" / "all.parquet").unlink()
            (tmp_path / "hosts").rmdir()

    with pytest.raises(SpecError, match=r"table 'hosts' cannot be read: .*does not exist"):
        start("keep")
    write_hosts(tmp_path, first)
    shown = start("keep", going).status["tables"]["hosts"]
    assert [note for note in told if "table 'hosts'" in note and "goes on with what was read of it before" in note]
    assert shown["reason"].startswith("kept: table 'hosts' cannot be read")
    assert (shown["rows"], shown["tried_us"] > shown["read_us"]) == (first.num_rows, True)
    write_epochs(tmp_path / "r", one[2:], 2)
    write_epochs(tmp_path / "r2", two[2:], 2)
    with pytest.raises(EngineError, match=r"the run stopped: table 'hosts' cannot be read"):
        start("stop")
    write_hosts(tmp_path, last)
    start("stop")
    connection = database(one, two, [first, first, last])
    assert_same(found(tmp_path, "inner"), connection.execute(QUERIES["inner"][1]).fetchall())
