"""Networks, source placements and processing trees as in section 6 of the paper on network-aware placement.

The paper's graphs come from GT-ITM: transit domains joined to each other, and stub domains that hang on their nodes.
Here domains lie on a plane, links are as long as the distance of their ends, and all is scaled so that the longest path
between two stub nodes takes 500 ms. Streams and proxies are at stub nodes; operators may run at any node.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from headrace.language.pipeline.network_files import shortest_paths
from headrace.model import Network
from headrace.policies.placement import Flow, Part, Problem

__all__ = ["PLACEMENTS", "Ground", "Sources", "binary_tree", "choose_sources", "ground_of", "plane", "transit_stub"]

# The paper's: domains, and milliseconds of the longest path between stub nodes.
TRANSIT_DOMAINS, LONGEST_MS = 14, 500.0
# GT-ITM's usual proportions: so many nodes in a transit domain, stub domains at each of them, nodes in a stub domain.
TRANSIT_NODES, STUBS_PER_NODE, STUB_NODES = (2, 4), (1, 3), (3, 6)
# How far nodes lie from the middle of their domain, in a plane whose side is 1.
TRANSIT_REACH, STUB_REACH, STUB_SIZE = 0.06, 0.05, 0.015
# Average proxy distance and average server distance as shares of the diameter (section 6.1): uniform is the paper's; of
# the other two it gives the ratio, about a half and about two, and the greater is put where uniform has it.
PLACEMENTS: Mapping[str, tuple[float, float]] = {"star": (0.2, 0.4), "uniform": (0.4, 0.4), "cluster": (0.4, 0.2)}
# Replacements of one source or of the proxy that are tried, and the error at which it is enough, as a share of the
# diameter; a star is never exact, since nothing travels through a proxy that is a stub node.
TRIES, ENOUGH = 800, 0.02
# Bytes per second of a stream; the paper draws them uniformly "between two size bounds".
RATES = (100_000.0, 1_000_000.0)

Point = tuple[float, float]


@dataclass(frozen=True)
class Ground:
    """A network to place on, and those of its sites where streams and proxies may be.

    `diameter_ms` is the longest path from such a site, on average over them: the paper speaks of an average diameter,
    against which its bounds of 120 and 300 ms are tight and loose.
    """

    name: str
    network: Network
    ends: tuple[int, ...]
    latency_ms: NDArray[np.float64]
    diameter_ms: float


@dataclass(frozen=True)
class Sources:
    """Sites of streams and of the proxy, and the two averages that the paper describes them by."""

    streams: tuple[int, ...]
    proxy: int
    proxy_distance_ms: float
    server_distance_ms: float


def ground_of(name: str, names: Sequence[str], latency_ms: NDArray[np.float64], ends: Sequence[int] = ()) -> Ground:
    """A ground of given latencies, that are shortest paths; without `ends` streams may be anywhere."""
    network = Network(tuple(names), tuple(tuple(map(float, row)) for row in latency_ms))
    ends = tuple(ends) or tuple(range(len(names)))
    return Ground(name, network, ends, latency_ms, float(latency_ms[np.ix_(ends, ends)].max(axis=1).mean()))


def transit_stub(rng: random.Random, name: str = "transit-stub") -> Ground:
    """A graph of 14 transit domains with stub domains around them, 500 ms across."""
    graph = nx.Graph()
    centres = [(rng.random(), rng.random()) for _ in range(TRANSIT_DOMAINS)]
    domains = [
        _domain(graph, rng, f"t{i}", rng.randint(*TRANSIT_NODES), centre, TRANSIT_REACH)
        for i, centre in enumerate(centres)
    ]
    # Each domain is joined to the nearest of those before it, and by half as many links again to any.
    for i, domain in enumerate(domains[1:], 1):
        near = min(range(i), key=lambda j: math.dist(centres[i], centres[j]))
        _join(graph, rng.choice(domain), rng.choice(domains[near]))
    for _ in range(TRANSIT_DOMAINS // 2):
        one, other = rng.sample(domains, 2)
        _join(graph, rng.choice(one), rng.choice(other))
    stubs: list[str] = []
    for node in [node for domain in domains for node in domain]:
        for s in range(rng.randint(*STUBS_PER_NODE)):
            middle = _beside(rng, graph.nodes[node]["at"], STUB_REACH)
            domain = _domain(graph, rng, f"{node}.s{s}", rng.randint(*STUB_NODES), middle, STUB_SIZE)
            _join(graph, node, rng.choice(domain))
            stubs += domain
    names = list(graph)
    direct = nx.to_numpy_array(graph, weight="ms", nonedge=math.inf)
    np.fill_diagonal(direct, 0.0)
    found = shortest_paths(direct)
    ends = [names.index(stub) for stub in stubs]
    return ground_of(name, names, found * LONGEST_MS / found[np.ix_(ends, ends)].max(), ends)


def _domain(graph: nx.Graph, rng: random.Random, name: str, size: int, centre: Point, reach: float) -> list[str]:
    """Nodes around a point, joined by a random tree and by a link more for every two of them."""
    nodes = [f"{name}.{i}" for i in range(size)]
    for i, node in enumerate(nodes):
        graph.add_node(node, at=_beside(rng, centre, reach))
        if i:
            _join(graph, node, rng.choice(nodes[:i]))
    for _ in range(size // 2):
        _join(graph, *rng.sample(nodes, 2))
    return nodes


def _beside(rng: random.Random, point: Point, reach: float) -> Point:
    return point[0] + rng.uniform(-reach, reach), point[1] + rng.uniform(-reach, reach)


def _join(graph: nx.Graph, a: str, b: str) -> None:
    graph.add_edge(a, b, ms=math.dist(graph.nodes[a]["at"], graph.nodes[b]["at"]))


def plane(rng: random.Random, count: int) -> Ground:
    """So many sites anywhere on a plane, 500 ms across, each with a straight way to every other."""
    points = np.array([(rng.random(), rng.random()) for _ in range(count)])
    apart = np.hypot(*(points[:, None, axis] - points[None, :, axis] for axis in (0, 1)))
    return ground_of(f"plane of {count}", [f"site {i}" for i in range(count)], apart * LONGEST_MS / apart.max())


def choose_sources(ground: Ground, count: int, placement: str, rng: random.Random) -> Sources:
    """Sites of `count` streams and of the proxy that come near to a placement's averages; "random" takes any.

    Streams share sites where there are fewer sites than streams.
    """
    scarce = len(ground.ends) <= count
    drawn = rng.choices(ground.ends, k=count + 1) if scarce else rng.sample(ground.ends, count + 1)
    best = _measured(ground, drawn)
    error = _error(best, placement, ground.diameter_ms)
    for _ in range(TRIES):
        if error < ENOUGH:
            break
        changed, new = rng.randrange(count + 1), rng.choice(ground.ends)
        if new in drawn and not scarce:
            continue
        tried = [*drawn[:changed], new, *drawn[changed + 1 :]]
        found = _measured(ground, tried)
        if (less := _error(found, placement, ground.diameter_ms)) < error:
            best, drawn, error = found, tried, less
    return best


def _measured(ground: Ground, drawn: Sequence[int]) -> Sources:
    *streams, proxy = drawn
    between = ground.latency_ms[np.ix_(streams, streams)]
    pairs = max(1, len(streams) * (len(streams) - 1))
    return Sources(tuple(streams), proxy, float(ground.latency_ms[proxy, streams].mean()), float(between.sum() / pairs))


def _error(sources: Sources, placement: str, diameter_ms: float) -> float:
    """How far averages are from those of a placement, as a share of the diameter."""
    if placement == "random":
        return 0.0
    wanted = PLACEMENTS[placement]
    found = sources.proxy_distance_ms, sources.server_distance_ms
    return sum(abs(ms / diameter_ms - share) for ms, share in zip(found, wanted, strict=True))


def binary_tree(ground: Ground, depth: int, placement: str, rng: random.Random) -> Problem:
    """A binary tree over 2^depth streams, selectivities uniform in [0, 1], its answers wanted at the proxy."""
    sources = choose_sources(ground, 2**depth, placement, rng)
    names = ground.network.sites
    parts = [Part(f"stream {i}", names[site]) for i, site in enumerate(sources.streams)]
    level = [(part.name, rng.uniform(*RATES)) for part in parts]
    flows: list[Flow] = []
    for height in range(1, depth + 1):
        above: list[tuple[str, float]] = []
        for i, ((left, some), (right, more)) in enumerate(zip(level[::2], level[1::2], strict=True)):
            name = f"operator {height}.{i}"
            parts.append(Part(name))
            flows += [Flow(left, name, some), Flow(right, name, more)]
            above.append((name, rng.random() * (some + more)))
        level = above
    ((root, rate),) = level
    parts.append(Part("answers", names[sources.proxy]))
    flows.append(Flow(root, "answers", rate))
    return Problem(tuple(parts), tuple(flows), ground.network)
