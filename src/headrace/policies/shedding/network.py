"""Where load is shed: places with a capacity, their inputs, and the branches that rows take inside a place.

                        ┌ branch: cost, selectivity ─▶ an input of a child
    input ── cost ── split
                        └ branch: cost, selectivity ─▶ answers of queries

A place is anything with a capacity of its own: a site, a link, a simulated host (the paper says node). The places that
it feeds are its children. A cost is capacity per row: rows that arrive at rate r and cost c use r * c of the capacity.
Rows dropped at an input cost nothing. Rows dropped at a branch have already paid the cost before the split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from headrace.policies.shedding.amounts import Amount, amount, are_exact, from_json, to_json

__all__ = ["Branch", "Input", "Network", "Place", "Port", "expected", "link", "offered", "rate_at"]


class Port(NamedTuple):
    """An input of a place."""

    place: str
    input: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A path from an input to one input of a child, or to the answers of queries.

    `cost` is per row that enters, `selectivity` is rows out per row in. The selectivity of an aggregate is 1, however
    few rows it writes, because scores count the rows that reach answers. A branch with `never` keeps all its rows.
    """

    name: str
    cost: Amount
    selectivity: Amount = Fraction(1)
    child: Port | None = None
    queries: tuple[str, ...] = ()
    never: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", amount(self.cost, f"the cost of branch '{self.name}'"))
        object.__setattr__(self, "selectivity", amount(self.selectivity, f"the selectivity of branch '{self.name}'"))
        object.__setattr__(self, "queries", tuple(self.queries))
        if self.child is not None:
            object.__setattr__(self, "child", Port(*self.child))
        if (self.child is None) == (not self.queries):
            raise ValueError(f"branch '{self.name}' leads either to a child or to queries; give it one of the two")


@dataclass(frozen=True, slots=True)
class Input:
    """Rows that arrive and are dropped together: those of a stream, or of the streams of a join that is shed by key.

    `cost` is what a row costs before the split. `stream` names the stream whose weight counts, by default `name`.
    """

    name: str
    branches: tuple[Branch, ...]
    cost: Amount = Fraction(0)
    stream: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", amount(self.cost, f"the cost of input '{self.name}'"))
        object.__setattr__(self, "branches", tuple(self.branches))
        object.__setattr__(self, "stream", self.stream or self.name)
        if not self.branches:
            raise ValueError(f"input '{self.name}' leads nowhere; give it a branch")
        names = [branch.name for branch in self.branches]
        if len(set(names)) != len(names):
            raise ValueError(f"input '{self.name}' has two branches of one name: {', '.join(names)}")
        for branch in self.branches:
            if branch.queries and not self.cost + branch.cost:
                raise ValueError(
                    f"branch '{branch.name}' of input '{self.name}' costs nothing, so nothing says how many rows it "
                    "can take; give the branch or the input a cost"
                )


