"""An epoch depends on its decision and its rows alone: edits between a crash and the next start come after it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jars
import pytest
from edited import POOL, Home, Written, by_chance, parquet, twice
from postgres import PASSWORD, Postgres
from world import assert_same, make_epochs, results

import headrace as hr
from headrace.errors import StateError

# Random edits per test run; HEADRACE_EDITS=30 plays more, and strikes between two sinks of an epoch, too.
EDITS = int(os.environ.get("HEADRACE_EDITS", "2"))
STRUCK = ("before-manifest",) if EDITS <= 2 else ("before-manifest", "mid-sinks")
pytestmark = pytest.mark.timeout(600)
FIRST, OTHER = POOL["keyed"]


@pytest.mark.parametrize("seed", range(EDITS))
def test_edits_by_chance(seed: int, spark: Any, tmp_path: Path) -> None:
    before, after, strike, told = by_chance(seed)
    print(told)
    twice(spark, tmp_path, before, after, strike, seed)


@pytest.mark.parametrize("point", STRUCK)
def test_files_delta_and_postgresql_have_each_answer_once(
    point: str, spark: Any, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 after sinks have had the epoch; then another lateness and trigger, queries that come, go and change."""
    monkeypatch.setenv("EDITED_PASSWORD", PASSWORD)

    def table(home: Path, name: str) -> str:
        return f"{home.parent.name}_{home.name}_{name}".replace("-", "_")

    def sinks(home: Path, name: str) -> dict[str, dict[str, Any]]:
        access = {"url": postgres.url, "user": "ann", "password": "${env:EDITED_PASSWORD}"}
        return {
            "file": parquet(home, name),
            "delta": {"format": "delta", "path": str(home / "delta" / name)},
            "table": {"format": "jdbc", "options": {**access, "dbtable": table(home, name)}},
        }

    def queries(home: Path, **given: str) -> dict[str, Any]:
        made = {(name, kind): sink for name in given for kind, sink in sinks(home, name).items()}
        return {f"{name}_{kind}": {"sql": given[name], "sink": sink} for (name, kind), sink in made.items()}

    def before(home: Path) -> Written:
        return Written(queries(home, stays=FIRST, changes=FIRST, goes=FIRST))

    def after(home: Path) -> Written:
        edited = queries(home, stays=FIRST, changes=OTHER, comes=FIRST)
        return Written(edited, lateness_s=60, ahead_s=3600, engine={"trigger": "2 seconds"})

    def others(home: Path) -> Any:
        from deltalake import DeltaTable

        found: dict[str, Any] = {}
        for name in ("stays", "changes", "goes", "comes"):
            rows = DeltaTable(str(home / "delta" / name)).to_pyarrow_table().to_pylist()
            found[name] = sorted(map(repr, rows)), sorted(postgres.query(f"SELECT * FROM {table(home, name)}", "ann"))
        return found

    root = tmp_path / point
    connectors = ",".join(map(str, jars.for_session()))
    struck, _ = twice(spark, root, before, after, (point, 2), 3, others, connectors)
    had = [path for path in struck.path.rglob("epoch-000000002-*.parquet") if "in" not in path.parts]
    assert had, "the epoch had answers to give twice"


class Added:
    """Queries that come and go while a run goes on, and are in no file."""

    def __init__(self, spark: Any, home: Path) -> None:
        self.home = Home(spark, home, make_epochs(7, 4, 100))
        self.home.give(0, 1)

    def pipeline(self) -> hr.Pipeline:
        written = Written({"keyed": {"sql": FIRST, "sink": parquet(self.home.path, "keyed")}})
        return hr.Pipeline.from_file(written.save(self.home.path))

    def play(self, strike: Callable[[], None]) -> Any:
        home = self.home
        run = self.pipeline().start(home.spark, hooks=home.hooks(("before-manifest", 2), strike))
        run.process_all_available()
        for name, sql in (("rows", POOL["rows"][0]), ("coarse", POOL["coarse"][0]), ("other", OTHER)):
            run.add_query(name, sql, sink=hr.parquet(str(home.path / "out" / name)))
        run.drop_query("other")
        run.add_query("other", OTHER, sink=hr.parquet(str(home.path / "out" / "other")))
        home.give(2, 2)
        return run


