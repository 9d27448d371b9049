"""Where one operator runs: the local decision of a coordinator under Edge, Edge+ and In-Network (section 4).

The cases and their costs are those of the central strategies, weighed over the places that the coordinator has heard
of. `decide` chooses a place and fills the operator's table, from which operators above it are placed; or it names the
distances that it still needs. Edge's table covers the places of all sources, so that every cost the central version
looks up is there. Those of Edge+ and In-Network cover the places below the operator, the proxy, and common places
above: what the operator would cost below its siblings is not known in time (section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from headrace.policies.placement import bottom_up
from headrace.policies.placement.arrays import Arrays, Floats
from headrace.policies.placement.bottom_up import Draft
from headrace.policies.placement.distributed.messages import Rules
from headrace.policies.placement.distributed.table import Table
from headrace.policies.placement.distributed.view import View, completed
from headrace.policies.placement.edge import edge_cases
from headrace.policies.placement.edge_plus import edge_plus_cases
from headrace.policies.placement.in_network import in_network_cases

__all__ = ["Branch", "Decision", "Local", "Missing", "decide"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Branch:
    """One input of an operator: its rate, where it is, its table, and the places of the sources below it."""

    bytes_per_s: float
    place: str
    table: Table
    leaves: tuple[str, ...]


@dataclass(frozen=True)
class Local:
    """All that bears on the place of one operator but distances.

    `above` are the homes of the parts it feeds, directly and through others, None for those that may move; the last is
    the proxy. `asked` are places at which operators above may want this one, `candidates` those met on the way to its
    sources. `order` settles ties: of equally good places the first in it counts.
    """

    branches: tuple[Branch, ...]
    rules: Rules
    home: str | None
    above: tuple[str | None, ...]
    asked: tuple[str, ...]
    candidates: tuple[str, ...]
    order: tuple[str, ...]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The places of all sources below, each once."""
        return tuple(dict.fromkeys(place for branch in self.branches for place in branch.leaves))

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Every place that plays a part in the decision."""
        fixed = [home for home in (self.home, *self.above) if home is not None]
        known = {*fixed, *self.leaves, *self.asked, *(branch.place for branch in self.branches)}
        if self.rules.variant == "in-network":
            known.update(self.candidates)
        return (*(place for place in self.order if place in known), *sorted(known.difference(self.order)))

    @cached_property
    def position(self) -> dict[str, int]:
        return {place: number for number, place in enumerate(self.places)}

    @property
    def anchor(self) -> Branch:
        """The input of the highest rate: distances are gathered from the places below it (the v_1 of section 3.3)."""
        return max(self.branches, key=lambda branch: branch.bytes_per_s)

    @property
    def part(self) -> int:
        """The operator's number in a draft: its inputs come before it."""
        return len(self.branches)


@dataclass(frozen=True, slots=True)
class Decision:
    """The place of an operator, and its configurations there and elsewhere."""

    place: str
    table: Table


@dataclass(frozen=True, slots=True)
class Missing:
    """Pairs of places whose distance must be measured before the operator can be placed."""

    pairs: tuple[tuple[str, str], ...]


def decide(local: Local, view: View) -> Decision | Missing:
    """The place of an operator, or the distances without which it has none."""
    if not local.rules.needs_distances:
        return _decided(local, _draft(local, np.zeros((len(local.places), len(local.places)))))
    ms = view.over(local.places)
    wanted = _wanted(local) & np.isinf(ms)
    if wanted.any():
        return _missing(local, wanted)
    return _decided(local, _draft(local, completed(ms)))


