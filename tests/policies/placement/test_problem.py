"""What a problem is, what it refuses, and what placements of it cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from headrace.model import Network
from headrace.model.pipeline import STRATEGIES as NAMED
from headrace.policies.placement import STRATEGIES, Flow, Part, Problem, optimal

# A latency from a site to itself is ignored.
NET = Network(("paris", "rome", "hub"), ((7.0, 30.0, 12.0), (30.0, 7.0, 25.0), (12.0, 25.0, 7.0)))
PARTS = (Part("p", "paris"), Part("r", "rome"), Part("count", load=2.0), Part("top", load=1.0), Part("answers", "hub"))
FLOWS = (Flow("p", "count", 800.0), Flow("r", "count", 80.0), Flow("count", "top", 20.0), Flow("top", "answers", 5.0))


def at(count: str, top: str) -> dict[str, str]:
    return {"p": "paris", "r": "rome", "count": count, "top": top, "answers": "hub"}


@pytest.mark.parametrize(
    ("sites", "cost", "latency_ms", "links"),
    [
        pytest.param(
            at("hub", "hub"), 800 * 12 + 80 * 25, 25, {("paris", "hub"): 800, ("rome", "hub"): 80}, id="all at the hub"
        ),
        pytest.param(
            at("paris", "paris"), 80 * 30 + 5 * 12, 42, {("rome", "paris"): 80, ("paris", "hub"): 5}, id="all at paris"
        ),
        pytest.param(
            at("paris", "rome"),
            80 * 30 + 20 * 30 + 5 * 25,
            85,
            {("rome", "paris"): 80, ("paris", "rome"): 20, ("rome", "hub"): 5},
            id="there and back",
        ),
    ],
)
def test_cost_latency_and_links(
    sites: dict[str, str], cost: float, latency_ms: float, links: dict[tuple[str, str], float]
):
    problem = Problem(PARTS, FLOWS, NET)
    assert problem.cost_of(sites) == cost
    assert problem.latency_of(sites) == latency_ms
    assert problem.links_of(sites) == links
    placed = problem.placed(sites, "by hand")
    assert (placed.cost, placed.latency_ms, placed.reason) == (cost, latency_ms, "by hand")


@pytest.mark.parametrize(
    ("flows", "count", "other", "cost"),
    [
        pytest.param((10.0, 10.0), "hub", "hub", 120.0, id="what two readers at one site share crosses once"),
        pytest.param((10.0, 14.0), "hub", "hub", 168.0, id="the wider of two flows to one site is paid"),
        pytest.param((10.0, 14.0), "hub", "rome", 120.0 + 14 * 30.0, id="two sites are sent to twice"),
        pytest.param((10.0, 14.0), "paris", "hub", 168.0, id="what stays at home costs nothing"),
    ],
)
def test_what_several_read_is_paid_once_per_site(flows: tuple[float, float], count: str, other: str, cost: float):
    problem = Problem(
        (Part("p", "paris"), Part("count"), Part("other"), Part("answers", "hub")),
        (
            Flow("p", "count", flows[0]),
            Flow("p", "other", flows[1]),
            Flow("count", "answers", 0.0),
            Flow("other", "answers", 0.0),
        ),
        NET,
    )
    assert not problem.is_tree
    sites = {"p": "paris", "count": count, "other": other, "answers": "hub"}
    assert problem.cost_of(sites) == cost
    assert sum(ms * rate for (_, _), rate, ms in _crossing(problem, sites)) == cost


def _crossing(problem: Problem, sites: dict[str, str]) -> list[tuple[tuple[str, str], float, float]]:
    links = problem.links_of(sites)
    return [(link, rate, problem.network.distance_ms(*link)) for link, rate in links.items()]


@pytest.mark.parametrize(
    ("sites", "faults"),
    [
        pytest.param(at("hub", "hub"), ["hub has a load of 3, more than its capacity of 2"], id="a site is full"),
        pytest.param(
            at("paris", "paris"), ["the longest path takes 42 ms, more than 40 ms"], id="a path takes too long"
        ),
        pytest.param(
            {**at("rome", "hub"), "p": "rome"}, ["'p' is at home at paris, not at rome"], id="a source is not at home"
        ),
        pytest.param(
            at("hub", "rome"), ["the longest path takes 75 ms, more than 40 ms"], id="at the limit is no fault"
        ),
        pytest.param(at("rome", "hub"), ["the longest path takes 55 ms, more than 40 ms"], id="from paris by rome"),
    ],
)
def test_faults_are_told(sites: dict[str, str], faults: list[str]):
    problem = Problem(PARTS, FLOWS, NET, 40.0, {"hub": 2.0})
    assert list(problem.faults_of(sites)) == faults


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(lambda: Problem((*PARTS, Part("p", "rome")), FLOWS, NET), "same name", id="a name twice"),
        pytest.param(
            lambda: Problem(PARTS, (*FLOWS, Flow("p", "x", 1.0)), NET), "no known part 'x'", id="no such part"
        ),
        pytest.param(
            lambda: Problem((*PARTS, Part("q", "oslo")), FLOWS, NET),
            "no known site 'oslo'",
            id="a home that is no site",
        ),
        pytest.param(
            lambda: Problem((*PARTS, Part("q")), FLOWS, NET), "needs flows in and out", id="a part without flows"
        ),
        pytest.param(
            lambda: Problem(PARTS, (*FLOWS, Flow("top", "count", 1.0)), NET), "circle, among .*count", id="a circle"
        ),
        pytest.param(lambda: Problem(PARTS, FLOWS, NET, -1.0), "0 ms or more, not -1", id="a negative bound"),
        pytest.param(lambda: Problem(PARTS, FLOWS, NET, float("nan")), "0 ms or more", id="a bound that is no number"),
        pytest.param(
            lambda: Problem(PARTS, FLOWS, NET, None, {"oslo": 1.0}), "no known site 'oslo'", id="room nowhere"
        ),
        pytest.param(lambda: Problem(PARTS, FLOWS, NET, None, {"hub": -1.0}), "0 or more, not -1", id="negative room"),
        pytest.param(lambda: Part("x", None, -1.0), "load of 0 or more, not -1", id="a negative load"),
        pytest.param(lambda: Flow("a", "b", float("inf")), "0 bytes per second or more", id="an endless flow"),
    ],
)
def test_problems_that_make_no_sense_are_refused(build: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        build()


def test_an_unknown_part_or_site_is_a_key_error():
    problem = Problem(PARTS, FLOWS, NET)
    assert problem.part("count").load == 2.0
    for wrong in (lambda: problem.part("x"), lambda: problem.cost_of({}), lambda: problem.cost_of(at("oslo", "hub"))):
        with pytest.raises(KeyError):
            wrong()


def test_the_table_has_the_strategies_that_files_may_name():
    assert set(STRATEGIES) == set(NAMED)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_problem_without_operators_has_one_placement(name: str):
    problem = Problem((Part("p", "paris"), Part("answers", "hub")), (Flow("p", "answers", 3.0),), NET)
    found = STRATEGIES[name](problem)
    assert found == problem.placed({"p": "paris", "answers": "hub"}, found.reason)
    refused = STRATEGIES[name](Problem(problem.parts, problem.flows, NET, 11.0))
    assert refused.best_latency_ms == 12.0  # type: ignore[union-attr]


def test_parts_that_feed_no_operator_and_long_chains_are_fine():
    chain = [Part(f"o{number}") for number in range(300)]
    flows = [Flow(a.name, b.name, 1.0) for a, b in pairwise(chain)]
    problem = Problem(
        (Part("p", "paris"), Part("unread", "rome"), *chain, Part("answers", "hub")),
        (Flow("p", "o0", 9.0), *flows, Flow("o299", "answers", 2.0)),
        NET,
    )
    found = optimal(problem)
    assert found.cost == 12.0  # type: ignore[union-attr]
