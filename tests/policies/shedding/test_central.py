"""The linear program and the scheduler without coordination, against hand-made and brute-force answers."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.policies.shedding import (
    Branch,
    Fair,
    Input,
    Network,
    Place,
    Plan,
    Port,
    Throughput,
    offered,
    outcome,
    plan_centrally,
    plan_uncoordinated,
    take_in_turn,
)
from headrace.policies.shedding.plan import place_plan
from policies.shedding.worlds import random_graph

F = Fraction

SPLIT = Place(
    "top",
    (
        Input("a", (Branch("x", 2.0, queries=("p",)), Branch("y", 5.0, 0.7, queries=("q",))), cost=1.0),
        Input("b", (Branch("z", 3.0, 0.5, queries=("r",)),), cost=0.5),
    ),
)


def test_no_plan_on_a_fine_grid_beats_the_linear_program():
    network, rates = Network((SPLIT,)), {Port("top", "a"): 0.3, Port("top", "b"): 0.4}
    best = plan_centrally(network, rates, Throughput())
    top = 0.0
    for x, y, z in product(range(16), range(16), range(21)):
        plan = Plan("all", {"top": place_plan(SPLIT, (0.3, 0.4), (x / 50, y / 50, z / 50), "tried")}, "tried")
        found = outcome(network, rates, plan, Throughput())
        top = max(top, found.worth if not found.problems else 0.0)
    assert best.bound is not None
    assert top <= best.bound + 1e-9
    assert best.bound <= top + 0.04


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_the_optimum_is_feasible_and_no_less_than_anything_else(seed: int):
    network, rates = random_graph(random.Random(seed), 8)
    total, fair = Throughput(), Fair(offered(network, rates))
    plans = [
        plan_centrally(network, rates, total),
        plan_centrally(network, rates, fair),
        plan_uncoordinated(network, rates),
    ]
    by_total = [outcome(network, rates, plan, total) for plan in plans]
    by_share = [outcome(network, rates, plan, fair) for plan in plans]
    assert [found.problems for found in by_total] == [(), (), ()]
    assert by_total[0].worth >= max(found.worth for found in by_total) * (1 - 1e-6)
    assert by_share[1].worth >= max(found.worth for found in by_share) * (1 - 1e-5)


def test_where_all_rows_fit_nothing_is_shed_by_anybody():
    network, rates = Network((SPLIT,)), {Port("top", "a"): 0.05, Port("top", "b"): 0.05}
    for plan in (plan_centrally(network, rates, Throughput()), plan_uncoordinated(network, rates)):
        assert outcome(network, rates, plan, Throughput()).shares == pytest.approx({"p": 1, "q": 1, "r": 1})


@pytest.mark.parametrize(
    ("costs", "rates", "taken"),
    [
        pytest.param((1, 2), (1, 1), (F(1, 3), F(1, 3)), id="rows are taken in turn, so at equal rates"),
        pytest.param((1, 2), (F(1, 10), 1), (F(1, 10), F(9, 20)), id="who asks for less leaves time to the others"),
        pytest.param((1, 2), (F(1, 10), F(1, 10)), (F(1, 10), F(1, 10)), id="without overload all rows are taken"),
        pytest.param((1, 1, 1), (0, 1, 5), (0, F(1, 2), F(1, 2)), id="an input without rows takes no time"),
    ],
)
def test_taking_rows_in_turn(costs: tuple[int, ...], rates: tuple[F, ...], taken: tuple[F, ...]):
    inputs = tuple(Input(f"i{n}", (Branch("b", cost, queries=(f"q{n}",)),)) for n, cost in enumerate(costs))
    assert take_in_turn(Place("top", inputs), tuple(map(F, rates))).taken == taken


@pytest.mark.parametrize(
    ("flows", "problem"),
    [
        pytest.param((0.3, 0.3, 0.0), "place 'top' has load 2.4 of 1.0", id="too much load"),
        pytest.param((0.4, 0.0, 0.0), "input 'a' of 'top' takes 0.4 rows/s of 0.3", id="more rows than arrive"),
        pytest.param((0.1, -0.1, 0.0), "branch 'y' of 'top' takes -0.1 rows/s of 0.1", id="fewer rows than none"),
    ],
)
def test_the_judge_sees_what_is_wrong_with_a_plan(flows: tuple[float, ...], problem: str):
    network, rates = Network((SPLIT,)), {Port("top", "a"): 0.3, Port("top", "b"): 0.4}
    plan = Plan("wrong", {"top": place_plan(SPLIT, (0.3, 0.4), flows, "wrong")}, "wrong")
    assert problem in outcome(network, rates, plan, Throughput()).problems


def test_the_judge_sees_rows_lost_that_must_not_be():
    kept = Place("top", (Input("a", (Branch("x", 2.0, queries=("p",), never=True),)),))
    network, rates = Network((kept,)), {Port("top", "a"): 0.3}
    plan = Plan("wrong", {"top": place_plan(kept, (0.3,), (0.2,), "wrong")}, "wrong")
    assert outcome(network, rates, plan, Throughput()).problems == (
        "branch 'x' of 'top' loses rows, which it must never",
    )
