"""A tree placed by coordinators and servers that talk over an overlay in simulated time.

The machines of `policies.placement.distributed` decide; what is here carries their messages, counts them, and at the
end asks every server what it runs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from headrace.policies.placement.arrays import within
from headrace.policies.placement.distributed import (
    Distances,
    Message,
    Send,
    ServerState,
    ToZone,
    Variant,
    View,
    WantDistances,
    Workload,
    ZoneState,
    coordinate,
    serve,
    workload_of,
)
from headrace.policies.placement.in_network import RANKED
from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.simulation.overlay import Arrival, Faults, Letter, Overlay, Wire

__all__ = ["DistributedResult", "place_distributed"]

# What a letter holds: a message, and the zone whose coordinator it is for; None is the server.
Content: TypeAlias = tuple[str | None, Message | Distances]


@dataclass(frozen=True)
class DistributedResult:
    """What the protocol came to, and what it took.

    `messages` counts each of the five kinds, a message once however often it was repeated, and `MEASURE`: one for each
    pair of sites whose distance was gathered. `gathered` has the latter by operator. `hops` are those of the five kinds
    from site to site, repetitions included. `coordinators` are the sites that coordinated each zone in the end, by the
    operator at its root. `took_ms` is simulated time.
    """

    placement: Placement | Infeasible
    messages: Mapping[str, int] = field(default_factory=dict)
    gathered: Mapping[str, int] = field(default_factory=dict)
    hops: int = 0
    lost: int = 0
    repeated: int = 0
    crashed: frozenset[str] = frozenset()
    coordinators: Mapping[str, str] = field(default_factory=dict)
    took_ms: float = 0.0


def place_distributed(
    problem: Problem,
    variant: Variant,
    *,
    rng: random.Random,
    zones: int = 1,
    faults: Faults | None = None,
    overlay: Overlay | None = None,
    ranked: int = RANKED,
) -> DistributedResult:
    """Places a tree by the protocol of section 4: zones of so many levels of operators, coordinators by hashing.

    `overlay` is that of the problem's network: one for all trees of a graph saves building it for each. `ranked` is the
    k of section 3.4. Without faults nothing depends on `rng`.
    """
    overlay = overlay or Overlay(problem.network)
    if overlay.sites != problem.network.sites:
        raise ValueError("the overlay is not that of the problem's network: their sites differ")
    workload = workload_of(problem, variant, zones, ranked, overlay.distance_ms)
    at_proxy = {part.name: part.home or workload.proxy for part in problem.parts}
    if not within(problem.latency_of(at_proxy), problem.max_latency_ms):
        return DistributedResult(problem.refused("found this way"))
    run = _Run(workload, Wire(overlay, rng, faults or Faults(), lasting=[workload.proxy]))
    run.play()
    return run.result(problem, variant)


class _Run:
    """Machines, and the wire between them."""

    def __init__(self, workload: Workload, wire: Wire[Content]) -> None:
        self.workload, self.wire = workload, wire
        self.coordinators: dict[tuple[str, str], ZoneState] = {}
        self.servers: dict[str, ServerState] = {}
        self.messages: Counter[str] = Counter()
        self.gathered: Counter[str] = Counter()

    def play(self) -> None:
        for send in self.workload.sends:
            self._post(self.workload.proxy, send, by_coordinator=False)
        while (arrival := self.wire.next_arrival()) is not None:
            zone, message = arrival.letter.content
            if zone is not None:
                self._at_coordinator(arrival.site, zone, message)
            elif not isinstance(message, Distances):
                self._at_server(arrival, message)

    def _at_server(self, arrival: Arrival[Content], message: Message) -> None:
        state = self.servers.get(arrival.site, ServerState())
        self.servers[arrival.site], sends = serve(state, message, arrival.route)
        for send in sends:
            self._post(arrival.site, send, by_coordinator=False)

    def _at_coordinator(self, site: str, zone: str, message: Message | Distances) -> None:
        state = self.coordinators.get((site, zone), ZoneState())
        self.coordinators[site, zone], outputs = coordinate(state, message)
        for output in outputs:
            if isinstance(output, WantDistances):
                self._measure(site, zone, output)
            else:
                self._post(site, output, by_coordinator=True)
        self.wire.may_crash(site)

    def _post(self, site: str, send: Send, *, by_coordinator: bool) -> None:
        to, message = send.to, send.message
        self.messages[message.kind] += 1
        if isinstance(to, ToZone):
            self.wire.post(Letter(site, to.key, (to.zone, message), to_keeper=True, by_keeper=by_coordinator))
        else:
            self.wire.post(Letter(site, to.site, (None, message), by_keeper=by_coordinator, routed=to.routed))

    def _measure(self, site: str, zone: str, wanted: WantDistances) -> None:
        """The first place of each pair is asked, sends to the second and back, and answers."""
        overlay = self.wire.overlay
        places = tuple(dict.fromkeys(place for pair in wanted.pairs for place in pair))
        number = {place: position for position, place in enumerate(places)}
        first, second = np.array([(number[a], number[b]) for a, b in wanted.pairs]).T
        there = np.array([overlay.position[place] for place in places])
        real = overlay.latency_ms[there[:, None], there]
        ms = np.where(np.eye(len(places), dtype=bool), 0.0, np.inf)
        ms[first, second], ms[second, first] = real[first, second], real[second, first]
        took = 2 * overlay.latency_ms[overlay.position[site], there[first]] + ms[first, second] + ms[second, first]
        tries = [self.wire.attempts() for _ in wanted.pairs] if self.wire.faults.loss else [1]
        self.messages["MEASURE"] += len(wanted.pairs)
        self.gathered[wanted.operator] += len(wanted.pairs)
        found = Distances(wanted.operator, View(places, ms))
        self.wire.note(site, (zone, found), after_ms=float(took.max()) * max(tries))

    def result(self, problem: Problem, variant: Variant) -> DistributedResult:
        zones = dict.fromkeys(self.workload.zones.values())
        count = f"{len(zones)} coordinator{'' if len(zones) == 1 else 's'}"
        crashed = frozenset(self.wire.crashed)
        return DistributedResult(
            placement=problem.placed(self._sites(), f"{variant}, as {count} found it"),
            messages=dict(self.messages),
            gathered=dict(self.gathered),
            hops=self.wire.hops,
            lost=self.wire.lost,
            repeated=self.wire.repeated,
            crashed=crashed,
            coordinators={zone.zone: self.wire.overlay.root(zone.key, crashed) for zone in zones},
            took_ms=self.wire.now_ms,
        )

    def _sites(self) -> dict[str, str]:
        """Where each part runs, by what the servers say: each at one site."""
        found = {self.workload.answers: self.workload.proxy}
        for site, state in self.servers.items():
            for part in state.running:
                assert part not in found, f"'{part}' runs at {found[part]} and at {site}"
                found[part] = site
        return found
