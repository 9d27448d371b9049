"""Queries that come and go while a run goes on, and queries that end by themselves; DuckDB is the judge of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks, Run
from headrace.language import bind_query

LATENESS_S = 20


def sql(select: str, size: int, keys: str, rest: str = "") -> str:
    return f"SELECT {select} FROM r {rest} GROUP BY window(ts, '{size} seconds', '20 seconds'), {keys}"


KEYED = sql("k, SUM(i) AS v", 60, "k")


class World:
    """A run over a folder that grows, and what DuckDB says about it."""

    def __init__(self, spark: Any, home: Path, seed: int) -> None:
        self.spark, self.home, self.notes = spark, home, list[str]()
        self.tables, self.written = make_epochs(seed, epochs=10, rows=150), 0

    def start(self, *queries: tuple[str, str, str | None], **options: Any) -> Run:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        pipe = hr.Pipeline("changing").stream(
            "r", source.parquet(str(self.home / "in")), time="ts", lateness=f"{LATENESS_S} seconds"
        )
        for name, text, lifetime in queries:
            pipe.query(name, text, sink=self.sink(name), lifetime=lifetime)
        hooks = Hooks(on_note=self.notes.append)
        return pipe.start(self.spark, str(self.home / "state"), "0 seconds", bins=2, hooks=hooks, **options)

    def sink(self, name: str) -> Any:
        return hr.parquet(str(self.home / name))

    def write(self, epochs: int) -> None:
        write_epochs(self.home / "in", self.tables[self.written : self.written + epochs], self.written)
        self.written += epochs

    @property
    def rows(self) -> pa.Table:
        return admit(self.tables[: self.written], LATENESS_S).rows

    def check(
        self, name: str, duck: str, size: int, keys: str, wanted: Callable[[datetime, datetime], bool], where: str = ""
    ) -> None:
        """The results of a query are those of the windows (start, end) that are wanted."""
        windows = expected(self.rows, duck, keys, size, 20, True, where or "true")
        told = [row for row in windows if wanted(row[0], row[1])]
        assert told
        assert_same(results(self.home / name), told)


@pytest.fixture
def world(spark: Any, tmp_path: Path) -> World:
    (tmp_path / "in").mkdir()
    return World(spark, tmp_path, seed=71)


@pytest.fixture
def running() -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.stop()


def instant(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def watermark(run: Run) -> datetime:
    mark = run.progress.clocks["r"].watermark_us
    assert mark is not None
    return instant(mark)


def seen(run: Run) -> datetime:
    last = run.progress.clocks["r"].last_us
    assert last is not None
    return instant(last)


def test_queries_come_and_go_while_the_others_go_on(world: World, running: list[Run]) -> None:
    """
    epochs     0 1 2 3 | 4 5 6 | 7 8 | 9
    keyed      ------------------          dropped
    shared             -------------------  from the panes of keyed: the newest closed window at once
    other              -------------------  a column that was not read so far: windows that begin now
    """
    world.write(4)
    run = world.start(("keyed", KEYED, None))
    running.append(run)
    run.process_all_available()
    added_at, seen_at = watermark(run), seen(run)
    spark_query = run.streaming_query.runId
    run.add_query("shared", sql("k, SUM(i) AS v", 40, "k"), sink=world.sink("shared"))
    assert run.streaming_query.runId == spark_query, "columns that are read already need no other plan"
    run.add_query("other", sql("g, MAX(x) AS m", 40, "g", "WHERE b"), sink=world.sink("other"), priority=2, weight=0.5)
    assert run.streaming_query.runId != spark_query
    assert "query 'shared' is new: it answers at once, from panes that are there" in world.notes
    assert "query 'other' is new: its windows begin after what was seen so far" in world.notes
    assert len(run.status["synopses"]) == 2
    world.write(3)
    run.process_all_available()
    run.drop_query("keyed")
    dropped_at = watermark(run)
    world.write(2)
    run.process_all_available()
    assert set(run.status["queries"]) == {"shared", "other"}
    run.drop_query("shared")
    shared_until = watermark(run)
    world.write(1)
    run.process_all_available()
    assert [synopsis["where"] for synopsis in run.status["synopses"].values()] == ["r.b"]
    last = watermark(run)
    world.check("keyed", "k, sum(i)::bigint", 60, "k", lambda start, end: end <= dropped_at)
    newest = max(row[1] for row in expected(world.rows, "k", "k", 40, 20, True) if row[1] <= added_at)
    world.check("shared", "k, sum(i)::bigint", 40, "k", lambda start, end: newest <= end <= shared_until)
    world.check("other", "g, max(x)", 40, "g", lambda start, end: start > seen_at and end <= last, "b")


def test_what_cannot_be_added_changes_nothing(world: World, running: list[Run]) -> None:
    world.write(2)
    run = world.start(("keyed", KEYED, None))
    running.append(run)
    run.process_all_available()
    before, spark_query = run.status, run.streaming_query.runId
    good = bind_query("good", KEYED, {"r": run._parts.pipeline.streams[0]})
    failures: list[tuple[str, Callable[[], None]]] = [
        ("unknown column 'nope'", lambda: run.add_query("new", sql("SUM(nope) AS v", 40, "k"))),
        ("'soon' is not a duration", lambda: run.add_query("new", KEYED, lifetime="soon")),
        ("a lifetime must be positive", lambda: run.add_query("new", KEYED, lifetime="0 s")),
        ("weight must be from", lambda: run.add_query("new", KEYED, weight=0)),
        ("there is a query 'Keyed' already", lambda: run.add_query("Keyed", KEYED)),
        ("as query 'keyed' does", lambda: run.add_query("new", KEYED, sink=world.sink("keyed"))),
        ("a parquet sink needs a path", lambda: run.add_query("new", KEYED, sink=hr.sink("parquet"))),
        ("there is no query 'nobody'; known: keyed", lambda: run.drop_query("nobody")),
        ("there is no query 'nobody'; known: keyed", lambda: run.change([good], ["nobody"])),
        ("DISTINCT would have to remember", lambda: run.add_query("new", "SELECT DISTINCT k FROM r")),
    ]
    for words, attempt in failures:
        with pytest.raises(hr.SpecError, match=words):
            attempt()
        assert run.status == before, words
    assert run.streaming_query.runId == spark_query
    launch = run._parts.launch

    def fail_once(united: Any) -> Any:
        run._parts.launch = launch
        raise RuntimeError("Spark does not want to")

    run._parts.launch = fail_once
    with pytest.raises(RuntimeError, match="does not want to"):
        run.add_query("new", sql("g, MAX(x) AS m", 40, "g"))
    assert run.status == before
    assert world.notes == []
    world.write(2)
    run.process_all_available()
    last = watermark(run)
    world.check("keyed", "k, sum(i)::bigint", 60, "k", lambda start, end: end <= last)


def test_after_a_change_the_same_pipeline_goes_on_where_the_run_was_killed(world: World) -> None:
    """
    epochs     0 1 2 | 3 4 X 5 6 7    the driver dies in epoch 5, after its results were written
    keyed      -------
    total      ------------- -----
    wide             ------- -----    replaces keyed in one step
    """
    world.write(3)
    total = ("total", sql("g, COUNT(*) AS n", 60, "g"), None)
    wide = sql("k, MIN(x) AS m, SUM(i) AS v", 40, "k")
    run = world.start(("keyed", KEYED, None), total)
    run.process_all_available()
    seen_at, dropped_at = seen(run), watermark(run)
    stream = run._parts.pipeline.streams[0]
    run.change([bind_query("wide", wide, {"r": stream}, sink=world.sink("wide").spec)], ["keyed"])
    world.write(2)
    run.process_all_available()

    def die(point: str) -> None:
        if point == "before-manifest":
            raise SystemError("killed")

    run._parts.epochs._epoch._probe = die
    world.write(1)
    with pytest.raises(hr.HeadraceError):
        run.process_all_available()
    world.write(2)
    world.notes.clear()
    again = world.start(("wide", wide, None), total, once=True)
    again.await_termination()
    assert world.notes == ["epoch 5 was begun before: it is run as it was decided then"], "both are known and go on"
    last = watermark(again)
    world.check("keyed", "k, sum(i)::bigint", 60, "k", lambda start, end: end <= dropped_at)
    world.check("total", "g, count(*)", 60, "g", lambda start, end: end <= last)
    world.check("wide", "k, min(x), sum(i)::bigint", 40, "k", lambda start, end: start > seen_at and end <= last)


def test_a_query_ends_with_its_lifetime_and_stays_ended(world: World, running: list[Run]) -> None:
    """
    epochs     0 1 2 3 4 5 | 6 7 | 8
    for_ever   -------------------
    brief      ----                       ends, and its panes go
    second run             brief is over
    third run                      brief with another lifetime starts anew
    """
    world.write(6)
    brief = sql("g, SUM(l) AS v", 20, "g", "WHERE b")
    run = world.start(("for_ever", KEYED, None), ("brief", brief, "40 seconds"))
    running.append(run)
    run.process_all_available()
    state = run.status["queries"]["brief"]
    assert state["state"] == "ended"
    ends = instant(state["ends_us"])
    assert len(run.status["synopses"]) == 1
    assert "query 'brief' has come to the end of its lifetime" in world.notes
    assert run.status["queries"]["for_ever"]["state"] == "running"
    world.check("brief", "g, sum(l)::bigint", 20, "g", lambda start, end: end <= ends, "b")
    run.stop()
    found = len(results(world.home / "brief"))
    world.write(2)
    run = world.start(("for_ever", KEYED, None), ("brief", brief, "40 seconds"), once=True)
    run.await_termination()
    assert run.status["queries"]["brief"]["state"] == "ended"
    assert len(results(world.home / "brief")) == found
    last = watermark(run)
    world.check("for_ever", "k, sum(i)::bigint", 60, "k", lambda start, end: end <= last)
    world.write(1)
    run = world.start(("for_ever", KEYED, None), ("brief", brief, "1 hour"), once=True, flush=True)
    run.await_termination()
    assert any("'brief' had ended and starts anew" in note for note in world.notes)
    assert run.status["queries"]["brief"]["state"] == "running"
    assert len(results(world.home / "brief")) > found


def test_a_query_that_goes_on_gets_another_lifetime(world: World, running: list[Run]) -> None:
    world.write(3)
    run = world.start(("q", KEYED, "10 minutes"), ("other", sql("g, SUM(i) AS v", 60, "g"), None))
    running.append(run)
    run.process_all_available()
    first = run.status["queries"]["q"]
    query = next(query for query in run._parts.pipeline.queries if query.name == "q")
    run.change([replace(query, lifetime_us=1_200_000_000, priority=3)], ["q"])
    second = run.status["queries"]["q"]
    assert second["ends_us"] - first["ends_us"] == 600_000_000
    assert {**second, "ends_us": first["ends_us"]} == first
    run.change([replace(query, lifetime_us=None)], ["q"])
    assert run.status["queries"]["q"]["ends_us"] is None
    world.write(3)
    run.process_all_available()
    last = watermark(run)
    world.check("q", "k, sum(i)::bigint", 60, "k", lambda start, end: end <= last)


def test_a_query_that_is_behind_at_the_end_of_its_lifetime_owes_its_windows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One window per epoch is answered, and after the gap at epoch 4 more than one is due in an epoch."""
    monkeypatch.setattr("headrace.engine.operators.aggregates.MOST_EMPTY_WINDOWS", 1)
    world.write(6)
    run = world.start(("brief", "SELECT COUNT(*) AS n FROM r [WINDOW 20 s]", "80 seconds"), once=True, flush=True)
    run.await_termination()
    state = run.status["queries"]["brief"]
    assert state["state"] == "ended"
    ends = instant(state["ends_us"])
    wanted = [row for row in expected(world.rows, "count(here)", "", 20, 20, False) if row[1] <= ends]
    assert len(wanted) > 3
    assert_same(results(world.home / "brief"), wanted)


def test_a_hook_cannot_change_the_epoch_it_is_part_of(spark: Any, tmp_path: Path) -> None:
    write_epochs(tmp_path / "in", make_epochs(seed=72, epochs=1, rows=20))
    refused: list[str] = []

    def meddle(manifest: Any) -> None:
        try:
            run.drop_query("q")
        except hr.EngineError as error:
            refused.append(str(error))

    rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("meddling").stream("r", rows, time="ts").query("q", KEYED)
    run = pipe.start(spark, str(tmp_path / "state"), "0 seconds", hooks=Hooks(on_epoch=meddle))
    run.process_all_available()
    run.stop()
    assert refused == ["queries change between two epochs: not from a hook or a sink, which are part of one"]
