"""What the proxy does before placement: it cuts the tree into zones and tells coordinators and sources (section 4.2).

With zones of t levels, the operators of depth 0 to t - 1 are the proxy's own zone; each operator of depth t, 2t, ... is
the root of another, whose coordinator is the root of the operator's name in the overlay.

    t = 1:   answers+a   b   c   d ...        t = 2:   answers+a+b+c   d+...   e+...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headrace.policies.placement.distributed.messages import (
    AddSubtree,
    Ancestor,
    Map,
    OperatorMapped,
    Rules,
    Send,
    Task,
    ToServer,
    ToZone,
    Variant,
)
from headrace.policies.placement.distributed.table import Table
from headrace.policies.placement.distributed.view import View
from headrace.policies.placement.problem import Flow, Problem

__all__ = ["Workload", "workload_of"]


@dataclass(frozen=True)
class Workload:
    """A tree in zones: who coordinates which operator, and what the proxy sends to begin with."""

    proxy: str
    answers: str
    operators: tuple[str, ...]
    sources: Mapping[str, str]
    zones: Mapping[str, ToZone]
    sends: tuple[Send, ...]


def workload_of(
    problem: Problem, variant: Variant, zones: int, ranked: int, distance_ms: Callable[[str, str], float]
) -> Workload:
    """The zones of a problem that is one tree; ValueError if it is none, or has what the protocol does not know."""
    tree = _Tree.of(problem)
    if zones < 1:
        raise ValueError(f"a zone has 1 level of operators or more, not {zones}")
    rules = Rules(variant, tree.proxy, problem.max_latency_ms, ranked)
    known = _known_distances(tree, distance_ms) if rules.needs_distances else View()
    cut = tree.cut(zones)
    sends = (*_add_subtrees(tree, cut, rules, known), *_to_sources(tree, cut, known))
    return Workload(tree.proxy, tree.answers, tree.operators, tree.sources, cut, sends)


@dataclass(frozen=True)
class _Tree:
    """Parts by name: what feeds each, what each feeds, where sources below it are."""

    answers: str
    proxy: str
    order: tuple[str, ...]
    home: Mapping[str, str | None]
    inputs: Mapping[str, tuple[Flow, ...]]
    reader: Mapping[str, str]
    leaves: Mapping[str, tuple[str, ...]]
    places: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> _Tree:
        if problem.capacity:
            raise ValueError("coordinators know no capacities of sites; use a central strategy for a problem with some")
        order = problem.in_order
        inputs: dict[str, tuple[Flow, ...]] = dict.fromkeys(order, ())
        reader: dict[str, str] = {}
        for flow in problem.flows:
            if flow.source in reader:
                raise ValueError(f"'{flow.source}' feeds two parts; coordinators place trees, where each feeds one")
            inputs[flow.target] += (flow,)
            reader[flow.source] = flow.target
        ends = [name for name in order if name not in reader]
        if len(ends) != 1:
            raise ValueError(f"coordinators place one tree at a time, not {len(ends)} ({', '.join(sorted(ends))})")
        home = {part.name: part.home for part in problem.parts}
        proxy = home[ends[0]]
        assert proxy is not None, "Problem refuses a part without a home that feeds no other"
        leaves: dict[str, tuple[str, ...]] = {}
        for name in order:
            own = home[name]
            below = (place for flow in inputs[name] for place in leaves[flow.source])
            leaves[name] = tuple(dict.fromkeys(below)) if own is None else (own,)
        homes = {place for place in home.values() if place is not None}
        places = tuple(site for site in problem.network.sites if site in homes)
        return cls(ends[0], proxy, order, home, inputs, reader, leaves, places)

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(name for name in self.order if self.inputs[name] and name != self.answers)

    @property
    def sources(self) -> dict[str, str]:
        return {name: _settled(self.home, name) for name in self.order if not self.inputs[name]}

    def above(self, name: str) -> Iterator[str]:
        """What a part feeds, what that feeds, up to the answers."""
        while name != self.answers:
            name = self.reader[name]
            yield name

    def cut(self, levels: int) -> dict[str, ToZone]:
        """The zone of every operator: named after the operator at its root, the proxy's own after the answers."""
        depth = {self.answers: -1}
        zones = {self.answers: ToZone(self.answers, self.proxy)}
        for name in reversed(self.order):
            if name != self.answers and self.inputs[name]:
                above = self.reader[name]
                depth[name] = depth[above] + 1
                begins = depth[name] > 0 and depth[name] % levels == 0
                zones[name] = ToZone(name, name) if begins else zones[above]
        return zones

    def common(self, name: str) -> tuple[str, ...]:
        """The places of sources below all inputs of an operator (cl of section 3.2); what has a home has no choice."""
        if self.home[name] is not None:
            return ()
        first, *others = (self.leaves[flow.source] for flow in self.inputs[name])
        return tuple(place for place in first if all(place in other for other in others))


def _settled(home: Mapping[str, str | None], name: str) -> str:
    place = home[name]
    assert place is not None, "Problem refuses a part without a home that nothing feeds"
    return place


def _known_distances(tree: _Tree, distance_ms: Callable[[str, str], float]) -> View:
    """From every source and home to the proxy, and back: each measures its own when it joins."""
    others = [place for place in tree.places if place != tree.proxy]
    there = {(place, tree.proxy): distance_ms(place, tree.proxy) for place in others}
    return View.of(there | {(tree.proxy, place): distance_ms(tree.proxy, place) for place in others})


def _add_subtrees(tree: _Tree, cut: Mapping[str, ToZone], rules: Rules, known: View) -> Iterator[Send]:
    tasks: dict[ToZone, list[Task]] = {}
    for name in tree.order:
        if name in cut:
            tasks.setdefault(cut[name], []).append(Task(name, tree.inputs[name]))
    for zone, inside in tasks.items():
        members = {task.operator for task in inside}
        boundary: dict[str, ToZone | ToServer] = {}
        for name in (flow.source for task in inside for flow in task.inputs if flow.source not in members):
            boundary[name] = cut[name] if name in cut else ToServer(tree.leaves[name][0])
        yield Send(zone, AddSubtree(zone.zone, tuple(inside), boundary, rules, tree.places, known))


def _to_sources(tree: _Tree, cut: Mapping[str, ToZone], known: View) -> Iterator[Send]:
    """OPERATOR_MAPPED and MAP to every source, over the overlay: the routes show which sites lie on the way."""
    steps = {name: Ancestor(name, cut[name], tree.home[name], tree.leaves[name], tree.common(name)) for name in cut}
    for source, place in tree.sources.items():
        table = Table.fixed(place)
        path = tuple(steps[name] for name in tree.above(source))
        ends = tuple(end for end in (place, tree.proxy) if end in known.position)
        to = ToServer(place, routed=True)
        yield Send(to, OperatorMapped(source, table[place], table))
        yield Send(to, Map(source, place, table, (place,), path, View(ends, known.over(ends))))
