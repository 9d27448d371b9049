"""The paper's experiments on processing load, by the policy that runs: Figures 6 and 7."""

from __future__ import annotations

import pytest

from headrace.simulation import Burden, FluxStage, Second, play_stage

STAGE = FluxStage()


@pytest.fixture(scope="module")
def one_node() -> tuple[list[Second], list[Second]]:
    """A burden on one node from second 1 on: with the policy, and without."""
    burden = Burden((0,))
    return play_stage(STAGE, burden, 20), play_stage(STAGE, burden, 20, balances=False)


def first(seconds: list[Second], holds: object) -> int:
    return next(n for n, second in enumerate(seconds) if holds(second))  # type: ignore[operator]


def test_an_unloaded_stage_makes_690_000_tuples_a_second():
    calm = play_stage(STAGE, Burden(()), 2)
    assert calm[1].tuples == pytest.approx(6.9e5, rel=0.01)
    assert calm[1].moves == 0


def test_figure_6_the_burden_is_felt_when_the_buffers_are_full(one_node: tuple[list[Second], list[Second]]):
    _, still = one_node
    felt = first(still, lambda second: second.tuples < 0.8 * STAGE.unloaded_per_s)
    assert 4 <= felt <= 7, "the paper: about 5 s"
    assert still[-1].tuples == pytest.approx(0.43 * STAGE.unloaded_per_s, rel=0.05), "then all wait for one"


def test_figure_6_it_has_recovered_some_nine_seconds_later_after_32_moves(
    one_node: tuple[list[Second], list[Second]],
):
    balanced, _ = one_node
    felt = first(balanced, lambda second: second.tuples < 0.8 * STAGE.unloaded_per_s)
    steady = balanced[-1].tuples
    assert steady > 0.8 * STAGE.unloaded_per_s, "moves stop when the imbalance is below 1.2"
    back = felt + first(balanced[felt:], lambda second: second.tuples > 0.95 * steady)
    assert 11 <= back <= 17, "the paper: about 14 s"
    assert 28 <= balanced[-1].moves <= 36, "the paper: 32"
    assert balanced[-1].moves == balanced[-3].moves, "and then it is quiet"


@pytest.mark.parametrize("burdened", [4, 16])
def test_figure_7_static_falls_at_once_and_flux_degrades_with_the_number_of_nodes(burdened: int):
    burden = Burden(tuple(range(burdened)), begins_s=0.0)
    capacity = (STAGE.nodes - burdened + 0.43 * burdened) / STAGE.nodes * STAGE.unloaded_per_s
    still = play_stage(STAGE, burden, 6, balances=False)[-1].tuples
    balanced = play_stage(STAGE, burden, 18)[-1].tuples
    assert still == pytest.approx(0.43 * STAGE.unloaded_per_s, rel=0.05)
    assert balanced > 0.8 * capacity
