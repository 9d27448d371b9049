"""Row windows and functions that come and go while a run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from world import SCHEMA, admit, assert_same, make_epochs, results, unique_times, write_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.errors import EngineError, SpecError, StateError

LATENESS_S = 20


def running_count(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """For each row how many its key has had."""
    counts = {row["k"]: row["n"] for row in state.to_pylist()}
    told = []
    for row in rows.to_pylist():
        counts[row["k"]] = counts.get(row["k"], 0) + 1
        told.append({"k": row["k"], "i": row["i"], "n": counts[row["k"]]})
    kept = [{"k": k, "n": n} for k, n in counts.items()]
    return pa.Table.from_pylist(kept, schema=state.schema), pa.Table.from_pylist(
        told, pa.schema([("k", pa.string()), ("i", pa.int32()), ("n", pa.int64())])
    )


RESULTS = "k STRING, i INT, n BIGINT"
COUNT = hr.step(running_count, state="k STRING, n BIGINT", results=RESULTS)
SQL = "SELECT k, i FROM r [PARTITION BY k]"


def counted(rows: pa.Table) -> list[tuple[Any, ...]]:
    seen: dict[Any, int] = {}
    found = []
    for row in rows.sort_by("ts").to_pylist():
        seen[row["k"]] = seen.get(row["k"], 0) + 1
        found.append((row["k"], row["i"], seen[row["k"]]))
    return found


@pytest.fixture
def unmoved(spark: Any) -> Iterator[None]:
    """State stays where it is, however busy the machine: what is read then is read for another reason."""
    spark.conf.set("spark.headrace.flux.moves", "off")
    yield
    spark.conf.unset("spark.headrace.flux.moves")


@pytest.mark.usefixtures("unmoved")
def test_functions_and_row_windows_come_and_go(spark: Any, tmp_path: Path) -> None:
    tables = unique_times(make_epochs(seed=81, epochs=9, rows=100))
    write_epochs(tmp_path / "in", tables[:2])
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("changing").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
    pipe.query("all", SQL, sink=hr.parquet(str(tmp_path / "all")), step=COUNT)
    run = pipe.start(spark, str(tmp_path / "state"), "0 seconds")
    try:
        run.process_all_available()
        before = admit(tables[:2], LATENESS_S).rows.num_rows
        run.add_query("late", SQL, sink=hr.parquet(str(tmp_path / "late")), step=COUNT)
        last = "SELECT k, i, COUNT(*) AS n FROM r [PARTITION BY k ROWS 3]"
        run.add_query("rows", last, sink=hr.parquet(str(tmp_path / "rows")))
        write_epochs(tmp_path / "in", tables[2:5], first=2)
        run.process_all_available()
        assert {n: seen.loaded_bytes for n, seen in run.progress.observed.flows.items()} == {
            "all": 0, "late": 0, "rows": 0}, "queries over the same rows have state of their own"  # fmt: skip
        with pytest.raises(SpecError, match="already"):
            run.add_query("late", SQL, step=COUNT)
        run.drop_query("late")
        write_epochs(tmp_path / "in", tables[5:7], first=5)
        run.process_all_available()
        kept = run.progress.flows
        needed = {name for state in kept.values() for name in state.chunks}
        assert {chunk.name for chunk in run.progress.chunks} <= needed, "what a query has kept is gone with it"
        assert set(kept) == {"all", "rows"}
        # A query of the same name with other columns is another one.
        other = hr.step(running_count, state="k STRING, n BIGINT", results=RESULTS, version=2)
        run.add_query("late", SQL + " WHERE i > 0", sink=hr.parquet(str(tmp_path / "later")), step=other)
        write_epochs(tmp_path / "in", tables[7:], first=7)
        run.process_all_available()
    finally:
        run.stop()
    pipe = hr.Pipeline("changing").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
    pipe.query("all", SQL, sink=hr.parquet(str(tmp_path / "all")), step=hr.step(
        running_count, state="k STRING, n BIGINT", results=RESULTS, version=2))  # fmt: skip
    with pytest.raises(StateError, match="version 1"):
        pipe.start(spark, str(tmp_path / "state"), once=True)
    pipe = hr.Pipeline("changing").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
    pipe.query("all", SQL, sink=hr.parquet(str(tmp_path / "all")), step=COUNT)
    pipe.start(spark, str(tmp_path / "state"), once=True, flush=True).await_termination()
    rows = admit(tables, LATENESS_S).rows
    assert rows.num_rows > before
    assert_same(results(tmp_path / "all"), counted(rows))
    # After a flush there are no rows that wait, and state is all there is to go on from.
    later = tables[-1].set_column(0, "ts", pc.add(tables[-1]["ts"], pa.scalar(timedelta(hours=1))))
    write_epochs(tmp_path / "in", [later], first=9)
    pipe.start(spark, str(tmp_path / "state"), once=True, flush=True).await_termination()
    assert_same(results(tmp_path / "all"), counted(pa.concat_tables([rows, later.select(rows.column_names)])))
    assert results(tmp_path / "late")
    assert results(tmp_path / "later")
    assert max(n for _, _, n in results(tmp_path / "rows")) == 3


def picky_count(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    if pc.any(pc.equal(rows["i"], 7)).as_py():
        raise KeyError("this row")
    return running_count(state, rows)


def test_a_function_that_fails_keeps_its_state(spark: Any, tmp_path: Path) -> None:
    schema = make_epochs(seed=1, epochs=1, rows=9)[0].schema

    def epoch(number: int, i: int = 0) -> pa.Table:
        times = pa.array([(number * 10 + n) * 1_000_000 for n in range(8)], pa.timestamp("us", "UTC"))
        some = {"ts": times, "k": pa.array(list("abcdabca")), "i": pa.array([i] * 8, pa.int32())}
        columns = [some.get(field.name, pa.nulls(8, field.type)) for field in schema]
        return pa.table(columns, schema=schema)

    tables = [epoch(n, 7 if n == 4 else 0) for n in range(8)]
    write_epochs(tmp_path / "in", tables[:6])
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    notes: list[str] = []

    def play(function: Any, flush: bool) -> Any:
        pipe = hr.Pipeline("picky").stream("r", source, time="ts")
        sums = "SELECT k, COUNT(*) AS n FROM r [WINDOW 5 s] GROUP BY k"
        pipe.query("sums", sums, sink=hr.parquet(str(tmp_path / "sums")))
        step = hr.step(function, state="k STRING, n BIGINT", results=RESULTS)
        pipe.query("q", SQL, sink=hr.parquet(str(tmp_path / "out")), step=step)
        hooks = Hooks(on_note=notes.append)
        run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=flush, hooks=hooks)
        run.await_termination()
        return run.progress

    after = play(picky_count, flush=False)
    assert "KeyError: 'this row'" in (after.queries["q"].failed or "")
    assert after.queries["sums"].failed is None
    # The last row was not final yet.
    assert_same(results(tmp_path / "out"), counted(pa.concat_tables(tables[:4]).slice(0, 31)))
    write_epochs(tmp_path / "in", tables[6:], first=6)
    after = play(running_count, flush=True)
    assert after.queries["q"].failed is None
    assert any("had failed" in note and "goes on with its state" in note for note in notes), notes
    # It counts on; the rows it failed at and those that came before it went on are not among them.
    assert_same(results(tmp_path / "out"), counted(pa.concat_tables([*tables[:4], *tables[6:]])))


def as_text(state: pa.Table, version: int) -> pa.Table:
    assert version == 1
    return pa.table({"k": state["k"], "n": state["n"].cast(pa.string())})


def count_in_text(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    numbers = pa.table({"k": state["k"], "n": state["n"].cast(pa.int64())})
    state, told = running_count(numbers, rows)
    return pa.table({"k": state["k"], "n": state["n"].cast(pa.string())}), told


def test_a_migration_ends_where_state_is_always_on_disk_too(spark: Any, tmp_path: Path) -> None:
    tables = unique_times(make_epochs(seed=83, epochs=14, rows=60))
    write_epochs(tmp_path / "in", tables[:4])
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    seen: list[Manifest] = []

    def play(flush: bool = False, **declared: Any) -> None:
        pipe = hr.Pipeline("migrating").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
        pipe.query("q", SQL, sink=hr.parquet(str(tmp_path / "out")), step=hr.step(**declared, results=RESULTS))
        hooks = Hooks(on_epoch=seen.append)
        pipe.start(spark, str(tmp_path / "state"), once=True, flush=flush, hooks=hooks).await_termination()

    new = {"state": "k STRING, n STRING", "version": 2}
    # Room for the state of next to no key.
    spark.conf.set("spark.headrace.flux.memory", "40")
    try:
        play(function=running_count, state="k STRING, n BIGINT")
        assert any(each.spilled for each in seen[-1].flows["q"].residence)
        write_epochs(tmp_path / "in", tables[4:12], first=4)
        play(function=count_in_text, migration=f"{__name__}:as_text", **new)
        versions = [manifest.flows["q"].version for manifest in seen]
        assert (versions[3], versions[4], versions[-1]) == (1, 1, 2), (
            "all of it is written in the new version by and by"
        )
        write_epochs(tmp_path / "in", tables[12:], first=12)
        play(flush=True, function=count_in_text, **new)
    finally:
        spark.conf.unset("spark.headrace.flux.memory")
    assert_same(results(tmp_path / "out"), counted(admit(tables, LATENESS_S).rows))


def test_a_query_that_took_anothers_name_begins_after_the_replay(spark: Any, tmp_path: Path) -> None:
    tables = unique_times(make_epochs(seed=84, epochs=4, rows=60))
    write_epochs(tmp_path / "in", tables[:2])
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))

    def play(sql: str, out: str, hooks: Hooks) -> None:
        pipe = hr.Pipeline("renamed").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
        pipe.query("q", sql, sink=hr.parquet(str(tmp_path / out)))
        pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=hooks).await_termination()

    def die(point: str) -> None:
        if point == "after-decision" and len(list((tmp_path / "state" / "decisions").iterdir())) == 2:
            raise RuntimeError("crash")

    with pytest.raises(EngineError, match="crash"):
        play(
            "SELECT a.i, b.i AS j FROM r AS a [RANGE 1 s] JOIN r AS b [RANGE 1 s] ON a.s = b.s",
            "join",
            Hooks(probe=die),
        )
    write_epochs(tmp_path / "in", tables[2:], first=2)
    play("SELECT k, i, COUNT(*) AS n FROM r [PARTITION BY k ROWS 3]", "rows", Hooks())
    admitted = admit(tables, LATENESS_S).rows.num_rows - admit(tables[:2], LATENESS_S).rows.num_rows
    assert len(results(tmp_path / "rows")) == admitted, "rows of the epoch that was begun belong to the join"


def test_queries_that_come_back_after_an_epoch_was_begun_without_them_start_anew(spark: Any, tmp_path: Path) -> None:
    tables = unique_times(make_epochs(seed=85, epochs=4, rows=60))
    write_epochs(tmp_path / "in", tables[:2])
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    queries = {
        "rows": "SELECT k, i, COUNT(*) AS n FROM r [PARTITION BY k ROWS 3]",
        "join": "SELECT a.i, b.i AS j FROM r AS a [RANGE 1 s] JOIN r AS b [RANGE 1 s] ON a.s = b.s",
        "stays": "SELECT COUNT(*) AS n FROM r [WINDOW 10 s]",
    }
    notes: list[str] = []

    def play(*names: str, hooks: Hooks | None = None, flush: bool = False) -> Manifest:
        pipe = hr.Pipeline("back").stream("r", source, time="ts", lateness=f"{LATENESS_S} seconds")
        for name in names:
            pipe.query(name, queries[name], sink=hr.parquet(str(tmp_path / name)))
        run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=flush, hooks=hooks)
        run.await_termination()
        return run.progress

    def die(point: str) -> None:
        if point == "after-decision":
            raise RuntimeError("crash")

    play(*queries)
    before = len(results(tmp_path / "rows"))
    write_epochs(tmp_path / "in", tables[2:], first=2)
    # What is decided for the next epoch knows of one query only: the others have gone with it.
    with pytest.raises(EngineError, match="crash"):
        play("stays", hooks=Hooks(probe=die))
    after = play(*queries, flush=True, hooks=Hooks(on_note=notes.append))
    assert {name: state.failed for name, state in after.queries.items()} == dict.fromkeys(queries)
    assert "query 'rows' is new: its results are about rows from now on" in notes
    admitted = admit(tables, LATENESS_S).rows.num_rows - admit(tables[:3], LATENESS_S).rows.num_rows
    assert len(results(tmp_path / "rows")) == before + admitted
