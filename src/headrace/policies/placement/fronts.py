"""The least cost of a forest of parts within a latency bound: Pareto fronts of cost and latency.

A part at a site has many ways to be fed there; those count that no other way beats in both cost and latency. Fronts of
children are added at their common breakpoints (costs add up, the longest latency counts), so a front is no longer than
its children's together. The answer is exact.

With hundreds of sites most of them can be ruled out first. A price per millisecond on the path of each source makes the
bound a part of the cost (Lagrangian relaxation), which one pass over the forest minimises: a lower bound, site by site.
A site whose lower bound exceeds the cost of a placement that is known to keep the bound is out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from headrace.policies.placement.arrays import SLACK, Floats, Ints
from headrace.policies.placement.forest import Forest

__all__ = ["best_within", "least_bound"]

# Fronts over fewer columns than this, all parts together, are faster than ruling columns out.
_FEW_COLUMNS = 120
# Prices settle within some thirty rounds on trees of 31 operators; each costs two passes.
_ROUNDS = 30
# So many of a part's sites are tried first, for a placement that is nearly the best.
_FIRST_SITES = 6


@dataclass(frozen=True, eq=False)
class _Labels:
    """Ways to feed a part: its column, cost and latency; by child the number of the child's way."""

    column: Ints
    cost: Floats
    latency: Floats
    picks: Mapping[int, Ints]


@dataclass(frozen=True, eq=False)
class _Prices:
    """What a millisecond costs: on the path of the sources that reach a part directly, and of all that reach it."""

    own: Mapping[int, float]
    below: Mapping[int, float]
    through: Mapping[int, Floats]  # by part and column a lower bound on the cost of the whole tree
    inside: Mapping[int, Floats]
    bound: float

    @property
    def credit(self) -> float:
        """What the bound itself is worth at these prices."""
        return self.bound * sum(self.own.values())


def best_within(forest: Forest, bound: float, few_columns: int = _FEW_COLUMNS) -> dict[int, int] | None:
    """By part the column of the least cost such that every path keeps to the bound; None if there is none."""
    # Half the slack, so that sums in another order keep to the whole.
    bound = bound + SLACK * abs(bound) / 2
    found: dict[int, int] = {}
    for tree in forest.trees():
        columns = tree.best(tree.inside())
        if not _keeps(tree, columns, bound):
            size = sum(len(tree.choices[node]) for node in tree.nodes)
            bounded = _fronts(tree, bound) if size <= few_columns else _narrowed(tree, bound)
            if bounded is None:
                return None
            columns = bounded
        found |= columns
    return found


def least_bound(forest: Forest) -> float:
    """The least bound in milliseconds that some placement keeps; -inf for a forest without parts."""
    return max((_least_bound(tree) for tree in forest.trees()), default=-math.inf)


def _least_bound(tree: Forest) -> float:
    total = _longest(tree, tree.quickest())
    if all(np.isneginf(tree.tail[node]).all() for node in tree.edges):
        return total
    # Paths that leave the tree on the way to its root are not in the pass that found the quickest: halve the interval.
    free = replace(tree, charge={node: np.zeros_like(tree.charge[node]) for node in tree.nodes})
    low = 0.0
    while total - low > SLACK * total:
        middle = (low + total) / 2
        quicker = _fronts(free, middle)
        if quicker is None:
            low = middle
        else:
            total = _longest(tree, quicker)
    return total


def _longest(tree: Forest, columns: Mapping[int, int]) -> float:
    arrival = tree.latencies(columns)
    return max(arrival[node] + float(tree.tail[node][columns[node]]) for node in tree.nodes)


def _keeps(tree: Forest, columns: Mapping[int, int], bound: float) -> bool:
    return _longest(tree, columns) <= bound


