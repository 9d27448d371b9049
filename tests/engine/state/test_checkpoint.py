"""A checkpoint gives back what was committed, refuses what it cannot trust by name, and stays small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.state.checkpoint import KEPT, VERSION, Checkpoint, Manifest, QueryState
from headrace.engine.state.storage import LocalStorage
from headrace.errors import CorruptStateError, LockedError, StateError, VersionError
from headrace.kernels.chunks import Chunk
from headrace.model import Entry, EpochDecision, Flush, Idle, Observed
from headrace.planning import Coverage
from headrace.policies import StreamClock

MANIFEST = Manifest(
    epoch=4,
    batch=3,
    clocks={"s": StreamClock(-5, 10, 7, 99), "t": StreamClock()},
    ledger={"s": Entry(used=5, late=1, rejected=2)},
    queries={
        "q": QueryState("SELECT å", since_us=4, answered_us=-10, rows=3, answers=2),
        "bad": QueryState("x", failed="no"),
    },
    coverage={
        "a": Coverage(),
        "b": Coverage(7, {"n": None, "sum_0123": 9}, ((60, None), (20, 8)), 12.5),
    },
    workload=2,
    chunks=(Chunk("1.chunk", 10, 5, 2, (("a", 30), ("b", -4))), Chunk("2.chunk", 1, 2, 0, ())),
    observed=Observed(seconds=0.25, rows={"s": 8}),
)
WORKLOAD = {"streams": {}, "kept": {"b": {"pane_us": 20, "feeds": [{"where": "å"}]}}, "supplies": {}}
STREAMS = {"s": "parquet data/s", "t": "a DataFrame"}
DECISION = EpochDecision(
    4, 3, 1_700_000_000_000_000, 4, ("q",), (Idle("t", "silent for 60 s"),), Flush("the run was asked to flush")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def point(folder: Path) -> Iterator[Checkpoint]:
    """A new checkpoint, open."""
    made = Checkpoint(LocalStorage(str(folder)))
    assert made.open(bins=3, streams=STREAMS) is None
    yield made
    made.close()


def spark_log(folder: Path, planned: int, committed: int) -> None:
    """What Spark leaves after planning and committing batches 0 to these."""
    for name, last in (("offsets", planned), ("commits", committed)):
        (folder / "spark" / name).mkdir(parents=True, exist_ok=True)
        for old in (folder / "spark" / name).iterdir():
            old.unlink()
        for batch in range(last + 1):
            (folder / "spark" / name / str(batch)).write_text("v1")
        (folder / "spark" / name / ".0.crc").write_text("")


def reopened(folder: Path, streams: Mapping[str, str] | None = None) -> tuple[Checkpoint, Manifest | None]:
    made = Checkpoint(LocalStorage(str(folder)))
    try:
        return made, made.open(bins=8, streams=streams or STREAMS)
    finally:
        made.close()


def test_what_is_committed_is_found_again(point: Checkpoint, folder: Path):
    point.commit(MANIFEST)
    spark_log(folder, planned=3, committed=3)
    point.close()
    again, manifest = reopened(folder)
    assert manifest == MANIFEST
    assert (again.id, again.bins) == (point.id, 3), "bins are those of the start, whatever is asked for later"


def test_a_manifest_survives_json():
    assert Manifest.from_json(json.loads(json.dumps(MANIFEST.to_json()))) == MANIFEST


def test_the_last_manifest_counts(point: Checkpoint):
    for epoch in (9, 10, 11):
        point.commit(replace(MANIFEST, epoch=epoch))
    latest = point.latest()
    assert latest is not None
    assert latest.epoch == 11, "by number, not by name"


def test_an_epoch_is_committed_once(point: Checkpoint, folder: Path):
    point.commit(MANIFEST)
    with pytest.raises(LockedError, match=f"epoch 4 of {folder} was committed by another engine; this one stops"):
        point.commit(replace(MANIFEST, batch=9))
    assert point.manifest(4) == MANIFEST


def test_without_the_lock_nothing_is_committed(point: Checkpoint, folder: Path):
    point.close()
    with pytest.raises(
        LockedError, match=f"checkpoint {folder} is no longer this engine's, which stops: this engine gave"
    ):
        point.commit(MANIFEST)
    assert point.latest() is None


def test_a_second_engine_is_refused_until_the_first_is_gone(point: Checkpoint, folder: Path):
    with pytest.raises(LockedError, match=f"checkpoint {folder} is in use by process"):
        reopened(folder)
    point.close()
    assert reopened(folder)[1] is None


def test_decisions_come_back_as_they_were_made(point: Checkpoint):
    assert point.decision(4) is None
    plain = EpochDecision(5, 4, 1, 5, ())
    point.write_decision(DECISION)
    point.write_decision(plain)
    assert (point.decision(4), point.decision(5), point.decisions()) == (DECISION, plain, [4, 5])


def test_a_decision_is_made_once(point: Checkpoint):
    point.write_decision(DECISION)
    with pytest.raises(FileExistsError):
        point.write_decision(replace(DECISION, seed=1))
    assert point.decision(4) == DECISION


def test_a_workload_comes_back_as_it_was_described(point: Checkpoint):
    point.write_workload(2, WORKLOAD)
    point.write_workload(3, {})
    assert (point.workload(MANIFEST.workload), point.workload(3)) == (WORKLOAD, {})


def test_an_attempt_that_did_not_commit_describes_its_workload_again(point: Checkpoint):
    point.write_workload(2, {"kept": {"from": "before a crash"}})
    point.write_workload(2, WORKLOAD)
    assert point.workload(MANIFEST.workload) == WORKLOAD


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        pytest.param(
            {"version": VERSION + 1, "id": "x", "bins": 3},
            VersionError,
            f"has version {VERSION + 1}, this Headrace reads version {VERSION}; use the Headrace that wrote it",
            id="a newer version",
        ),
        pytest.param({"version": 0}, VersionError, "has version 0", id="an older version"),
        pytest.param(
            {"version": 1, "id": "x", "bins": 3, "streams": {}},
            VersionError,
            f"has version 1, this Headrace reads version {VERSION}; use the Headrace that wrote it, or start with",
            id="the version before queries shared synopses",
        ),
        pytest.param({"id": "x"}, CorruptStateError, "headrace.json cannot be read: 'version'", id="no version"),
        pytest.param(
            {"version": VERSION, "id": "x"}, CorruptStateError, "headrace.json cannot be read: 'bins'", id="no bins"
        ),
        pytest.param(
            {"version": VERSION, "bins": 3}, CorruptStateError, "headrace.json cannot be read: 'id'", id="no id"
        ),
        pytest.param([1], CorruptStateError, "headrace.json cannot be read", id="something else"),
    ],
)
def test_versions(point: Checkpoint, folder: Path, content: object, error: type[Exception], message: str):
    point.close()
    (folder / "headrace.json").write_text(json.dumps(content))
    with pytest.raises(error, match=message):
        reopened(folder)


def test_a_truncated_version_file_is_refused(point: Checkpoint, folder: Path):
    point.close()
    whole = (folder / "headrace.json").read_text()
    for size in range(len(whole)):
        (folder / "headrace.json").write_text(whole[:size])
        with pytest.raises(CorruptStateError, match=f"{folder}/headrace.json cannot be read"):
            reopened(folder)


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param({"s": "parquet data/s"}, id="a stream less"),
        pytest.param({**STREAMS, "u": "rate"}, id="a stream more"),
        pytest.param({**STREAMS, "s": "parquet data/other"}, id="another source"),
    ],
)
def test_other_streams_are_refused(point: Checkpoint, folder: Path, streams: dict[str, str]):
    point.close()
    given = ", ".join(f"{name} ({source})" for name, source in streams.items())
    with pytest.raises(StateError) as refused:
        reopened(folder, streams)
    assert str(refused.value) == (
        f"checkpoint {folder} was made for the streams s (parquet data/s), t (a DataFrame), not {given}; "
        "a change of streams needs a new checkpoint"
    )
    assert reopened(folder)[1] is None, "nothing was touched, nothing stays locked"


def test_the_order_of_streams_does_not_matter(point: Checkpoint, folder: Path):
    point.close()
    assert reopened(folder, dict(reversed(STREAMS.items())))[1] is None


def test_manifests_without_a_version_are_refused(point: Checkpoint, folder: Path):
    point.commit(MANIFEST)
    point.close()
    (folder / "headrace.json").unlink()
    with pytest.raises(CorruptStateError, match=f"{folder}/headrace.json is missing, though there are manifests"):
        reopened(folder)


def test_a_refused_checkpoint_is_not_left_locked(point: Checkpoint, folder: Path):
    point.commit(MANIFEST)
    point.close()
    with pytest.raises(CorruptStateError):
        reopened(folder)
    spark_log(folder, planned=3, committed=3)
    assert reopened(folder)[1] == MANIFEST


READERS: dict[str, Callable[[Checkpoint], object]] = {
    "manifests/4.json": lambda point: point.latest(),
    "decisions/4.json": lambda point: point.decision(4),
    "workload/2.json": lambda point: point.workload(MANIFEST.workload),
}


def write_all(point: Checkpoint) -> None:
    point.commit(MANIFEST)
    point.write_decision(DECISION)
    point.write_workload(2, WORKLOAD)


@pytest.mark.parametrize("path", READERS)
def test_an_altered_file_is_refused_by_name(point: Checkpoint, folder: Path, path: str):
    write_all(point)
    whole = (folder / path).read_bytes()
    for at in (*range(0, len(whole), 7), len(whole) - 1):
        (folder / path).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptStateError, match=f"{folder}/{path} is altered or truncated"):
            READERS[path](point)


@pytest.mark.parametrize("path", READERS)
def test_a_truncated_file_is_refused_by_name(point: Checkpoint, folder: Path, path: str):
    write_all(point)
    whole = (folder / path).read_bytes()
    for size in (0, 1, 8, 9, 10, len(whole) // 2, len(whole) - 1):
        (folder / path).write_bytes(whole[:size])
        with pytest.raises(CorruptStateError, match=f"{folder}/{path} is altered or truncated"):
            READERS[path](point)


def test_a_missing_file_is_refused_by_name(point: Checkpoint, folder: Path):
    with pytest.raises(CorruptStateError, match=f"{folder}/manifests/7.json is missing"):
        point.manifest(7)
    with pytest.raises(CorruptStateError, match=f"{folder}/workload/2.json is missing"):
        point.workload(MANIFEST.workload)


@pytest.mark.parametrize(
    ("planned", "committed", "message"),
    [
        #   Spark plans a batch, the engine commits its manifest, Spark commits the batch.
        pytest.param(3, 3, None, id="all have committed"),
        pytest.param(3, 2, None, id="Spark died before it committed what the manifest has"),
        pytest.param(4, 3, None, id="the next batch was planned, and is run again"),
        pytest.param(
            2, 2, "knows batches up to 2, the last manifest is of batch 3; restore the whole", id="offsets are missing"
        ),
        pytest.param(-1, -1, "knows batches up to -1, the last manifest is of batch 3", id="Spark's log is missing"),
        pytest.param(
            4,
            4,
            "has committed batch 4, the last manifest is of batch 3: manifests are missing",
            id="a manifest is missing",
        ),
        pytest.param(5, 3, "manifests are missing", id="two batches ahead"),
    ],
)
def test_sparks_offsets_must_fit(point: Checkpoint, folder: Path, planned: int, committed: int, message: str | None):
    point.commit(MANIFEST)
    point.close()
    spark_log(folder, planned, committed)
    if message is None:
        assert reopened(folder)[1] == MANIFEST
    else:
        with pytest.raises(CorruptStateError, match=f"{folder}/spark .*{message}"):
            reopened(folder)


@pytest.mark.parametrize(
    ("planned", "committed", "fits"),
    [
        pytest.param(-1, -1, True, id="a new folder"),
        pytest.param(0, -1, True, id="the first batch did not finish"),
        pytest.param(0, 0, False, id="the first manifest is missing"),
    ],
)
def test_without_a_manifest_spark_must_not_be_ahead(
    point: Checkpoint, folder: Path, planned: int, committed: int, fits: bool
):
    point.close()
    spark_log(folder, planned, committed)
    if fits:
        assert reopened(folder)[1] is None
    else:
        with pytest.raises(CorruptStateError, match="manifests are missing"):
            reopened(folder)


# What is cleaned -----------------------------------------------------------------------------------------------------


def test_orphans_go_and_named_files_stay(point: Checkpoint, folder: Path):
    for name in ("1.chunk", "2.chunk", "orphan.chunk", ".half-written"):
        (folder / "state" / name).write_text(name)
    point.commit(MANIFEST)
    point.clean_orphans(MANIFEST, ())
    assert sorted(p.name for p in (folder / "state").iterdir()) == ["1.chunk", "2.chunk"]
    assert point.latest() == MANIFEST


def test_of_workloads_only_the_described_one_stays(point: Checkpoint, folder: Path):
    for epoch in (0, 2, 5):
        point.write_workload(epoch, WORKLOAD)
    point.clean_orphans(MANIFEST, ())
    assert [p.name for p in (folder / "workload").iterdir()] == ["2.json"]
    point.clean_orphans(None, ())
    assert list((folder / "workload").iterdir()) == []


def test_without_a_manifest_all_state_is_orphaned(point: Checkpoint, folder: Path):
    (folder / "state" / "1.chunk").write_text("")
    point.write_decision(replace(DECISION, epoch=0))
    point.clean_orphans(None, ())
    assert list((folder / "state").iterdir()) == []
    assert point.decisions() == [0], "what was decided for the first epoch stays decided"


def test_logs_stay_bounded_and_the_last_are_kept(point: Checkpoint, folder: Path):
    for epoch in range(3 * KEPT):
        point.write_decision(replace(DECISION, epoch=epoch))
        manifest = replace(MANIFEST, epoch=epoch)
        point.commit(manifest)
        point.clean(manifest, frozenset())
        assert len(point.decisions()) <= KEPT
        assert len(list((folder / "manifests").iterdir())) <= KEPT
    assert point.decisions() == list(range(2 * KEPT, 3 * KEPT))
    assert point.latest() == replace(MANIFEST, epoch=3 * KEPT - 1)


def test_logs_that_crashes_left_go_on_start(point: Checkpoint):
    for epoch in range(3 * KEPT):
        point.write_decision(replace(DECISION, epoch=epoch))
        point.commit(replace(MANIFEST, epoch=epoch))
    last = replace(MANIFEST, epoch=3 * KEPT - 1)
    point.write_decision(replace(DECISION, epoch=3 * KEPT))
    point.clean_orphans(last, ())
    assert point.decisions() == list(range(2 * KEPT, 3 * KEPT + 1)), "the decision of the next epoch stays"
    assert point.latest() == last


def test_dropped_chunks_are_removed(point: Checkpoint, folder: Path):
    for name in ("1.chunk", "2.chunk", "old.chunk"):
        (folder / "state" / name).write_text("")
    point.clean(MANIFEST, frozenset({"old.chunk", "never-there.chunk"}))
    assert sorted(p.name for p in (folder / "state").iterdir()) == ["1.chunk", "2.chunk"]


def test_workloads_stay_bounded_while_queries_come_and_go(point: Checkpoint, folder: Path):
    """A workload is described in every third epoch; those that the last manifests were committed with stay."""
    for epoch in range(3 * KEPT):
        if epoch % 3 == 0:
            point.write_workload(epoch, WORKLOAD)
        manifest = replace(MANIFEST, epoch=epoch, workload=epoch // 3 * 3)
        point.commit(manifest)
        point.clean(manifest, frozenset())
        for number in range(max(0, epoch - KEPT + 1), epoch + 1):
            assert point.workload(point.manifest(number).workload) == WORKLOAD
    assert len(list((folder / "workload").iterdir())) == KEPT // 3 + 1


def test_a_workload_that_serves_for_long_stays(point: Checkpoint):
    point.write_workload(2, WORKLOAD)
    for epoch in range(2, 3 * KEPT):
        point.commit(replace(MANIFEST, epoch=epoch))
        point.clean(replace(MANIFEST, epoch=epoch), frozenset())
    assert point.workload(MANIFEST.workload) == WORKLOAD


def test_what_attempts_left_half_done_goes_on_start(point: Checkpoint, folder: Path):
    half = ".7.json." + "0123456789abcdef" * 2
    left = [f"manifests/{half}", f"decisions/{half}", f"workload/{half}", half, "rejected/_staging-1/part-0.json",
            "delivered/gone"]  # fmt: skip
    stays = ["delivered/q", "rejected/epoch-000000001-000.json", "rejected/removed.json", "spark/metadata", ".creating"]
    for path in (*left, *stays):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    point.clean_orphans(None, ["q"])
    assert [path for path in left if (folder / path).exists()] == []
    assert [path for path in stays if (folder / path).exists()] == stays


class TakenOver:
    """A lease whose last owner was taken for dead."""

    took_over = True

    def lost(self, look: bool = False) -> str | None:
        return None

    def release(self) -> None:
        return None


def test_an_engine_that_was_taken_for_dead_may_have_committed_until_another_has(
    point: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its chunks are nobody's until its manifest comes; they go when it can come no more."""
    monkeypatch.setattr(LocalStorage, "lock", lambda self, path: TakenOver())
    point.close()
    taker = Checkpoint(LocalStorage(str(folder)))
    taker.open(bins=3, streams=STREAMS)
    (folder / "state" / "late.chunk").write_text("")
    taker.clean_orphans(None, ())
    assert (folder / "state" / "late.chunk").exists()
    manifest = replace(MANIFEST, epoch=0)
    taker.commit(manifest)
    taker.clean(manifest, frozenset())
    assert not (folder / "state" / "late.chunk").exists()


