"""What an epoch is about to take is read from Spark's own log, before any row is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.engine.sources.coming import Batch, ComingRows
from headrace.engine.sources.file_log import Files
from headrace.engine.state.storage import open_storage


class Log:
    def files(self, batch: int, stream: str) -> Files | None:
        return Files(2, 500, 300) if stream == "files" else None


def offsets(root: Path, batch: int, *lines: object) -> None:
    folder = root / "spark" / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / str(batch)).write_text("\n".join(["v1", "{}", *texts]))


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        pytest.param({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}, Batch(rows=4), id="messages by offset"),
        pytest.param("-", {"t": {"0": 9}}, Batch(rows=9), id="the first messages"),
        pytest.param({"t": {"0": 5}}, {"t": {"0": 9, "1": 3}}, Batch(rows=7), id="a new partition"),
        pytest.param({"row": 100}, {"row": 350}, Batch(rows=250), id="rows that are made"),
        pytest.param({"logOffset": 3}, {"logOffset": 4}, Batch(bytes=500), id="bytes of files"),
        pytest.param(3, 9, None, id="a source that counts otherwise"),
        pytest.param({"t": {"0": 5}}, "-", None, id="nothing of it"),
    ],
)
def test_what_a_batch_takes(tmp_path: Path, before: object, now: object, wanted: Batch | None):
    offsets(tmp_path, 6, before)
    offsets(tmp_path, 7, now)
    coming = ComingRows(open_storage(str(tmp_path), None), ["files"], Log())
    assert coming.of(7) == ({} if wanted is None else {"files": wanted})


def test_streams_that_share_sources_are_not_told_apart(tmp_path: Path):
    offsets(tmp_path, 0, {"row": 1}, {"row": 2})
    assert ComingRows(open_storage(str(tmp_path), None), ["a"], Log()).of(0) == {}


def test_a_batch_that_nobody_has_planned_tells_nothing(tmp_path: Path):
    assert ComingRows(open_storage(str(tmp_path), None), ["a"], Log()).of(3) == {}
