"""Overload on real Spark: rows are shed as decided, counted to the row, and results say what they lack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from overload import BURST, KEYS, OTHERS, ROW_S, SETTINGS, Seen, kept_rows, run, tables
from world import SECOND, START, results, write_epochs

from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import open_storage

SUPPORT = Path(__file__).parents[2] / "support"


def truth(rows: pa.Table, select: str, group_by: str = "") -> dict[Any, Any]:
    """By window end (and key) a SELECT over all rows of the window."""
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("given", rows)
    db.execute("CREATE TABLE r AS SELECT *, epoch_us(ts) AS t FROM given")
    ends = f"range({START}, {START + 20 * SECOND}, {2 * SECOND})"
    key = f", {group_by}" if group_by else ""
    found = db.execute(
        f"SELECT make_timestamptz(e) AS z{key}, {select} FROM r, {ends} w(e) "
        f"WHERE t >= e - {4 * SECOND} AND t < e GROUP BY e{key}"
    ).fetchall()
    return {row[: 1 + bool(group_by)]: row[-1] for row in found}


def test_a_burst_is_shed_counted_to_the_row_and_told_in_every_result(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, shedding="fit")
    rows, last = pa.concat_tables(made), seen.manifests[max(seen.manifests)]
    assert seen.shed_epochs == [4, 5], "the epochs of the burst, and no other"
    entry = last.ledger["s"]
    assert entry.rows_in == rows.num_rows == entry.used + entry.shed
    assert 0 < entry.shed < 2 * BURST
    for account in last.edges.values():
        assert account.rows == 2 * BURST
    decided = seen.decisions[4].shedding
    assert decided is not None
    used = sum(part * BURST * ROW_S for part in decided.keep.values()) + (3 - len(decided.keep)) * BURST * ROW_S
    assert used == pytest.approx(0.8, rel=0.1)
    assert any(note.startswith("rows are shed:") for note in seen.notes)
    counts = truth(rows, "COUNT(*)")
    for _, end, n, _, kept in results(tmp_path / "total"):
        if (end,) in counts:
            assert kept == pytest.approx(n / counts[(end,)])
    shed = {end: kept for _, end, _, _, kept in results(tmp_path / "total")}
    assert min(shed.values()) < 0.9
    by_key = results(tmp_path / "by_key")
    sums: dict[Any, int] = {}
    for _, end, _, n, _ in by_key:
        sums[end] = sums.get(end, 0) + n
    for _, end, _, _, kept in by_key:
        assert kept == pytest.approx(sums[end] / counts[(end,)])
    finished = results(tmp_path / "finished")
    assert finished
    assert all(0 < kept <= 1 for *_, kept in finished)
    first = min(shed)
    assert shed[first] == 1.0


def test_a_query_with_never_loses_nothing_while_the_others_do(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, never=("by_key",), shedding="central", objective="fair")
    assert seen.shed_epochs == [4, 5]
    wanted = truth(pa.concat_tables(made), "COUNT(*)", "k")
    found = {(end, key): n for _, end, key, n in results(tmp_path / "by_key")}
    assert found == wanted
    assert min(kept for *_, kept in results(tmp_path / "total")) < 1


@pytest.mark.parametrize(
    ("objective", "weights", "shares"),
    [
        pytest.param("throughput", {"by_key": 4.0}, (0.0, 0.68, 0.0), id="throughput serves the heaviest query first"),
        pytest.param("fair", {}, (0.23, 0.23, 0.23), id="fairness gives all the same share"),
        pytest.param("fair", {"by_key": 2.0}, (0.17, 0.34, 0.17), id="a weight of two gives twice the share"),
    ],
)
def test_three_queries_that_want_the_same_time_get_what_the_objective_says(
    spark: Any, tmp_path: Path, objective: str, weights: dict[str, float], shares: tuple[float, ...]
):
    """Of the rows of the burst, time is left for 8200 rows of all queries together."""
    seen = Seen()
    write_epochs(tmp_path / "in", tables()[:5])
    run(spark, tmp_path, seen, weights=weights, flush=False, shedding="fit", objective=objective)
    assert seen.shed_epochs == [4]
    accounts = seen.manifests[4].shedding.queries
    kept = tuple(1 - accounts[name].shed / BURST for name in ("total", "by_key", "finished"))
    # How many rows come is told from the bytes of their files.
    assert kept == pytest.approx(shares, rel=0.1, abs=0.01)


def test_scaled_sums_counts_and_averages_are_near_the_truth_and_say_how_near(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, scaled=True, shedding="fit", objective="fair")
    assert seen.shed_epochs == [4, 5]
    rows, found = pa.concat_tables(made), results(tmp_path / "scaled")
    wanted = {name: truth(rows, sql, "k") for name, sql in (("v", "SUM(x)"), ("n", "COUNT(*)"), ("m", "AVG(x)"))}
    off, exact = [], 0
    for _, end, key, v, n, m, half, kept, *errors in found:
        assert half == pytest.approx(v / 2)
        for name, value, error in zip(("v", "n", "m"), (v, n, m), errors, strict=True):
            if kept == 1.0:
                assert (value, error) == (pytest.approx(wanted[name][end, key]), 0.0)
                exact += 1
            else:
                assert error > 0
                off.append(abs(value - wanted[name][end, key]) / error)
    assert exact
    assert len(off) > 50
    assert sum(each < 3 for each in off) >= 0.95 * len(off), sorted(off)[-10:]


def test_rare_keys_are_kept_whole_where_the_query_protects_them(spark: Any, tmp_path: Path):
    made, seen = [_skewed(table) for table in tables()], Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen, protect="k", shedding="fit", objective="fair")
    assert seen.shed_epochs == [4, 5]
    assert all(parts for parts in seen.decisions[4].admissions["s"].buckets.values())
    wanted = truth(pa.concat_tables(made), "COUNT(*)", "k")
    found = {(end, key): n for _, end, key, n, _ in results(tmp_path / "by_key")}
    rare = [at for at in wanted if at[1] != "hot"]
    whole = sum(found.get(at) == wanted[at] for at in rare)
    assert whole >= 0.9 * len(rare), "but for those that share a bucket with the frequent key"
    last = seen.manifests[max(seen.manifests)]
    assert last.shedding.queries["by_key"].shed > 0.2 * 2 * BURST, "the frequent key pays"
    entry = last.ledger["s"]
    assert entry.rows_in == sum(table.num_rows for table in made) == entry.used + entry.shed


def _skewed(table: pa.Table) -> pa.Table:
    """The table with 3 % of its rows under thirty rare keys."""
    keys = [f"rare{n % 997 % 30}" if n % 33 == 0 else "hot" for n in table["seq"].to_pylist()]
    return table.set_column(1, "k", pa.array(keys))


def test_where_shedding_is_off_nothing_is_lost_and_a_note_says_what_would_have_been(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made)
    run(spark, tmp_path, seen)
    last = seen.manifests[max(seen.manifests)]
    assert seen.shed_epochs == []
    assert last.ledger["s"].shed == 0
    assert any(note.startswith("the lag grows:") and "would be kept" in note for note in seen.notes)
    decided = seen.decisions[4].shedding
    assert decided is not None
    assert decided.waiting_s == pytest.approx(3 * BURST * ROW_S, rel=0.1)
    assert len(results(tmp_path / "total")[0]) == 4, "without shedding there is no column of what was kept"


# The first weighs more and needs less than the second, which needs the same panes and more.
PARTED = {
    "sums": "SELECT upper(k) AS k, COUNT(*) AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY upper(k)",
    "values": "SELECT upper(k) AS k, COUNT(DISTINCT seq) AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY upper(k)",
}


def test_a_heavy_query_has_panes_of_its_own_and_keeps_them_when_weights_are_edited(spark: Any, tmp_path: Path):
    made, seen = tables(), Seen()
    write_epochs(tmp_path / "in", made[:5])
    run(spark, tmp_path, seen, queries=PARTED, weights={"sums": 9.0}, flush=False, **SETTINGS)
    write_epochs(tmp_path / "in", made[5:], 5)
    run(spark, tmp_path, seen, queries=PARTED, weights={"sums": 1.0}, **SETTINGS)
    before, after = (seen.decisions[epoch].shedding for epoch in (4, 5))
    assert before is not None
    assert after is not None
    assert before.kept["sums"] > 4 * before.kept["values"] > 0
    assert after.kept["sums"] == pytest.approx(after.kept["values"], rel=0.1)
    assert before.keep.keys() == after.keep.keys()
    (heavy,) = [edge for edge, part in before.keep.items() if part == before.kept["sums"]]
    light = next(edge for edge in before.keep if edge != heavy)
    for name, edge, select in (("sums", heavy, "COUNT(*)"), ("values", light, "COUNT(DISTINCT seq)")):
        wanted = truth(kept_rows(spark, made, seen.decisions, edge), select, "upper(k)")
        assert {(end, key): n for _, end, key, n, _ in results(tmp_path / name)} == wanted


def test_after_a_kill_and_an_edit_of_weights_the_same_rows_are_shed(spark: Any, tmp_path: Path):
    made, others, seen = tables(), tables((OTHERS,) * 8), Seen()
    write_epochs(tmp_path / "in", made)
    write_epochs(tmp_path / "others", others)
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, str(SUPPORT / "overload.py"), str(tmp_path), "mid-state", "4", json.dumps({"total": 9})]
    with (tmp_path / "log.txt").open("ab") as log:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        died = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=400, check=False)
    assert died.returncode == -signal.SIGKILL, (tmp_path / "log.txt").read_text()[-3000:]
    before = Checkpoint(open_storage(f"{tmp_path}/state", spark)).decision(4)
    assert before is not None
    assert before.shedding is not None
    assert before.shedding.sheds, "it died while rows were being shed"
    assert before.shedding.kept["total"] > before.shedding.kept["pairs"] > before.shedding.kept["by_key"]
    run(spark, tmp_path, seen, weights={"by_key": 9.0}, joined=True, **SETTINGS)
    assert seen.decisions[4] == before
    after = seen.decisions[5].shedding
    assert after is not None
    assert after.kept["by_key"] > after.kept["total"], "the edit counts from the next decision on"
    point = Checkpoint(open_storage(f"{tmp_path}/state", spark))
    decisions = {epoch: point.decision(epoch) for epoch in range(len(made))}
    last = seen.manifests[max(seen.manifests)]
    streams = {"s": made, "r": others}
    for name, epochs in streams.items():
        entry = last.ledger[name]
        assert entry.rows_in == sum(table.num_rows for table in epochs) == entry.used + entry.shed
        assert entry.shed > 0
    keeps: dict[str, pa.Table] = {}
    for edge, account in last.edges.items():
        epochs = streams[edge.partition(">")[0]]
        keeps[edge] = kept_rows(spark, epochs, decisions, edge)  # type: ignore[arg-type]
        assert account.shed == sum(table.num_rows for table in epochs) - keeps[edge].num_rows
    (total,) = [edge for edge, part in before.shedding.keep.items() if part == before.shedding.kept["total"]]
    wanted = truth(keeps[total], "SUM(x)")
    found = {(end,): v for _, end, _, v, _ in results(tmp_path / "total") if v is not None}
    assert found == {end: pytest.approx(v) for end, v in wanted.items()}
    keyed = {name: list(admission.keyed.items()) for name, admission in before.admissions.items()}
    assert len(keyed["s"]) == len(keyed["r"]) == 1
    assert keyed["s"][0][1] == keyed["r"][0][1] == before.shedding.kept["pairs"], "both sides keep the same keys"
    _are_pairs_of_kept_keys(results(tmp_path / "pairs"), keeps[keyed["s"][0][0]], keeps[keyed["r"][0][0]])


def _are_pairs_of_kept_keys(found: list[tuple[Any, ...]], left: pa.Table, right: pa.Table) -> None:
    """The join of the kept rows by DuckDB; a pair says what was kept of the rows that it could be made of."""
    db = duckdb.connect()
    db.register("l_rows", left)
    db.register("r_rows", right)
    pairs = db.execute(
        f"WITH l AS (SELECT seq, epoch_us(ts) AS t FROM l_rows), r AS (SELECT seq, epoch_us(ts) AS t FROM r_rows) "
        f"SELECT l.seq, r.seq, greatest(l.t, r.t) FROM l JOIN r ON l.seq % {KEYS} = r.seq % {KEYS} "
        f"AND abs(l.t - r.t) <= {SECOND}"
    ).fetchall()
    assert sorted((a, b) for a, b, _ in found) == sorted((a, b) for a, b, _ in pairs)
    times = {(a, b): (t - START) // SECOND for a, b, t in pairs}
    before = {kept for a, b, kept in found if times[a, b] < 4}
    during = {kept for a, b, kept in found if times[a, b] in (4, 5)}
    assert before == {1.0}
    assert during
    assert all(0 < kept < 1 for kept in during)
