"""Looking up what to keep: few reads whatever the size of a table, and nothing shed where all rows fit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from headrace.policies.shedding import Branch, Input, Network, Place, Port, Throughput, expected
from headrace.policies.shedding.fit import (
    EntryIndex,
    TableSettings,
    Terms,
    best_entry,
    build_table,
    build_tables,
    index_entries,
    look_up,
    plan_by_tables,
)
from policies.shedding.worlds import one_place, random_tree

FOUR = Place(
    "hub",
    tuple(
        Input(f"i{n}", (Branch("b", cost, queries=(f"q{n}",)), Branch("c", cost / 2, 0.3, queries=("all",))), cost=0.1)
        for n, cost in enumerate((0.4, 0.7, 1.0, 1.6))
    ),
    1.0,
)


class Counting:
    """Stands for an array or a list, and counts how often an element or a row is read."""

    def __init__(self, values: Any) -> None:
        self.values, self.reads = values, 0

    def __getitem__(self, number: int) -> Any:
        assert isinstance(number, int), "one at a time: a slice would be a scan"
        self.reads += 1
        return self.values[number]


class Counted(float):
    """A rate that counts how often it, or what is computed from it, is compared."""

    compared = 0

    def _count(self, answer: bool) -> bool:
        Counted.compared += 1
        return answer

    def __lt__(self, other: float) -> bool:
        return self._count(float(self) < other)

    def __gt__(self, other: float) -> bool:
        return self._count(float(self) > other)

    def __le__(self, other: float) -> bool:
        return self._count(float(self) <= other)

    def __ge__(self, other: float) -> bool:
        return self._count(float(self) >= other)

    def __truediv__(self, other: float) -> Counted:
        return Counted(float(self) / other)

    def __sub__(self, other: float) -> Counted:
        return Counted(float(self) - other)

    def __rsub__(self, other: float) -> Counted:
        return Counted(other - float(self))


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_a_look_up_reads_a_few_points_whatever_the_size_of_the_table(size: int):
    built = build_table(FOUR, {}, Throughput(), TableSettings(size=size))
    assert built.table.grid.size > size / 2
    rows = Counting(built.rows)
    # Code that went through the table would find nothing there.
    for name in ("worth", "needs", "scores"):
        object.__setattr__(built.table, name, None)
    object.__setattr__(built, "flows", None)
    built.__dict__["rows"] = rows
    Counted.compared = 0
    plan = look_up(built, tuple(map(Counted, (0.31, 0.42, 0.17, 0.23))))
    assert plan.sheds
    assert rows.reads <= len(FOUR.inputs) + 1
    # A few comparisons for each input and branch, as many at every size.
    assert 0 < Counted.compared <= 100


@pytest.mark.parametrize("size", [100, 10_000])
def test_the_best_entry_is_read_from_an_index(size: int):
    index = index_entries(build_table(FOUR, {}, Throughput(), TableSettings(size=size)).table)
    best = Counting(index.best)
    Counted.compared = 0
    best_entry(EntryIndex(index.table, best), tuple(map(Counted, (0.31, 0.42, 0.17, 0.23))))
    assert best.reads == 1
    assert Counted.compared <= 4 * 4


def test_the_best_entry_is_the_best_of_all_below_the_rates():
    table = build_table(FOUR, {}, Throughput(), TableSettings(size=400)).table
    index, rng = index_entries(table), random.Random(5)
    for _ in range(100):
        rates = np.array([rng.uniform(0, 1.2) for _ in range(4)])
        below = table.is_entry & (table.needs <= rates + 1e-12).all(axis=1)
        found = best_entry(index, rates.tolist())
        assert found.worth == pytest.approx(table.worth[below].max())
        assert all(np.array(found.rates) <= rates + 1e-12)


def test_capacity_that_blending_leaves_goes_to_answers():
    place = one_place(1.0, 1.0)
    built = build_table(place, {}, Throughput(), TableSettings(size=9))
    for rates in ((0.6, 0.6), (0.3, 0.9), (0.9, 0.2), (0.77, 0.41)):
        assert sum(look_up(built, rates).taken) == pytest.approx(1.0)


def test_nothing_is_shed_where_all_rows_fit_whatever_they_are_worth():
    network, rates = random_tree(random.Random(11), most_places=12, least_places=12)
    idle = Throughput({f"q{place}.{number}": 0.0 for place in range(12) for number in range(4)})
    tables = build_tables(network, Terms(objective=idle, most=expected(network, rates)))
    most = float((tables.places["p0"].table.limits @ np.array(list(rates.values()))).max())
    for part, sheds in ((0.999 / most, False), (1.2 / most, True)):
        plan = plan_by_tables(network, tables, {port: rate * part for port, rate in rates.items()})
        assert any(each.sheds for each in plan.places.values()) is sheds
        assert ("all rows fit everywhere" in plan.reason) is not sheds


def test_of_rates_beyond_the_highest_expected_only_rows_to_answers_are_kept_if_capacity_is_left():
    low = Place("low", (Input("i", (Branch("b", 2.0, queries=("q",)),)),))
    top = Place("top", (Input("i", (Branch("b", 1.0, child=Port("low", "i")), Branch("c", 1.0, queries=("p",)))),))
    network = Network((top, low))
    tables = build_tables(network, Terms(most=expected(network, {Port("top", "i"): 0.25})))
    assert look_up(tables.places["top"], (0.25,)).branches == pytest.approx((0.25, 0.25))
    assert look_up(tables.places["top"], (9.0,)).branches == pytest.approx((0.25, 0.75))


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        pytest.param((0.1, 0.1, 0.1, 0.1), "all rows fit: load 0.595 of 1", id="says that all fits"),
        pytest.param(
            (4.0, 0.0, 0.0, 0.0), "load would be 2.8 of 1: keeps 50% of i0, 0% of i0.c", id="says how much is too much"
        ),
    ],
)
def test_a_plan_says_why(rates: tuple[float, ...], reason: str):
    assert look_up(build_table(FOUR, {}, Throughput(), TableSettings(size=500)), rates).reason == reason


def test_an_idle_place_says_that_its_children_are_full():
    low = Place("low", (Input("i", (Branch("b", 2.0, queries=("q",)),)),))
    top = Place("top", (Input("i", (Branch("b", 0.1, child=Port("low", "i")),)),))
    network = Network((top, low))
    plan = plan_by_tables(network, build_tables(network), {Port("top", "i"): 1.0})
    assert plan.places["top"].reason == "children cannot take all rows: keeps 50% of i"
    assert plan.places["low"].reason == "all rows fit: load 1 of 1"


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        pytest.param((1.0,), "has 4 inputs, not 1", id="too few rates"),
        pytest.param((1.0, -1.0, 1.0, 1.0), "a rate is 0 or more, not -1.0", id="a negative rate"),
    ],
)
def test_rates_that_cannot_be_are_refused(rates: tuple[float, ...], message: str):
    with pytest.raises(ValueError, match=message):
        look_up(build_table(FOUR, {}, Throughput(), TableSettings(size=20)), rates)
