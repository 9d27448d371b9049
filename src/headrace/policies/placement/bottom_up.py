"""Placing operators one by one from the sources to the answers: what Edge, Edge+ and In-Network have in common.

Section 3 of the paper on network-aware placement. Every operator is placed after its children (*children* are what
feeds it). `gamma[o]` is, by site v, the cost of the subtree of operator o with o at v (equation 5): each child stays
where it is and its flow travels to v, or it is placed at v as well, whichever is cheaper. Placing an operator may
therefore place its children anew.

With a latency bound only those ways count by which sources reach v soon enough, the rest of the path being straight to
where the answers are. Operators where answers are wanted keep the bound whenever anything does. A part that several
others read stays where it was placed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.policies.placement.arrays import SLACK, Arrays, Floats, Ints
from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.policies.placement.warehouse import answer_sites

__all__ = ["Configuration", "Draft", "permutations", "place_bottom_up"]

# Of permutations of child locations at most so many are weighed per site of the operator, those of the nearest
# locations of each child: sixteen times as many as binary trees of depth five have.
_MOST_PERMUTATIONS = 4096


@dataclass(frozen=True, slots=True)
class Configuration:
    """An operator's place, the places of children that are placed anew with it, and the cost of the subtree then."""

    cost: float
    site: int
    children: Mapping[int, int]


class Draft:
    """A placement under way."""

    def __init__(self, arrays: Arrays, price: Floats, bound: float | None) -> None:
        self.arrays = arrays
        self.price = price  # what a byte per second costs between two sites
        self.proxy = answer_sites(arrays)  # where the answers of each part are wanted
        self.bound = math.inf if bound is None else bound * (1 + SLACK / 2)
        self.at = [-1] * len(arrays.names)  # where each part was placed by itself: lambda in the paper
        self.now = [-1] * len(arrays.names)  # where it is by what was decided above it
        self.chosen: dict[tuple[int, int], Configuration] = {}
        self.gamma: list[Floats] = [np.zeros(0)] * len(arrays.names)
        self.latency: list[Floats] = [np.zeros(0)] * len(arrays.names)
        # By operator and child: the sites where the child is better placed beside the operator than left alone.
        self.beside: dict[tuple[int, int], Ints] = {}
        self.leaves = self._leaves()
        self._rest = self._rests()

    def _leaves(self) -> list[frozenset[int]]:
        """By part the sites of the sources that feed it: `dl` in the paper."""
        found: list[frozenset[int]] = [frozenset()] * len(self.arrays.names)
        for part in self.arrays.order:
            home = self.arrays.home[part]
            if home is not None:
                found[part] = frozenset({home})
            else:
                found[part] = frozenset().union(*(found[child] for child, _ in self.arrays.inputs[part]))
        return found

    def _rests(self) -> list[Floats]:
        """By part and site the milliseconds to the answers if all operators from there on are at the proxy."""
        found: list[Floats] = [np.zeros(len(self.arrays.sites))] * len(self.arrays.names)
        for part in reversed(self.arrays.order):
            ways = [
                self.arrays.delay[:, self.proxy[reader]] + found[reader][self.proxy[reader]]
                for reader, _ in self.arrays.readers[part]
            ]
            if ways:
                found[part] = np.max(ways, axis=0)
        return found

    def common(self, part: int) -> list[int]:
        """Sites at which all children could be, since sources of each of them are there: `cl` in the paper."""
        return sorted(frozenset.intersection(*(self.leaves[child] for child, _ in self.arrays.inputs[part])))

    def busiest(self, part: int) -> int | None:
        """The children's place from which most bytes come (equation 4), of those that will do; ties by gamma."""
        bytes_from: dict[int, float] = {}
        for child, rate in self.arrays.inputs[part]:
            bytes_from[self.at[child]] = bytes_from.get(self.at[child], 0.0) + rate
        able = [site for site in bytes_from if math.isfinite(self.gamma[part][site])]
        return min(able, key=lambda site: (-bytes_from[site], self.gamma[part][site], site), default=None)

    def limit(self, part: int) -> Floats:
        """By site the milliseconds within which sources must reach a part there."""
        found: Floats = self.bound - self._rest[part]
        return found

    def weigh(self, part: int) -> None:
        """Fills in gamma and latency of a part from its children's (equation 5)."""
        home, sites = self.arrays.home[part], len(self.arrays.sites)
        total, latest, limit = np.zeros(sites), np.zeros(sites), self.limit(part)
        for child, rate in self.arrays.inputs[part]:
            place = self.at[child]
            alone = self.gamma[child][place] + rate * self.price[place]
            alone_ms = self.latency[child][place] + self.arrays.delay[place]
            alone = np.where(alone_ms <= limit, alone, math.inf)
            beside = self.gamma[child] if len(self.arrays.readers[child]) == 1 else np.full(sites, math.inf)
            beside = np.where(self.latency[child] <= limit, beside, math.inf)
            # A child that is at v already is not placed anew.
            better = beside < alone
            self.beside[part, child] = np.flatnonzero(better)
            total = total + np.where(better, beside, alone)
            latest = np.maximum(latest, np.where(better, self.latency[child], alone_ms))
        if not self.arrays.inputs[part]:
            total = np.where(latest <= limit, total, math.inf)
        if home is not None:
            total = np.where(np.arange(sites) == home, total, math.inf)
        self.gamma[part], self.latency[part] = total, latest

    def configured(self, part: int, site: int) -> Configuration:
        """The configuration that was chosen for a part at a site, or else the one that gamma has weighed."""
        if (part, site) in self.chosen:
            return self.chosen[part, site]
        children = {c: site if site in self.beside[part, c] else self.at[c] for c, _ in self.arrays.inputs[part]}
        return Configuration(float(self.gamma[part][site]), site, children)

    def unmoved(self, part: int, site: int) -> Configuration:
        """A part at a site, with all its children where they are."""
        cost = latency = 0.0
        for child, rate in self.arrays.inputs[part]:
            place = self.at[child]
            cost += float(self.gamma[child][place] + rate * self.price[place, site])
            latency = max(latency, float(self.latency[child][place] + self.arrays.delay[place, site]))
        children = {child: self.at[child] for child, _ in self.arrays.inputs[part]}
        return Configuration(cost if latency <= self.limit(part)[site] else math.inf, site, children)

    def moves(self, part: int, chosen: Configuration) -> dict[int, int]:
        """By part the site at which a configuration puts it: the operator and all that is placed anew below it."""
        found = {part: chosen.site}
        waiting = list(chosen.children.items())
        while waiting:
            child, site = waiting.pop()
            found[child] = site
            waiting += self.configured(child, site).children.items()
        return found

    def fits(self, moves: Mapping[int, int]) -> bool:
        """Whether sites have room for all that is placed after these moves, and for all that cannot move."""
        if self.arrays.is_roomy:
            return True
        at = [moves.get(part, site) for part, site in enumerate(self.now)]
        loads = np.zeros(len(self.arrays.sites))
        for part, site in enumerate(at):
            home = self.arrays.home[part]
            where = home if home is not None else site
            if where >= 0:
                loads[where] += self.arrays.load[part]
        return self.arrays.fits(loads)

    def settle(self, part: int, chosen: Configuration, moves: Mapping[int, int]) -> None:
        """Carries out the moves. What a part costs elsewhere stays what it was: its children would go back there."""
        for moved, site in moves.items():
            self.now[moved] = site
        # What fits may cost more than gamma has weighed for the site, and a permutation less.
        self.at[part], self.chosen[part, chosen.site] = chosen.site, chosen
        self.gamma[part][chosen.site] = chosen.cost
        self.latency[part][chosen.site] = max(
            (
                float(self.latency[child][site] + self.arrays.delay[site, chosen.site])
                for child, site in chosen.children.items()
            ),
            default=0.0,
        )


