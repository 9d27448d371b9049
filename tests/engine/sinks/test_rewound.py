"""A checkpoint that was set back is refused by every sink that can tell; so is one on results of another."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from postgres import PASSWORD, Postgres
from world import SCHEMA, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.sinks.choose import FormatSink, MemorySink
from headrace.engine.sinks.files import FileSink
from headrace.engine.state.storage import LocalStorage
from headrace.model import SinkSpec

SQL = "SELECT k, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"
TABLES = make_epochs(seed=61, epochs=6)


@dataclass(frozen=True)
class World:
    """A run of six epochs, killed once between its sinks and its manifest, and its checkpoint as of the second."""

    home: Path
    postgres: Postgres

    def pipeline(self, spark: Any, **sinks: Any) -> hr.Pipeline:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.home / "in"))
        pipe = hr.Pipeline("rewound").stream("r", rows, time="ts", lateness="20 seconds")
        for name, sink in sinks.items():
            pipe.query(name, SQL, sink=sink)
        return pipe

    @property
    def sinks(self) -> dict[str, Any]:
        return {
            "files": hr.parquet(str(self.home / "files")),
            "lines": hr.json(str(self.home / "lines")),
            "lake": hr.delta(str(self.home / "lake")),
            "base": hr.jdbc(self.postgres.url, "rewound", user="ann", password=PASSWORD),
            "noted": hr.sink("noop"),
        }


class KilledError(Exception):
    """Stands for a driver that is gone."""


@pytest.fixture(scope="module")
def world(spark: Any, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("rewound"), postgres)
    write_epochs(made.home / "in", TABLES[:3])
    state = str(made.home / "state")
    made.pipeline(spark, **made.sinks).start(spark, state, once=True).await_termination()
    shutil.copytree(state, made.home / "backup")
    write_epochs(made.home / "in", TABLES[3:], 3)
    seen: list[str] = []

    def probe(point: str) -> None:
        seen.append(point)
        if seen.count("before-manifest") == 2:
            raise KilledError

    with pytest.raises(hr.EngineError, match="KilledError"):
        made.pipeline(spark, **made.sinks).start(spark, state, once=True, hooks=Hooks(probe=probe)).await_termination()
    made.pipeline(spark, **made.sinks).start(spark, state, once=True, flush=True).await_termination()
    return made


def test_an_epoch_that_was_interrupted_is_there_once(world: World) -> None:
    wanted = expected(admit(TABLES, 20).rows, "k, count(*)", "k", 60, 20, False)
    assert_same(results(world.home / "files"), wanted)
    table = pa.table(DeltaTable(str(world.home / "lake")).to_pyarrow_table())
    assert_same([tuple(row.values()) for row in table.to_pylist()], wanted)
    found = world.postgres.query("SELECT k, n FROM rewound", "ann")
    assert sorted(found) == sorted((row[2] or "", str(row[3])) for row in wanted)


def test_a_checkpoint_that_was_set_back_is_refused(world: World, spark: Any) -> None:
    names = ("files", "lines", "lake", "base")
    before = {name: sorted(path.name for path in (world.home / name).glob("epoch-*")) for name in names[:3]}
    state = world.home / "restored"
    shutil.copytree(world.home / "backup", state)
    with pytest.raises(hr.StateError, match="restore the newer checkpoint") as refused:
        world.pipeline(spark, **world.sinks).start(spark, str(state), once=True)
    assert "ends with epoch 2" in str(refused.value)
    for name in names:
        assert f"that of '{name}' has had epoch " in str(refused.value)
    assert before == {name: sorted(path.name for path in (world.home / name).glob("epoch-*")) for name in names[:3]}
    # The sinks of its own are as old as the checkpoint itself.
    world.pipeline(spark, noted=hr.sink("noop")).start(spark, str(state), once=True).await_termination()


def test_results_of_another_checkpoint_are_not_replaced(world: World, spark: Any, tmp_path: Path) -> None:
    with pytest.raises(hr.SpecError, match=r"holds results of another checkpoint \(\w{12}\).*remove that folder"):
        world.pipeline(spark, files=world.sinks["files"]).start(spark, str(tmp_path / "state"), once=True)
    old = tmp_path / "old"
    shutil.copytree(world.home / "files", old)
    (old / "_headrace.json").unlink()
    with pytest.raises(hr.SpecError, match="holds results of an earlier checkpoint"):
        world.pipeline(spark, files=hr.parquet(str(old))).start(spark, str(tmp_path / "state2"), once=True)
    known = world.home / "known"
    shutil.copytree(world.home / "state", known)
    world.pipeline(spark, files=hr.parquet(str(old))).start(spark, str(known), once=True).await_termination()
    assert json.loads((old / "_headrace.json").read_text())["checkpoint"], "a checkpoint of before there were markers"


def test_queries_that_come_and_go(world: World, spark: Any, tmp_path: Path) -> None:
    """One run: places are checked, memory is bounded, and nothing is left of sinks whose queries are gone."""
    shutil.copytree(world.home / "in", tmp_path / "in")
    here = World(tmp_path, world.postgres)
    notes: list[str] = []
    pipe = here.pipeline(spark, files=hr.parquet(str(tmp_path / "out" / "files")))
    pipe.query("few", "SELECT COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s]", sink=hr.memory(rows=10))
    run = pipe.start(spark, str(tmp_path / "state"), trigger="0 seconds", hooks=Hooks(on_note=notes.append))
    try:
        run.add_query("base", SQL, sink=hr.jdbc(world.postgres.url, "going", user="ann", password=PASSWORD))
        run.add_query("noted", SQL, sink=hr.sink("noop"))
        for path in (f"file://{tmp_path}/out/../out/files/", str(tmp_path / "out"), str(tmp_path / "state" / "x")):
            with pytest.raises(hr.SpecError, match="writes to "):
                run.add_query("clashing", SQL, sink=hr.parquet(path))
        with pytest.raises(hr.SpecError, match="holds results of another checkpoint"):
            run.add_query("foreign", SQL, sink=hr.parquet(str(world.home / "files")))
        run.process_all_available()
        write_epochs(tmp_path / "in", make_epochs(seed=62, epochs=8)[6:], 6)
        run.process_all_available()
        sink = run._parts.sinks["few"]
        assert isinstance(sink, MemorySink)
        assert sink.dropped > 0
        table = run.table("few")
        assert table is not None
        assert 0 < table.num_rows <= 10
        assert len([note for note in notes if "keeps the newest 10 results from now on" in note]) == 1
        for name in ("base", "noted", "few"):
            run.drop_query(name)
        assert set(run._parts.epochs._epoch.standing.sinks) == {"files"}
        assert not sink.epochs
        assert not list((tmp_path / "state").glob("delivered/*"))
        left = "SELECT application FROM headrace_epochs WHERE application LIKE 'headrace-base-%'"
        assert len(world.postgres.query(left, "ann")) == 1, "of the other run, which has a query of that name"
    finally:
        run.stop()


@pytest.mark.parametrize(
    ("epoch", "replay", "fine"),
    [
        pytest.param(8, False, True, id="the next epoch"),
        pytest.param(7, True, True, id="the last one, repeated"),
        pytest.param(7, False, False, id="the last one, and nobody says that it is repeated"),
        pytest.param(6, True, False, id="an older one"),
    ],
)
def test_what_is_there_already_is_an_error_unless_repeated(
    spark: Any, tmp_path: Path, epoch: int, replay: bool, fine: bool
) -> None:
    folder, state = LocalStorage(str(tmp_path / "out")), LocalStorage(str(tmp_path / "state"))
    for make in (
        lambda: FileSink(SinkSpec("parquet", folder.root), folder),
        lambda: FormatSink(SinkSpec("noop"), "q", state),
    ):
        make().write(spark.range(5), 7, False)
        if fine:
            make().write(spark.range(5), epoch, replay)
        else:
            with pytest.raises(hr.StateError, match="was set back"):
                make().write(spark.range(5), epoch, replay)


def test_an_epoch_beyond_a_memory_sink_fails(spark: Any) -> None:
    with pytest.raises(hr.HeadraceError, match="more than 10 results"):
        MemorySink("q", 10).write(spark.range(11), 0, False)
