"""What every paper's experiments promise: the same seed gives the same file, and decision times are in no row."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from headrace.reproduce import PAPERS, Settings
from headrace.reproduce.report import write_figure

CHEAP = [("fit", "1000-hosts"), ("sharing", "engine"), ("placement", "messages")]


@pytest.mark.parametrize(("paper", "figure"), CHEAP)
def test_the_same_seed_gives_the_same_bytes_whatever_the_clock_says(paper: str, figure: str, tmp_path: Path) -> None:
    of, made = PAPERS[paper], PAPERS[paper].only((figure,))[0]
    ticks = count()
    clocks = (None, lambda: float(next(ticks)))
    for folder, clock in zip(("one", "two"), clocks, strict=True):
        write_figure(tmp_path / folder, of, made, made.make(Settings(quick=True, clock=clock)))
    name = f"{paper}-{figure}.csv"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_papers_stand_in_the_order_of_the_reports() -> None:
    order = ("ssp", "fit", "flux", "sharing", "placement")
    assert list(PAPERS) == [name for name in order if name in PAPERS]
