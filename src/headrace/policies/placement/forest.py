"""The least cost of parts that form a forest, by one pass from the leaves to the roots.

Where every part has at most one reader that may still move, the cost of a placement is a sum over single parts and over
pairs (part, its reader), and the pairs form a forest. Then the best placement takes one pass,

    f(o, v) = charge(o, v) + sum over children c of  min over u of  f(c, u) + rate(c, o) * delay(u, v)

of parts times sites squared steps. Parts whose site is settled, and which only settled parts feed, become charges of
their reader; parts below which all is settled become charges of what feeds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.policies.placement.arrays import Arrays, Floats, Ints

__all__ = ["Edge", "Forest", "forest_of", "is_forest"]


@dataclass(frozen=True, eq=False)
class Edge:
    """What it costs that a part is at one of its sites and its reader at one of the reader's.

    `rate` times milliseconds, but at the reader's sites in `less`, where the part sends something anyway, that rate.
    `arriving[v, u]` are the milliseconds from the part's site u to the reader's site v.
    """

    reader: int
    rate: float
    arriving: Floats
    less: Mapping[int, float]

    def passed_on(self, cost: Floats) -> Floats:
        """By the reader's site the least cost of the part's subtree and of this edge; `cost` is by the part's site."""
        found = _least_sums(cost, self.rate, self.arriving)
        for column, rate in self.less.items():
            found[column] = (cost + rate * self.arriving[column]).min()
        return found

    def passed_back(self, cost: Floats) -> Floats:
        """By the part's site the least cost of this edge and of all beyond it; `cost` is by the reader's site."""
        if not self.less:
            return _least_sums(cost, self.rate, self.arriving.T)
        rates = np.full(len(cost), self.rate)
        rates[list(self.less)] = list(self.less.values())
        found: Floats = (cost[:, None] + rates[:, None] * self.arriving).min(axis=0)
        return found

    def at(self, column: int) -> Floats:
        """By the part's site what this edge costs if the reader is at its site of that number."""
        cost: Floats = self.less.get(column, self.rate) * self.arriving[column]
        return cost

    def dearer(self, extra: float) -> Edge:
        """The same with so much more per millisecond."""
        return replace(self, rate=self.rate + extra, less={v: rate + extra for v, rate in self.less.items()})


def _least_sums(cost: Floats, rate: float, arriving: Floats) -> Floats:
    """By row v the least cost[u] + rate * arriving[v, u]; divided by the rate first, one matrix is made and not two."""
    if rate == 0.0:
        return np.full(len(arriving), cost.min())
    found: Floats = (arriving + cost / rate).min(axis=1) * rate
    return found


