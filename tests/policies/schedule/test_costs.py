"""Costs learned from measured epochs: right, never negative, not led astray."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import plain, restored
from headrace.policies import CostModel, Costs, CostSample, learn

START = CostModel(Costs(0.05, 0.001, 0.001))
TRUE = Costs(0.12, 0.004, 0.0007)


def measured(costs: Costs, count: int, seed: int = 1, noise: float = 0.0, pauses: float = 0.0) -> Iterator[CostSample]:
    """Epochs of different sizes; `noise` is relative, `pauses` the share of epochs that take two seconds longer."""
    rng = random.Random(seed)
    for _ in range(count):
        executions = rng.randint(1, 12)
        panes = sum(rng.randint(5, 100) for _ in range(executions))
        answers = sum(rng.randint(1, 30) for _ in range(executions))
        seconds = costs.fixed * executions + costs.per_pane * panes + costs.per_answer * answers
        seconds *= max(0.0, rng.gauss(1, noise))
        yield CostSample(executions, panes, answers, seconds + (2.0 if rng.random() < pauses else 0.0))


def off(model: CostModel, costs: Costs) -> float:
    """Average relative error of the model's predictions where the true costs are known."""
    samples = list(measured(costs, 100, seed=99))
    errors = [abs(model.predict(s.executions, s.panes, s.answers) / s.seconds - 1) for s in samples]
    return sum(errors) / len(errors)


def test_costs_are_recovered_from_exact_samples():
    found = learn(START, measured(TRUE, 100)).costs
    assert found.fixed == pytest.approx(TRUE.fixed, rel=0.02)
    assert found.per_pane == pytest.approx(TRUE.per_pane, rel=0.02)
    assert found.per_answer == pytest.approx(TRUE.per_answer, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("noise", "pauses", "within"),
    [
        pytest.param(0.1, 0.0, 0.05, id="noise of 10 %"),
        pytest.param(0.3, 0.0, 0.12, id="noise of 30 %"),
        pytest.param(0.1, 0.05, 0.12, id="a pause in every twentieth epoch"),
    ],
)
def test_predictions_hold_under_noise(seed: int, noise: float, pauses: float, within: float):
    model = learn(START, measured(TRUE, 200, seed, noise, pauses))
    assert off(model, TRUE) < within
    if not pauses:
        assert model.costs.fixed == pytest.approx(TRUE.fixed, rel=3 * noise)
        assert model.costs.per_pane == pytest.approx(TRUE.per_pane, rel=3 * noise)


def test_costs_that_change_are_followed():
    slower = Costs(0.3, 0.02, 0.001)
    model = learn(learn(START, measured(TRUE, 200, noise=0.05)), measured(slower, 120, seed=2, noise=0.05))
    assert off(model, slower) < 0.1


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(CostSample(3, 120, 40, 0.9), id="always the same epoch"),
        pytest.param(CostSample(1, 0, 0, 0.2), id="executions of nothing"),
        pytest.param(CostSample(5, 50, 5, 0.0), id="epochs that take no time"),
    ],
)
def test_predictions_are_right_where_samples_say_too_little(sample: CostSample):
    model = learn(START, [sample] * 60)
    assert model.predict(sample.executions, sample.panes, sample.answers) == pytest.approx(sample.seconds, abs=0.01)


def test_what_was_never_seen_keeps_its_cost():
    assert learn(START, [CostSample(2, 0, 0, 0.4)] * 50).costs.per_answer == START.costs.per_answer
    assert learn(START, [CostSample(0, 0, 0, 3.0)] * 5) == START, "an epoch without executions says nothing"


def test_the_papers_costs_are_a_start_although_one_is_negative():
    assert off(learn(CostModel(Costs(-1, 1, 0)), measured(TRUE, 150)), TRUE) < 0.02


samples = st.builds(
    CostSample, st.integers(0, 20), st.integers(0, 10_000), st.integers(0, 1000), st.floats(0, 1e4, allow_nan=False)
)


@given(st.lists(samples, max_size=30))
@settings(max_examples=100)
def test_costs_are_never_negative_and_the_state_survives_json(given_samples: list[CostSample]):
    model = learn(START, given_samples)
    assert min(model.costs.fixed, model.costs.per_pane, model.costs.per_answer) >= 0
    assert restored(CostModel, json.loads(json.dumps(plain(model)))) == model
    half = len(given_samples) // 2
    assert learn(learn(START, given_samples[:half]), given_samples[half:]) == model, "one by one or all at once"


@pytest.mark.parametrize("wrong", [(-1, 0, 0, 1.0), (1, 1, 1, -0.1), (1, 1, 1, float("nan"))])
def test_impossible_samples_are_refused(wrong: tuple[int, int, int, float]):
    with pytest.raises(ValueError, match=r"negative|some time"):
        CostSample(*wrong)
