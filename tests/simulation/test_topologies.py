"""The networks, source placements and trees that placement is measured on."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.simulation.topologies import (
    PLACEMENTS,
    Ground,
    choose_sources,
    ground_of,
    plane,
    processing_tree,
    transit_stub,
)


@pytest.fixture(scope="module")
def ground() -> Ground:
    return transit_stub(random.Random(7))


def test_a_transit_stub_graph_is_the_papers(ground: Ground) -> None:
    domains = {name.partition(".")[0] for name in ground.network.sites}
    assert domains == {f"t{i}" for i in range(14)}
    between = ground.latency_ms[np.ix_(ground.ends, ground.ends)]
    assert between.max() == pytest.approx(500)
    assert np.isfinite(ground.latency_ms).all()
    assert (ground.latency_ms == ground.latency_ms.T).all()
    assert all(".s" in ground.network.sites[end] for end in ground.ends)
    # Stub nodes are most of the graph, and paths between stub domains lead over transit nodes.
    assert len(ground.ends) > 0.8 * len(ground.network.sites)
    stub, other = ground.ends[0], next(end for end in ground.ends if ground.network.sites[end].startswith("t9."))
    transit = [i for i in range(len(ground.network.sites)) if i not in set(ground.ends)]
    over = (ground.latency_ms[stub, transit] + ground.latency_ms[transit, other]).min()
    assert over == pytest.approx(ground.latency_ms[stub, other])


def test_a_seed_is_a_graph() -> None:
    one, same, other = (transit_stub(random.Random(seed)) for seed in (1, 1, 2))
    assert one.network == same.network
    assert one.network != other.network


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_sources_have_the_averages_of_their_placement(placement: str, count: int, ground: Ground) -> None:
    rng = random.Random(3)
    found = [choose_sources(ground, count, PLACEMENTS[placement], rng) for _ in range(6)]
    assert all(len({*sources.streams, sources.proxy}) == count + 1 for sources in found)
    assert all({*sources.streams, sources.proxy} <= set(ground.ends) for sources in found)
    ratio = np.mean([sources.proxy_distance_ms / sources.server_distance_ms for sources in found])
    lowest, highest = {"star": (0.5, 0.75), "uniform": (0.9, 1.1), "cluster": (1.5, 2.2)}[placement]
    assert lowest <= ratio <= highest


def test_the_averages_are_those_of_the_sites(ground: Ground) -> None:
    found = choose_sources(ground, 3, PLACEMENTS["uniform"], random.Random(1))
    a, b, c = found.streams
    distance = ground.latency_ms
    assert found.proxy_distance_ms == pytest.approx((distance[a, found.proxy] + distance[b, found.proxy]
                                                     + distance[c, found.proxy]) / 3)  # fmt: skip
    assert found.server_distance_ms == pytest.approx((distance[a, b] + distance[b, c] + distance[a, c]) / 3)


def test_streams_share_the_sites_of_a_small_network() -> None:
    small = ground_of("pair", ["a", "b"], np.array([[0.0, 5.0], [5.0, 0.0]]))
    found = choose_sources(small, 8, None, random.Random(1))
    assert len(found.streams) == 8
    assert set(found.streams) <= {0, 1}


@pytest.mark.parametrize(
    ("depth", "fanout", "bound"), [(3, 2, 1.0), (4, 2, 1.0), (5, 2, 1.0), (2, 4, 1.0), (3, 2, 0.25)]
)
def test_a_processing_tree(depth: int, fanout: int, bound: float, ground: Ground) -> None:
    problem = processing_tree(ground, depth, None, random.Random(2), fanout=fanout, selectivity=bound)
    operators = [part.name for part in problem.parts if part.home is None]
    assert len(operators) == sum(fanout**level for level in range(depth))
    assert len(problem.parts) == fanout**depth + len(operators) + 1
    assert problem.is_tree
    received = {name: sum(flow.bytes_per_s for flow in problem.flows if flow.target == name) for name in operators}
    sent = {flow.source: flow.bytes_per_s for flow in problem.flows}
    shares = [sent[name] / received[name] for name in operators]
    assert all(0 <= share <= bound for share in shares)
    assert max(shares) - min(shares) > 0.3 * bound
    assert [sum(flow.target == name for flow in problem.flows) for name in operators] == [fanout] * len(operators)


def test_a_plane_has_straight_ways() -> None:
    found = plane(random.Random(4), 20)
    for middle in range(20):
        straight = found.latency_ms[:, middle, None] + found.latency_ms[None, middle, :]
        assert (found.latency_ms <= straight + 1e-9).all()
    assert found.latency_ms.max() == pytest.approx(500)
