"""Costs per row are learned from epochs, beside the fixed cost of an epoch and with their uncertainty."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from headrace.model import plain, restored
from headrace.policies.shedding.costs import RowCosts, RowSample, learn_row_costs

# Seconds of task time per row, the fixed seconds of an epoch, and seconds of an epoch per task-second.
READ_S, CHEAP_S, DEAR_S, FIXED_S, WALL = 1e-6, 2e-6, 20e-6, 0.25, 0.5


# Of what reading takes, what a row takes on which no expression is evaluated.
SKIP_S = 0.1 * READ_S


def epoch(rows: int, kept: float = 1.0, noise: float = 0.0, rng: random.Random | None = None) -> RowSample:
    dear = int(rows * 0.3)
    edge_s = {"s>cheap": rows * kept * CHEAP_S, "s>dear": dear * DEAR_S}
    spent = rows * READ_S + sum(edge_s.values())
    seconds = (FIXED_S + WALL * spent) * (1 + (rng.gauss(0, noise) if rng else 0.0))
    return RowSample({"s": rows}, {"s": rows * READ_S}, {"s>cheap": rows, "s>dear": dear},
                     {"s>cheap": int(rows * kept), "s>dear": dear}, edge_s, max(0.0, seconds))  # fmt: skip


def test_costs_of_edges_and_of_epochs_are_found():
    rng, costs = random.Random(7), RowCosts()
    for _ in range(100):
        costs = learn_row_costs(costs, epoch(rng.randrange(1_000, 200_000), rng.choice([1.0, 0.5]), 0.05, rng))
    assert costs.fixed_s == pytest.approx(FIXED_S, rel=0.15)
    assert costs.keep_s("s>cheap") == pytest.approx(WALL * CHEAP_S, rel=0.15)
    assert costs.keep_s("s>dear") == pytest.approx(WALL * DEAR_S, rel=0.15)
    assert costs.read_s("s") == pytest.approx(WALL * READ_S, rel=0.15)
    assert costs.share_of("s>dear") == pytest.approx(0.3, rel=0.01)


def test_what_a_row_takes_that_no_edge_keeps_is_told_from_what_an_evaluated_one_takes():
    rng, costs = random.Random(7), RowCosts()

    def reads(rows: int, part: float) -> RowSample:
        used = int(rows * part)
        read_s = (0.05 + used * READ_S + (rows - used) * SKIP_S) * (1 + rng.gauss(0, 0.03))
        kept = {"s>a": used}
        return RowSample({"s": rows}, {"s": read_s}, {"s>a": rows}, kept, {"s>a": 0.0}, 0.1 + read_s, {"s": used})

    for _ in range(20):
        costs = learn_row_costs(costs, reads(rng.randrange(60_000, 140_000), 1.0))
    assert costs.skip_s("s") == pytest.approx(costs.read_s("s"), rel=0.01), "nothing was ever skipped"
    for _ in range(3):
        costs = learn_row_costs(costs, reads(500_000, rng.choice([0.1, 0.2, 0.3])))
    wall = costs.epoch.per_row
    assert costs.read_s("s") == pytest.approx(wall * READ_S, rel=0.2)
    assert costs.skip_s("s") == pytest.approx(wall * SKIP_S, rel=0.5)


def test_a_cost_has_an_error_and_an_edge_that_nobody_measured_costs_what_others_do():
    costs = RowCosts()
    for rows in (1_000, 2_000, 3_000):
        costs = learn_row_costs(costs, epoch(rows))
    assert costs.are_known
    assert costs.error_s("s>cheap") < costs.keep_s("s>cheap")
    assert math.isinf(costs.error_s("s>new"))
    assert costs.keep_s("s>new") == pytest.approx((costs.keep_s("s>cheap") + costs.keep_s("s>dear")) / 2)


def test_how_much_longer_an_epoch_was_than_expected_is_known():
    costs = RowCosts()
    for rows in (1_000, 30_000, 20_000, 10_000, 25_000):
        costs = learn_row_costs(costs, epoch(rows))
    sample = epoch(22_000, 0.5)
    assert costs.over(sample) == pytest.approx(0.0, abs=0.01)
    assert costs.over(replace(sample, seconds=2 * sample.seconds)) == pytest.approx(0.5, abs=0.01)
    assert costs.over(replace(sample, seconds=0.5 * sample.seconds)) == 0.0
    assert RowCosts().over(sample) == 1.0


def test_few_epochs_or_few_rows_say_nothing_to_shed_by():
    costs = learn_row_costs(learn_row_costs(RowCosts(), epoch(5_000)), epoch(5_000))
    assert not costs.are_known
    assert learn_row_costs(costs, epoch(5)).keep == costs.keep


def test_what_is_no_longer_there_is_forgotten():
    costs = learn_row_costs(RowCosts(), epoch(5_000))
    gone = RowSample({"s": 500}, {"s": 0.1}, {"s>cheap": 500}, {"s>cheap": 500}, {"s>cheap": 0.1}, 0.4)
    assert learn_row_costs(costs, gone).keep.keys() == {"s>cheap"}


def test_costs_survive_json():
    costs = learn_row_costs(RowCosts(), epoch(5_000))
    assert restored(RowCosts, json.loads(json.dumps(plain(costs)))) == costs
