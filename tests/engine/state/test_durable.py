"""What an epoch depends on is on disk before the epoch has happened; what queries leave behind goes with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from world import SCHEMA, make_epochs, write_epochs

import headrace as hr
from headrace.engine.state import workload
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import LocalStorage

KEYED = "SELECT k, SUM(i) AS v FROM r [WINDOW 20 s SLIDE 10 s] GROUP BY k"
FAILING = "SELECT SUM(1 / length('')) AS v FROM r [WINDOW 20 s]"


class Trace:
    """What the driver forced to disk, and which files it gave a name, in order; paths are relative to a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root, self._lock = root, threading.Lock()
        self.calls: list[tuple[str, str]] = []
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            self._note("sync", os.readlink(f"/proc/self/fd/{descriptor}"))

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("link", "replace"):
            monkeypatch.setattr(os, name, self._naming(getattr(os, name)))

    def _naming(self, real: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def call(source: Any, target: Any) -> None:
            self._note("name", target)
            real(source, target)

        return call

    def _note(self, kind: str, path: object) -> None:
        with self._lock:
            self.calls.append((kind, os.path.relpath(str(path), self._root)))

    def position(self, kind: str, path: str) -> int:
        return self.calls.index((kind, path))


def test_all_that_a_manifest_names_is_on_disk_before_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch, tmp_path)
    tables = make_epochs(seed=71, epochs=6, rows=50)
    write_epochs(tmp_path / "in", tables[:3])
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("durable").stream("r", rows, time="ts", lateness="20 seconds")
    pipe.query("direct", KEYED, sink=hr.parquet(str(tmp_path / "direct")))
    pipe.query("plain", KEYED, sink=hr.csv(str(tmp_path / "plain")))
    run = pipe.start(spark, str(tmp_path / "state"), trigger="0 seconds")
    run.process_all_available()
    point = Checkpoint(LocalStorage(str(tmp_path / "state"), sync=False))
    named: frozenset[str] = frozenset()
    for epoch in range(3):
        committed = trace.position("name", f"state/manifests/{epoch}.json")
        before = trace.calls[:committed]
        decided = trace.position("name", f"state/decisions/{epoch}.json")
        assert ("sync", f"state/spark/offsets/{epoch}") in trace.calls[:decided], (
            "a decision is about rows that are known"
        )
        assert ("sync", f"state/spark/sources/0/{epoch}") in trace.calls[:decided]
        chunks = frozenset(f"state/state/{chunk.name}" for chunk in point.manifest(epoch).chunks)
        files = {f"{q}/{p.name}" for q in ("direct", "plain") for p in (tmp_path / q).glob(f"epoch-{epoch:09d}-*")}
        for path in (chunks - named) | files:
            assert ("sync", path) in before, f"{path} of epoch {epoch}"
        for path in files:
            folder = ("sync", path.partition("/")[0])
            assert folder in trace.calls[trace.position("name", path) : committed], "its name is on disk, too"
        assert not chunks - named or ("sync", "state/state") in before
        assert ("sync", "state/manifests") in trace.calls[committed:]
        named = chunks
    assert list((tmp_path / "direct").glob("epoch-*"))

    # A query that is dropped takes along what its attempts have left.
    (tmp_path / "plain" / "_staging" / "attempt").mkdir(parents=True)
    (tmp_path / "plain" / "_staging" / "attempt" / "part-0").write_text("")
    run.drop_query("plain")
    assert not (tmp_path / "plain" / "_staging").exists()
    assert list((tmp_path / "plain").glob("epoch-*")), "results stay"

    # Queries that came while it ran, and are over, are remembered for a while.
    monkeypatch.setattr(workload, "KEPT_OVER", 1)
    for number in range(3):
        run.add_query(f"failing_{number}", FAILING)
        write_epochs(tmp_path / "in", tables[3 + number : 4 + number], first=3 + number)
        run.process_all_available()
    run.stop()
    states = {name: state["state"] for name, state in run.status["queries"].items()}
    assert states == {"direct": "running", "failing_1": "failed", "failing_2": "failed"}