def _narrowed(tree: Forest, bound: float) -> dict[int, int] | None:
    """Fronts over the sites that can be part of the best placement."""
    known = tree.quickest()
    if not _keeps(tree, known, bound):
        return _fronts(tree, bound)
    prices, known = _prices(tree, known, bound)
    first = {node: np.sort(np.argsort(prices.through[node], kind="stable")[:_FIRST_SITES]) for node in tree.nodes}
    tried = _fronts(tree.restricted(first), bound)
    if tried is not None:
        tried = {node: int(first[node][column]) for node, column in tried.items()}
        known = min(known, tried, key=tree.cost)
    most = tree.cost(known) * (1 + SLACK)
    kept = {node: np.flatnonzero(prices.through[node] - prices.credit <= most) for node in tree.nodes}
    if any(len(columns) == 0 for columns in kept.values()):
        return known  # roundings: the bound and the cost are one and the same
    columns = _fronts(tree.restricted(kept), bound, _cut(prices, kept), most)
    return known if columns is None else {node: int(kept[node][column]) for node, column in columns.items()}


def _cut(prices: _Prices, kept: Mapping[int, Ints]) -> _Prices:
    return replace(
        prices,
        through={node: prices.through[node][columns] for node, columns in kept.items()},
        inside={node: prices.inside[node][columns] for node, columns in kept.items()},
    )


def _prices(tree: Forest, known: dict[int, int], bound: float) -> tuple[_Prices, dict[int, int]]:
    """Prices of a high lower bound, by the subgradient method, and the cheapest placement met that keeps the bound."""
    payers = [node for node in tree.nodes if np.isfinite(tree.start[node]).all()]
    own = dict.fromkeys(payers, 0.0)
    best: _Prices | None = None
    best_value, scale, since = -math.inf, 1.0, 0
    for _ in range(_ROUNDS):
        prices, value, columns = _priced(tree, own, bound)
        if value > best_value:
            best, best_value, since = prices, value, 0
        else:
            since += 1
        if _keeps(tree, columns, bound) and tree.cost(columns) < tree.cost(known):
            known = columns
        gap = tree.cost(known) - value
        excess = _excess(tree, columns, payers, bound)
        norm = sum(ms * ms for ms in excess.values())
        if gap <= SLACK * abs(value) or norm == 0.0:
            break
        if since >= 3:
            scale, since = scale / 2, 0
        step = scale * gap / norm
        own = {node: max(0.0, own[node] + step * excess[node]) for node in payers}
    assert best is not None
    through = _with_prices(tree, best.own, best.below).through(best.inside)
    return replace(best, through=through), known


def _with_prices(tree: Forest, own: Mapping[int, float], below: Mapping[int, float]) -> Forest:
    """The tree with the prices of milliseconds in its charges and rates."""
    charge = dict(tree.charge)
    for node, price in own.items():
        charge[node] = charge[node] + price * tree.start[node]
    for root in tree.roots:
        if below[root] > 0.0:
            charge[root] = charge[root] + below[root] * tree.tail[root]
    edges = {node: edge.dearer(below[node]) for node, edge in tree.edges.items()}
    return replace(tree, charge=charge, edges=edges)


def _priced(tree: Forest, own: Mapping[int, float], bound: float) -> tuple[_Prices, float, dict[int, int]]:
    below: dict[int, float] = {}
    for node in tree.nodes:
        below[node] = own.get(node, 0.0) + sum(below[child] for child in tree.children[node])
    forest = _with_prices(tree, own, below)
    inside = forest.inside()
    prices = _Prices(dict(own), below, {}, inside, bound)
    value = sum(float(inside[root].min()) for root in tree.roots) - prices.credit
    return prices, value, forest.best(inside)


def _excess(tree: Forest, columns: Mapping[int, int], payers: list[int], bound: float) -> dict[int, float]:
    """By part that sources reach directly: by how much their path is too long; negative if it is shorter."""
    rest: dict[int, float] = {}
    for node in reversed(tree.nodes):
        edge = tree.edges.get(node)
        if edge is None:
            rest[node] = float(tree.tail[node][columns[node]])
        else:
            rest[node] = rest[edge.reader] + float(edge.arriving[columns[edge.reader], columns[node]])
    return {node: float(tree.start[node][columns[node]]) + rest[node] - bound for node in payers}


