"""The demo's pipeline file is right, and what comes while it runs fits it."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from headrace.cli.demo_world import CHAPTERS, EPOCH, PIPELINE, ROWS, WINDOWS


def test_the_file_and_the_queries_that_come_are_sound(tmp_path: Path) -> None:
    spec = tmp_path / "pipeline.yml"
    spec.write_text(PIPELINE)
    pipe = hr.Pipeline.from_file(spec)
    assert len(pipe.model.queries) == len(WINDOWS) == 12
    for chapter in CHAPTERS[1:]:
        assert chapter.sql is not None
        pipe.query(chapter.query, chapter.sql)
    assert [chapter.epoch for chapter in CHAPTERS] == sorted(chapter.epoch for chapter in CHAPTERS)
    assert CHAPTERS[-1].epoch < ROWS // EPOCH, "all chapters come before the rows end"
