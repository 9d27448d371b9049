"""Papers of the catalogue write the same files from the same seed."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.reproducing import reproduce
from headrace.reproduce import PAPERS, Settings


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    settings = Settings(quick=True, given={"seconds": 100})
    for name in ("one", "two"):
        reproduce("ssp", ["7"], settings, tmp_path / name)
    one, two = ((tmp_path / name / "ssp-7.csv").read_bytes() for name in ("one", "two"))
    assert one == two
    assert (tmp_path / "one" / "ssp-7.png").read_bytes() == (tmp_path / "two" / "ssp-7.png").read_bytes()


def test_papers_have_the_names_they_are_known_by() -> None:
    assert all(paper.name == name for name, paper in PAPERS.items())
    assert all(figure.title and figure.make for paper in PAPERS.values() for figure in paper.figures)