def _missing(local: Local, wanted: Mask) -> Missing:
    first, second = np.nonzero(np.triu(wanted | wanted.T))
    places = local.places
    return Missing(tuple((places[a], places[b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)))


def _decided(local: Local, draft: Draft) -> Decision:
    part = local.part
    draft.weigh(part)
    if local.home is not None:
        return Decision(local.home, _table(local, draft, ()))
    # Inputs keep to the bound on their straight way to the proxy, so the proxy is always among the cases that do.
    offered = sorted(_cases(local.rules)(draft, part), key=lambda each: each.cost)
    assert math.isfinite(offered[0].cost), "the proxy refuses a tree that cannot keep to its bound"
    return Decision(local.places[offered[0].site], _table(local, draft, offered))


def _cases(rules: Rules) -> Callable[[Draft, int], Iterator[bottom_up.Configuration]]:
    match rules.variant:
        case "edge":
            return edge_cases
        case "edge+":
            return edge_plus_cases
        case "in-network":
            return partial(in_network_cases, ranked=rules.ranked)


# --- the decision in numbers ---


def _draft(local: Local, delay: Floats) -> Draft:
    """A draft of the inputs, the operator after them and the parts above it after that.

    Of the inputs it knows what their tables say, as if each had been weighed here.
    """
    price = 1.0 - np.eye(len(local.places)) if local.rules.variant == "edge" else delay
    draft = Draft(_arrays(local, delay), price, local.rules.max_latency_ms)
    for child, branch in enumerate(local.branches):
        draft.at[child] = local.position[branch.place]
        draft.gamma[child], draft.latency[child] = branch.table.over(local.places)
        draft.leaves[child] = frozenset(local.position[place] for place in branch.leaves)
    if local.home is None:
        draft.leaves[local.part] = frozenset(local.position[place] for place in local.leaves)
    return draft


def _arrays(local: Local, delay: Floats) -> Arrays:
    part, count = local.part, local.part + 1 + len(local.above)
    homes = (*(None for _ in local.branches), local.home, *local.above)
    inputs: list[tuple[tuple[int, float], ...]] = [()] * part
    inputs.append(tuple((child, branch.bytes_per_s) for child, branch in enumerate(local.branches)))
    # What flows above the operator does not bear on its place.
    inputs += [((below, 0.0),) for below in range(part, count - 1)]
    readers: list[tuple[tuple[int, float], ...]] = [()] * count
    for target, flows in enumerate(inputs):
        for source, rate in flows:
            readers[source] = ((target, rate),)
    return Arrays(
        names=tuple(str(number) for number in range(count)),
        sites=local.places,
        delay=delay,
        home=tuple(None if home is None else local.position[home] for home in homes),
        order=tuple(range(count)),
        inputs=tuple(inputs),
        readers=tuple(readers),
        load=np.zeros(count),
        room=np.full(len(local.places), math.inf),
    )


def _table(local: Local, draft: Draft, offered: Iterable[bottom_up.Configuration]) -> Table:
    """By place what equation 5 makes of the operator there, or the best that is offered if that is better."""
    part, here = local.part, np.arange(len(local.places))
    cost = draft.gamma[part].copy()
    inputs = np.repeat(np.array([draft.at[: local.part]]).T, len(here), axis=1)
    for child in range(part):
        beside = draft.beside[part, child]
        inputs[child, beside] = beside
    for each in offered:
        if each.cost < cost[each.site]:
            cost[each.site] = each.cost
            inputs[:, each.site] = [each.children.get(child, draft.at[child]) for child in range(part)]
    delays = np.zeros((0, len(here)))
    if local.rules.max_latency_ms is not None:
        delays = np.array([draft.latency[c][inputs[c]] + draft.arrays.delay[inputs[c], here] for c in range(part)])
    return Table(local.places, cost, inputs, delays)


# --- which distances are gathered ---


def _wanted(local: Local) -> Mask:
    """Which pairs the decision needs: from where inputs are to where the operator may be, and on to where results go.

    Edge+ and In-Network compare places below the anchor with places below each other input, pairwise: the
    (d - 1) d^(2(h - j)) of section 5. In-Network also asks how far candidates are from where inputs are. All other
    distances are taken to be those of the shortest way over what is known: to ask for them as well doubled the messages
    and changed costs by less than 0.1 %.
    """
    found = np.zeros((len(local.places), len(local.places)), dtype=bool)
    above = _positions(local, local.above)
    ends = [*above, *_positions(local, (branch.place for branch in local.branches))]
    if local.home is not None:
        found[ends, local.position[local.home]] = True
        return found
    found[_cells([*above, *_positions(local, local.asked)], ends)] = True
    if local.rules.variant != "edge":
        anchor, leaves = local.anchor, _positions(local, local.leaves)
        for branch in local.branches:
            if branch is not anchor:
                found[_cells(_positions(local, anchor.leaves), _positions(local, branch.leaves))] = True
            # An input at the proxy or at a candidate is not below itself: how far is it from all that are?
            if branch.place not in branch.leaves:
                found[local.position[branch.place], leaves] = True
    if local.rules.variant == "in-network":
        found[_cells(_positions(local, local.candidates), ends)] = True
    return found


def _positions(local: Local, places: Iterable[str | None]) -> list[int]:
    return [local.position[place] for place in places if place is not None]


def _cells(rows: Sequence[int], columns: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Every row with every column; `np.ix_` is several times slower for so few."""
    return np.array(rows, dtype=np.intp)[:, None], np.array(columns, dtype=np.intp)
