"""What becomes of mini-partitions that are more than a bin's share."""

from __future__ import annotations

import pytest

from headrace.model import Isolate, Split
from headrace.policies import BinLoad, MiniLoad, find_hot, isolate, split


def bins(*rows: dict[int, int], busy: tuple[float, ...] | None = None) -> list[BinLoad]:
    loads = busy or (0.5,) * len(rows)
    return [BinLoad(i, loads[i], tuple(MiniLoad(m, n, 10) for m, n in each.items())) for i, each in enumerate(rows)]


@pytest.mark.parametrize(
    ("world", "hot"),
    [
        pytest.param(bins({0: 6000, 1: 1000}, {2: 3000}), [0], id="more than half of all rows, with two bins"),
        pytest.param(bins({0: 5000}, {2: 5000}), [], id="a fair share is not too much"),
        pytest.param(bins({0: 4000}, {2: 3500}, {3: 2500}), [0, 2], id="with three bins more than a third"),
        pytest.param(bins({0: 600}, {2: 100}), [], id="a few rows say nothing"),
        pytest.param(bins({0: 5000}), [], id="one bin alone is everybody's"),
    ],
)  # fmt: skip
def test_hot(world: list[BinLoad], hot: list[int]):
    assert [mini.mini for mini in find_hot(world)] == hot


@pytest.mark.parametrize(
    ("world", "before", "wanted"),
    [
        pytest.param(
            bins({0: 6000, 1: 1000}, {2: 3000}), [], [(0, (0, 1))], id="two bins share what is more than one's share"
        ),
        pytest.param(
            bins({0: 7000}, {1: 1000}, {2: 1000}, {3: 1000}, busy=(1, 0.3, 0.1, 0.2)), [], [(0, (0, 2, 3))],
            id="as many bins as it has shares, the idlest first",
        ),
        pytest.param(
            bins({0: 3000, 1: 3000}, {2: 4000}), [Split(0, (0, 1), "hot")], [(0, (0, 1))],
            id="what is split stays split for a while",
        ),
        pytest.param(
            bins({0: 2000, 1: 4000}, {2: 4000}), [Split(0, (0, 1), "hot")], [],
            id="and is joined again when it has cooled down",
        ),
        pytest.param(
            bins({0: 8000}, {1: 1000}, {2: 1000}, {3: 0}), [Split(0, (0, 3), "hot")], [(0, (0, 1, 2, 3))],
            id="more bins share what has become hotter",
        ),
        pytest.param(
            bins({0: 0}, {2: 0}), [Split(0, (0, 1), "hot")], [(0, (0, 1))], id="a pause changes nothing",
        ),
    ],
)  # fmt: skip
def test_split(world: list[BinLoad], before: list[Split], wanted: list[tuple[int, tuple[int, ...]]]):
    assert [(item.mini, item.bins) for item in split(world, before)] == wanted


def test_a_split_says_how_hot():
    (found,) = split(bins({0: 6000, 1: 1000}, {2: 3000}))
    assert found.reason == "it has 60% of all rows, a bin's fair share is 50%"


def test_what_cannot_be_split_gets_a_bin_to_itself():
    alone, moves = isolate(bins({0: 8000, 1: 500, 4: 900}, {2: 300}, {3: 300}, busy=(1.0, 0.1, 0.2)))
    reason = "it has 80% of all rows, more than a bin's fair share of 33%, and its state cannot be split"
    assert alone == (Isolate(0, 0, reason),)
    assert [(m.mini, m.source, m.target) for m in moves] == [(4, 0, 1), (1, 0, 2)]
    assert moves[0].reason == "bin 0 is left to mini-partition 0, which is hot"


def test_others_stay_with_a_hot_one_where_no_bin_has_room_for_them():
    hot = BinLoad(0, 1.0, (MiniLoad(0, 9000, 10), MiniLoad(1, 500, 30), MiniLoad(2, 400, 10)), 100)
    alone, moves = isolate([hot, BinLoad(1, 0.1, (MiniLoad(3, 100, 10),), 30)])
    assert [item.mini for item in alone] == [0]
    assert [move.mini for move in moves] == [2]
    # Filled to the brim, the other bin would spill at the next row, and send it back.
    assert isolate([hot, BinLoad(1, 0.1, (MiniLoad(3, 100, 10),), 22)])[1] == ()


def test_nothing_moves_where_every_bin_holds_a_hot_one():
    alone, moves = isolate(bins({0: 4500, 1: 100}, {2: 4500}, {3: 10}))
    assert [(m.mini, m.target) for m in moves] == [(1, 2)]
    alone, moves = isolate(bins({0: 5100, 1: 100}, {2: 4900, 3: 1}))
    assert len(alone) == 1
    assert [m.target for m in moves] == [1]
    assert isolate(bins({0: 100}, {1: 100})) == ((), ())


def test_work_is_shared_by_different_bins():
    with pytest.raises(ValueError, match="two or more different bins"):
        Split(1, (0, 0), "")
