"""A checkpoint that is in use, damaged or foreign is refused by name, and nothing in it changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from world import SCHEMA, make_epochs, write_epochs

import headrace as hr


def pipeline(spark: Any, home: Path) -> hr.Pipeline:
    """The same pipeline over the same files, with a checkpoint and results of its own."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet((home / "source").read_text())
    pipe = hr.Pipeline("refused").stream("r", rows, time="ts", lateness="20 seconds")
    return pipe.query(
        "q", "SELECT k, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k", sink=hr.parquet(str(home / "q"))
    )


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with open windows."""
    home = tmp_path_factory.mktemp("made")
    write_epochs(home / "in", make_epochs(seed=3, epochs=3))
    (home / "source").write_text(str(home / "in"))
    pipeline(spark, home).start(spark, str(home / "state"), once=True).await_termination()
    assert list((home / "state" / "state").glob("*.chunk"))
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def chunk(home: Path) -> Path:
    return sorted((home / "state" / "state").glob("*.chunk"))[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def newest(home: Path, folder: str) -> Path:
    return max((home / "state" / folder).glob("*.json"), key=lambda p: int(p.stem))


DAMAGE: dict[str, tuple[Callable[[Path], None], type[Exception], str]] = {
    "a flipped byte in a state file": (lambda h: flip(chunk(h)), hr.CorruptStateError, ".chunk is altered"),
    "a truncated state file": (
        lambda h: chunk(h).write_bytes(chunk(h).read_bytes()[:-9]), hr.CorruptStateError, ".chunk is truncated"),
    "a missing state file": (lambda h: chunk(h).unlink(), hr.CorruptStateError, ".chunk is missing"),
    "a flipped byte in the manifest": (
        lambda h: flip(newest(h, "manifests")), hr.CorruptStateError, "manifests/2.json"),
    "a missing manifest": (lambda h: newest(h, "manifests").unlink(), hr.CorruptStateError, "manifests are missing"),
    "no offsets of Spark's": (lambda h: shutil.rmtree(h / "state" / "spark"), hr.CorruptStateError, "state/spark"),
    "an unknown version": (
        lambda h: (h / "state" / "headrace.json").write_text('{"version": 99}'), hr.VersionError, "version 99"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "error", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_refused_by_name(
    spark: Any, home: Path, damage: Callable[[Path], None], error: type[Exception], words: str
) -> None:
    damage(home)
    with pytest.raises(error, match=words.replace(".", r"\.")):
        pipeline(spark, home).start(spark, str(home / "state"), once=True)


def test_a_second_engine_is_refused(spark: Any, home: Path) -> None:
    run = pipeline(spark, home).start(spark, str(home / "state"), trigger="1 hour")
    try:
        with pytest.raises(hr.LockedError, match="in use by process"):
            pipeline(spark, home).start(spark, str(home / "state"), once=True)
    finally:
        run.stop()
    pipeline(spark, home).start(spark, str(home / "state"), once=True).await_termination()


def test_other_streams_are_refused(spark: Any, home: Path) -> None:
    path = home / "state" / "headrace.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "streams": {"other": "a DataFrame"}}))
    with pytest.raises(hr.StateError, match="was made for the streams other"):
        pipeline(spark, home).start(spark, str(home / "state"), once=True)


def test_a_new_checkpoint_does_not_write_over_old_results(spark: Any, home: Path) -> None:
    with pytest.raises(hr.SpecError, match="holds results of another checkpoint"):
        pipeline(spark, home).start(spark, str(home / "elsewhere"), once=True)
