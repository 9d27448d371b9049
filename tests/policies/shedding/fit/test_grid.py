"""Points of tables: how many, how far apart, and which of them lie around given rates."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.policies.shedding.fit import Grid, spread_by_error, spread_by_size

F = Fraction

POSITIVE = st.floats(0.01, 100)
# A busy machine is no reason to fail.
UNHURRIED = settings(max_examples=60)


@pytest.mark.parametrize(
    ("most", "gains", "size", "steps"),
    [
        pytest.param((1.0,), (1.0,), 101, (100,), id="one input gets all points"),
        pytest.param((1.0, 1.0), (1.0, 1.0), 121, (10, 10), id="equal inputs get equally many"),
        pytest.param((2.0, 1.0), (1.0, 2.0), 121, (10, 10), id="a long input of little gain is as a short one of much"),
        pytest.param((1.0, 1.0), (1.0, 0.0), 100, (49, 1), id="an input that gains nothing gets one step"),
        pytest.param((1.0, 1.0), (1.0, 0.01), 99, (32, 2), id="an input that gains little gets two steps"),
        pytest.param((1.0, 1.0), (1.0, 0.01), 8, (3, 1), id="in a tiny table one"),
        pytest.param((1.0, 1.0), (0.0, 0.0), 100, (1, 1), id="where nothing gains, one step each is enough"),
    ],
)
def test_spread_by_size(most: tuple[float, ...], gains: tuple[float, ...], size: int, steps: tuple[int, ...]):
    grid = spread_by_size(most, gains, size)
    assert grid.steps == steps
    assert grid.most == pytest.approx(most)


@UNHURRIED
@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=4), st.integers(16, 5000))
def test_a_table_is_no_larger_than_asked_and_errors_are_alike(inputs: list[tuple[float, float]], size: int):
    most, gains = zip(*inputs, strict=True)
    grid = spread_by_size(most, gains, size)
    assert grid.size <= size
    errors = [spread * gain for spread, gain in zip(grid.spreads, gains, strict=True)]
    # One step more along the input with the largest error would be too many points.
    worst = errors.index(max(errors))
    assert math.prod(n + 1 + (k == worst) for k, n in enumerate(grid.steps)) > size


@UNHURRIED
@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.01, 5)), min_size=1, max_size=3), st.floats(1, 20))
def test_a_step_along_every_input_is_no_worse_than_the_error(inputs: list[tuple[float, float]], error: float):
    most, gains = zip(*inputs, strict=True)
    grid = spread_by_error(most, gains, error)
    assert sum(s * g for s, g in zip(grid.spreads, gains, strict=True)) == pytest.approx(error)
    assert all(high >= wanted * (1 - 1e-9) for high, wanted in zip(grid.most, most, strict=True))


@UNHURRIED
@given(st.data(), st.integers(1, 5))
def test_points_around_rates_add_up_to_them(data: st.DataObject, width: int):
    steps = data.draw(st.tuples(*[st.integers(1, 4)] * width))
    grid = Grid((F(1, 3),) * width, steps)
    rates = data.draw(st.tuples(*[st.fractions(0, F(5, 3), max_denominator=12)] * width))
    row = np.empty((1, width), dtype=object)
    row[0] = rates
    around = grid.around(row)
    assert list(around.blend(grid.points)[0]) == [min(rate, most) for rate, most in zip(rates, grid.most, strict=True)]
    weights = around.weights[:, 0].tolist()
    assert sum(weights) == 1
    assert min(weights) >= 0
    many = {number: weight for number, weight in zip(around.numbers[:, 0].tolist(), weights, strict=True) if weight}
    assert dict(grid.points_around(rates)) == many


def test_between_competing_inputs_points_with_more_of_one_and_less_of_the_other_are_blended():
    # Capacity for one row, of either input: (1, 0) and (0, 1) are worth 1 each, so half a row of both is worth 1.
    grid = Grid((1.0, 1.0), (1, 1))
    assert grid.around(np.array([[0.5, 0.5]])).blend(np.array([0.0, 1.0, 1.0, 1.0])) == 1


def test_blending_floats_and_fractions_gives_the_same():
    rng = np.random.default_rng(3)
    whole, rates = rng.integers(0, 9, (24, 3)), rng.integers(0, 20, (10, 2))
    exact = Grid((F(1), F(2)), (5, 3)).around(rates.astype(object) * F(1, 3)).blend(whole.astype(object))
    floats = Grid((1.0, 2.0), (5, 3)).around(rates / 3).blend(whole.astype(float))
    np.testing.assert_allclose(floats, exact.astype(float))


def test_a_rate_that_is_a_point_but_for_rounding_is_that_point():
    grid = Grid((0.1,), (10,))
    assert grid.points_around([0.1 + 0.2]) == [(3, 1)]
    assert grid.around(np.array([[0.1 + 0.2]])).blend(np.arange(11.0)) == 3
    assert grid.point_below([0.7 - 0.4]) == 3


@UNHURRIED
@given(st.data())
def test_the_best_below_is_the_best_of_all_that_lie_nowhere_above(data: st.DataObject):
    shape = data.draw(st.sampled_from([(2,), (40,), (70,), (2, 30), (70, 3), (2, 3, 4), (4, 2, 5), (2, 2, 2, 3)]))
    grid = Grid((1.0,) * len(shape), tuple(count - 1 for count in shape))
    fixed = data.draw(st.tuples(*[st.booleans()] * len(shape)))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-3, 3, (2, grid.size)) / 3
    exact = np.array([[F(round(value * 3), 3) for value in row] for row in values])
    found = grid.best_below(values, fixed)
    assert (grid.best_below(exact, fixed) == found).all()
    for row, best in zip(values, found, strict=True):
        for number in range(0, len(row), 7):
            below = (grid.points <= grid.points[number]).all(axis=1)
            below &= (grid.points == grid.points[number])[:, list(fixed)].all(axis=1)
            # Of equal points that with the most rows comes last.
            assert best[number] == np.flatnonzero(below & (row == row[below].max()))[-1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Grid((1.0,), (0,)), "one step or more", id="a grid without a step"),
        pytest.param(lambda: Grid((1.0, 1.0), (1,)), "one step or more", id="a grid that lacks a spread"),
        pytest.param(lambda: Grid((0.0,), (1,)), "a spread is more than 0, not 0", id="steps of no length"),
        pytest.param(lambda: spread_by_size((1.0,) * 4, (1.0,) * 4, 15), "16 points or more, not 15", id="too small"),
        pytest.param(lambda: spread_by_error((1.0,), (1.0,), 0.0), "more than 0", id="no error at all"),
        pytest.param(
            lambda: spread_by_error((1.0,) * 4, (1.0,) * 4, 0.01), "ask for a larger error", id="hardly any error"
        ),
    ],
)
def test_what_cannot_be_a_grid_is_refused(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("grid", [Grid((0.1, 2.5), (3, 4)), Grid((F(1, 3), F(7)), (3, 4))], ids=["floats", "fractions"])
def test_a_grid_survives_json(grid: Grid):
    assert Grid.from_json(json.loads(json.dumps(grid.to_json()))) == grid
