"""Where the operators of a pipeline would run, and what the baseline and the optimum would cost beside that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.model import Pipeline
from headrace.planning.drawing import flow_table, format_ms
from headrace.planning.placing import ask_placement
from headrace.planning.rates import KnownRates
from headrace.planning.sharing import Workload
from headrace.policies.placement import Infeasible, Placement, Problem
from headrace.policies.placement.strategies import STRATEGIES
from headrace.units import format_bytes

__all__ = ["Placed", "place"]

# What a placement is compared with.
COMPARED = ("warehouse", "optimal")


@dataclass(frozen=True)
class Placed:
    """A pipeline's placement problem, what its strategy made of it, and what others would have."""

    problem: Problem
    strategy: str
    found: Placement | Infeasible
    others: dict[str, Placement | Infeasible]
    guesses: tuple[str, ...] = ()

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
        return "\n".join(lines)

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
    return Placed(problem, strategy, STRATEGIES[strategy](problem), others, guesses)
