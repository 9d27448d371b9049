"""Networks, source placements and processing trees as in section 6 of the paper on network-aware placement.

The paper's graphs come from GT-ITM: transit domains joined to each other, and stub domains that hang on their nodes.
Here domains lie on a plane, links are as long as the distance of their ends, and all is scaled so that the longest path
between two stub nodes takes 500 ms. Streams and proxies are at stub nodes; operators may run at any node.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headrace.language.pipeline.network_files import shortest_paths
from headrace.model import Network
from headrace.policies.placement import Flow, Part, Placement, Problem, warehouse

__all__ = [
    "PLACEMENTS",
    "Averages",
    "Ground",
    "Sources",
    "bounded",
    "choose_sources",
    "ground_of",
    "plane",
    "processing_tree",
    "shares_of",
    "transit_stub",
]

# Average proxy distance and average server distance of streams, as shares of the diameter.
Averages = tuple[float, float]

# The paper's: domains, and milliseconds of the longest path between stub nodes.
TRANSIT_DOMAINS, LONGEST_MS = 14, 500.0
# GT-ITM's usual proportions: so many nodes in a transit domain, stub domains at each of them, nodes in a stub domain.
TRANSIT_NODES, STUBS_PER_NODE, STUB_NODES = (2, 4), (1, 3), (3, 6)
# How far nodes lie from the middle of their domain, in a plane whose side is 1.
TRANSIT_REACH, STUB_REACH, STUB_SIZE = 0.06, 0.05, 0.015
# Section 6.1 gives both averages for uniform; of the other two it gives their ratio, about a half and about two, and
# the greater is put where uniform has it.
PLACEMENTS: Mapping[str, Averages] = {"star": (0.2, 0.4), "uniform": (0.4, 0.4), "cluster": (0.4, 0.2)}
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


@dataclass
class _Graph:
    """Nodes with their points on the plane, and the lengths of the links between them."""

    at: dict[str, Point] = field(default_factory=dict)
    links: dict[frozenset[str], float] = field(default_factory=dict)

    def direct_ms(self) -> NDArray[np.float64]:
        """The lengths of links, infinite where there is none."""
        number = {name: position for position, name in enumerate(self.at)}
        found = np.full((len(number), len(number)), math.inf)
        np.fill_diagonal(found, 0.0)
        for ends, length in self.links.items():
            a, b = (number[end] for end in ends)
            found[a, b] = found[b, a] = length
        return found


def ground_of(name: str, names: Sequence[str], latency_ms: NDArray[np.float64], ends: Sequence[int] = ()) -> Ground:
    """A ground of given latencies, that are shortest paths; without `ends` streams may be anywhere."""
    network = Network(tuple(names), tuple(tuple(map(float, row)) for row in latency_ms))
    ends = tuple(ends) or tuple(range(len(names)))
    return Ground(name, network, ends, latency_ms, float(latency_ms[np.ix_(ends, ends)].max(axis=1).mean()))


def transit_stub(rng: random.Random, name: str = "transit-stub", count: int = TRANSIT_DOMAINS) -> Ground:
    """A graph of so many transit domains with stub domains around them, 500 ms across."""
    graph = _Graph()
    centres = [(rng.random(), rng.random()) for _ in range(count)]
    domains = [
        _domain(graph, rng, f"t{i}", rng.randint(*TRANSIT_NODES), centre, TRANSIT_REACH)
        for i, centre in enumerate(centres)
    ]
    # Each domain is joined to the nearest of those before it, and by half as many links again to any.
    for i, domain in enumerate(domains[1:], 1):
        near = min(range(i), key=lambda j: math.dist(centres[i], centres[j]))
        _join(graph, rng.choice(domain), rng.choice(domains[near]))
    for _ in range(count // 2):
        one, other = rng.sample(domains, 2)
        _join(graph, rng.choice(one), rng.choice(other))
    stubs: list[str] = []
    for node in [node for domain in domains for node in domain]:
        for s in range(rng.randint(*STUBS_PER_NODE)):
            middle = _beside(rng, graph.at[node], STUB_REACH)
            domain = _domain(graph, rng, f"{node}.s{s}", rng.randint(*STUB_NODES), middle, STUB_SIZE)
            _join(graph, node, rng.choice(domain))
            stubs += domain
    names = list(graph.at)
    found = shortest_paths(graph.direct_ms())
    ends = [names.index(stub) for stub in stubs]
    return ground_of(name, names, found * LONGEST_MS / found[np.ix_(ends, ends)].max(), ends)


def _domain(graph: _Graph, rng: random.Random, name: str, size: int, centre: Point, reach: float) -> list[str]:
    """Nodes around a point, joined by a random tree and by a link more for every two of them."""
    nodes = [f"{name}.{i}" for i in range(size)]
    for i, node in enumerate(nodes):
        graph.at[node] = _beside(rng, centre, reach)
        if i:
            _join(graph, node, rng.choice(nodes[:i]))
    for _ in range(size // 2):
        _join(graph, *rng.sample(nodes, 2))
    return nodes


def _beside(rng: random.Random, point: Point, reach: float) -> Point:
    return point[0] + rng.uniform(-reach, reach), point[1] + rng.uniform(-reach, reach)


def _join(graph: _Graph, a: str, b: str) -> None:
    graph.links[frozenset((a, b))] = math.dist(graph.at[a], graph.at[b])


def plane(rng: random.Random, count: int) -> Ground:
    """So many sites anywhere on a plane, 500 ms across, each with a straight way to every other."""
    points = np.array([(rng.random(), rng.random()) for _ in range(count)])
    apart = np.hypot(*(points[:, None, axis] - points[None, :, axis] for axis in (0, 1)))
    return ground_of(f"plane of {count}", [f"site {i}" for i in range(count)], apart * LONGEST_MS / apart.max())


def choose_sources(ground: Ground, count: int, averages: Averages | None, rng: random.Random) -> Sources:
    """Sites of `count` streams and of the proxy that come near to the averages; None takes any sites.

    Streams share sites where there are fewer sites than streams.
    """
    scarce = len(ground.ends) <= count
    drawn = rng.choices(ground.ends, k=count + 1) if scarce else rng.sample(ground.ends, count + 1)
    best = _measured(ground, drawn)
    error = _error(best, averages, ground.diameter_ms)
    for _ in range(TRIES):
        if error < ENOUGH:
            break
        changed, new = rng.randrange(count + 1), rng.choice(ground.ends)
        if new in drawn and not scarce:
            continue
        tried = [*drawn[:changed], new, *drawn[changed + 1 :]]
        found = _measured(ground, tried)
        if (less := _error(found, averages, ground.diameter_ms)) < error:
            best, drawn, error = found, tried, less
    return best


def _measured(ground: Ground, drawn: Sequence[int]) -> Sources:
    *streams, proxy = drawn
    between = ground.latency_ms[np.ix_(streams, streams)]
    pairs = max(1, len(streams) * (len(streams) - 1))
    return Sources(tuple(streams), proxy, float(ground.latency_ms[proxy, streams].mean()), float(between.sum() / pairs))


def _error(sources: Sources, wanted: Averages | None, diameter_ms: float) -> float:
    """How far averages are from those wanted, as a share of the diameter."""
    if wanted is None:
        return 0.0
    found = sources.proxy_distance_ms, sources.server_distance_ms
    return sum(abs(ms / diameter_ms - share) for ms, share in zip(found, wanted, strict=True))


def processing_tree(
    ground: Ground,
    depth: int,
    averages: Averages | None,
    rng: random.Random,
    *,
    fanout: int = 2,
    selectivity: float = 1.0,
) -> Problem:
    """A tree over fanout^depth streams, selectivities uniform from 0 to a bound, its answers wanted at the proxy."""
    sources = choose_sources(ground, fanout**depth, averages, rng)
    names = ground.network.sites
    parts = [Part(f"stream {i}", names[site]) for i, site in enumerate(sources.streams)]
    level = [(part.name, rng.uniform(*RATES)) for part in parts]
    flows: list[Flow] = []
    for height in range(1, depth + 1):
        above: list[tuple[str, float]] = []
        for i in range(len(level) // fanout):
            name, inputs = f"operator {height}.{i}", level[i * fanout : (i + 1) * fanout]
            parts.append(Part(name))
            flows += [Flow(child, name, rate) for child, rate in inputs]
            above.append((name, selectivity * rng.random() * sum(rate for _, rate in inputs)))
        level = above
    ((root, rate),) = level
    parts.append(Part("answers", names[sources.proxy]))
    flows.append(Flow(root, "answers", rate))
    return Problem(tuple(parts), tuple(flows), ground.network)


def bounded(tree: Problem, bound_ms: float | None) -> Problem:
    """The tree with a bound on its paths, raised to what the warehouse needs where that needs more."""
    base = warehouse(tree)
    assert isinstance(base, Placement)
    return tree if bound_ms is None else replace(tree, max_latency_ms=max(bound_ms, base.latency_ms))


def shares_of(problem: Problem, placement: Placement) -> tuple[float, float, float]:
    """The shares of operators at sites of streams, inside the network, and at the proxy."""
    fed = {flow.target for flow in problem.flows}
    proxy = next(part.home for part in problem.parts if part.home is not None and part.name in fed)
    births = {part.home for part in problem.parts if part.name not in fed}
    sites = [placement.sites[part.name] for part in problem.parts if part.home is None]
    at_proxy = sum(site == proxy for site in sites)
    at_births = sum(site in births and site != proxy for site in sites)
    count = len(sites)
    return at_births / count, (count - at_births - at_proxy) / count, at_proxy / count
