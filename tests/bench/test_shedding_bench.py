"""What the bench of shedding compares with: the best there is for a budget, files of a set size, and its picture."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.bench.burst import TICK_S, Feed
from headrace.bench.draw import draw
from headrace.bench.shedding_figure import COSTS_S, EPOCH_S, QUERIES, _best, _edges
from headrace.planning import Shedding

STATE = Shedding()
LEFT_S = EPOCH_S * (1 - STATE.headroom)


@pytest.mark.parametrize(
    ("came", "other_s", "rows"),
    [
        pytest.param(1000, 0.4, 2000, id="all rows of both where they fit"),
        pytest.param(
            6000, LEFT_S - 1.2, 6000 + 0.6 / COSTS_S["dear"], id="cheap rows first, and dear ones for the rest"
        ),
        pytest.param(6000, LEFT_S - 0.3, 0.3 / COSTS_S["cheap"], id="cheap rows alone"),
        pytest.param(6000, LEFT_S + 1, 0, id="nothing where an epoch has no time"),
    ],
)
def test_the_best_for_a_budget_is_known(came: int, other_s: float, rows: float):
    assert _best(came, other_s, STATE) == pytest.approx(rows, abs=0.1)


def test_each_query_has_an_edge_of_its_own():
    assert sorted(_edges().values()) == sorted(QUERIES)


def test_files_have_so_many_rows_at_most_and_all_that_came(tmp_path: Path):
    feed = Feed(tmp_path / "in", lambda _: 4000.0, 2 * TICK_S, 300)
    with feed:
        pass
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "in").glob("*.parquet"))]
    assert sum(sizes) == feed.rows > 0
    assert max(sizes) <= 300
    assert len(sizes) == feed.files >= math.ceil(feed.rows / 300)


def test_it_is_drawn(tmp_path: Path):
    side = {
        "at_s": [2.0, 4.0],
        "lags_s": [2.5, 3.0],
        "rows": [{"cheap": 5, "dear": 2}, {"cheap": 4}],
        "best_rows": [7, 5],
    }
    draw({"bench": "shedding", "measures": {"two_queries": {"costs_s": COSTS_S, "shedding": side, "off": side}}},
         tmp_path / "made.png")  # fmt: skip
    assert (tmp_path / "made.png").stat().st_size > 1000
