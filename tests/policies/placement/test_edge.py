"""Edge, Edge+ and In-Network on cases worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from placements import binary_tree, on_a_plane

from headrace.model import Network
from headrace.policies.placement import (
    Flow,
    Infeasible,
    Part,
    Placement,
    Problem,
    Strategy,
    edge,
    edge_plus,
    in_network,
    warehouse,
)
from headrace.policies.placement.bottom_up import Draft
from headrace.policies.placement.in_network import candidates

# On a line, in ms:  lyon 0 - nice 10 - paris 30 - rome 60 - hub 100.
LINE = {"lyon": 0.0, "nice": 10.0, "paris": 30.0, "rome": 60.0, "hub": 100.0}
NET = Network(tuple(LINE), tuple(tuple(abs(a - b) for b in LINE.values()) for a in LINE.values()))


def tree(sources: Mapping[str, str], flows: Mapping[str, float], bound: float | None = None) -> Problem:
    """Sources at their sites, flows as "from to" with their rates, answers at the hub."""
    found = tuple(Flow(*ends.split(), rate) for ends, rate in flows.items())
    names = dict.fromkeys(name for flow in found for name in (flow.source, flow.target))
    homes = {**sources, "answers": "hub"}
    return Problem(tuple(Part(name, homes.get(name)) for name in names), found, NET, bound)


BUSIEST = tree({"a": "paris", "b": "rome"}, {"a o": 10, "b o": 4, "o answers": 3})
SUMMED = tree({"a": "paris", "b": "paris", "c": "rome"}, {"a o": 6, "b o": 5, "c o": 10, "o answers": 3})
# Alone, o1 is best at rome (5 cross) and o2 at paris (3 cross).
#   o at rome:  o1 stays, 5; o2 stays and sends 5, 3 + 5, or comes along, 8 + 3; together 13
#   o at paris: o2 stays, 3; o1 stays and sends 7, 5 + 7, or comes along, 9; together 12
COMMON = tree(
    {"a": "paris", "b": "rome", "c": "paris", "d": "lyon"},
    {"a o1": 5, "b o1": 9, "c o2": 8, "d o2": 3, "o1 o": 7, "o2 o": 5, "o answers": 1},
)
# At rome 3 cross on the way in, but 20 on the way out; at the hub 7 in all.
SWELLING = tree({"a": "paris", "b": "rome"}, {"a o": 3, "b o": 4, "o answers": 20})
# The hub's own stream is too narrow to draw operators there one by one, but both come for it: 6 + 6 cross, not 5 + 9.
PROXY = tree(
    {"a": "paris", "b": "hub", "c": "rome", "d": "hub"},
    {"a o1": 6, "b o1": 5, "c o2": 6, "d o2": 5, "o1 o": 4, "o2 o": 4, "o answers": 1},
)
UNARY = tree({"a": "paris"}, {"a f": 10, "f o": 2, "o answers": 1})


@pytest.mark.parametrize(
    ("problem", "sites", "bytes_crossing"),
    [
        pytest.param(BUSIEST, {"o": "paris"}, 4 + 3, id="case 1: where the most bytes come from"),
        pytest.param(SUMMED, {"o": "paris"}, 10 + 3, id="case 1: bytes from one site count together"),
        pytest.param(
            COMMON,
            {"o1": "paris", "o2": "paris", "o": "paris"},
            9 + 3 + 1,
            id="case 2: at a common location, with a child that is placed anew",
        ),
        pytest.param(PROXY, {"o1": "hub", "o2": "hub", "o": "hub"}, 12, id="case 3: at the proxy, with both children"),
        pytest.param(SWELLING, {"o": "hub"}, 7, id="the flow to the answers counts: an operator that swells is there"),
        pytest.param(UNARY, {"f": "paris", "o": "paris"}, 1, id="operators with one input stay at its source"),
    ],
)
def test_edge_places_by_bytes(problem: Problem, sites: dict[str, str], bytes_crossing: float):
    found = edge(problem)
    assert isinstance(found, Placement)
    assert {name: found.sites[name] for name in sites} == sites
    assert sum(problem.links_of(found.sites).values()) == bytes_crossing
    assert problem.faults_of(found.sites) == ()


def test_edge_ignores_distances():
    """Nice would be cheaper for a stream that the hub gives, but more bytes come from there than from nice."""
    problem = tree({"a": "hub", "b": "nice", "c": "lyon"}, {"a o": 6, "b o": 5, "c o": 5, "o answers": 1})
    found = edge(problem)
    assert isinstance(found, Placement)
    assert found.sites["o"] == "hub"
    nearer = edge(
        replace(problem, network=Network(NET.sites, tuple(tuple(ms / 9 for ms in row) for row in NET.latency_ms)))
    )
    assert isinstance(nearer, Placement)
    assert nearer.sites == found.sites


def test_edge_keeps_to_the_bound_over_the_whole_path():
    """From rome back to paris and on to the hub takes 30 + 70 ms; at rome, paris to the hub takes 70 ms."""
    at = {}
    for bound in (100.0, 99.0, 70.0):
        found = edge(replace(BUSIEST, max_latency_ms=bound))
        assert isinstance(found, Placement)
        assert found.latency_ms <= bound
        at[bound] = found.sites["o"]
    assert at == {100.0: "paris", 99.0: "rome", 70.0: "rome"}
    refused = edge(replace(BUSIEST, max_latency_ms=69.0))
    assert isinstance(refused, Infeasible)
    assert refused.best_latency_ms == 70.0


# Most bytes come from lyon, but they and the others are nearer to rome: 10 * 60 + 6 * 40 < 6 * 60 + 6 * 100.
NEARER = tree({"a": "lyon", "b": "rome", "c": "hub"}, {"a o": 10, "b o": 6, "c o": 6, "o answers": 2})


@pytest.mark.parametrize(
    ("strategy", "site", "cost"),
    [
        pytest.param(edge, "lyon", 6 * 60 + 6 * 100 + 2 * 100, id="edge goes where the bytes are"),
        pytest.param(edge_plus, "rome", 10 * 60 + 6 * 40 + 2 * 40, id="edge+ goes to a source that is near to all"),
        pytest.param(warehouse, "hub", 10 * 100 + 6 * 40, id="the warehouse stays where answers are wanted"),
    ],
)
def test_edge_plus_counts_the_distance(strategy: Strategy, site: str, cost: float):
    found = strategy(NEARER)
    assert isinstance(found, Placement)
    assert (found.sites["o"], found.cost) == (site, cost)


# Three sources and the hub, each 10 ms from the middle and 20 ms from each other.
CORNERS = ("a", "b", "c", "hub", "middle")
STAR = Network(
    CORNERS, tuple(tuple(0.0 if x == y else 10.0 if "middle" in (x, y) else 20.0 for y in CORNERS) for x in CORNERS)
)
TO_THE_MIDDLE = Problem(
    (Part("x", "a"), Part("y", "b"), Part("z", "c"), Part("o", load=1.0), Part("answers", "hub")),
    (*(Flow(source, "o", 5.0) for source in "xyz"), Flow("o", "answers", 5.0)),
    STAR,
)


@pytest.mark.parametrize(
    ("strategy", "site", "cost"),
    [
        pytest.param(in_network, "middle", 200.0, id="in-network goes between the sources"),
        pytest.param(edge_plus, "a", 300.0, id="edge+ goes to a source"),
    ],
)
def test_in_network_goes_where_nothing_is_born(strategy: Strategy, site: str, cost: float):
    found = strategy(TO_THE_MIDDLE)
    assert isinstance(found, Placement)
    assert (found.sites["o"], found.cost) == (site, cost)


@pytest.mark.parametrize(
    ("capacity", "site"),
    [
        pytest.param({"middle": 1.0}, "middle", id="there is room"),
        pytest.param({"middle": 0.5}, "a", id="the middle is full"),
        pytest.param({"middle": 0.0, "a": 0.0, "b": 0.0, "c": 0.0}, "hub", id="only the hub has room"),
    ],
)
def test_operators_go_where_there_is_room(capacity: dict[str, float], site: str):
    found = in_network(replace(TO_THE_MIDDLE, capacity=capacity))
    assert isinstance(found, Placement)
    assert found.sites["o"] == site


@pytest.mark.parametrize("strategy", [edge, edge_plus, in_network, warehouse])
def test_a_place_for_nothing_is_said_to_be_none(strategy: Strategy):
    found = strategy(replace(TO_THE_MIDDLE, capacity=dict.fromkeys(CORNERS, 0.5)))
    assert isinstance(found, Infeasible)
    assert found.best_latency_ms is None
    assert "room left for 'o'" in found.reason or "do not fit where the answers are" in found.reason


def draft_of(problem: Problem, at: Mapping[str, str]) -> Draft:
    draft = Draft(problem.arrays, problem.arrays.delay, None)
    for name, site in at.items():
        draft.at[problem.arrays.names.index(name)] = problem.network.position(site)
    return draft


@pytest.mark.parametrize(
    ("problem", "at", "sites"),
    [
        pytest.param(
            BUSIEST,
            {"a": "lyon", "b": "hub"},
            ["nice", "paris", "rome"],
            id="between two children, not at their places",
        ),
        pytest.param(
            TO_THE_MIDDLE, {"x": "a", "y": "b", "z": "c"}, ["middle"], id="between each two of three children"
        ),
        pytest.param(
            BUSIEST,
            {"a": "lyon", "b": "nice"},
            ["lyon", "nice", "paris", "rome", "hub"],
            id="nothing lies between: the children's and the reader's places and their neighbours",
        ),
        pytest.param(
            UNARY, {"a": "paris"}, ["lyon", "nice", "paris", "rome", "hub"], id="an only child: neighbours of its place"
        ),
    ],
)
def test_candidates_of_in_network(problem: Problem, at: dict[str, str], sites: list[str]):
    ((operator, _),) = problem.arrays.readers[0]
    assert [problem.network.sites[site] for site in candidates(draft_of(problem, at), operator)] == sites


def test_near_neighbours_are_few():
    rng = random.Random(3)
    problem = binary_tree(rng, on_a_plane(rng, 60), 1)
    draft = draft_of(problem, {"ol": "s5", "or": "s5"})
    near = {problem.network.sites[site] for site in candidates(draft, problem.arrays.names.index("o"))}
    assert {"s5", problem.part("answers").home} <= near
    assert len(near) <= 10
