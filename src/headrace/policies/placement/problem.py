"""What is placed: operators between streams that are born somewhere and answers that are wanted somewhere.

    packets@paris ──800──▶ partial ──20──▶ merge ──5──▶ answers@hub
    packets@rome  ──800──▶ partial ──20──▶ ┘

Sources and answers have a home; everything between them may run at any site. A flow costs its bytes per second times
the milliseconds between the sites of its two ends, and nothing where both ends are at one site (section 3.1 of the
paper on network-aware placement). The flow to the answers counts: answers must arrive.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headrace.model import Network
from headrace.policies.placement.arrays import Arrays, arrays_of, within
from headrace.policies.placement.latency import best_latency

__all__ = ["Flow", "Infeasible", "Part", "Placement", "Problem"]


@dataclass(frozen=True, slots=True)
class Part:
    """Something that runs at one site: a source, an operator, or the answers of a query.

    `home` is the site of what cannot move; None is any site. `load` is what it takes of a site's capacity.
    """

    name: str
    home: str | None = None
    load: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.load) and self.load >= 0):
            raise ValueError(f"part '{self.name}' has a load of 0 or more, not {self.load}")


@dataclass(frozen=True, slots=True)
class Flow:
    """What one part sends to another, in bytes per second."""

    source: str
    target: str
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bytes_per_s) and self.bytes_per_s >= 0):
            raise ValueError(f"a flow has 0 bytes per second or more, not {self.bytes_per_s}")


@dataclass(frozen=True)
class Problem:
    """Parts and flows without a cycle, a network, and what a placement must keep to.

    `max_latency_ms` bounds every path from a source to the answers, over the network alone. A site without a capacity
    takes any load. Several queries are one problem: a part that several of them read is placed once, and what it sends
    to two parts at one site crosses the network once, as wide as the wider of the two flows.

    >>> net = Network(("paris", "hub"), ((0.0, 12.0), (12.0, 0.0)))
    >>> parts = (Part("packets", "paris"), Part("count"), Part("answers", "hub"))
    >>> problem = Problem(parts, (Flow("packets", "count", 800.0), Flow("count", "answers", 5.0)), net)
    >>> problem.cost_of({"packets": "paris", "count": "paris", "answers": "hub"})
    60.0
    """

    parts: tuple[Part, ...]
    flows: tuple[Flow, ...]
    network: Network
    max_latency_ms: float | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        known, sites = set(names), set(self.network.sites)
        if len(known) != len(names):
            raise ValueError("two parts have the same name")
        for flow in self.flows:
            for end in (flow.source, flow.target):
                if end not in known:
                    raise ValueError(f"a flow names no known part '{end}'")
        fed = {flow.target for flow in self.flows}
        reads = {flow.source for flow in self.flows}
        for part in self.parts:
            if part.home is not None and part.home not in sites:
                raise ValueError(f"part '{part.name}' is at home at no known site '{part.home}'")
            if part.home is None and (part.name not in fed or part.name not in reads):
                raise ValueError(f"part '{part.name}' is neither a source nor an answer, so it needs flows in and out")
        for site, room in self.capacity.items():
            if site not in sites:
                raise ValueError(f"a capacity is of no known site '{site}'")
            if not room >= 0:
                raise ValueError(f"site '{site}' has a capacity of 0 or more, not {room}")
        if self.max_latency_ms is not None and not self.max_latency_ms >= 0:
            raise ValueError(f"a latency bound is 0 ms or more, not {self.max_latency_ms}")
        _ = self.in_order

    def part(self, name: str) -> Part:
        """The part of that name; KeyError if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, Part]:
        return {part.name: part for part in self.parts}

    @cached_property
    def in_order(self) -> tuple[str, ...]:
        """All parts, each after those that feed it; ValueError if they feed each other."""
        waiting = {part.name: 0 for part in self.parts}
        targets: dict[str, list[str]] = {part.name: [] for part in self.parts}
        for flow in self.flows:
            waiting[flow.target] += 1
            targets[flow.source].append(flow.target)
        ready = deque(name for name, count in waiting.items() if count == 0)
        order: list[str] = []
        while ready:
            name = ready.popleft()
            order.append(name)
            for target in targets[name]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
        if len(order) < len(self.parts):
            stuck = ", ".join(sorted(set(waiting) - set(order)))
            raise ValueError(f"parts feed each other in a circle, among {stuck}")
        return tuple(order)

    @property
    def is_tree(self) -> bool:
        """Whether every part feeds at most one other."""
        return all(len(readers) <= 1 for readers in self.arrays.readers)

    @cached_property
    def arrays(self) -> Arrays:
        """The same in numbers, made once."""
        return arrays_of(self.parts, self.flows, self.network, self.capacity, self.in_order)

    def cost_of(self, sites: Mapping[str, str]) -> float:
        """Bytes per second times milliseconds, summed over what crosses the network."""
        return self.arrays.cost(self.positions(sites))

    def latency_of(self, sites: Mapping[str, str]) -> float:
        """The milliseconds of the longest path from a source to answers."""
        return self.arrays.latency(self.positions(sites))

    def links_of(self, sites: Mapping[str, str]) -> dict[tuple[str, str], float]:
        """By sending and receiving site the bytes per second between them."""
        at = self.positions(sites)
        found: dict[tuple[str, str], float] = {}
        for part, readers in enumerate(self.arrays.readers):
            for target, rate in self.arrays.sent(readers, at).items():
                if target != at[part]:
                    link = (self.network.sites[at[part]], self.network.sites[target])
                    found[link] = found.get(link, 0.0) + rate
        return found

    def faults_of(self, sites: Mapping[str, str]) -> tuple[str, ...]:
        """What a placement does that this problem forbids, in sentences; none if it will do."""
        at = self.positions(sites)
        found = [
            f"'{part.name}' is at home at {part.home}, not at {sites[part.name]}"
            for part in self.parts
            if part.home not in (None, sites[part.name])
        ]
        latency = self.arrays.latency(at)
        if not within(latency, self.max_latency_ms):
            found.append(f"the longest path takes {latency:.6g} ms, more than {self.max_latency_ms:.6g} ms")
        loads = self.arrays.loads(at)
        for site, room in self.capacity.items():
            load = float(loads[self.network.position(site)])
            if not within(load, room):
                found.append(f"{site} has a load of {load:.6g}, more than its capacity of {room:.6g}")
        return tuple(found)

    @cached_property
    def best_latency_ms(self) -> float | None:
        """The least latency that any placement can have, whatever the bound; None if none fits into the capacities."""
        return best_latency(self.arrays)

    def refused(self, how: str) -> Infeasible:
        """That no path can be as short as the bound, and how short it could be."""
        if self.best_latency_ms is None:
            return Infeasible("the operators do not fit into the sites' capacities")
        bound, best = self.max_latency_ms, self.best_latency_ms
        return Infeasible(
            f"no placement {how} keeps to {bound:.6g} ms: the best latency there could be is {best:.6g} ms", best
        )

    def positions(self, sites: Mapping[str, str]) -> list[int]:
        """The position of each part's site; KeyError names a part or a site that is missing."""
        position = {site: number for number, site in enumerate(self.network.sites)}
        return [position[sites[part.name]] for part in self.parts]

    def placed(self, sites: Mapping[str, str], reason: str) -> Placement:
        """A placement with what it costs."""
        return Placement(sites, self.cost_of(sites), self.latency_of(sites), reason)


@dataclass(frozen=True)
class Placement:
    """A site for every part, what that costs, and why it is this one.

    `cost` is the sum over flows of bytes per second times milliseconds; `latency_ms` that of the longest path.
    """

    sites: Mapping[str, str]
    cost: float
    latency_ms: float
    reason: str


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement keeps to the bound or the capacities; the best latency there could be, if that is what fails."""

    reason: str
    best_latency_ms: float | None = None
