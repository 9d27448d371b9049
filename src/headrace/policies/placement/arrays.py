"""A problem in numbers: parts and sites by position, flows by part, one matrix of milliseconds.

Strategies compute on this view; `Problem.arrays` holds one, made once. A placement here is a site's position for every
part's position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from headrace.model import Network
    from headrace.policies.placement.problem import Flow, Part

__all__ = ["SLACK", "Arrays", "Floats", "Ints", "arrays_of", "within"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Sums of the same latencies in another order differ by less than this share; a bound that is met exactly is met.
SLACK = 1e-9


def within(value: float, bound: float | None) -> bool:
    """Whether a latency or a load keeps to its bound; None is no bound."""
    return bound is None or value <= bound + SLACK * abs(bound)


@dataclass(frozen=True, eq=False)
class Arrays:
    """Parts and sites by position.

    `delay[a, b]` is the milliseconds from site a to site b, 0 where they are the same. `inputs` and `readers` list, by
    part, the other end of each flow and its bytes per second, several flows between two parts as the widest of them.
    `room` is a site's capacity, infinite where none is given.
    """

    names: tuple[str, ...]
    sites: tuple[str, ...]
    delay: Floats
    home: tuple[int | None, ...]
    order: tuple[int, ...]
    inputs: tuple[tuple[tuple[int, float], ...], ...]
    readers: tuple[tuple[tuple[int, float], ...], ...]
    load: Floats
    room: Floats

    @cached_property
    def arriving(self) -> Floats:
        """The milliseconds to the row's site from the column's: `delay`, laid out for minima over senders."""
        return np.ascontiguousarray(self.delay.T)

    @property
    def free(self) -> tuple[int, ...]:
        """Parts that may run anywhere, each after those that feed it."""
        return tuple(part for part in self.order if self.home[part] is None)

    @property
    def ends(self) -> tuple[int, ...]:
        """Parts that feed no other: the answers."""
        return tuple(part for part in range(len(self.names)) if not self.readers[part])

    @property
    def is_roomy(self) -> bool:
        """Whether no site limits what may run there."""
        return not np.isfinite(self.room).any()

    def named(self, at: Sequence[int] | Ints) -> dict[str, str]:
        """A placement by the names of parts and sites."""
        return {name: self.sites[at[part]] for part, name in enumerate(self.names)}

    def cost(self, at: Sequence[int] | Ints) -> float:
        """Bytes per second times milliseconds; what a part sends to one site crosses once, as wide as the widest."""
        return math.fsum(
            rate * self.delay[at[part], site]
            for part, readers in enumerate(self.readers)
            for site, rate in self.sent(readers, at).items()
        )

    def costs(self, at: Ints) -> Floats:
        """The costs of many placements, one per row; roundings differ from those of `cost`."""
        total = np.zeros(len(at))
        for part, readers in enumerate(self.readers):
            widest_first = sorted(readers, key=lambda reader: -reader[1])
            for number, (reader, rate) in enumerate(widest_first):
                paid = rate * self.delay[at[:, part], at[:, reader]]
                for other, _ in widest_first[:number]:
                    paid[at[:, other] == at[:, reader]] = 0.0
                total += paid
        return total

    @staticmethod
    def sent(readers: Sequence[tuple[int, float]], at: Sequence[int] | Mapping[int, int] | Ints) -> dict[int, float]:
        """By site what its readers there make a part send, in bytes per second: the widest of their flows."""
        found: dict[int, float] = {}
        for reader, rate in readers:
            site = int(at[reader])
            found[site] = max(rate, found.get(site, 0.0))
        return found

    def arrivals(self, at: Sequence[int] | Ints) -> list[float]:
        """By part the milliseconds from the farthest source that feeds it."""
        found = [0.0] * len(self.names)
        for part in self.order:
            found[part] = max(
                (found[source] + float(self.delay[at[source], at[part]]) for source, _ in self.inputs[part]),
                default=0.0,
            )
        return found

    def remaining(self, at: Sequence[int] | Ints) -> list[float]:
        """By part the milliseconds to the farthest answers it feeds."""
        found = [0.0] * len(self.names)
        for part in reversed(self.order):
            found[part] = max(
                (found[reader] + float(self.delay[at[part], at[reader]]) for reader, _ in self.readers[part]),
                default=0.0,
            )
        return found

    def latency(self, at: Sequence[int] | Ints) -> float:
        """The milliseconds of the longest path."""
        return max(self.arrivals(at), default=0.0)

    def loads(self, at: Sequence[int] | Ints) -> Floats:
        """What runs at each site, in the unit of capacities."""
        found: Floats = np.zeros(len(self.sites))
        np.add.at(found, np.asarray(at, dtype=np.intp), self.load)
        return found

    def fits(self, loads: Floats) -> bool:
        """Whether no site has more than its capacity."""
        return bool((loads <= self.room * (1 + SLACK)).all())

    def keeps(self, at: Sequence[int] | Ints, bound: float | None) -> bool:
        """Whether a placement keeps to a latency bound and to all capacities."""
        return within(self.latency(at), bound) and (self.is_roomy or self.fits(self.loads(at)))

    def everywhere(self) -> tuple[Ints, ...]:
        """By part the sites where it may run."""
        anywhere = np.arange(len(self.sites))
        return tuple(anywhere if home is None else np.array([home]) for home in self.home)


def arrays_of(
    parts: Sequence[Part], flows: Sequence[Flow], network: Network, capacity: Mapping[str, float], order: Sequence[str]
) -> Arrays:
    """The numbers of a problem whose names are known to be right."""
    position = {part.name: number for number, part in enumerate(parts)}
    site = {name: number for number, name in enumerate(network.sites)}
    delay = np.array(network.latency_ms, dtype=np.float64).reshape(len(site), len(site))
    np.fill_diagonal(delay, 0.0)
    load = np.array([part.load for part in parts], dtype=np.float64)
    room = np.array([capacity.get(name, math.inf) for name in network.sites], dtype=np.float64)
    for array in (delay, load, room):
        array.flags.writeable = False
    return Arrays(
        tuple(position),
        network.sites,
        delay,
        tuple(None if part.home is None else site[part.home] for part in parts),
        tuple(position[name] for name in order),
        _by_part(flows, position, lambda flow: (flow.target, flow.source)),
        _by_part(flows, position, lambda flow: (flow.source, flow.target)),
        load,
        room,
    )


def _by_part(
    flows: Sequence[Flow], position: Mapping[str, int], ends: Callable[[Flow], tuple[str, str]]
) -> tuple[tuple[tuple[int, float], ...], ...]:
    found: list[dict[int, float]] = [{} for _ in position]
    for flow in flows:
        near, far = (position[name] for name in ends(flow))
        found[near][far] = max(flow.bytes_per_s, found[near].get(far, 0.0))
    return tuple(tuple(others.items()) for others in found)
