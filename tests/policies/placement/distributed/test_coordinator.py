"""A coordinator says the same whatever the order, and takes back what other versions have said."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from random_trees import bounded, plane, random_tree

from headrace.model import Network
from headrace.policies.placement.distributed import (
    Distances,
    InvalidateMap,
    Map,
    Message,
    OperatorMapped,
    OperatorRemapped,
    Send,
    ServerState,
    ToServer,
    ToZone,
    Variant,
    View,
    WantDistances,
    ZoneState,
    coordinate,
    serve,
    workload_of,
)
from headrace.policies.placement.problem import Flow, Part, Problem

NET = Network(("paris", "rome", "hub"), ((0.0, 30.0, 12.0), (30.0, 0.0, 25.0), (12.0, 25.0, 0.0)))
# answers@hub <- top <- low <- a@paris, b@rome; `top` is the proxy's, `low` has a zone of its own.
TREE = Problem(
    (Part("a", "paris"), Part("b", "rome"), Part("low"), Part("top"), Part("answers", "hub")),
    (Flow("a", "low", 9.0), Flow("b", "low", 4.0), Flow("low", "top", 3.0), Flow("top", "answers", 1.0)),
    NET,
)


def for_low(variant: Variant = "edge", problem: Problem = TREE) -> list[Message]:
    """What the coordinator of `low` hears from the proxy and from the sources."""
    sends = workload_of(problem, variant, 1, 8, NET.distance_ms).sends
    subtree = [send.message for send in sends if send.to == ToZone("low", "low")]
    forwarded = [serve(ServerState(), send.message)[1] for send in sends if isinstance(send.message, Map)]
    return [*subtree, *(send.message for group in forwarded for send in group)]


def hear(
    messages: Iterable[Message | Distances], state: ZoneState | None = None
) -> tuple[ZoneState, list[Send | WantDistances]]:
    state, said = state or ZoneState(), list[Send | WantDistances]()
    for message in messages:
        state, outputs = coordinate(state, message)
        said += outputs
    return state, said


def told(outputs: Iterable[Send | WantDistances]) -> set[tuple[str, str, int]]:
    """Site, whether it runs `low`, and by which version."""
    found = set()
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.to, ToServer):
            assert isinstance(output.message, OperatorMapped | InvalidateMap)
            what = "runs" if isinstance(output.message, OperatorMapped) else "stops"
            found.add((output.to.site, what, output.message.version))
    return found


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_a_zone_is_decided_when_all_has_come(order: tuple[int, ...]):
    messages = for_low()
    *early, last = (messages[number] for number in order)
    state, said = hear(early)
    assert said == []
    state, (mapped, forwarded) = hear([last], state)
    assert told([mapped]) == {("paris", "runs", 0)}
    assert isinstance(forwarded, Send)
    assert isinstance(forwarded.message, Map)
    assert forwarded.to == ToZone("answers", "hub")
    assert (forwarded.message.operator, forwarded.message.place) == ("low", "paris")
    assert {place: found.cost for place, found in forwarded.message.table.items()} == {
        "paris": 4.0,
        "rome": 9.0,
        "hub": 13.0,
    }
    assert [step.operator for step in forwarded.message.path] == ["top", "answers"]


def test_a_message_that_comes_twice_changes_nothing():
    messages = [*for_low(), OperatorRemapped("low", "hub", 1)]
    state, _ = hear(messages)
    assert hear(messages, state) == (state, [])


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        pytest.param([("hub", 1)], {("paris", "stops", 1), ("hub", "runs", 1)}, id="moves"),
        pytest.param([("paris", 1)], set(), id="is there already"),
        pytest.param(
            [("hub", 1), ("rome", 2)],
            {("paris", "stops", 1), ("hub", "runs", 1), ("hub", "stops", 2), ("rome", "runs", 2)},
            id="moves twice",
        ),
        pytest.param([("hub", 1), ("hub", 2)], {("paris", "stops", 1), ("hub", "runs", 1)}, id="moves and stays"),
        pytest.param(
            [("hub", 1), ("paris", 2)],
            {("paris", "stops", 1), ("hub", "runs", 1), ("hub", "stops", 2), ("paris", "runs", 2)},
            id="moves back",
        ),
        pytest.param(
            [("rome", 2), ("hub", 1)],
            {("paris", "stops", 2), ("rome", "runs", 2), ("hub", "stops", 2)},
            id="an overtaken order is taken back: a coordinator before may have followed it",
        ),
        pytest.param(
            [("paris", 2), ("hub", 1)],
            {("hub", "stops", 2), ("paris", "runs", 2)},
            id="an overtaken order away from here is answered by one to run here",
        ),
    ],
)
def test_orders_of_zones_above(orders: list[tuple[str, int]], said: set[tuple[str, str, int]]):
    state, _ = hear(for_low())
    _, outputs = hear([OperatorRemapped("low", place, version) for place, version in orders], state)
    assert told(outputs) == said


def test_an_order_may_come_before_the_zone_is_decided():
    _, outputs = hear([OperatorRemapped("low", "hub", 1), *for_low()])
    assert told(outputs) == {("paris", "stops", 1), ("hub", "runs", 1)}
    forwarded = [o.message for o in outputs if isinstance(o, Send) and isinstance(o.message, Map)]
    assert [message.place for message in forwarded] == ["paris"], "what is forwarded is what the zone itself decided"


# answers@hub <- top <- middle <- low <- a, b: whatever `middle` is told, `low` had better go with it.
DEEP = Problem(
    (Part("a", "paris"), Part("b", "rome"), Part("low"), Part("middle"), Part("top"), Part("answers", "hub")),
    (
        Flow("a", "low", 9.0),
        Flow("b", "low", 4.0),
        Flow("low", "middle", 20.0),
        Flow("middle", "top", 3.0),
        Flow("top", "answers", 1.0),
    ),
    NET,
)


@pytest.mark.parametrize(
    ("orders", "passed_on"),
    [
        pytest.param([("hub", 1)], {("hub", 2)}, id="a zone below moves with the one above it"),
        pytest.param([("paris", 1)], set(), id="who stays orders nothing"),
        pytest.param([("hub", 1), ("rome", 2)], {("hub", 2), ("rome", 3)}, id="twice"),
        pytest.param([("rome", 2), ("hub", 1)], {("hub", 2), ("rome", 3)}, id="an overtaken order is passed on too"),
        pytest.param([("paris", 2), ("hub", 1)], {("hub", 2), ("paris", 3)}, id="and what takes it back"),
        pytest.param([("hub", 1), ("hub", 2)], {("hub", 2)}, id="the same place is ordered once"),
    ],
)
@pytest.mark.parametrize("is_late", [pytest.param(False, id="decided before"), pytest.param(True, id="decided after")])
def test_orders_to_zones_below(orders: list[tuple[str, int]], passed_on: set[tuple[str, int]], is_late: bool):
    """A coordinator that replaces another may hear all orders before it has decided: it passes on the same."""
    sends = workload_of(DEEP, "edge", 1, 8, NET.distance_ms).sends
    subtree = [send.message for send in sends if send.to == ToZone("middle", "middle")]
    _, said = hear(for_low(problem=DEEP))
    below = [output.message for output in said if isinstance(output, Send) and isinstance(output.message, Map)]
    remapped = [OperatorRemapped("middle", place, version) for place, version in orders]
    _, outputs = hear([*remapped, *subtree, *below] if is_late else [*subtree, *below, *remapped])
    found = [(o.to, o.message) for o in outputs if isinstance(o, Send) and isinstance(o.message, OperatorRemapped)]
    assert {(message.place, message.version) for _, message in found} == passed_on
    assert all(to == ToZone("low", "low") for to, _ in found)


def test_an_order_to_a_place_without_a_configuration_is_refused():
    state, _ = hear(for_low())
    with pytest.raises(ValueError, match=r"'low' has no configuration at oslo; it has some at paris, rome, hub"):
        coordinate(state, OperatorRemapped("low", "oslo", 1))


def test_a_coordinator_refuses_what_is_for_servers():
    with pytest.raises(ValueError, match="takes no INVALIDATE_MAP"):
        coordinate(ZoneState(), InvalidateMap("low", 1))


def test_edge_plus_asks_for_distances_between_branches_and_waits():
    state, (asked,) = hear(for_low("edge+"))
    assert asked == WantDistances("low", (("paris", "rome"),))
    view = View.of({("paris", "rome"): 30.0, ("rome", "paris"): 30.0})
    state, outputs = hear([Distances("low", view)], state)
    assert told(outputs) == {("paris", "runs", 0)}
    assert hear([Distances("low", view)], state) == (state, [])


# --- any order at all ---


class Bag:
    """Coordinators, servers and messages between them, which are taken out in any order, some of them twice."""

    def __init__(self, problem: Problem, variant: Variant, zones: int, rng: random.Random) -> None:
        self.problem, self.rng = problem, rng
        self.zones: dict[str, ZoneState] = {}
        self.servers: dict[str, ServerState] = {}
        self.under_way: list[tuple[ToZone | ToServer, Message | Distances]] = []
        distance = problem.network.distance_ms
        self.under_way += [(s.to, s.message) for s in workload_of(problem, variant, zones, 8, distance).sends]

    def empty(self) -> dict[str, str]:
        while self.under_way:
            number = self.rng.randrange(len(self.under_way))
            to, message = self.under_way[number]
            if self.rng.random() < 0.8:
                self.under_way.pop(number)
            self._take(to, message)
        return {name: site for site, state in self.servers.items() for name in state.running}

    def _take(self, to: ToZone | ToServer, message: Message | Distances) -> None:
        if isinstance(to, ToZone):
            self.zones[to.zone], outputs = coordinate(self.zones.get(to.zone, ZoneState()), message)
            for output in outputs:
                self.under_way.append(
                    (to, self._measured(output)) if isinstance(output, WantDistances) else (output.to, output.message)
                )
        else:
            assert not isinstance(message, Distances)
            # What lies on the way does not depend on when a message comes.
            route = ("s0", "s1", "s2", to.site)
            self.servers[to.site], sends = serve(self.servers.get(to.site, ServerState()), message, route)
            self.under_way += [(send.to, send.message) for send in sends]

    def _measured(self, wanted: WantDistances) -> Distances:
        both = [pair for a, b in wanted.pairs for pair in ((a, b), (b, a))]
        return Distances(wanted.operator, View.of({pair: self.problem.network.distance_ms(*pair) for pair in both}))


@pytest.mark.parametrize("variant", ["edge", "edge+", "in-network"])
def test_the_placement_does_not_depend_on_the_order_of_messages(variant: Variant):
    for seed in range(15):
        rng = random.Random(seed)
        problem = random_tree(rng, plane(rng, rng.randint(4, 10)), rng.randint(3, 9))
        if seed % 2:
            problem = bounded(problem, rng)
        zones = rng.randint(1, 2)
        first, *others = (Bag(problem, variant, zones, random.Random(order)).empty() for order in range(3))
        assert set(first) == {part.name for part in problem.parts} - {"answers"}
        assert all(other == first for other in others), f"seed {seed}"
