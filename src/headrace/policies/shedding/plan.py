"""Plans: what a place keeps, what all places of a network keep, and the outcome, computed from the network alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, from_json, to_json
from headrace.policies.shedding.network import Network, Place, Port, rate_at
from headrace.policies.shedding.objective import Fair, Objective

__all__ = ["InputPlan", "Outcome", "PlacePlan", "Plan", "load_of", "outcome", "place_plan"]


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input, in rows per second: rows that arrive, rows that are taken, rows that enter each branch."""

    input: str
    arriving: Amount
    taken: Amount
    branches: tuple[Amount, ...]

    @property
    def keep(self) -> Amount:
        """The fraction of the arriving rows that is taken, 0 to 1."""
        return _fraction(self.taken, self.arriving)

    @property
    def keep_branches(self) -> tuple[Amount, ...]:
        """The fraction of the taken rows that enters each branch, 0 to 1."""
        return tuple(_fraction(rate, self.taken) for rate in self.branches)


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """What a place keeps of each of its inputs, in their order, and why."""

    place: str
    inputs: tuple[InputPlan, ...]
    reason: str

    @property
    def taken(self) -> tuple[Amount, ...]:
        """Rows per second taken of each input."""
        return tuple(each.taken for each in self.inputs)

    @property
    def branches(self) -> tuple[Amount, ...]:
        """Rows per second that enter each branch, in the order of `Place.branches`."""
        return tuple(rate for each in self.inputs for rate in each.branches)

    @property
    def sheds(self) -> bool:
        """Whether any row is dropped at an input or at a branch."""
        return any(rate < each.arriving for each in self.inputs for rate in each.branches)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        inputs = [
            [each.input, to_json(each.arriving), to_json(each.taken), [to_json(rate) for rate in each.branches]]
            for each in self.inputs
        ]
        return {"place": self.place, "inputs": inputs, "reason": self.reason}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PlacePlan:
        """The plan that was written."""
        inputs = (
            InputPlan(name, from_json(arriving), from_json(taken), tuple(map(from_json, rates)))
            for name, arriving, taken, rates in value["inputs"]
        )
        return cls(value["place"], tuple(inputs), value["reason"])


def place_plan(place: Place, arriving: Sequence[Amount], branches: Sequence[Amount], reason: str) -> PlacePlan:
    """The plan with these rows per second into the branches: of each input, as many are taken as its busiest branch."""
    found = []
    for each, rate, (start, stop) in zip(place.inputs, arriving, place.spans, strict=True):
        mine = tuple(branches[start:stop])
        found.append(InputPlan(each.name, rate, max(mine), mine))
    return PlacePlan(place.name, tuple(found), reason)


def _fraction(part: Amount, whole: Amount) -> Amount:
    one = type(part)(1)
    return min(part / whole, one) if whole else one


@dataclass(frozen=True)
class Plan:
    """What every place keeps, which strategy made the plan, and why.

    `bound` is the most that any plan can be worth; None if the strategy does not know.
    """

    strategy: str
    places: Mapping[str, PlacePlan]
    reason: str
    bound: Amount | None = None


@dataclass(frozen=True)
class Outcome:
    """What a plan leads to; a plan without problems is feasible.

    loads     the load of each place, in units of its capacity
    scores    rows per second that reach the answers of each query
    shares    the least share of its rows that any branch of a query gets, 0 to 1
    worth     what the objective makes of the scores or shares
    """

    loads: Mapping[str, Amount]
    scores: Mapping[str, Amount]
    shares: Mapping[str, Amount]
    worth: Amount
    problems: tuple[str, ...] = field(default=())


def load_of(place: Place, taken: Sequence[Amount], branches: Sequence[Amount]) -> Amount:
    """The capacity that the taken rows and the rows in branches use."""
    before: Amount = sum(each.cost * rate for each, rate in zip(place.inputs, taken, strict=True))
    return before + sum(branch.cost * rate for (_, branch), rate in zip(place.branches, branches, strict=True))


def outcome(network: Network, rates: Mapping[Port, Amount], plan: Plan, objective: Objective) -> Outcome:
    """Judges a plan by the network alone: what arrives at a place is what its parents send, whoever made the plan."""
    arriving: dict[Port, Amount] = {port: rate_at(rates, port) for port in network.sources}
    full = dict(arriving)
    found = _Found()
    for name in network.in_order:
        place, kept = network.by_name[name], plan.places[name]
        found.loads[name] = load_of(place, kept.taken, kept.branches)
        if found.loads[name] > place.capacity + FLOAT_SLACK * 10 * float(place.capacity):
            found.problems.append(f"place '{name}' has load {float(found.loads[name]):.6g} of {place.capacity}")
        for number, each in enumerate(place.inputs):
            port = Port(name, each.name)
            found.check(f"input '{each.name}' of '{name}'", kept.taken[number], arriving[port])
        for (number, branch), rate in zip(place.branches, kept.branches, strict=True):
            port = Port(name, place.inputs[number].name)
            found.check(f"branch '{branch.name}' of '{name}'", rate, kept.taken[number])
            if branch.never and rate < full[port] * (1 - FLOAT_SLACK * 10):
                found.problems.append(f"branch '{branch.name}' of '{name}' loses rows, which it must never")
            if branch.child is not None:
                arriving[branch.child] = rate * branch.selectivity
                full[branch.child] = full[port] * branch.selectivity
            for query in branch.queries:
                share = rate / full[port] if full[port] else Fraction(1)
                found.scores[query] = found.scores.get(query, Fraction(0)) + rate * branch.selectivity
                found.shares[query] = min(found.shares.get(query, share), share)
    worth = _worth(network, plan, objective, full)
    return Outcome(found.loads, found.scores, found.shares, worth, tuple(found.problems))


class _Found:
    def __init__(self) -> None:
        self.loads: dict[str, Amount] = {}
        self.scores: dict[str, Amount] = {}
        self.shares: dict[str, Amount] = {}
        self.problems: list[str] = []

    def check(self, what: str, rate: Amount, most: Amount) -> None:
        if not -FLOAT_SLACK <= rate <= most + FLOAT_SLACK * 10 * (1 + most):
            self.problems.append(f"{what} takes {float(rate):.6g} rows/s of {float(most):.6g}")


def _worth(network: Network, plan: Plan, objective: Objective, full: Mapping[Port, Amount]) -> Amount:
    worths: list[Amount] = []
    for place in network.places:
        for (number, branch), rate in zip(place.branches, plan.places[place.name].branches, strict=True):
            each = place.inputs[number]
            if not branch.queries:
                continue
            if not isinstance(objective, Fair):
                worths.append(rate * branch.selectivity * objective.row_worth(branch.queries, each.stream))
            elif owed := full[Port(place.name, each.name)] * objective.weight(branch.queries):
                worths.append(rate / owed)
    return min(worths, default=Fraction(1)) if isinstance(objective, Fair) else sum(worths, Fraction(0))