@dataclass(frozen=True, eq=False)
class Forest:
    """Parts that may move, children first, and what they cost.

    Arrays are by *column*, the position of a site in `choices` of the part. `charge` is the cost of a part at a site by
    itself, `start` the milliseconds at which settled parts reach it there (-inf if none feed it), `tail` those from
    there along settled parts to answers (-inf if none). Of paths and flows between settled parts alone, `settled_ms` is
    the longest and `base` the cost.
    """

    nodes: tuple[int, ...]
    choices: tuple[Ints, ...]
    charge: Mapping[int, Floats]
    edges: Mapping[int, Edge]
    children: Mapping[int, tuple[int, ...]]
    start: Mapping[int, Floats]
    tail: Mapping[int, Floats]
    settled_ms: float
    base: float

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(node for node in self.nodes if node not in self.edges)

    def sites(self, columns: Mapping[int, int]) -> list[int]:
        """The site of every part: settled ones where they are, the others at these columns."""
        return [int(sites[columns.get(part, 0)]) for part, sites in enumerate(self.choices)]

    def inside(self) -> dict[int, Floats]:
        """By part and site the least cost of the part with all that feeds it."""
        found: dict[int, Floats] = {}
        for node in self.nodes:
            total = self.charge[node]
            for child in self.children[node]:
                total = total + self.edges[child].passed_on(found[child])
            found[node] = total
        return found

    def through(self, inside: Mapping[int, Floats]) -> dict[int, Floats]:
        """By part and site the least cost of the part's whole tree if the part is there."""
        outside = {root: np.zeros(len(self.choices[root])) for root in self.roots}
        for node in reversed(self.nodes):
            for child in self.children[node]:
                edge = self.edges[child]
                others = outside[node] + inside[node] - edge.passed_on(inside[child])
                outside[child] = edge.passed_back(others)
        return {node: inside[node] + outside[node] for node in self.nodes}

    def best(self, inside: Mapping[int, Floats]) -> dict[int, int]:
        """By part the column of the least cost: back from the roots, where costs are known, to the leaves."""
        columns: dict[int, int] = {}
        for node in reversed(self.nodes):
            cost = inside[node]
            if node in self.edges:
                edge = self.edges[node]
                cost = cost + edge.at(columns[edge.reader])
            columns[node] = int(cost.argmin())
        return columns

    def least_latency(self) -> dict[int, Floats]:
        """By part and site the least milliseconds from the farthest source to it."""
        found: dict[int, Floats] = {}
        for node in self.nodes:
            total = self.start[node]
            for child in self.children[node]:
                total = np.maximum(total, (self.edges[child].arriving + found[child]).min(axis=1))
            found[node] = total
        return found

    def least_remaining(self) -> dict[int, Floats]:
        """By part and site the least milliseconds from it to its farthest answers."""
        found: dict[int, Floats] = {}
        for node in reversed(self.nodes):
            total = self.tail[node]
            if node in self.edges:
                edge = self.edges[node]
                total = np.maximum(total, (edge.arriving + found[edge.reader][:, None]).min(axis=0))
            found[node] = total
        return found

    def quickest(self) -> dict[int, int]:
        """By part a column such that sources reach their roots and, from these, the answers in the least time."""
        arrival = self.least_latency()
        columns: dict[int, int] = {}
        for node in reversed(self.nodes):
            edge = self.edges.get(node)
            rest = self.tail[node] if edge is None else edge.arriving[columns[edge.reader]]
            columns[node] = int((arrival[node] + rest).argmin())
        return columns

    def latencies(self, columns: Mapping[int, int]) -> dict[int, float]:
        """By part the milliseconds from the farthest source to it; `columns` are positions in `choices`."""
        found: dict[int, float] = {}
        for node in self.nodes:
            arrivals = [
                found[child] + float(self.edges[child].arriving[columns[node], columns[child]])
                for child in self.children[node]
            ]
            found[node] = max([float(self.start[node][columns[node]]), *arrivals])
        return found

    def cost(self, columns: Mapping[int, int]) -> float:
        """What these sites cost, without `base`."""
        single = sum(float(self.charge[node][columns[node]]) for node in self.nodes)
        return single + sum(float(edge.at(columns[edge.reader])[columns[node]]) for node, edge in self.edges.items())

    def trees(self) -> tuple[Forest, ...]:
        """Each tree by itself; `base` is in none of them."""
        root_of: dict[int, int] = {}
        for node in reversed(self.nodes):
            root_of[node] = root_of[self.edges[node].reader] if node in self.edges else node
        return tuple(
            replace(
                self,
                nodes=tuple(node for node in self.nodes if root_of[node] == root),
                edges={node: edge for node, edge in self.edges.items() if root_of[node] == root},
                base=0.0,
            )
            for root in self.roots
        )

    def restricted(self, kept: Mapping[int, Ints]) -> Forest:
        """The same with fewer sites: by part the positions in `choices` that are kept, in order."""
        choices = list(self.choices)
        for node in self.nodes:
            choices[node] = self.choices[node][kept[node]]
        edges: dict[int, Edge] = {}
        for node, edge in self.edges.items():
            rows = kept[edge.reader]
            position = {int(column): number for number, column in enumerate(rows)}
            less = {position[v]: rate for v, rate in edge.less.items() if v in position}
            edges[node] = Edge(edge.reader, edge.rate, edge.arriving[np.ix_(rows, kept[node])], less)
        return replace(
            self,
            choices=tuple(choices),
            edges=edges,
            charge={node: self.charge[node][kept[node]] for node in self.nodes},
            start={node: self.start[node][kept[node]] for node in self.nodes},
            tail={node: self.tail[node][kept[node]] for node in self.nodes},
        )


def is_forest(arrays: Arrays, choices: Sequence[Ints]) -> bool:
    """Whether costs and latencies of parts with these choices of sites add up along a forest."""
    nodes = _nodes(arrays, choices)
    for part, readers in enumerate(arrays.readers):
        if sum(len(choices[reader]) > 1 for reader, _ in readers) > 1:
            return False
        if part in nodes and sum(reader in nodes for reader, _ in readers) > 1:
            return False
    return True


def _nodes(arrays: Arrays, choices: Sequence[Ints]) -> set[int]:
    """Parts with a choice at or before them and a choice at or after them."""
    before, after = set[int](), set[int]()
    for part in arrays.order:
        if len(choices[part]) > 1 or any(source in before for source, _ in arrays.inputs[part]):
            before.add(part)
    for part in reversed(arrays.order):
        if len(choices[part]) > 1 or any(reader in after for reader, _ in arrays.readers[part]):
            after.add(part)
    return before & after


