"""How long rounds collect, and how they grow longer by themselves when moves go to and fro."""

from __future__ import annotations

import pytest

from headrace.model import LEAST_S, Collected, Move, Rounds
from headrace.policies import BinLoad, MiniLoad, bins_of, next_collection_s, next_round
from headrace.policies.keyed.rounds import MOST_LEAST_S, REMEMBERED


def moves(*pairs: tuple[int, int]) -> list[Move]:
    return [Move(i, source, target, 1, "") for i, (source, target) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("collected_s", "moves_s", "least_s", "wanted"),
    [
        pytest.param(4.0, 2.5, 1.0, 2.5, id="as long as the moves took"),
        pytest.param(1.0, 7.0, 1.0, 7.0, id="longer, if they took longer"),
        pytest.param(4.0, None, 1.0, 2.0, id="half as long if nothing moved"),
        pytest.param(1.6, None, 1.0, 1.0, id="never below the least, if nothing moved"),
        pytest.param(4.0, 0.01, 1.0, 1.0, id="never below the least, if moves were quick"),
    ],
)
def test_collection(collected_s: float, moves_s: float | None, least_s: float, wanted: float):
    assert next_collection_s(collected_s, moves_s, least_s) == wanted


@pytest.mark.parametrize(
    ("flows", "now", "least_s"),
    [
        pytest.param([], [(0, 1)], 3.6, id="a first move is no thrashing, and the least shrinks"),
        pytest.param([(4, 0, 1)], [(0, 1)], 3.6, id="more in the same direction is none either"),
        pytest.param([(4, 0, 1)], [(1, 0)], 8.0, id="back the way state came: the least doubles"),
        pytest.param([(4, 0, 1)], [(2, 3), (1, 0)], 8.0, id="one move back among others is enough"),
        pytest.param([(4, 0, 1)], [(1, 2)], 3.6, id="onwards is not back"),
        pytest.param([(5 - REMEMBERED, 0, 1)], [(1, 0)], 3.6, id="what was long ago is forgotten"),
        pytest.param([(4, 0, 1)], [], 3.6, id="without moves nothing thrashes"),
    ],
)
def test_the_least_follows_thrashing(flows: list[tuple[int, int, int]], now: list[tuple[int, int]], least_s: float):
    before = Rounds(5, 4.0, 4.0, tuple(flows))
    assert next_round(before, moves(*now), 0.5).least_s == least_s


def test_the_least_has_bounds():
    rounds = Rounds()
    for i in range(40):
        rounds = next_round(rounds, moves((i % 2, 1 - i % 2)), 0.1)
    assert rounds.least_s == rounds.collect_s == MOST_LEAST_S
    for _ in range(100):
        rounds = next_round(rounds, [], 0.0)
    assert rounds.least_s == rounds.collect_s == LEAST_S


def test_an_alternating_load_is_followed_ever_more_seldom():
    """Load that changes sides every 4 s: rounds of 1 s chase it; a minute later they are longer than its period."""
    rounds, now, moved_at = Rounds(), 0.0, list[float]()
    while now < 300:
        now += rounds.collect_s
        # A collection sees the side that was loaded at its end, unless it is long enough to see both.
        side = int(now // 4) % 2
        made = moves((side, 1 - side)) if rounds.collect_s < 8 else []
        moved_at += [now] * len(made)
        rounds = next_round(rounds, made, 0.1)
    assert sum(now < 60 for now in moved_at) > 3 * sum(now > 240 for now in moved_at)


def test_measurements_of_several_epochs_add_up_to_what_the_policies_see():
    collected = Collected().plus(1.0, (1.0, 0.25), (6, 2, 1)).plus(1.0, (1.0, 0.75), (4, 1, 0))
    assert bins_of(collected, [0, 1, 0], [10, 20, 30], frozenset({2}), [100, 200]) == (
        BinLoad(0, 1.0, (MiniLoad(0, 10, 10), MiniLoad(2, 1, 30, spilled=True)), 100),
        BinLoad(1, 0.5, (MiniLoad(1, 3, 20),), 200),
    )


def test_before_anything_was_measured_all_bins_are_idle():
    found = bins_of(Collected(), [0, 1], [5, 5], frozenset(), [9, 9])
    assert [(b.utilisation, b.rows, b.state_bytes) for b in found] == [(0.0, 0, 5), (0.0, 0, 5)]
