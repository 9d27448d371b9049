"""The table of one place: feasible, within its stated error, and the same wherever its children are."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    Port,
    Throughput,
    expected,
    outcome,
    plan_centrally,
)
from headrace.policies.shedding.fit import (
    Table,
    TableSettings,
    Terms,
    build_table,
    build_tables,
    look_up,
    plan_by_tables,
)
from policies.shedding.worlds import one_place, random_tree

SMALL = TableSettings(size=120)


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_every_point_of_every_table_is_feasible_and_keeps_its_promise(seed: int):
    network, rates = random_tree(random.Random(seed), most_places=6)
    tables = build_tables(network, Terms(settings=SMALL, most=expected(network, rates)))
    for prepared in tables.places.values():
        table = prepared.table
        assert (table.needs <= table.grid.points * (1 + 1e-9) + 1e-9).all()
        assert (table.worth >= -1e-9).all()
        shaped = table.worth.reshape(table.grid.shape)
        for axis in range(shaped.ndim):
            # More rows are never worth less.
            assert (np.diff(shaped, axis=axis) >= -1e-6 * shaped.max()).all()
    top = tables.places["p0"]
    rng = random.Random(seed)
    for number in rng.sample(range(top.table.grid.size), 5):
        point = dict(zip(network.sources, top.table.grid.points[number].tolist(), strict=True))
        found = outcome(network, point, plan_by_tables(network, tables, point), Throughput())
        assert found.problems == ()
        assert found.worth >= top.table.worth[number] * (1 - 1e-6) - top.table.error
        assert found.worth <= top.table.worth[number] + top.table.error + 1e-9


@pytest.mark.parametrize("error", [0.8, 0.4, 0.2])
def test_a_place_alone_is_within_the_error_that_was_asked_for(error: float):
    place = one_place(0.3, 0.7, 1.1)
    built = build_table(place, {}, Throughput(), TableSettings(error=error))
    assert built.table.error == pytest.approx(error)
    rng = random.Random(7)
    for _ in range(50):
        rates = [rng.uniform(0, 3) for _ in place.inputs]
        best = plan_centrally(Network((place,)), dict(zip(Network((place,)).sources, rates, strict=True)), Throughput())
        assert best.bound is not None
        assert best.bound - error <= sum(look_up(built, rates).branches) <= best.bound + 1e-9


def test_tables_come_closer_to_the_optimum_as_they_grow():
    network, rates = random_tree(random.Random(8), most_places=8, least_places=8)
    best = plan_centrally(network, rates, Throughput()).bound
    shares = []
    for size in (16, 100, 1000):
        tables = build_tables(network, Terms(settings=TableSettings(size=size), most=expected(network, rates)))
        found = outcome(network, rates, plan_by_tables(network, tables, rates), Throughput())
        shares.append(found.worth / best)
    assert shares == sorted(shares)
    assert shares[-1] > 0.98


def test_a_parent_neither_knows_nor_cares_what_its_child_is():
    """A table that came as a message from a site gives the plan that the place's own table gives."""
    network, _ = random_tree(random.Random(3), most_places=5, least_places=5)
    tables = build_tables(network, Terms(settings=SMALL))
    children = {name: tables.places[name].table for name in network.children["p0"]}
    sent = {name: Table.from_json(json.loads(json.dumps(table.to_json()))) for name, table in children.items()}
    place = network.by_name["p0"]
    assert build_table(place, sent, Throughput(), SMALL) == build_table(place, children, Throughput(), SMALL)


def test_a_place_without_the_table_of_a_child_is_refused():
    edge = Place("edge", (Input("a", (Branch("b", 1.0, child=Port("hub", "a")),)),))
    with pytest.raises(ValueError, match=r"has no table of \['hub'\]; `assume` makes one"):
        build_table(edge, {}, Throughput())


def test_a_table_of_one_point_is_refused():
    with pytest.raises(ValueError, match="2 points"):
        TableSettings(size=1)
