"""Where tasks cannot open files, Spark carries state and results for them: same files, same answers, same refusals.

The setting that forces it makes any local folder such a place.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import scenario
import victim
from world import assert_same, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.choose_io import choose_io
from headrace.engine.state.spark_io import SparkIo
from headrace.engine.state.state_io import ArrowIo
from headrace.engine.state.storage import LocalStorage

SUPPORT = Path(__file__).parents[2] / "support"


@contextmanager
def using(spark: Any, io: str) -> Iterator[Any]:
    spark.conf.set("spark.headrace.state.io", io)
    try:
        yield spark
    finally:
        spark.conf.unset("spark.headrace.state.io")


@pytest.fixture
def by_spark(spark: Any) -> Iterator[Any]:
    with using(spark, "spark"):
        yield spark


@pytest.mark.parametrize(("bins", "seed"), [(1, 21), (3, 22)], ids=["one bin", "three bins"])
def test_answers_equal_duckdb_across_a_restart_and_merges(by_spark: Any, tmp_path: Path, bins: int, seed: int) -> None:
    seen = scenario.play(by_spark, tmp_path / "in", str(tmp_path / "out"), bins, seed)
    assert seen.manifest is not None
    left = {path.name for path in (tmp_path / "out" / "state" / "state").iterdir()}
    assert left == {chunk.name for chunk in seen.manifest.chunks}, "nothing is there that no manifest names"
    # To absorb, to keep rejected rows, to answer what tasks finish, to finish by SQL; now and then to merge.
    assert max(seen.jobs) <= 5


def test_a_checkpoint_goes_on_with_either(spark: Any, tmp_path: Path) -> None:
    """Half the epochs by Spark, the rest with Arrow."""
    tables = make_epochs(seed=23, epochs=4, rows=80)
    seen = scenario.Seen(level=1)
    for first, part, io in ((0, tables[:2], "spark"), (2, tables[2:], "arrow")):
        scenario.write_halves(tmp_path / "in", part, first)
        pipe = scenario.pipeline(spark, tmp_path / "in", str(tmp_path))
        hooks = Hooks(on_epoch=seen.watch)
        with using(spark, io):
            run = pipe.start(spark, str(tmp_path / "state"), bins=2, once=True, flush=first > 0, hooks=hooks)
            run.await_termination()
        if not first:
            assert list((tmp_path / "state" / "state").glob("*.chunk"))
    scenario.check(spark, str(tmp_path), tables, seen)


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with open windows."""
    home = tmp_path_factory.mktemp("carried")
    scenario.write_halves(home / "in", make_epochs(seed=3, epochs=2), 0)
    pipe = scenario.pipeline(spark, home / "in", str(home))
    pipe.start(spark, str(home / "state"), bins=2, once=True).await_termination()
    assert len(list((home / "state" / "state").glob("*.chunk"))) > 2
    return home


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped byte": (flip, "is altered"),
    "a truncated file": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is truncated"),
    "an empty file": (lambda path: path.write_bytes(b""), "is truncated"),
    "a missing file": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_refused_by_name(
    by_spark: Any, made: Path, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    shutil.copytree(made / "state", tmp_path / "state")
    victims = sorted((tmp_path / "state" / "state").glob("*.chunk"))
    damage(victims[1])
    with pytest.raises(hr.CorruptStateError, match=rf"{victims[1].name} {words}"):
        scenario.pipeline(by_spark, made / "in", str(tmp_path)).start(by_spark, str(tmp_path / "state"), once=True)


LOSS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "files that vanish": (Path.unlink, "is missing"),
    "files that are emptied": (lambda path: path.write_bytes(b""), "is missing or empty"),
    "files that change": (flip, "is altered"),
}


@pytest.mark.parametrize(("damage", "words"), LOSS.values(), ids=LOSS.keys())
def test_state_lost_during_a_run_stops_it_by_name(
    by_spark: Any, made: Path, tmp_path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    shutil.copytree(made / "state", tmp_path / "state")

    def lose(point: str) -> None:
        if point == "after-decision":
            for path in (tmp_path / "state" / "state").glob("*.chunk"):
                damage(path)

    pipe = scenario.pipeline(by_spark, made / "in", str(tmp_path))
    run = pipe.start(by_spark, str(tmp_path / "state"), once=True, flush=True, hooks=Hooks(probe=lose))
    with pytest.raises(hr.CorruptStateError, match=rf"state file .*\.chunk {words}"):
        run.await_termination()


def test_a_kill_between_writing_and_naming_leaves_garbage_only(spark: Any, tmp_path: Path) -> None:
    home, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    for each in (home, undisturbed):
        write_epochs(each / "in", make_epochs(seed=5, epochs=2, rows=120))
    command = [sys.executable, str(SUPPORT / "victim.py"), str(home), "2", "mid-carry@1", "nothing", "-", "spark"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr[-3000:]
    assert list((home / "state" / "state").glob("_*")), "what Spark wrote for the tasks is there, without names"
    victim.finish(spark, undisturbed, 2, Hooks(clock_us=victim.clock(undisturbed, "nothing")))
    with using(spark, "spark"):
        victim.finish(spark, home, 2, Hooks(clock_us=victim.clock(home, "nothing")))
    for name in (*victim.QUERIES, *victim.FLOWS):
        assert results(undisturbed / name)
        assert_same(results(home / name), results(undisturbed / name))
    assert (home / "ledger.json").read_text() == (undisturbed / "ledger.json").read_text()
    manifest = Checkpoint(LocalStorage(str(home / "state"))).latest()
    assert manifest is not None
    named = {chunk.name for chunk in manifest.chunks}
    assert {path.name for path in (home / "state" / "state").iterdir()} == named


class _At:
    """As much of a checkpoint as the choice looks at."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage


@pytest.mark.parametrize(
    ("setting", "root", "chosen"),
    [
        pytest.param("auto", "{}", ArrowIo, id="a local path is opened by tasks"),
        pytest.param("spark", "{}", SparkIo, id="unless Spark is asked for"),
        pytest.param("arrow", "unreachable://{}", ArrowIo, id="Arrow is taken at the user's word"),
        pytest.param("auto", "unreachable://{}", SparkIo, id="a scheme Arrow does not know is carried by Spark"),
    ],
)
def test_the_choice(spark: Any, tmp_path: Path, setting: str, root: str, chosen: type) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.root = root.format(tmp_path)
    if setting == "auto" and chosen is SparkIo:
        # The driver reaches it, as Hadoop would; tasks see the scheme.
        storage._path = lambda path: tmp_path / path  # type: ignore[method-assign]
    with using(spark, setting):
        assert type(choose_io(spark, _At(storage))) is chosen  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("_probe*"))


def test_an_unknown_choice_is_refused(spark: Any, tmp_path: Path) -> None:
    with (
        using(spark, "fast"),
        pytest.raises(hr.SpecError, match=r"spark.headrace.state.io is 'fast'; it can be auto, arrow, spark"),
    ):
        choose_io(spark, _At(None))  # type: ignore[arg-type]