def test_queries_that_were_added_to_the_run_are_replayed(spark: Any, tmp_path: Path) -> None:
    """The epoch begins with what coming and going queries have made of the manifest, which no other file says."""
    outcomes = []
    for name in ("struck", "undisturbed"):
        (tmp_path / name).mkdir()
        world = Added(spark, tmp_path / name)

        def blow(name: str = name) -> None:
            if name == "struck":
                raise RuntimeError("as if the driver had been killed")

        run = world.play(blow)
        if name == "struck":
            with pytest.raises(hr.HeadraceError, match="as if the driver had been killed"):
                run.await_termination()
        else:
            run.process_all_available()
            run.stop()
        world.home.give(3, 3)
        run = world.pipeline().start(spark, hooks=world.home.hooks(None, lambda: None), once=True, flush=True)
        run.await_termination()
        world.home.ledger = run.progress.ledger
        folders = [parquet(world.home.path, each) for each in ("keyed", "rows", "coarse", "other")]
        outcomes.append(world.home.outcome((Written({s["path"]: {"sink": s} for s in folders}),)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0]["rows"], "the query that was added has had results"


def test_a_flush_that_was_begun_is_replayed_before_an_edit(spark: Any, tmp_path: Path) -> None:
    def flushed(home: Home, written: Written, strike: tuple[str, int] | None) -> None:
        def blow() -> None:
            raise RuntimeError("as if the driver had been killed")

        run = hr.Pipeline.from_file(written.save(home.path)).start(
            spark, hooks=home.hooks(strike, blow), once=True, flush=True
        )
        if strike is None:
            run.await_termination()
            home.ledger = run.progress.ledger
        else:
            with pytest.raises(hr.HeadraceError, match="as if the driver had been killed"):
                run.await_termination()

    outcomes = []
    for name in ("struck", "undisturbed"):
        (tmp_path / name).mkdir()
        home = Home(spark, tmp_path / name, make_epochs(9, 3, 100))
        home.give(0, 1)
        before = Written({n: {"sql": POOL[n][0], "sink": parquet(home.path, n)} for n in ("keyed", "total")})
        after = Written({"keyed": {"sql": OTHER, "sink": parquet(home.path, "keyed")}}, lateness_s=60)
        flushed(home, before, ("after-sinks", 2) if name == "struck" else None)
        home.give(2, 2)
        flushed(home, after, None)
        outcomes.append(home.outcome((before, after)))
    assert outcomes[0] == outcomes[1]


def test_a_function_that_has_gone_is_asked_for(spark: Any, tmp_path: Path) -> None:
    """Code is never taken from a checkpoint: the start is refused until the query is back, and nothing has happened."""
    home = Home(spark, tmp_path, make_epochs(9, 2, 50))
    home.give(0, 0)
    calls = {"sql": FIRST, "sink": {"format": "python", "options": {"function": "edited:take"}}}
    stays = {"sql": FIRST, "sink": parquet(tmp_path, "keyed")}
    home.run(Written({"calls": calls, "stays": stays}), ("after-sinks", 0))
    with pytest.raises(StateError, match=r"epoch 0 .* query 'calls': .* a checkpoint cannot name one\. Put these"):
        home.run(Written({"stays": stays}), once=True)
    assert not (tmp_path / "state" / "manifests").exists()
    home.run(Written({"calls": calls, "stays": {**stays, "sql": OTHER}}), once=True)
    assert json.loads((tmp_path / "state" / "decisions" / "0.json").read_text().partition("\n")[2])["workload"] == 0


def test_a_delta_table_that_has_had_nothing_yet_takes_the_epoch_that_was_begun(spark: Any, tmp_path: Path) -> None:
    """The query has left the file before its table had any results: its mark says whose the table is."""
    from deltalake import DeltaTable

    home = Home(spark, tmp_path, make_epochs(9, 2, 100))
    home.give(0, 0)
    goes = {"sql": FIRST, "sink": {"format": "delta", "path": str(tmp_path / "goes")}}
    stays = {"sql": FIRST, "sink": parquet(tmp_path, "keyed")}
    home.run(Written({"goes": goes, "stays": stays}), ("after-decision", 0))
    assert not (tmp_path / "goes" / "_delta_log").exists(), "the table has had nothing"
    home.run(Written({"stays": stays}), once=True)
    given = [tuple(row.values()) for row in DeltaTable(str(tmp_path / "goes")).to_pyarrow_table().to_pylist()]
    assert given, "the epoch had answers"
    assert_same(given, results(tmp_path / "out" / "keyed"))


def test_a_delta_table_that_only_a_checkpoint_names_is_not_made(spark: Any, tmp_path: Path) -> None:
    home = Home(spark, tmp_path, make_epochs(9, 2, 100))
    home.give(0, 0)
    goes = {"sql": FIRST, "sink": {"format": "delta", "path": str(tmp_path / "goes")}}
    stays = {"sql": FIRST, "sink": parquet(tmp_path, "keyed")}
    home.run(Written({"goes": goes, "stays": stays}), ("after-decision", 0))
    for mark in (tmp_path / "goes").glob("_headrace-*"):
        mark.unlink()
    with pytest.raises(StateError, match="was never given to this checkpoint"):
        home.run(Written({"stays": stays}), once=True)