def forest_of(arrays: Arrays, choices: Sequence[Ints], charges: Sequence[Floats | None] | None = None) -> Forest:
    """The forest of parts that have a choice; `charges`, by part and by site of the network, are added to the costs."""
    nodes = _nodes(arrays, choices)
    ordered = tuple(part for part in arrays.order if part in nodes)
    charge: dict[int, Floats] = {}
    for node in ordered:
        extra = charges[node] if charges is not None else None
        charge[node] = np.zeros(len(choices[node])) if extra is None else extra[choices[node]].copy()
    edges: dict[int, Edge] = {}
    base = math.fsum(_add_sent(arrays, choices, nodes, part, charge, edges) for part in range(len(arrays.names)))
    children: dict[int, list[int]] = {node: [] for node in ordered}
    for child in ordered:
        if child in edges:
            children[edges[child].reader].append(child)
    below = {node: tuple(found) for node, found in children.items()}
    start, tail, settled_ms = _settled_latencies(arrays, choices, ordered)
    return Forest(ordered, tuple(choices), charge, edges, below, start, tail, settled_ms, base)


def _add_sent(
    arrays: Arrays,
    choices: Sequence[Ints],
    nodes: set[int],
    part: int,
    charge: dict[int, Floats],
    edges: dict[int, Edge],
) -> float:
    """Adds what a part sends to the charges and edges, and returns what of it nothing can change."""
    readers = arrays.readers[part]
    fixed = {reader: int(choices[reader][0]) for reader, _ in readers if len(choices[reader]) == 1}
    there = arrays.sent([(reader, rate) for reader, rate in readers if reader in fixed], fixed)
    moving, rate = next(((reader, rate) for reader, rate in readers if reader not in fixed), (None, 0.0))
    sending = np.zeros(len(choices[part]))
    for site, widest in there.items():
        sending += widest * arrays.delay[choices[part], site]
    if part in nodes:
        charge[part] += sending
        below = next((reader for reader, _ in readers if reader in nodes), None)
        if below is not None:
            less = {} if moving is None else _reduced(choices[below], rate, there)
            edges[part] = Edge(below, rate, _arriving(arrays, choices[part], choices[below]), less)
        return 0.0
    if moving is not None:
        rates = np.full(len(choices[moving]), rate)
        for column, lower in _reduced(choices[moving], rate, there).items():
            rates[column] = lower
        charge[moving] += rates * arrays.delay[choices[part][0], choices[moving]]
    return float(sending[0])


def _arriving(arrays: Arrays, sources: Ints, targets: Ints) -> Floats:
    n = len(arrays.sites)
    if len(sources) == n == len(targets):
        return arrays.arriving
    return np.ascontiguousarray(arrays.arriving[np.ix_(targets, sources)])


def _reduced(choices: Ints, rate: float, there: Mapping[int, float]) -> dict[int, float]:
    """By column of sites that are sent something anyway: what this flow's rate adds to it."""
    return {
        int(column): max(0.0, rate - other)
        for site, other in there.items()
        for column in np.flatnonzero(choices == site)
    }


def _settled_latencies(
    arrays: Arrays, choices: Sequence[Ints], nodes: Sequence[int]
) -> tuple[dict[int, Floats], dict[int, Floats], float]:
    """By part of the forest, and column: when settled parts reach it, and how long settled parts take after it.

    The last is the longest path through settled parts alone.
    """
    movable = set(nodes)
    at = [int(sites[0]) for sites in choices]  # of settled parts; the others are left out
    arrival, remaining = [0.0] * len(at), [0.0] * len(at)
    for part in arrays.order:
        for source, _ in arrays.inputs[part]:
            if source not in movable and part not in movable:
                arrival[part] = max(arrival[part], arrival[source] + float(arrays.delay[at[source], at[part]]))
    for part in reversed(arrays.order):
        for reader, _ in arrays.readers[part]:
            if reader not in movable and part not in movable:
                remaining[part] = max(remaining[part], remaining[reader] + float(arrays.delay[at[part], at[reader]]))
    start: dict[int, Floats] = {}
    tail: dict[int, Floats] = {}
    for node in nodes:
        before = [(arrival[s], at[s]) for s, _ in arrays.inputs[node] if s not in movable]
        after = [(remaining[r], at[r]) for r, _ in arrays.readers[node] if r not in movable]
        none = np.full(len(choices[node]), -math.inf)
        start[node] = np.max([none, *(ms + arrays.delay[site, choices[node]] for ms, site in before)], axis=0)
        tail[node] = np.max([none, *(ms + arrays.delay[choices[node], site] for ms, site in after)], axis=0)
    return start, tail, max(arrival, default=0.0)
