"""Which sites can be part of the best placement of a forest when sites have capacities.

A price on the load of each full site makes capacities a part of the cost (Lagrangian relaxation), which one pass over
the forest minimises: a lower bound on the cost of any placement that fits, site by site. Where it exceeds the cost of a
placement that is known to fit, the site is out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.policies.placement.arrays import SLACK, Arrays, Floats, Ints
from headrace.policies.placement.forest import Forest

__all__ = ["worthwhile"]

# Lower bounds hardly rise after as many rounds on trees of 31 operators and 490 sites.
_ROUNDS = 60


def worthwhile(arrays: Arrays, forest: Forest, most: float) -> tuple[Ints, ...]:
    """By part the sites of placements that may fit and cost at most `most`; a latency bound is left out of account."""
    prices = np.zeros(len(arrays.sites))
    best, best_prices = -np.inf, prices
    limited = np.isfinite(arrays.room)
    scale, since = 1.0, 0
    for _ in range(_ROUNDS):
        value, columns = _relaxed(arrays, forest, prices)
        if value > best:
            best, best_prices, since = value, prices, 0
        else:
            since += 1
        if since >= 4:
            scale, since = scale / 2, 0
        excess = np.zeros(len(prices))
        excess[limited] = (arrays.loads(forest.sites(columns)) - arrays.room)[limited]
        excess[(excess < 0) & (prices == 0)] = 0.0
        norm = float(excess @ excess)
        if norm == 0.0 or most - value <= SLACK * abs(most):
            break
        prices = np.maximum(0.0, prices + scale * (most - value) / norm * excess)
    return _kept(arrays, forest, best_prices, most)


def _charged(arrays: Arrays, forest: Forest, prices: Floats) -> Forest:
    charge = {node: forest.charge[node] + arrays.load[node] * prices[forest.choices[node]] for node in forest.nodes}
    return replace(forest, charge=charge)


def _credit(arrays: Arrays, forest: Forest, prices: Floats) -> float:
    """What capacities are worth at these prices, less what parts that cannot move take of them."""
    limited = np.flatnonzero(prices)
    moving = set(forest.nodes)
    settled = sum(
        arrays.load[part] * prices[sites[0]] for part, sites in enumerate(forest.choices) if part not in moving
    )
    return float(prices[limited] @ arrays.room[limited] - settled)


def _relaxed(arrays: Arrays, forest: Forest, prices: Floats) -> tuple[float, dict[int, int]]:
    priced = _charged(arrays, forest, prices)
    inside = priced.inside()
    value = forest.base + sum(float(inside[root].min()) for root in forest.roots) - _credit(arrays, forest, prices)
    return value, priced.best(inside)


def _kept(arrays: Arrays, forest: Forest, prices: Floats, most: float) -> tuple[Ints, ...]:
    priced = _charged(arrays, forest, prices)
    inside = priced.inside()
    through = priced.through(inside)
    all_trees = sum(float(inside[root].min()) for root in forest.roots)
    choices = list(forest.choices)
    for tree in priced.trees():
        (root,) = tree.roots
        others = forest.base + all_trees - float(inside[root].min()) - _credit(arrays, forest, prices)
        for node in tree.nodes:
            choices[node] = forest.choices[node][through[node] + others <= most + SLACK * abs(most)]
    return tuple(choices)