def _fronts(tree: Forest, bound: float, prices: _Prices | None = None, most: float = math.inf) -> dict[int, int] | None:
    """The best columns of one tree within the bound, but for ways that must cost more than `most` at these prices."""
    remaining = tree.least_remaining()
    labels: dict[int, _Labels] = {}
    for node in tree.nodes:
        limits = bound - remaining[node]
        made = [_at_column(tree, labels, node, column, float(limit)) for column, limit in enumerate(limits)]
        found = _joined([way for way in made if way is not None])
        if found is not None and prices is not None:
            found = _affordable(found, prices, node, most)
        if found is None:
            return None
        labels[node] = found
    (root,) = tree.roots
    numbers = {root: int(labels[root].cost.argmin())}
    for node in reversed(tree.nodes):
        for child in tree.children[node]:
            numbers[child] = int(labels[node].picks[child][numbers[node]])
    return {node: int(labels[node].column[number]) for node, number in numbers.items()}


def _at_column(tree: Forest, labels: Mapping[int, _Labels], node: int, column: int, limit: float) -> _Labels | None:
    """The front of a part at one site: what its children's fronts come to there."""
    least = float(tree.start[node][column])
    if least > limit:
        return None
    reached: list[tuple[int, Floats, Floats, Ints]] = []
    for child in tree.children[node]:
        edge, ways = tree.edges[child], labels[child]
        away = edge.arriving[column][ways.column]
        latency = ways.latency + away
        near = np.flatnonzero(latency <= limit)
        if len(near) == 0:
            return None
        cost = ways.cost[near] + edge.less.get(column, edge.rate) * away[near]
        kept = _pareto(latency[near], cost)
        reached.append((child, latency[near][kept], cost[kept], near[kept]))
        least = max(least, float(latency[near[kept[0]]]))
    times = np.array([least])
    if reached:
        breaks = np.unique(np.concatenate([latency for _, latency, _, _ in reached]))
        times = np.concatenate([times, breaks[breaks > least]])
    total = np.full(len(times), float(tree.charge[node][column]))
    picks: dict[int, Ints] = {}
    for child, latency, cost, number in reached:
        way = np.searchsorted(latency, times, side="right") - 1
        total += cost[way]
        picks[child] = number[way]
    return _Labels(np.full(len(times), column), total, times, picks)


def _pareto(latency: Floats, cost: Floats) -> Ints:
    """The positions of what nothing beats in both, quickest first."""
    order = np.lexsort((cost, latency))
    ordered = cost[order]
    kept = np.ones(len(order), dtype=bool)
    kept[1:] = ordered[1:] < np.minimum.accumulate(ordered)[:-1]
    return order[kept]


def _joined(ways: list[_Labels]) -> _Labels | None:
    if not ways:
        return None
    return _Labels(
        np.concatenate([way.column for way in ways]),
        np.concatenate([way.cost for way in ways]),
        np.concatenate([way.latency for way in ways]),
        {child: np.concatenate([way.picks[child] for way in ways]) for child in ways[0].picks},
    )


def _affordable(ways: _Labels, prices: _Prices, node: int, most: float) -> _Labels | None:
    """Those whose cost, with the least that all else can cost at these prices, is not above `most`."""
    elsewhere = (prices.through[node] - prices.inside[node])[ways.column]
    paid = prices.below[node] * ways.latency if prices.below[node] > 0.0 else 0.0
    kept = np.flatnonzero(ways.cost + paid + elsewhere - prices.credit <= most)
    if len(kept) == 0:
        return None
    picks = {child: number[kept] for child, number in ways.picks.items()}
    return _Labels(ways.column[kept], ways.cost[kept], ways.latency[kept], picks)
