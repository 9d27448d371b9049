"""Whether operators should move now that rates or latencies have changed: stay, wait, or change.

Moving is paid in the same coin as running: state bytes times milliseconds, spread over a horizon in which the new rates
are expected to last. So the best placement to change to is that of least

    cost(placement) + sum over moved parts of  state bytes * delay(old site, new site) / horizon

and a part with much state stays where a part with little state moves.

Noise never pays. Say each flow's bytes times milliseconds are within a share e of their mean. The present placement
was the best to change to by one set of such numbers; then by any other set no change costs less, the moving included,
than ((1 - e) / (1 + e)) ** 2 of what the present placement costs. So a change must promise to cost less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.model import Stay
from headrace.policies.placement.arrays import Arrays, Floats
from headrace.policies.placement.least_cost import place_at_least_cost
from headrace.policies.placement.problem import Infeasible, Placement, Problem
from headrace.policies.placement.search import total_cost
from headrace.units import format_bytes

__all__ = ["Change", "Reluctance", "Wait", "reconsider"]


@dataclass(frozen=True, slots=True)
class Change:
    """These parts move, with so many bytes of state, and all run as placed."""

    placement: Placement
    moved: tuple[str, ...]
    moved_bytes: float
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A change would pay, and has paid for so many rounds in a row; too few as yet."""

    rounds: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reluctance:
    """How much must speak for a change.

    `noise` is the share by which a flow's bytes times milliseconds may be wrong; `rounds` how many times in a row a
    change must pay, so that a burst that is over by then moves nothing.
    """

    noise: float = 0.05
    rounds: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise is a share from 0 up to 1, not {self.noise}")
        if self.rounds < 1:
            raise ValueError(f"a change takes 1 round or more, not {self.rounds}")

    @property
    def ceiling(self) -> float:
        """The share of the present cost below which a new cost cannot be explained by noise."""
        return ((1 - self.noise) / (1 + self.noise)) ** 2


def reconsider(
    current: Mapping[str, str],
    problem: Problem,
    state_bytes: Mapping[str, float],
    horizon_s: float,
    reluctance: Reluctance | None = None,
    *,
    waited: int = 0,
    strategy: Callable[[Problem], Placement | Infeasible] | None = None,
) -> Stay | Wait | Change:
    """Decides by the rates and latencies of `problem` whether parts leave their current sites.

    `waited` is the number of rounds in the last answer if that was `Wait`, else 0. Without a strategy the change is
    chosen that is best with the moving paid for; a strategy chooses without regard to it, and is then judged alike.
    """
    if not horizon_s > 0:
        raise ValueError(f"a horizon is longer than 0 seconds, not {horizon_s}")
    reluctance = reluctance or Reluctance()
    arrays = problem.arrays
    homeless = _homeless(current, problem)
    if homeless:
        return _forced(problem, current, state_bytes, f"no site for {', '.join(homeless)}", strategy)
    at = problem.positions(current)
    charges = _charges(arrays, at, state_bytes, horizon_s)
    found = place_at_least_cost(problem, [at], charges) if strategy is None else strategy(problem)
    faults = "; ".join(problem.faults_of(current))
    if isinstance(found, Infeasible):
        return Stay(f"{faults}, but {found.reason}" if faults else found.reason)
    if not _moved(current, found):
        return Stay("no other placement is cheaper, with the moving paid for")
    now = arrays.cost(at)
    then = total_cost(arrays, problem.positions(found.sites), charges)
    if not faults and then >= now * reluctance.ceiling:
        return Stay(f"{_saving(now, then)}, and up to {1 - reluctance.ceiling:.0%} may be noise")
    why = faults or f"{_saving(now, then)} over {horizon_s:.6g} s"
    if waited + 1 < reluctance.rounds:
        return Wait(waited + 1, f"{why}, for {waited + 1} of {reluctance.rounds} rounds")
    return _change(current, found, state_bytes, why)


def _saving(now: float, then: float) -> str:
    share = (now - then) / now if now > 0 else 0.0
    return f"moving saves {share:.1%} of the cost" if share > 0 else "moving saves nothing"


def _homeless(current: Mapping[str, str], problem: Problem) -> list[str]:
    """Parts that have no site any more, or none yet, or are at home elsewhere."""
    sites = set(problem.network.sites)
    return [
        part.name
        for part in problem.parts
        if current.get(part.name) not in sites or part.home not in (None, current[part.name])
    ]


def _charges(arrays: Arrays, at: list[int], state_bytes: Mapping[str, float], horizon_s: float) -> list[Floats | None]:
    """By part and site what moving there costs, spread over the horizon."""
    return [
        arrays.delay[site] * (state_bytes.get(name, 0.0) / horizon_s) if home is None else None
        for name, site, home in zip(arrays.names, at, arrays.home, strict=True)
    ]


def _forced(
    problem: Problem,
    current: Mapping[str, str],
    state_bytes: Mapping[str, float],
    why: str,
    strategy: Callable[[Problem], Placement | Infeasible] | None,
) -> Stay | Change:
    """All is placed anew at once: parts that run nowhere cannot wait."""
    found = (strategy or place_at_least_cost)(problem)
    if isinstance(found, Infeasible):
        return Stay(f"{why}, but {found.reason}")
    return _change(current, found, state_bytes, why)


def _moved(current: Mapping[str, str], found: Placement) -> tuple[str, ...]:
    return tuple(name for name, site in found.sites.items() if current.get(name) != site)


def _change(current: Mapping[str, str], found: Placement, state_bytes: Mapping[str, float], why: str) -> Change:
    moved = _moved(current, found)
    size = sum(state_bytes.get(name, 0.0) for name in moved if name in current)
    return Change(found, moved, size, f"{why}; {format_bytes(int(size))} of state move")
