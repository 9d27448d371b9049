"""The tables of a network after one cost has changed: equal to building anew, and only ancestors are built."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import pytest

import headrace.policies.shedding.fit.build as build
import headrace.policies.shedding.fit.propagate as module
from headrace.policies.shedding import Branch, Input, Network, Place, Port, Throughput, expected
from headrace.policies.shedding.fit import Prepared, TableSettings, Terms, build_table, build_tables, update_tables
from headrace.policies.shedding.fit.steps import Steps
from policies.shedding.worlds import random_tree

SMALL = TableSettings(size=40)


def changed(network: Network, name: str, times: float) -> Network:
    """The network with the first branch of a place costing so many times as much."""
    branch = network.by_name[name].inputs[0].branches[0]
    return _with(network, name, replace(branch, cost=branch.cost * times))


def with_selectivity(network: Network, name: str, times: float) -> Network:
    """The network with the first branch of a place letting so many times as many rows through."""
    branch = network.by_name[name].inputs[0].branches[0]
    return _with(network, name, replace(branch, selectivity=branch.selectivity * times))


def _with(network: Network, name: str, branch: Branch) -> Network:
    """The network with another first branch of a place."""
    place = network.by_name[name]
    first = place.inputs[0]
    branches = (branch, *first.branches[1:])
    place = replace(place, inputs=(replace(first, branches=branches), *place.inputs[1:]))
    return Network(tuple(place if each.name == name else each for each in network.places))


def with_ancestors(network: Network, name: str) -> set[str]:
    """A place of a tree and all its ancestors."""
    found = {name}
    while parents := network.parents[name]:
        name = parents[0]
        found.add(name)
    return found


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the places whose tables are built, in order."""
    names: list[str] = []

    def build(place: Place, *rest: object, **more: object) -> Prepared:
        names.append(place.name)
        return build_table(place, *rest, **more)

    monkeypatch.setattr(module, "build_table", build)
    return names


class TestUpdate:
    """One cost changes in a tree of a hundred places."""

    network, rates = random_tree(random.Random(1), most_places=100, least_places=100)
    terms = Terms(settings=SMALL, most=expected(network, {port: 2 * rate for port, rate in rates.items()}))
    tables = build_tables(network, terms)

    @pytest.mark.parametrize(("number", "times"), [(0, 0.5), (17, 1.1), (63, 3.0), (99, 1.1)])
    def test_it_equals_building_anew_and_builds_only_the_place_and_its_ancestors(
        self, number: int, times: float, built: list[str]
    ):
        after = changed(self.network, f"p{number}", times)
        updated = update_tables(self.tables, after)
        assert set(built) <= with_ancestors(after, f"p{number}")
        # No place of this tree has more than nine ancestors.
        assert len(built) <= 10
        assert updated.places == build_tables(after, self.terms).places

    def test_it_computes_a_part_of_what_ancestors_compute(self, monkeypatch: pytest.MonkeyPatch):
        """What the other children of an ancestor pick is used again, and what is sent where that stays as it was."""
        computed: list[Hashable] = []

        class Counted(Steps):
            def do(self, name: Hashable, step: Callable[..., Any], *given: Any) -> Any:
                def counted(*args: Any) -> Any:
                    computed.append(name)
                    return step(*args)

                return super().do(name, counted, *given)

        monkeypatch.setattr(build, "Steps", Counted)
        after = changed(self.network, "p99", 1.1)
        tables = build_tables(self.network, self.terms)
        computed.clear()
        update_tables(tables, after)
        updated, picked = (
            len(computed),
            [name[0] for name in computed if isinstance(name, tuple) and name[1] == "picks"],
        )
        assert set(picked) <= with_ancestors(self.network, "p99")
        assert len(picked) == len(set(picked))
        computed.clear()
        for name in with_ancestors(self.network, "p99"):
            place, children = after.by_name[name], after.children[name]
            mine = {child: tables.places[child].table for child in children}
            build.build_table(place, mine, self.terms.objective, SMALL, most=self.terms.most)
        assert updated < 0.6 * len(computed)

    def test_unchanged_tables_are_the_same_objects(self):
        updated = update_tables(self.tables, changed(self.network, "p99", 1.1))
        kept = set(self.tables.places) - with_ancestors(self.network, "p99")
        assert all(updated.places[name] is self.tables.places[name] for name in kept)

    def test_an_update_of_an_update_equals_building_anew(self):
        once = changed(self.network, "p99", 1.1)
        twice = changed(once, "p42", 0.7)
        updated = update_tables(update_tables(self.tables, once), twice)
        assert updated.places == build_tables(twice, self.terms).places

    @pytest.mark.parametrize("seed", range(2, 8))
    def test_updates_of_random_trees_equal_building_anew(self, seed: int):
        rng = random.Random(seed)
        network, rates = random_tree(rng, most_places=20, least_places=5)
        terms = Terms(settings=SMALL, most=expected(network, {port: 2 * rate for port, rate in rates.items()}))
        tables = build_tables(network, terms)
        for _ in range(8):
            name, times = rng.choice(network.in_order), rng.choice([0.3, 0.99, 1.01, 3.0])
            network = (changed if rng.random() < 0.5 else with_selectivity)(network, name, times)
            tables = update_tables(tables, network)
            assert tables.places == build_tables(network, terms).places

    def test_a_change_that_does_not_show_in_the_table_above_goes_no_further(self, built: list[str]):
        # `mid` lets so few rows through that `low` is never full, so the cost of `low` does not matter to `top`.
        low = Place("low", (Input("i", (Branch("b", 0.1, queries=("q",)),)),))
        mid = Place("mid", (Input("i", (Branch("b", 100.0, child=Port("low", "i")),)),))
        top = Place("top", (Input("i", (Branch("b", 1.0, child=Port("mid", "i")),)),))
        network = Network((top, mid, low))
        tables = build_tables(network, Terms(most=expected(network, {Port("top", "i"): 1.0}), settings=SMALL))
        built.clear()
        updated = update_tables(tables, changed(network, "low", 1.5))
        assert built == ["low", "mid"]
        assert updated.places["top"] is tables.places["top"]

    def test_another_objective_builds_all_anew(self):
        other = replace(self.terms, objective=Throughput({"q0.0": 2.0}))
        assert update_tables(self.tables, self.network, other).places == build_tables(self.network, other).places
