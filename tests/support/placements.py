"""Random problems of placement, and what every possible placement of a small one costs."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import Network
from headrace.policies.placement import Flow, Part, Problem


def on_a_plane(rng: random.Random, count: int) -> Network:
    """Sites on a square with sides of 100 ms: distances keep to the triangle inequality."""
    points = [(rng.uniform(0, 100), rng.uniform(0, 100)) for _ in range(count)]
    return _network([[float(np.hypot(a[0] - b[0], a[1] - b[1])) for b in points] for a in points])


def anyhow(rng: random.Random, count: int) -> Network:
    """Latencies at random: no metric, and not the same both ways."""
    return _network([[0.0 if a == b else rng.uniform(1, 50) for b in range(count)] for a in range(count)])


def _network(rows: list[list[float]]) -> Network:
    return Network(tuple(f"s{number}" for number in range(len(rows))), tuple(map(tuple, rows)))


def binary_tree(rng: random.Random, network: Network, depth: int, clustered: bool = False) -> Problem:
    """The paper's workload: a binary tree, selectivities from 0 to 1, sources anywhere or near each other."""
    hub = rng.choice(network.sites)
    near = network.latency_ms[rng.randrange(len(network.sites))]
    nearest = sorted(range(len(near)), key=lambda site: near[site])[: max(4, len(near) // 10)]
    places = [network.sites[site] for site in nearest] if clustered else list(network.sites)
    parts, flows = [Part("answers", hub)], []

    def grow(name: str, levels: int) -> float:
        if levels == 0:
            parts.append(Part(name, rng.choice(places)))
            return rng.uniform(1, 100)
        parts.append(Part(name, load=1.0))
        rates = {name + side: grow(name + side, levels - 1) for side in "lr"}
        flows.extend(Flow(child, name, rate) for child, rate in rates.items())
        return sum(rates.values()) * rng.random()

    flows.append(Flow("o", "answers", grow("o", depth)))
    return Problem(tuple(parts), tuple(flows), network)


def small_problem(rng: random.Random, shared: bool = False) -> Problem:
    """One to three queries of a few operators on two to five sites; with `shared`, queries read what others read."""
    queries = rng.choice((1, 2, 3) if shared else (1, 1, 2))
    operators = rng.choice((1, 2) if queries > 1 else (1, 2, 3, 4))
    sites = rng.choice((2, 3, 4, 5) if operators * queries <= 4 else (2, 3))
    network = rng.choice((on_a_plane, on_a_plane, anyhow))(rng, sites)
    parts: list[Part] = []
    flows: list[Flow] = []
    for query in range(queries):
        readable = [part.name for part in parts if not part.name.startswith("answers")] if shared else []
        names = [f"q{query}o{number}" for number in range(operators)]
        for number, name in enumerate(names):
            # A few operators cannot move.
            home = rng.choice(network.sites) if rng.random() < 0.05 else None
            parts.append(Part(name, home, rng.choice((0.0, 1.0, 1.0, 2.0))))
            reader = names[rng.randrange(number)] if number else f"answers{query}"
            flows.append(Flow(name, reader, _rate(rng)))
        fed = {flow.target for flow in flows}
        for name in names:
            for number in range(max(0 if name in fed else 1, rng.choice((0, 0, 1, 2)))):
                source = f"{name}s{number}"
                if readable and rng.random() < 0.6:
                    source = rng.choice(readable)
                else:
                    parts.append(Part(source, rng.choice(network.sites)))
                flows.append(Flow(source, name, _rate(rng)))
        home = rng.choice(network.sites) if rng.random() < 0.3 else network.sites[0]
        parts.append(Part(f"answers{query}", home))
    return Problem(tuple(parts), tuple(flows), network)


def _rate(rng: random.Random) -> float:
    """Often the same for several flows: what two readers have in common."""
    return 5.0 if rng.random() < 0.3 else rng.uniform(0, 10)


@dataclass(frozen=True)
class Judged:
    """Every possible placement of a problem: cost, latency, and whether sites have room for it."""

    cost: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    fits: NDArray[np.bool_]

    def least_cost(self, bound_ms: float | None = None) -> float | None:
        """None if no placement keeps to the bound and the capacities."""
        kept = self.fits & (self.latency_ms <= (np.inf if bound_ms is None else bound_ms * (1 + 1e-9)))
        return float(self.cost[kept].min()) if kept.any() else None

    def least_latency_ms(self) -> float | None:
        return float(self.latency_ms[self.fits].min()) if self.fits.any() else None


def judge_all(problem: Problem) -> Judged:
    """Tries every site for every part that can move, by the definitions alone."""
    sites = problem.network.sites
    column = {part.name: number for number, part in enumerate(problem.parts)}
    options = [range(len(sites)) if part.home is None else [sites.index(part.home)] for part in problem.parts]
    at = np.array(list(itertools.product(*options)))
    ms = np.array(problem.network.latency_ms)
    np.fill_diagonal(ms, 0.0)
    cost = np.zeros(len(at))
    arrival = np.zeros(at.shape)
    for source in problem.in_order:
        here = at[:, column[source]]
        flows = [flow for flow in problem.flows if flow.source == source]
        for site in range(len(sites)):
            wanted = [np.where(at[:, column[flow.target]] == site, flow.bytes_per_s, 0.0) for flow in flows]
            cost += np.max(wanted, axis=0) * ms[here, site] if wanted else 0.0
        for flow in flows:
            there = column[flow.target]
            reached = arrival[:, column[source]] + ms[here, at[:, there]]
            arrival[:, there] = np.maximum(arrival[:, there], reached)
    loads = np.array([part.load for part in problem.parts])
    fits = np.ones(len(at), dtype=bool)
    for name, room in problem.capacity.items():
        fits &= ((at == sites.index(name)) * loads).sum(axis=1) <= room + 1e-9
    return Judged(cost, arrival.max(axis=1), fits)