@pytest.mark.parametrize(
    ("empty", "decided", "removed"),
    [
        pytest.param("commits/3", False, True, id="a commit of Spark's is its own affair"),
        pytest.param("commits/3", True, True, id="whatever was decided"),
        pytest.param("offsets/4", False, True, id="offsets of a batch that had not begun"),
        pytest.param("offsets/4", True, False, id="offsets that a decision is about were on disk: nobody empties them"),
        pytest.param("sources/0/4", False, True, id="files of a batch that had not begun"),
        pytest.param("offsets/3", False, False, id="offsets of a committed epoch were on disk, too"),
    ],
)
def test_what_a_loss_of_power_leaves_of_sparks_log_is_removed(
    point: Checkpoint, folder: Path, empty: str, decided: bool, removed: bool
):
    point.commit(MANIFEST)
    if decided:
        point.write_decision(replace(DECISION, epoch=5, batch=4))
    point.close()
    spark_log(folder, planned=4 if empty == "offsets/4" else 3, committed=3)
    (folder / "spark" / empty).parent.mkdir(parents=True, exist_ok=True)
    (folder / "spark" / empty).write_text("")
    assert reopened(folder)[1] == MANIFEST
    assert (folder / "spark" / empty).exists() is not removed


# What is rejected ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "most_files", "most_bytes", "stay"),
    [
        pytest.param([10, 10, 10], 3, 30, [0, 1, 2], id="what fits stays"),
        pytest.param([10, 10, 10], 2, 30, [1, 2], id="of too many files the oldest goes"),
        pytest.param([10, 10, 10], 3, 25, [1, 2], id="of too many bytes as well"),
        pytest.param([50, 10, 10], 3, 25, [1, 2], id="one that is large is enough"),
        pytest.param([10, 10, 99], 3, 25, [2], id="the newest stays, whatever its size"),
        pytest.param([], 3, 25, [], id="nothing is fine"),
    ],
)
def test_rejected_rows_stay_within_limits(
    point: Checkpoint, folder: Path, sizes: list[int], most_files: int, most_bytes: int, stay: list[int]
):
    for epoch, size in enumerate(sizes):
        point.storage.create(f"rejected/epoch-{epoch:09d}-000.json", b"x" * size)
    rows = RejectedRows(point.storage)
    rows.trim(most_files, most_bytes)
    left = [path.name for path in sorted(folder.glob("rejected/epoch-*"))]
    assert left == [f"epoch-{epoch:09d}-000.json" for epoch in stay]
    gone = [size for epoch, size in enumerate(sizes) if epoch not in stay]
    assert RejectedRows(point.storage).account() == {
        "files": len(stay),
        "bytes": sum(sizes[epoch] for epoch in stay),
        "removed_files": len(gone),
        "removed_bytes": sum(gone),
    }
