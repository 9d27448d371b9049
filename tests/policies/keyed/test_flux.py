"""Which mini-partitions move: every rule and threshold of the paper's sections 5.3, 6.1 and 6.3."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import Move, Stay
from headrace.policies import BinLoad, FluxLimits, MiniLoad, after_moves, hybrid, load, memory, planned_ahead, within

ROOM = 10**9


def bin_(number: int, utilisation: float, rows: dict[int, int], memory_bytes: int = ROOM, size: int = 10) -> BinLoad:
    """A bin whose mini-partitions have so many rows each."""
    return BinLoad(number, utilisation, tuple(MiniLoad(m, n, size) for m, n in rows.items()), memory_bytes)


def moved(moves: tuple[Move, ...] | Stay) -> list[tuple[int, int, int]] | str:
    return moves.reason if isinstance(moves, Stay) else [(m.mini, m.source, m.target) for m in moves]


# The paper's Figure 5: sites 1 to 4 in descending order of utilisation; a partition's size is its processing time.
FIGURE_5 = [
    bin_(1, 0.95, {5: 30, 2: 20, 1: 15, 7: 10}),
    bin_(2, 0.80, {9: 60, 8: 10, 3: 5, 4: 5}),
    bin_(3, 0.60, {6: 25, 10: 20, 11: 15}),
    bin_(4, 0.40, {12: 20, 13: 12, 14: 8}),
]


def test_figure_5_pairs_the_ends_and_passes_over_what_is_too_large():
    assert moved(load(FIGURE_5)) == [(5, 1, 4), (8, 2, 3)]


def test_moving_the_larger_partition_of_figure_5_would_raise_the_imbalance():
    before = 0.80 / 0.60
    after = after_moves(FIGURE_5, [Move(9, 2, 3, 10, "")])
    assert after[2].utilisation / after[1].utilisation > before


def test_the_order_in_which_bins_are_given_does_not_matter():
    assert load(FIGURE_5[::-1]) == load(FIGURE_5)


@pytest.mark.parametrize(
    ("bins", "limits", "wanted"),
    [
        pytest.param([bin_(0, 1.0, {0: 9})], FluxLimits(), "one bin alone has nowhere to move to", id="one bin"),
        pytest.param(
            [bin_(0, 0.5, {0: 5, 1: 5}), bin_(1, 0.5, {2: 10})],
            FluxLimits(imbalance=1.0),
            "bin 0 works no more than the average, 0.50",
            id="a giver must be above the average, being at it is not enough",
        ),
        pytest.param(
            [bin_(0, 0.59, {0: 10, 1: 1}), bin_(1, 0.5, {2: 10})],
            FluxLimits(),
            "imbalance 1.18 of bins 0 and 1 is below 1.2",
            id="an imbalance below the threshold stays",
        ),
        pytest.param(
            [bin_(0, 0.6, {0: 11, 1: 1}), bin_(1, 0.5, {2: 10})],
            FluxLimits(),
            [(1, 0, 1)],
            id="an imbalance at the threshold moves",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 9, 1: 1}), bin_(1, 0.7, {2: 10})],
            FluxLimits(imbalance=1.5),
            "imbalance 1.43 of bins 0 and 1 is below 1.5",
            id="the threshold can be chosen",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 11, 1: 1}), bin_(1, 0.91, {2: 10})],
            FluxLimits(imbalance=1.05),
            "bin 1, the least busy, works 0.91 of the time",
            id="a busy receiver takes nothing",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 40, 1: 1}), bin_(1, 0.9, {2: 36})],
            FluxLimits(imbalance=1.05),
            [(1, 0, 1)],
            id="a receiver just at the threshold does",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 40, 1: 30, 2: 30}), bin_(1, 0.5, {3: 50})],
            FluxLimits(),
            [(0, 0, 1)],
            id="the first that lowers the imbalance, not the one that lowers it most",
        ),
        pytest.param(
            # Were 0 moved, the imbalance would fall from 2 to 1.6, but the slow receiver would be at 1.1.
            [bin_(0, 1.0, {0: 30, 1: 10, 2: 60}), bin_(1, 0.5, {3: 25})],
            FluxLimits(),
            [(1, 0, 1)],
            id="a receiver must not be over-utilised by what it takes",
        ),
        pytest.param(
            [bin_(0, 1.0, {7: 100}), bin_(1, 0.2, {1: 10})],
            FluxLimits(),
            "no mini-partition would lower the imbalance",
            id="a single hot one does not move: the imbalance would move with it",
        ),
        pytest.param(
            [bin_(0, 1.0, {7: 60, 8: 40}), bin_(1, 0.0, {})],
            FluxLimits(),
            [(7, 0, 1)],
            id="a bin that has done nothing is taken to be as fast as the giver",
        ),
        pytest.param(
            [bin_(0, 1.0, {7: 100}), bin_(1, 0.0, {})],
            FluxLimits(),
            "no mini-partition would lower the imbalance",
            id="nothing is won where all work would go along",
        ),
        pytest.param(
            [bin_(0, 1.0, {3: 0, 4: 0}), bin_(1, 0.1, {})],
            FluxLimits(),
            "no mini-partition would lower the imbalance",
            id="what has no rows takes no load away",
        ),
        pytest.param(
            [bin_(0, 1.0, {1: 20, 0: 20, 5: 60}), bin_(1, 0.5, {9: 50})],
            FluxLimits(),
            [(0, 0, 1)],
            id="among equals the lowest number",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 5, 1: 5}), bin_(1, 0.9, {2: 9}), bin_(2, 0.85, {3: 9}), bin_(3, 0.2, {4: 2})],
            FluxLimits(),
            [(0, 0, 3)],
            id="once a pair fails the test, those further in are left alone",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 10}), bin_(1, 0.9, {1: 6, 2: 3}), bin_(2, 0.5, {3: 5}), bin_(3, 0.2, {4: 2})],
            FluxLimits(),
            [(2, 1, 2)],
            id="a pair that passes the test and finds nothing does not stop the others",
        ),
        pytest.param(
            [bin_(0, 1.0, {0: 5, 1: 5}), bin_(1, 0.6, {2: 3, 5: 3}), bin_(2, 0.2, {3: 2})],
            FluxLimits(),
            [(0, 0, 2)],
            id="the one in the middle has no partner",
        ),
    ],
)
def test_load(bins: list[BinLoad], limits: FluxLimits, wanted: list[tuple[int, int, int]] | str):
    assert moved(load(bins, limits)) == wanted


def full(number: int, memory_bytes: int, sizes: dict[int, int], spilled: tuple[int, ...] = ()) -> BinLoad:
    """A bin whose mini-partitions hold so many bytes each."""
    minis = tuple(MiniLoad(m, 1, size, m in spilled) for m, size in sizes.items())
    return BinLoad(number, 1.0, minis, memory_bytes)


@pytest.mark.parametrize(
    ("bins", "wanted"),
    [
        pytest.param(
            [full(0, 100, {0: 60, 1: 60, 2: 20}), full(1, 200, {3: 60})],
            [(0, 0, 1)],
            id="the largest that lowers the difference of what is beyond memory",
        ),
        pytest.param(
            [full(0, 100, {0: 200, 1: 30}), full(1, 200, {3: 150})],
            [(1, 0, 1)],
            id="one that would turn the difference round is passed over",
        ),
        pytest.param(
            [full(0, 100, {0: 60, 1: 40, 2: 30}, spilled=(0,)), full(1, 200, {3: 60})],
            [(1, 0, 1)],
            id="what is in memory goes before what is on disk",
        ),
        pytest.param(
            [full(0, 100, {0: 60, 1: 50}, spilled=(0, 1)), full(1, 200, {3: 60})],
            [(0, 0, 1)],
            id="what is on disk goes if there is nothing else",
        ),
        pytest.param(
            [full(0, 100, {0: 90, 1: 90}), full(1, 100, {2: 110})],
            "no mini-partition would lower the imbalance",
            id="equal pieces are not exchanged",
        ),
        pytest.param(
            [full(0, 100, {0: 90, 1: 90, 5: 20}), full(1, 100, {2: 110})],
            [(5, 0, 1)],
            id="a receiver that is beyond its memory and busy all the time takes its share of the disk",
        ),
        pytest.param(
            [full(0, 100, {0: 50, 1: 40}), full(1, 100, {2: 80})],
            "all state fits, and imbalance 1.12 of bins 0 and 1 is below 1.2",
            id="where all fits, small differences stay",
        ),
        pytest.param(
            [full(0, 100, {0: 60, 1: 10, 2: 20}), full(1, 100, {3: 50})],
            [(2, 0, 1)],
            id="where all fits, large ones move",
        ),
        pytest.param(
            [full(0, 100, {0: 50}), full(1, 100, {2: 50})],
            "bin 0 is no fuller than the average",
            id="a giver must be above the average",
        ),
        pytest.param(
            [full(1, 100, {1: 150, 5: 30}), full(2, 100, {2: 100, 12: 30}), full(3, 100, {3: 60}), full(4, 99, {4: 9})],
            [(1, 1, 4), (12, 2, 3)],
            id="the fullest with the emptiest, and on towards the middle",
        ),
        pytest.param([full(0, 100, {0: 150})], "one bin alone has nowhere to move to", id="one bin"),
    ],
)  # fmt: skip
def test_memory(bins: list[BinLoad], wanted: list[tuple[int, int, int]] | str):
    assert moved(memory(bins)) == wanted


@pytest.mark.parametrize(
    ("bins", "wanted"),
    [
        pytest.param(
            [
                BinLoad(0, 0.2, (MiniLoad(0, 1, 90), MiniLoad(1, 1, 40, spilled=True)), 100),
                BinLoad(1, 1.0, (MiniLoad(2, 50, 10), MiniLoad(3, 50, 10)), 200),
            ],
            [(0, 0, 1)],
            id="while anything is on disk, memory counts and load does not",
        ),
        pytest.param(
            [
                BinLoad(0, 0.2, (MiniLoad(0, 10, 80),), 100),
                BinLoad(1, 1.0, (MiniLoad(2, 20, 5), MiniLoad(3, 20, 10)), 200),
            ],
            [(2, 1, 0)],
            id="when all is in memory, load counts",
        ),
        pytest.param(
            [
                BinLoad(0, 0.2, (MiniLoad(0, 10, 80),), 100),
                BinLoad(1, 1.0, (MiniLoad(2, 20, 50), MiniLoad(3, 10, 10), MiniLoad(4, 10, 11)), 200),
            ],
            [(3, 1, 0)],
            id="only what fits at the receiver moves, and leaves a tenth of its memory free",
        ),
        pytest.param(
            [
                BinLoad(0, 0.2, (MiniLoad(0, 10, 90),), 100),
                BinLoad(1, 1.0, (MiniLoad(2, 20, 50), MiniLoad(3, 20, 50)), 200),
            ],
            "no mini-partition would lower the imbalance",
            id="nothing that fits, nothing that moves",
        ),
    ],
)  # fmt: skip
def test_hybrid(bins: list[BinLoad], wanted: list[tuple[int, int, int]] | str):
    assert moved(hybrid(bins)) == wanted


def test_memory_moves_no_more_than_what_does_not_fit():
    bins = [
        BinLoad(0, 0.5, tuple(MiniLoad(m, 10, 10, spilled=m < 3) for m in range(10)), 70),
        BinLoad(1, 0.5, tuple(MiniLoad(m, 10, 10) for m in range(10, 20)), 400),
    ]
    moves = planned_ahead(hybrid, bins, 16)
    assert isinstance(moves, tuple)
    assert [(move.source, move.target) for move in moves] == [(0, 1)] * 3
    after = after_moves(bins, moves)
    assert not any(mini.spilled for each in after for mini in each.minis)
    # Now bin 1 is the busier one, and bin 0 has no room to take anything back.
    assert isinstance(hybrid(after), Stay)


def test_a_move_says_why_in_numbers():
    (move, *_) = load(FIGURE_5) if not isinstance(load(FIGURE_5), Stay) else [None]
    assert move == Move(5, 1, 4, 10, "utilisation 0.95 in bin 1, 0.40 in bin 4")
    found = memory([full(0, 100, {0: 60, 1: 60, 2: 20}), full(1, 200, {3: 60})])
    assert found == (Move(0, 0, 1, 60, "40 B beyond memory in bin 0, 140 B of room in bin 1"),)


def test_planning_ahead_is_the_same_as_rounds_that_go_as_expected():
    bins = [bin_(0, 1.0, dict.fromkeys(range(8), 10)), bin_(1, 0.2, dict.fromkeys(range(8, 16), 2))]
    one_by_one: list[Move] = []
    now: tuple[BinLoad, ...] = tuple(bins)
    while not isinstance(moves := load(now), Stay):
        one_by_one += moves
        now = after_moves(now, moves)
    assert planned_ahead(load, bins, 20) == tuple(one_by_one)
    assert planned_ahead(load, bins, 2) == tuple(one_by_one[:2])
    assert planned_ahead(load, list(now), 5) == load(now)


@pytest.mark.parametrize(
    ("sizes", "budget", "taken"),
    [
        pytest.param([5, 5, 5], 10, 2, id="as many as fit"),
        pytest.param([20, 5], 10, 1, id="the first goes even if it takes several epochs"),
        pytest.param([5, 20, 5], 10, 1, id="none overtakes one that does not fit"),
        pytest.param([], 10, 0, id="nothing"),
    ],
)
def test_budget(sizes: list[int], budget: int, taken: int):
    moves = [Move(i, 0, 1, size, "") for i, size in enumerate(sizes)]
    assert within(moves, budget) == tuple(moves[:taken])


@pytest.mark.parametrize("limits", [(0.9, 0.9), (1.2, 0.0), (1.2, 1.1), (1.2, 0.9, 0.0), (1.2, 0.9, 1.1)])
def test_limits_that_make_no_sense_are_refused(limits: tuple[float, ...]):
    with pytest.raises(ValueError, match="make no sense"):
        FluxLimits(*limits)


@st.composite
def worlds(draw: st.DrawFn) -> list[BinLoad]:
    counter = iter(range(1000))
    bins = []
    for number in range(draw(st.integers(1, 6))):
        rows = draw(st.lists(st.integers(0, 1000), max_size=5))
        minis = tuple(MiniLoad(next(counter), n, draw(st.integers(0, 100)), draw(st.booleans())) for n in rows)
        bins.append(BinLoad(number, draw(st.floats(0, 1)), minis, draw(st.integers(0, 300))))
    return bins


@settings(max_examples=300)
@given(bins=worlds(), policy=st.sampled_from([load, memory, hybrid]))
def test_moves_are_of_one_mini_partition_per_pair_and_lose_none(bins: list[BinLoad], policy):
    moves = policy(bins)
    if isinstance(moves, Stay):
        return
    assert len(moves) <= len(bins) // 2
    touched = [number for move in moves for number in (move.source, move.target)]
    assert len(touched) == len(set(touched)), "each bin gives or takes at most one"
    holds = {bin_.bin: {mini.mini for mini in bin_.minis} for bin_ in bins}
    assert all(move.mini in holds[move.source] for move in moves)
    after = after_moves(bins, moves)
    assert sorted(m.mini for b in after for m in b.minis) == sorted(m.mini for b in bins for m in b.minis)
    assert policy(bins) == moves, "the same numbers make the same decision"
