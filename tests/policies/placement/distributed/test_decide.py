"""The local decision: what it needs to know, what it then chooses, and what it can say of other places."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from random_trees import plane

from headrace.model import Network
from headrace.policies.placement.distributed import Rules, Table, Variant, View
from headrace.policies.placement.distributed.decide import Branch, Decision, Local, Missing, decide
from headrace.policies.placement.edge_plus import edge_plus
from headrace.policies.placement.problem import Flow, Part, Placement, Problem

NET = Network(
    ("paris", "rome", "oslo", "hub", "lyon"),
    (
        (0.0, 30.0, 40.0, 12.0, 5.0),
        (30.0, 0.0, 50.0, 25.0, 25.0),
        (40.0, 50.0, 0.0, 35.0, 38.0),
        (12.0, 25.0, 35.0, 0.0, 10.0),
        (5.0, 25.0, 38.0, 10.0, 0.0),
    ),
)


def source(place: str, bytes_per_s: float) -> Branch:
    return Branch(bytes_per_s, place, Table.fixed(place), (place,))


def local(
    *branches: Branch, variant: Variant = "edge", bound: float | None = None, candidates: tuple[str, ...] = ()
) -> Local:
    """An operator over sources, whose results go straight to the hub."""
    order = tuple(site for site in NET.sites if site != "lyon")
    asked = order if variant == "edge" else ()
    return Local(branches, Rules(variant, "hub", bound, 8), None, ("hub",), asked, candidates, order)


def view(*pairs: tuple[str, str]) -> View:
    both = [pair for a, b in pairs for pair in ((a, b), (b, a))]
    return View.of({(a, b): NET.distance_ms(a, b) for a, b in both})


TO_HUB = (("paris", "hub"), ("rome", "hub"), ("oslo", "hub"))
EVERYTHING = tuple(combinations(NET.sites, 2))


@pytest.mark.parametrize(
    ("asked", "known", "pairs"),
    [
        pytest.param(local(source("paris", 9.0), source("rome", 4.0)), (), None, id="Edge counts bytes"),
        pytest.param(
            local(source("paris", 9.0), source("rome", 4.0), bound=60.0),
            TO_HUB,
            (("paris", "rome"), ("paris", "oslo"), ("rome", "oslo")),
            id="with a bound Edge asks from where inputs are to all places",
        ),
        pytest.param(
            local(source("paris", 9.0), source("rome", 4.0), variant="edge+"),
            TO_HUB,
            (("paris", "rome"),),
            id="Edge+ asks between branches",
        ),
        pytest.param(
            local(source("paris", 4.0), source("rome", 9.0), source("oslo", 5.0), variant="edge+"),
            TO_HUB,
            (("paris", "rome"), ("rome", "oslo")),
            id="of three branches from the one with the highest rate",
        ),
        pytest.param(
            local(source("paris", 9.0), source("rome", 4.0), variant="edge+"),
            (*TO_HUB, ("paris", "rome")),
            None,
            id="nothing is asked that is known",
        ),
        pytest.param(
            local(source("paris", 9.0), source("rome", 4.0), variant="in-network", candidates=("lyon",)),
            (*TO_HUB, ("paris", "rome")),
            (("paris", "lyon"), ("rome", "lyon"), ("hub", "lyon")),
            id="In-Network asks from its candidates",
        ),
    ],
)
def test_distances_that_are_missing(asked: Local, known: tuple[tuple[str, str], ...], pairs: tuple[str, ...] | None):
    found = decide(asked, view(*known))
    assert (found.pairs if isinstance(found, Missing) else None) == pairs


def decided(asked: Local) -> Decision:
    found = decide(asked, view(*EVERYTHING))
    assert isinstance(found, Decision)
    return found


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        pytest.param(local(source("paris", 9.0), source("rome", 4.0)), "paris", id="where the most bytes come from"),
        pytest.param(
            local(source("rome", 9.0), source("paris", 4.0), bound=54.9), "paris", id="not by a detour too long"
        ),
        pytest.param(
            local(source("rome", 9.0), source("paris", 4.0), bound=41.9), "hub", id="where results go if all others are"
        ),
        pytest.param(local(source("rome", 9.0), source("paris", 4.0), bound=55.0), "rome", id="by one that will do"),
        pytest.param(
            local(source("paris", 9.0), source("rome", 9.0), source("oslo", 9.0), variant="edge+"),
            "paris",
            id="Edge+ takes the nearest of equal rates",
        ),
        pytest.param(
            local(
                source("paris", 5.0),
                source("rome", 6.0),
                source("oslo", 5.0),
                variant="in-network",
                candidates=("lyon",),
            ),
            "lyon",
            id="In-Network takes a candidate between its inputs",
        ),
        pytest.param(
            local(source("paris", 5.0), source("rome", 6.0), source("oslo", 5.0), variant="in-network"),
            "paris",
            id="without candidates it is Edge+",
        ),
        pytest.param(
            local(source("paris", 5.0), source("rome", 6.0), variant="in-network", candidates=("lyon",)),
            "rome",
            id="a candidate between two inputs does not pay",
        ),
    ],
)
def test_places(asked: Local, place: str):
    assert decided(asked).place == place


def test_an_operator_with_a_home_has_a_table_of_one_place():
    found = decided(replace(local(source("paris", 9.0), source("rome", 4.0)), home="oslo"))
    assert (found.place, list(found.table)) == ("oslo", ["oslo"])


def test_delay_lists_have_the_longest_path_through_each_input():
    """a@paris, b@rome -> low -> top <- c@oslo; the table of `top` is told of `low` by its table alone."""
    low = decided(local(source("paris", 9.0), source("rome", 4.0), bound=200.0))
    assert {place: found.delays_ms for place, found in low.table.items()} == {
        "paris": (0.0, 30.0),
        "rome": (30.0, 0.0),
        "oslo": (40.0, 50.0),
        "hub": (12.0, 25.0),
    }
    branch = Branch(20.0, low.place, low.table, ("paris", "rome"))
    top = decided(local(branch, source("oslo", 8.0), bound=200.0))
    # `low` comes along to the hub, and stays at paris when `top` is at paris.
    assert (top.table["hub"].inputs, top.table["hub"].delays_ms) == (("hub", "oslo"), (25.0, 35.0))
    assert (top.table["paris"].inputs, top.table["paris"].delays_ms) == (("paris", "oslo"), (30.0, 40.0))


def test_configurations_that_break_the_bound_are_not_in_the_table():
    low = decided(local(source("paris", 9.0), source("rome", 4.0), bound=42.0))
    assert set(low.table) == {"paris", "hub"}


def test_an_operator_over_two_sources_is_placed_as_by_central_edge_plus():
    rng = random.Random(1)
    for _ in range(40):
        network = plane(rng, 8)
        a, b, proxy = rng.sample(network.sites, 3)
        rates = [rng.uniform(1, 100) for _ in range(3)]
        problem = Problem(
            (Part("a", a), Part("b", b), Part("join"), Part("answers", proxy)),
            (Flow("a", "join", rates[0]), Flow("b", "join", rates[1]), Flow("join", "answers", rates[2])),
            network,
        )
        rules = Rules("edge+", proxy, None, 8)
        asked = Local((source(a, rates[0]), source(b, rates[1])), rules, None, (proxy,), (), (), network.sites)
        known = View(network.sites, problem.arrays.delay)
        join = decide(asked, known)
        assert isinstance(join, Decision)
        above = Local((Branch(rates[2], join.place, join.table, (a, b)),), rules, proxy, (), (), (), network.sites)
        answers = decide(above, known)
        central = edge_plus(problem)
        assert isinstance(answers, Decision)
        assert isinstance(central, Placement)
        assert answers.table[proxy].cost == pytest.approx(central.cost)
        assert answers.table[proxy].inputs == (central.sites["join"],)
