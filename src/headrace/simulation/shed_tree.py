"""A tree of places under a burst, in slices of time: who sheds what, when, and what reaches the answers.

    rates ─▶ root ──latency──▶ child ──latency──▶ leaf ─▶ answers
             keeps what its plan says; rows beyond its capacity are lost whether a plan says so or not

The plans come from `policies.shedding`. A place that plans by itself sees the rates of the slice before. A coordinator
sees what places report, late by the way to it, and its plan is late by the way back.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.policies.shedding import Branch, Input, Network, Place, PlacePlan, Plan, Port, load_of, offered

__all__ = [
    "Burst",
    "Second",
    "drifted",
    "judged",
    "levels_of",
    "pass_rows",
    "play_burst",
    "report_bytes",
    "shedding_tree",
]

# Streams that enter at the root; every place has an input for each.
STREAMS = 2
# The load of a place before the burst, if nothing is shed, as a share of its capacity.
CALM_LOAD = (0.4, 0.9)
# Rows per second of a stream before the burst.
CALM_RATES = (100.0, 1000.0)

# What a place keeps of what arrives: from the place, what arrives per second and the time, in seconds.
Decide = Callable[[Place, Sequence[float], float], PlacePlan | None]


def shedding_tree(rng: random.Random, depth: int, branching: int) -> tuple[Network, dict[Port, float]]:
    """A tree of so many levels below the root, and the rates at the root at which no place sheds.

    Every input of a place splits to all children of the place; leaves answer queries. Costs differ by a factor of up to
    twenty.
    """
    places: list[Place] = []

    def grow(name: str, level: int) -> None:
        children = [f"{name}.{number}" for number in range(branching)] if level < depth else []
        inputs = []
        for stream in range(STREAMS):
            ways = [Branch(child, _cost(rng), rng.uniform(0.3, 1.0), Port(child, f"i{stream}")) for child in children]
            ways = ways or [Branch("answers", _cost(rng), 1.0, queries=(f"{name}/{stream}",))]
            inputs.append(Input(f"i{stream}", tuple(ways), cost=_cost(rng)))
        places.append(Place(name, tuple(inputs), 1.0))
        for child in children:
            grow(child, level + 1)

    grow("p", 0)
    network = Network(tuple(places))
    rates = {port: rng.uniform(*CALM_RATES) for port in network.sources}
    comes = offered(network, rates)
    sized = (replace(place, capacity=_load(place, comes) / rng.uniform(*CALM_LOAD)) for place in places)
    return Network(tuple(sized)), rates


def _cost(rng: random.Random) -> float:
    return float(20.0 ** rng.uniform(-1, 0))


def _load(place: Place, comes: Mapping[Port, object]) -> float:
    arriving = [float(comes[Port(place.name, each.name)]) for each in place.inputs]  # type: ignore[arg-type]
    return float(load_of(place, arriving, [arriving[number] for number, _ in place.branches]))


def drifted(rng: random.Random, network: Network, by: float) -> Network:
    """The network with all costs changed by random factors; `by` is the spread of their logarithms."""

    def changed(place: Place) -> Place:
        inputs = (
            replace(
                each, branches=tuple(replace(b, cost=float(b.cost) * math.exp(rng.gauss(0, by))) for b in each.branches)
            )
            for each in place.inputs
        )
        return replace(place, inputs=tuple(inputs))

    return Network(tuple(changed(place) for place in network.places))


def levels_of(network: Network) -> dict[str, int]:
    """How many links each place is away from the root."""
    found: dict[str, int] = {}
    for name in network.in_order:
        found[name] = 1 + found[network.parents[name][0]] if network.parents[name] else 0
    return found


def pass_rows(place: Place, arriving: Sequence[float], plan: PlacePlan | None) -> list[float]:
    """Rows per second into each branch: what the plan keeps, and of that, in equal parts, what the capacity carries."""
    taken, flows = list(arriving), [arriving[number] for number, _ in place.branches]
    if plan is not None:
        taken = [rate * float(kept.keep) for rate, kept in zip(arriving, plan.inputs, strict=True)]
        parts = [float(part) for kept in plan.inputs for part in kept.keep_branches]
        flows = [taken[number] * part for (number, _), part in zip(place.branches, parts, strict=True)]
    load = float(load_of(place, taken, flows))
    room = min(1.0, float(place.capacity) / load) if load else 1.0
    return [flow * room for flow in flows]


def judged(network: Network, rates: Mapping[Port, float], plan: Plan) -> float:
    """Rows per second that reach answers if places keep what a plan says, made for this network or for another."""
    arriving: dict[Port, float] = dict(rates)
    reached = 0.0
    for name in network.in_order:
        place = network.by_name[name]
        comes = [arriving[Port(name, each.name)] for each in place.inputs]
        for (_, branch), flow in zip(place.branches, pass_rows(place, comes, plan.places[name]), strict=True):
            if branch.child is not None:
                arriving[branch.child] = flow * float(branch.selectivity)
            else:
                reached += flow * float(branch.selectivity)
    return reached


@dataclass(frozen=True)
class Burst:
    """When the rates at the root are multiplied, by what, and how long one slice and a link's latency are."""

    at_s: float = 1.3
    times: float = 3.0
    until_s: float = 6.0
    slice_s: float = 0.05
    latency_s: float = 0.05


@dataclass(frozen=True)
class Second:
    """Rows per second that reach answers at a time; those that belong to the burst are on their way for a while."""

    at_s: float
    worth: float


def play_burst(network: Network, rates: Mapping[Port, float], burst: Burst, decide: Decide) -> tuple[Second, ...]:
    """What reaches answers slice by slice, if every place keeps what is decided for the rates of the slice before."""
    slices, late = round(burst.until_s / burst.slice_s), max(1, round(burst.latency_s / burst.slice_s))
    # By input, what arrives in the coming slices, the next one first.
    coming: dict[Port, list[float]] = {}
    for port, rate in offered(network, rates).items():
        coming[port] = [float(rate)] * (late + 1)
    before = {
        name: [coming[Port(name, each.name)][0] for each in network.by_name[name].inputs] for name in network.by_name
    }
    found = []
    for number in range(slices):
        now = number * burst.slice_s
        reached = 0.0
        for name in network.in_order:
            place = network.by_name[name]
            ports = [Port(name, each.name) for each in place.inputs]
            for port in ports:
                if port in rates:
                    coming[port][0] = rates[port] * (burst.times if now >= burst.at_s - 1e-9 else 1.0)
            arriving = [coming[port][0] for port in ports]
            flows = pass_rows(place, arriving, decide(place, before[name], now))
            before[name] = arriving
            for (_, branch), flow in zip(place.branches, flows, strict=True):
                if branch.child is None:
                    reached += flow * float(branch.selectivity)
                else:
                    coming[branch.child][late] = flow * float(branch.selectivity)
        for queue in coming.values():
            queue.append(queue[-1])
            queue.pop(0)
        found.append(Second(round(now, 9), reached))
    return tuple(found)


def report_bytes(place: Place) -> int:
    """Bytes of what a place reports to a coordinator: its costs, selectivities and rates."""
    return len(json.dumps({**place.to_json(), "rates": [0.123456789] * len(place.inputs)}))
