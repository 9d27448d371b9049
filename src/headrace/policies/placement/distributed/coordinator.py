"""What the coordinator of a zone does with messages (section 4.2).

A zone is decided when its subtree and a MAP of every child at its boundary have come, and decided alike whenever they
come again: so a coordinator that replaces a failed one and hears the same messages, in whatever order, says the same.

    ADD_SUBTREE, MAP ... MAP ──▶ gather distances ──▶ decide, each operator after its inputs ──▶ version 0
    OPERATOR_REMAPPED (version n) ──▶ another place of the zone's root, from its table ──▶ version n

Of several versions the highest counts. A message of one version may overtake one of another, and the coordinator before
may have acted on versions that this one hears of late: so what is told follows from all versions known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from headrace.policies.placement.distributed.decide import Branch, Decision, Local, Missing, decide
from headrace.policies.placement.distributed.messages import (
    AddSubtree,
    Distances,
    InvalidateMap,
    Map,
    Message,
    OperatorMapped,
    OperatorRemapped,
    Send,
    Task,
    ToServer,
    ToZone,
    WantDistances,
)
from headrace.policies.placement.distributed.view import View

__all__ = ["ZoneState", "coordinate"]

Output: TypeAlias = Send | WantDistances


@dataclass(frozen=True, slots=True)
class ZoneState:
    """What the coordinator of one zone knows.

    `children` is the paper's "boundary children" table, `decided` its "operators mapped" table. `orders` are the places
    that zones above want the zone's root at, by version. `told` has the version of what a server last heard of an
    operator, by operator and site; `ordered` the children that were ordered elsewhere, with the version of each order.
    """

    subtree: AddSubtree | None = None
    children: Mapping[str, Map] = field(default_factory=dict)
    view: View = field(default_factory=View)
    decided: Mapping[str, Decision] = field(default_factory=dict)
    orders: Mapping[int, str] = field(default_factory=dict)
    told: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ordered: frozenset[tuple[str, int]] = frozenset()
    measuring: frozenset[str] = frozenset()

    @property
    def in_order(self) -> tuple[Map, ...]:
        """What the children said, in the order of the subtree and not of arrival."""
        return tuple(self.children[name] for name in _subtree(self).boundary)

    @property
    def is_ready(self) -> bool:
        return self.subtree is not None and all(child in self.children for child in self.subtree.boundary)

    @property
    def is_decided(self) -> bool:
        return self.subtree is not None and self.subtree.tasks[-1].operator in self.decided


def coordinate(state: ZoneState, message: Message | Distances) -> tuple[ZoneState, tuple[Output, ...]]:
    """The state after a message, and what is sent or measured. A message that comes twice changes nothing."""
    after = _heard(state, message)
    if after is state:
        return state, ()
    outputs: list[Output] = []
    if after.is_ready and not after.is_decided:
        if not state.is_ready:
            after = replace(after, view=_subtree(after).view.merged(child.view for child in after.in_order))
        after, asked = _place(after)
        outputs += asked
    if after.is_decided:
        after, sends = _tell(after)
        outputs += sends
        if not state.is_decided:
            outputs += _forward(after)
    return after, tuple(outputs)


def _heard(state: ZoneState, message: Message | Distances) -> ZoneState:
    """The state with what a message says; the state itself if that was known."""
    match message:
        case AddSubtree() if state.subtree is None:
            return replace(state, subtree=message)
        case Map() if message.operator not in state.children:
            return replace(state, children={**state.children, message.operator: message})
        case OperatorRemapped() if message.version not in state.orders:
            return replace(state, orders={**state.orders, message.version: message.place})
        case Distances() if message.operator in state.measuring:
            known = state.view.merged([message.view])
            return replace(state, view=known, measuring=state.measuring - {message.operator})
        case OperatorMapped() | InvalidateMap():
            raise ValueError(f"a coordinator takes no {message.kind}; servers do")
    return state


def _subtree(state: ZoneState) -> AddSubtree:
    assert state.subtree is not None
    return state.subtree


# --- deciding ---


def _place(state: ZoneState) -> tuple[ZoneState, list[Output]]:
    """Places every operator whose inputs have a place and whose distances are known; asks for what is not."""
    decided, measuring = dict(state.decided), set(state.measuring)
    asked: list[Output] = []
    for task in _subtree(state).tasks:
        known = all(flow.source in decided or flow.source in state.children for flow in task.inputs)
        if task.operator in decided or task.operator in measuring or not known:
            continue
        found = decide(_local(state, task, decided), state.view)
        if isinstance(found, Missing):
            measuring.add(task.operator)
            asked.append(WantDistances(task.operator, found.pairs))
        else:
            decided[task.operator] = found
    return replace(state, decided=decided, measuring=frozenset(measuring)), asked


def _local(state: ZoneState, task: Task, decided: Mapping[str, Decision]) -> Local:
    rules = _subtree(state).rules
    below = [child for child in state.in_order if any(step.operator == task.operator for step in child.path)]
    path = below[0].path
    here = next(number for number, step in enumerate(path) if step.operator == task.operator)
    branches = []
    for flow in task.inputs:
        if flow.source in decided:
            found = decided[flow.source]
            leaves = next(s.leaves for child in below for s in child.path if s.operator == flow.source)
            branches.append(Branch(flow.bytes_per_s, found.place, found.table, leaves))
        else:
            child = state.children[flow.source]
            branches.append(Branch(flow.bytes_per_s, child.place, child.table, child.leaves))
    everywhere = _subtree(state).places
    above = path[here + 1 :]
    homes = tuple(step.home for step in above)
    # Operators above that may all move are taken to be at the proxy, so they add nothing to the way there.
    straight = all(home is None for home in homes[:-1])
    return Local(
        branches=tuple(branches),
        rules=rules,
        home=path[here].home,
        above=homes[-1:] if straight else homes,
        asked=everywhere if rules.variant == "edge" else tuple(v for step in above for v in step.common),
        candidates=tuple(dict.fromkeys(v for child in below for v in child.candidates)),
        order=everywhere,
    )


def _forward(state: ZoneState) -> Iterator[Send]:
    """The MAP of the zone's root to the zone above; the proxy's own zone has none above it."""
    subtree = _subtree(state)
    root = subtree.tasks[-1].operator
    path = state.in_order[0].path
    here = next(number for number, step in enumerate(path) if step.operator == root)
    if here + 1 < len(path):
        decision = state.decided[root]
        candidates = tuple(dict.fromkeys(v for child in state.in_order for v in child.candidates))
        above = path[here + 1 :]
        message = Map(root, decision.place, decision.table, path[here].leaves, above, state.view, candidates)
        yield Send(above[0].coordinator, message)


# --- telling ---


def _tell(state: ZoneState) -> tuple[ZoneState, list[Send]]:
    """Tells servers and zones below what all known versions together mean, as far as they were not told before."""
    subtree = _subtree(state)
    root, path = state.decided[subtree.tasks[-1].operator], state.in_order[0].path
    wanted = {0: root.place, **dict(sorted(state.orders.items()))}
    versions = {version: _unfold(state, place) for version, place in wanted.items()}
    sends: list[Send] = []
    told, ordered = dict(state.told), set(state.ordered)
    for child in subtree.boundary:
        for version, place in _changes(state.children[child].place, {n: at[child] for n, at in versions.items()}):
            if (child, version) not in ordered:
                ordered.add((child, version))
                sends.append(_order(subtree, child, place, version))
    for task in subtree.tasks:
        # No server runs the answers: they are what the proxy hears.
        if task.operator != path[-1].operator:
            sends += _assign(state, task.operator, {n: at[task.operator] for n, at in versions.items()}, told)
    return replace(state, told=told, ordered=frozenset(ordered)), sends


def _changes(before: str, places: Mapping[int, str]) -> list[tuple[int, str]]:
    """The versions that change the place of a part, each with the place it changes it to."""
    return [
        (version, place) for last, (version, place) in pairwise([(-1, before), *places.items()]) if last[1] != place
    ]


def _unfold(state: ZoneState, place: str) -> dict[str, str]:
    """The places of the zone's operators and of its boundary children if its root is at a place."""
    tasks = _subtree(state).tasks
    places = {tasks[-1].operator: place}
    for task in reversed(tasks):
        here = places[task.operator]
        table = state.decided[task.operator].table
        if here not in table:
            raise ValueError(f"'{task.operator}' has no configuration at {here}; it has some at {', '.join(table)}")
        places |= {flow.source: at for flow, at in zip(task.inputs, table[here].inputs, strict=True)}
    return places


def _order(subtree: AddSubtree, child: str, place: str, version: int) -> Send:
    """The order to a zone below, for which this zone's decisions are one version later than its own."""
    coordinator = subtree.boundary[child]
    assert isinstance(coordinator, ToZone), f"'{child}' is a source and cannot move"
    return Send(coordinator, OperatorRemapped(child, place, version + 1))


def _assign(
    state: ZoneState, operator: str, places: Mapping[int, str], told: dict[tuple[str, str], int]
) -> Iterator[Send]:
    """To the server that runs an operator, and to those that would by other versions; `told` is brought up to date."""
    changes = _changes("", places)
    since = {place: version for version, place in changes}
    until = {before: version for (_, before), (version, _) in pairwise(changes)}
    last, table = changes[-1][1], state.decided[operator].table
    for place in since:
        version = since[place] if place == last else until[place]
        if told.get((operator, place), -1) < version:
            told[operator, place] = version
            runs = OperatorMapped(operator, table[place], table, version)
            yield Send(ToServer(place), runs if place == last else InvalidateMap(operator, version))