@dataclass(frozen=True)
class Place:
    """A capacity, in units of cost per second, and the inputs that share it.

    If one of its numbers is a float, all are.
    """

    name: str
    inputs: tuple[Input, ...]
    capacity: Amount = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", amount(self.capacity, f"the capacity of '{self.name}'", positive=True))
        object.__setattr__(self, "inputs", tuple(self.inputs))
        names = [each.name for each in self.inputs]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"place '{self.name}' needs at least one input, and no two of one name, not {names}")
        if not are_exact([self.capacity, *(number for each in self.inputs for number in _numbers(each))]):
            object.__setattr__(self, "capacity", float(self.capacity))
            object.__setattr__(self, "inputs", tuple(map(_as_floats, self.inputs)))

    @cached_property
    def branches(self) -> tuple[tuple[int, Branch], ...]:
        """All branches in order, each with the number of its input."""
        return tuple((number, branch) for number, each in enumerate(self.inputs) for branch in each.branches)

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """For each input, where its branches start and stop among all branches."""
        stops = list(accumulate(len(each.branches) for each in self.inputs))
        return tuple(zip([0, *stops], stops, strict=False))

    @property
    def exact(self) -> bool:
        """Whether all numbers are fractions."""
        return isinstance(self.capacity, Fraction)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        return {
            "name": self.name,
            "capacity": to_json(self.capacity),
            "inputs": [
                {
                    "name": each.name,
                    "cost": to_json(each.cost),
                    "stream": each.stream,
                    "branches": [
                        {
                            "name": branch.name,
                            "cost": to_json(branch.cost),
                            "selectivity": to_json(branch.selectivity),
                            "child": None if branch.child is None else list(branch.child),
                            "queries": list(branch.queries),
                            "never": branch.never,
                        }
                        for branch in each.branches
                    ],
                }
                for each in self.inputs
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Place:
        """
        >>> place = Place("hub", (Input("a", (Branch("q", 0.5, queries=("q",)),)),))
        >>> Place.from_json(place.to_json()) == place
        True
        """

        def branch(found: Mapping[str, Any]) -> Branch:
            child = None if found["child"] is None else Port(*found["child"])
            numbers = from_json(found["cost"]), from_json(found["selectivity"])
            return Branch(found["name"], *numbers, child, tuple(found["queries"]), found["never"])

        return cls(
            value["name"],
            tuple(
                Input(each["name"], tuple(map(branch, each["branches"])), from_json(each["cost"]), each["stream"])
                for each in value["inputs"]
            ),
            from_json(value["capacity"]),
        )


def _numbers(each: Input) -> list[Amount]:
    return [each.cost, *(value for branch in each.branches for value in (branch.cost, branch.selectivity))]


def _as_floats(each: Input) -> Input:
    branches = (replace(b, cost=float(b.cost), selectivity=float(b.selectivity)) for b in each.branches)
    return replace(each, cost=float(each.cost), branches=tuple(branches))


@dataclass(frozen=True)
class Network:
    """Places that feed each other without a cycle; an input that no branch feeds takes rows from outside."""

    places: tuple[Place, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", tuple(self.places))
        if len(self.by_name) != len(self.places):
            raise ValueError(f"two places have one name: {', '.join(place.name for place in self.places)}")
        ports = {Port(place.name, each.name) for place in self.places for each in place.inputs}
        fed = [branch.child for place in self.places for _, branch in place.branches if branch.child is not None]
        for port in fed:
            if port not in ports:
                raise ValueError(
                    f"a branch leads to input '{port.input}' of place '{port.place}', which does not exist"
                )
        if len(set(fed)) != len(fed):
            twice = next(port for port in fed if fed.count(port) > 1)
            raise ValueError(f"two branches lead to {twice}; give each branch an input of its own")
        _ = self.in_order

    @cached_property
    def by_name(self) -> Mapping[str, Place]:
        """The places by their names."""
        return {place.name: place for place in self.places}

    @cached_property
    def feeders(self) -> Mapping[Port, tuple[str, int]]:
        """For every input that a branch feeds: the place of that branch, and the number of the branch there."""
        return {
            branch.child: (place.name, number)
            for place in self.places
            for number, (_, branch) in enumerate(place.branches)
            if branch.child is not None
        }

    @cached_property
    def sources(self) -> tuple[Port, ...]:
        """The inputs whose rows come from outside."""
        ports = (Port(place.name, each.name) for place in self.places for each in place.inputs)
        return tuple(port for port in ports if port not in self.feeders)

    @cached_property
    def in_order(self) -> tuple[str, ...]:
        """All places, parents before children; ValueError if there is a cycle."""
        waiting = {place.name: len(self.parents[place.name]) for place in self.places}
        ready = [name for name, count in waiting.items() if not count]
        for name in ready:
            for child in self.children[name]:
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        if len(ready) < len(self.places):
            raise ValueError(f"places feed each other in a circle: {sorted(set(waiting) - set(ready))}")
        return tuple(ready)

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """For each place, the places that feed it."""
        found: dict[str, dict[str, None]] = {place.name: {} for place in self.places}
        for port, (feeder, _) in self.feeders.items():
            found[port.place][feeder] = None
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """For each place, the places that it feeds."""
        found: dict[str, dict[str, None]] = {place.name: {} for place in self.places}
        for port, (feeder, _) in self.feeders.items():
            found[feeder][port.place] = None
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def shared(self) -> frozenset[str]:
        """Places with several parents, rows from outside counting as a parent."""
        outside = {port.place for port in self.sources}
        return frozenset(name for name, parents in self.parents.items() if len(parents) + (name in outside) > 1)

    @cached_property
    def never(self) -> frozenset[tuple[str, int]]:
        """Branches (place, number) that must keep all rows, because they or a branch downstream say `never`."""
        found: set[tuple[str, int]] = set()
        ports: set[Port | None] = set()
        for name in reversed(self.in_order):
            place = self.by_name[name]
            for number, (of, branch) in enumerate(place.branches):
                if branch.never or branch.child in ports:
                    found.add((name, number))
                    ports.add(Port(name, place.inputs[of].name))
        return frozenset(found)


def offered(network: Network, rates: Mapping[Port, Amount]) -> Mapping[Port, Amount]:
    """Rows per second that would arrive at every input if nothing were shed."""
    found: dict[Port, Amount] = {}
    for name in network.in_order:
        place = network.by_name[name]
        for each in place.inputs:
            port = Port(name, each.name)
            if port not in network.feeders:
                found[port] = rate_at(rates, port)
        for number, branch in place.branches:
            if branch.child is not None:
                found[branch.child] = found[Port(name, place.inputs[number].name)] * branch.selectivity
    return found


def expected(network: Network, rates: Mapping[Port, Amount]) -> Mapping[Port, Amount]:
    """The highest rate that can arrive at every input, given the rates from outside and the capacities on the way."""
    found: dict[Port, Amount] = {port: rate_at(rates, port) for port in network.sources}
    for name in network.in_order:
        place = network.by_name[name]
        for number, branch in place.branches:
            if branch.child is not None:
                arrives, cost = found[Port(name, place.inputs[number].name)], place.inputs[number].cost + branch.cost
                found[branch.child] = min([arrives, *([place.capacity / cost] if cost else [])]) * branch.selectivity
    return found


def rate_at(rates: Mapping[Port, Amount], port: Port) -> Amount:
    """The rate at an input; ValueError if it is missing."""
    if port not in rates:
        raise ValueError(f"no rate for input '{port.input}' of place '{port.place}', which takes rows from outside")
    return amount(rates[port], f"the rate at {port}")


def link(name: str, bytes_per_row: Mapping[Port, Amount], bytes_per_s: Amount) -> Place:
    """Bandwidth as one more operator of selectivity 1, with a capacity of its own (section 4 of the paper).

    The link has an input for each input that it leads to, named `place.input`.

    >>> wire = link("wire", {Port("hub", "a"): 200.0}, 1e6)
    >>> wire.inputs[0].name, wire.inputs[0].branches[0].child
    ('hub.a', Port(place='hub', input='a'))
    """
    carried = (Input(".".join(port), (Branch("over", cost, child=port),)) for port, cost in bytes_per_row.items())
    return Place(name, tuple(carried), bytes_per_s)
