"""Networks and trees of operators by seed, for tests of placement."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from headrace.model import Network
from headrace.policies.placement.problem import Flow, Part, Problem

__all__ = ["bounded", "plane", "random_tree", "uniform_tree"]


def plane(rng: random.Random, sites: int) -> Network:
    """Sites in a square of 100 ms, as far apart as the crow flies."""
    points = [(rng.uniform(0, 100), rng.uniform(0, 100)) for _ in range(sites)]
    return Network(
        tuple(f"s{number}" for number in range(sites)), tuple(tuple(math.dist(a, b) for b in points) for a in points)
    )


def random_tree(rng: random.Random, network: Network, operators: int) -> Problem:
    """Operators with one to three inputs or more, sources at a few sites, so that some share one."""
    births = rng.sample(network.sites, min(len(network.sites), rng.randint(2, 6)))
    children: list[list[int]] = [[] for _ in range(operators)]
    for operator in range(1, operators):
        children[rng.randrange(max(0, operator - 3), operator)].append(operator)
    parts, flows, rates = [Part("answers", rng.choice(network.sites))], list[Flow](), dict[int, float]()
    for operator in reversed(range(operators)):
        inputs = [(f"o{child}", rates[child]) for child in children[operator]]
        for _ in range(max(not inputs, rng.randint(1, 3) - len(inputs))):
            inputs.append((f"source {len(parts)}", rng.uniform(1, 100)))
            parts.append(Part(inputs[-1][0], rng.choice(births)))
        # Joins may send more than they get.
        rates[operator] = sum(rate for _, rate in inputs) * rng.random() * rng.choice([1.0, 1.5])
        parts.append(Part(f"o{operator}"))
        flows += [Flow(name, f"o{operator}", rate) for name, rate in inputs]
    return Problem(tuple(parts), (*flows, Flow("o0", "answers", rates[0])), network)


def bounded(problem: Problem, rng: random.Random) -> Problem:
    """The same with a bound on every path, up to twice what the farthest source needs to reach the answers."""
    proxy = problem.part("answers").home
    assert proxy is not None
    least = max(problem.network.distance_ms(part.home, proxy) for part in problem.parts if part.home is not None)
    return replace(problem, max_latency_ms=least * rng.uniform(1.0, 2.0))


def uniform_tree(rng: random.Random, network: Network, fanout: int, height: int) -> Problem:
    """`height` levels of operators with `fanout` inputs each over sources at different sites, as in section 5."""
    *births, proxy = rng.sample(network.sites, fanout**height + 1)
    level = [(f"source {number}", rng.uniform(1, 100)) for number in range(len(births))]
    parts = [Part(name, site) for (name, _), site in zip(level, births, strict=True)]
    flows: list[Flow] = []
    for depth in reversed(range(height)):
        above = []
        for number in range(fanout**depth):
            inputs, operator = level[number * fanout : (number + 1) * fanout], f"o{depth}.{number}"
            flows += [Flow(name, operator, rate) for name, rate in inputs]
            above.append((operator, sum(rate for _, rate in inputs) * rng.random()))
            parts.append(Part(operator))
        level = above
    parts.append(Part("answers", proxy))
    return Problem(tuple(parts), (*flows, Flow(*level[0][:1], "answers", level[0][1])), network)