def permutations(
    draft: Draft, part: int, site: int, places: Mapping[int, Ints], most: int = _MOST_PERMUTATIONS
) -> tuple[Floats, Floats, Callable[[int], Configuration]]:
    """Ways to put each child at one of its places and the operator at a site, within the latency bound.

    With more than `most` ways, those with children at places near the operator.
    The total separation of each, its cost, and what makes the configuration of one of them by its number.
    """
    inputs = draft.arrays.inputs[part]
    each = max(1, int(most ** (1 / len(inputs)) + SLACK))
    apart, cost, late = np.zeros(1), np.zeros(1), np.zeros(1)
    chosen: list[Ints] = []
    for child, rate in inputs:
        options = places[child]
        options = options[np.argsort(draft.arrays.delay[options, site], kind="stable")][:each]
        chosen.append(options)
        away = draft.arrays.delay[options, site]
        apart = np.add.outer(apart, away).ravel()
        cost = np.add.outer(cost, draft.gamma[child][options] + rate * draft.price[options, site]).ravel()
        late = np.maximum.outer(late, draft.latency[child][options] + away).ravel()
    cost = np.where(late <= draft.limit(part)[site], cost, math.inf)
    shape = [len(options) for options in chosen]

    def configuration(number: int) -> Configuration:
        picks = np.unravel_index(number, shape)
        children = {child: int(options[pick]) for (child, _), options, pick in zip(inputs, chosen, picks, strict=True)}
        return Configuration(float(cost[number]), site, children)

    return apart, cost, configuration


def place_bottom_up(
    problem: Problem, price: Floats, consider: Callable[[Draft, int], Iterator[Configuration]], reason: str
) -> Placement | Infeasible:
    """Gives every operator, children first, the cheapest configuration that `consider` offers and that fits.

    Of equally cheap ones the first counts. Where none of them fits, any site will do: the cheapest that has room.
    """
    arrays = problem.arrays
    draft = Draft(arrays, price, problem.max_latency_ms)
    for part in arrays.order:
        draft.weigh(part)
        home = arrays.home[part]
        offered = [draft.configured(part, home)] if home is not None else list(consider(draft, part))
        found = _cheapest_that_fits(draft, part, offered)
        if found is None and home is None:
            found = _cheapest_that_fits(
                draft, part, [draft.configured(part, site) for site in range(len(arrays.sites))]
            )
        if found is None:
            if np.isfinite(draft.gamma[part]).any():
                return Infeasible(f"no site that will do has room left for '{arrays.names[part]}'")
            return problem.refused("found this way")
        draft.settle(part, *found)
    return problem.placed(arrays.named(draft.now), reason)


def _cheapest_that_fits(
    draft: Draft, part: int, offered: list[Configuration]
) -> tuple[Configuration, dict[int, int]] | None:
    """Where sites have capacities, each configuration is also tried with the children left where they are."""
    if not draft.arrays.is_roomy:
        offered = [*offered, *(draft.unmoved(part, site) for site in dict.fromkeys(each.site for each in offered))]
    for each in sorted(offered, key=lambda each: each.cost):
        if math.isfinite(each.cost) and draft.fits(moves := draft.moves(part, each)):
            return each, moves
    return None
