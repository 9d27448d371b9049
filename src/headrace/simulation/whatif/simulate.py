"""A pipeline simulated: set up from its file and what is known of its runs, played, and searched for its limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import SpecError
from headrace.model import Pipeline
from headrace.planning import Recorded, Workload, plan_pipeline, with_kept
from headrace.simulation.whatif.arriving import rates_of
from headrace.simulation.whatif.machine import Machine, guessed_machine, measured_machine
from headrace.simulation.whatif.predicted import Prediction, predict
from headrace.simulation.whatif.scenario import Rate, Scenario
from headrace.simulation.whatif.world import World, play
from headrace.units import SECOND_US

__all__ = ["Found", "Setup", "find_hosts", "find_rate", "set_up", "simulate"]

# Hosts where neither a run nor the user says how many there are; `explain` takes as many for granted.
HOSTS = 4
# Beyond so many times its rate, or so many hosts, nothing is searched.
MOST_TIMES, MOST_FOUND = 2.0**20, 1024
# A rate is found to within this part of it.
NEAR = 0.02


@dataclass(frozen=True)
class Setup:
    """A pipeline with its graph, its machine, and what was guessed of them."""

    pipeline: Pipeline
    workload: Workload
    machine: Machine
    recorded: Recorded | None
    guesses: tuple[str, ...]


def set_up(pipeline: Pipeline, recorded: Recorded | None = None, hosts: int | None = None) -> Setup:
    """The graph as the engine would build it, and what its nodes cost: measured, or guessed where nothing ran."""
    if apart := pipeline.born_apart:
        raise SpecError(
            f"{apart}: several sites cannot be simulated; `headrace explain` says where operators would run"
        )
    pipeline = replace(pipeline, queries=tuple(with_kept(query, pipeline.engine) for query in pipeline.queries))
    workload, refused = plan_pipeline(pipeline)
    if not workload.queries:
        raise SpecError(f"pipeline '{pipeline.name}' has no query to simulate")
    rates, guesses = rates_of(pipeline.streams, recorded)
    guesses += [f"query '{name}' is not run: {why}" for name, why in refused.items()]
    if recorded is None:
        if hosts is None:
            guesses.append(f"nobody says how many hosts there are: {HOSTS} (--hosts)")
        machine = guessed_machine(workload, rates, hosts or HOSTS)
    else:
        machine = measured_machine(recorded, workload, rates, pipeline.engine.trigger_us / SECOND_US)
    return Setup(pipeline, workload, machine, recorded, (*guesses, *machine.guesses))


def simulate(setup: Setup, scenario: Scenario) -> Prediction:
    """What would happen; the same arguments give the same."""
    world = World(setup.pipeline, setup.workload, setup.machine, scenario, setup.recorded)
    beats = play(world, scenario.minutes)
    return predict(setup.pipeline, world, scenario, beats, (*setup.guesses, *world.guesses))


@dataclass(frozen=True)
class Found:
    """The limit that was searched for: a scenario whose prediction holds its lag, or the last that was tried."""

    scenario: Scenario
    prediction: Prediction
    holds: bool
    tried: int


def find_rate(setup: Setup, scenario: Scenario) -> Found:
    """The highest rate that holds its lag, to within 2 %."""
    known = scenario.rate.of(setup.machine.rates)
    base = sum(known.values()) / (sum(setup.machine.rates.values()) or 1.0)

    def at(times: float) -> Scenario:
        return replace(scenario, rate=Rate(times))

    tried = _Tried(setup)
    low, high = 0.0, base
    while high < MOST_TIMES * base and tried.holds(at(high)):
        low, high = high, 2 * high
    while not low and high > base / MOST_TIMES and not tried.holds(at(high)):
        low, high = (high / 2, high) if tried.holds(at(high / 2)) else (0.0, high / 2)
    while low and high - low > NEAR * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tried.holds(at(middle)) else (low, middle)
    return tried.found(at(low or high))


def find_hosts(setup: Setup, scenario: Scenario) -> Found:
    """The fewest hosts that hold the lag; slow ones are among them."""
    least = max(scenario.slow, default=0) + 1

    def at(hosts: int) -> Scenario:
        return replace(scenario, hosts=hosts)

    tried = _Tried(setup)
    low, high = least - 1, least
    while high < MOST_FOUND and not tried.holds(at(high)):
        low, high = high, min(MOST_FOUND, 2 * high)
    while high - low > 1 and tried.holds(at(high)):
        middle = (low + high) // 2
        low, high = (low, middle) if tried.holds(at(middle)) else (middle, high)
    return tried.found(at(high))


class _Tried:
    """Scenarios that were played, each once."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self._known = setup, list[tuple[Scenario, Prediction]]()

    def holds(self, scenario: Scenario) -> bool:
        return self._played(scenario).holds

    def found(self, scenario: Scenario) -> Found:
        prediction = self._played(scenario)
        return Found(scenario, prediction, prediction.holds, len(self._known))

    def _played(self, scenario: Scenario) -> Prediction:
        for known, prediction in self._known:
            if known == scenario:
                return prediction
        self._known.append((scenario, simulate(self._setup, scenario)))
        return self._known[-1][1]
