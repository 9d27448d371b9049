"""Where the operators of a pipeline would run, and what the baseline and the optimum would cost beside that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.model import Pipeline, Stay
from headrace.planning.drawing import flow_table, format_ms
from headrace.planning.placing import ask_placement
from headrace.planning.rates import KnownRates
from headrace.planning.sharing import Workload
from headrace.policies.placement import (
    Change,
    Infeasible,
    Placement,
    Problem,
    Reluctance,
    Wait,
    reconsider,
)
from headrace.policies.placement.strategies import STRATEGIES
from headrace.units import format_bytes

__all__ = ["Placed", "as_running", "place"]

# What a placement is compared with.
COMPARED = ("warehouse", "optimal")
# Rates are expected to last so long when it is asked whether a change pays.
HORIZON_S = 3600.0


@dataclass(frozen=True)
class Placed:
    """A pipeline's placement problem, what its strategy made of it, and what others would have."""

    problem: Problem
    strategy: str
    found: Placement | Infeasible
    others: dict[str, Placement | Infeasible]
    guesses: tuple[str, ...] = ()
    reconsidered: Stay | Change | None = None  # of a plan that runs, by what was measured

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        if isinstance(self.found, Infeasible):
            return {"strategy": self.strategy, "feasible": False, "why": self.found.reason,
                    "best_latency_ms": self.found.best_latency_ms}  # fmt: skip
        links = self.problem.links_of(self.found.sites)
        return {
            "strategy": self.strategy,
            "feasible": True,
            "why": self.found.reason,
            "guesses": list(self.guesses),
            "sites": dict(self.found.sites),
            "flows": [[f.source, f.target, f.bytes_per_s] for f in self.problem.flows],
            "links": [{"from": a, "to": b, "bytes_per_s": rate} for (a, b), rate in sorted(links.items())],
            "cost": self.found.cost,
            "latency_ms": self.found.latency_ms,
            "compared": {
                name: {
                    "cost": each.cost,
                    "latency_ms": each.latency_ms,
                    "bytes_per_s": self._crossing(each),
                }
                for name, each in self.others.items()
                if isinstance(each, Placement)
            },
            **self._reconsidered(),
        }

    def text(self) -> str:
        """The same for people: what runs where, which flows cross the network, bytes by link, and how it compares."""
        head = f"placement ({self.strategy})"
        if isinstance(self.found, Infeasible):
            return f"{head}\n  impossible: {self.found.reason}"
        lines = [head]
        fixed = {part.name for part in self.problem.parts if part.home is not None}
        for site in self.problem.network.sites:
            there = [name for name, at in self.found.sites.items() if at == site and name not in fixed]
            lines.append(f"  {site} runs {'; '.join(there) or 'nothing'}")
        lines += ["", *(f"  {line}" for line in flow_table(self.problem, self.found, crossing=True).splitlines())]
        for (a, b), rate in sorted(self.problem.links_of(self.found.sites).items()):
            distance = format_ms(self.problem.network.distance_ms(a, b))
            lines.append(f"  from {a} to {b}: {format_bytes(rate)}/s, {distance} by the shortest path")
        lines += ["", *(f"  {self._beside(name, each)}" for name, each in self.others.items())]
        if self.guesses:
            lines += ["  guessed, until a run has measured it (--from CHECKPOINT):"]
            lines += [f"    {guess}" for guess in self.guesses]
        match self.reconsidered:
            case Stay(reason=why):
                lines += ["", f"  what runs stays as it is: {why}"]
            case Change(placement=better, moved=moved, reason=why):
                lines += ["", f"  what runs is placed otherwise: {why}; it does not move by itself"]
                lines += [f"    {name} would move to {better.sites[name]}" for name in moved]
        return "\n".join(lines)

    def _reconsidered(self) -> dict[str, Any]:
        if self.reconsidered is None:
            return {}
        change = self.reconsidered if isinstance(self.reconsidered, Change) else None
        moves = {} if change is None else {name: change.placement.sites[name] for name in change.moved}
        return {"reconsidered": {"pays": change is not None, "why": self.reconsidered.reason, "moves": moves}}

    def _crossing(self, placement: Placement) -> float:
        return sum(self.problem.links_of(placement.sites).values())

    def _beside(self, name: str, other: Placement | Infeasible) -> str:
        """How this placement compares with another."""
        if isinstance(other, Infeasible):
            return f"{name} is impossible: {other.reason}"
        assert isinstance(self.found, Placement)
        ours, theirs = self._crossing(self.found), self._crossing(other)
        saved = f" ({1 - ours / theirs:.0%} less)" if theirs > ours else ""
        what = "if everything were shipped (warehouse)" if name == "warehouse" else f"by {name}"
        ratio = f"; cost {self.found.cost / other.cost:.3g} times that of {name}" if other.cost else ""
        return (
            f"{format_bytes(ours)}/s cross the network instead of {format_bytes(theirs)}/s {what}{saved}{ratio}, "
            f"whose longest path takes {format_ms(other.latency_ms)}"
        )


def place(pipeline: Pipeline, workload: Workload, known: KnownRates | None = None) -> Placed:
    """The placement of a pipeline that has sites, by its strategy."""
    (problem, guesses), strategy = ask_placement(pipeline, workload, known), pipeline.placement.strategy
    others = {name: STRATEGIES[name](problem) for name in COMPARED if name != strategy}
    found = STRATEGIES[strategy](problem)
    running = None if known is None or known.running is None else known.running.sites
    again = None if not running or isinstance(found, Infeasible) else _reconsider(problem, running, strategy)
    return Placed(problem, strategy, found, others, guesses, again)


def _reconsider(problem: Problem, running: Mapping[str, str], strategy: str) -> Stay | Change:
    """Whether what runs would better run elsewhere, its state aside, which nobody has measured."""
    chosen = None if strategy == "optimal" else STRATEGIES[strategy]
    found = reconsider(as_running(problem, running), problem, {}, HORIZON_S, Reluctance(rounds=1), strategy=chosen)
    assert not isinstance(found, Wait)
    return replace(found, reason=found.reason.partition(" over ")[0])


def as_running(problem: Problem, running: Mapping[str, str]) -> dict[str, str]:
    """By part the site where it runs; what a plan did not have, such as a partial aggregate where rows travel, is done
    where it is read.

    >>> from headrace.model import Network
    >>> from headrace.policies.placement import Flow, Part
    >>> net = Network(("paris", "hub"), ((0.0, 12.0), (12.0, 0.0)))
    >>> parts = tuple(Part(name, home) for name, home in (("r@paris", "paris"), ("partial", None), ("answers", "hub")))
    >>> flows = (Flow("r@paris", "partial", 9.0), Flow("partial", "answers", 1.0))
    >>> as_running(Problem(parts, flows, net), {"r@paris": "paris", "answers": "hub"})
    {'answers': 'hub', 'partial': 'hub', 'r@paris': 'paris'}
    """
    found: dict[str, str] = {}
    for name in reversed(problem.in_order):
        home = problem.part(name).home
        readers = (found[flow.target] for flow in problem.flows if flow.source == name)
        known = running.get(name)
        found[name] = home or (known if known in problem.network.sites else None) or next(readers)
    return found
