"""Where operators run: the strategies of the paper on network-aware placement against the optimum.

Edge, Edge+ and In-Network are the distributed versions, as in section 6 of the paper: coordinators and servers that
send each other messages over an overlay, in simulated time. Warehouse and the optimum are computed at one place.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.measure import Say, result
from headrace.bench.placement_run import run_two_sites
from headrace.language import NetworkFile, load_round_trips, load_topology
from headrace.model import Network
from headrace.policies.placement import Flow, Infeasible, Part, Placement, Problem
from headrace.policies.placement.distributed import Variant
from headrace.policies.placement.optimal import optimal
from headrace.policies.placement.warehouse import warehouse
from headrace.simulation.distributed_placement import place_distributed
from headrace.simulation.overlay import Overlay
from headrace.simulation.topologies import (
    PLACEMENTS,
    Averages,
    Ground,
    bounded,
    ground_of,
    plane,
    processing_tree,
    shares_of,
    transit_stub,
)

__all__ = ["bench_placement", "brute_force", "small_problem"]

DISTRIBUTED: tuple[Variant, ...] = ("edge", "edge+", "in-network")
STRATEGIES = ("warehouse", *DISTRIBUTED, "optimal")
# The paper's, in milliseconds: tight and loose; and none.
BOUNDS: tuple[float | None, ...] = (120.0, 300.0, None)
# Graphs, trees for each of them and each source placement, and depths of trees; the paper has 10 graphs and 100 trees.
FULL, QUICK = (10, 3, (3, 4, 5)), (2, 1, (3, 4))
# Sites of the network on which the optimum's time is taken, as many as PlanetLab's, and trees of 31 operators there.
MANY_SITES, TIMED_TREES = 490, 5
# Sums of the same products in another order differ by less than this share.
ROUNDING = 1e-9


def bench_placement(
    quick: bool, say: Say, topologies: Sequence[Path] = (), round_trips: Sequence[Path] = ()
) -> dict[str, Any]:
    """Section 6's settings, and networks from files. Ratios:

    - `optimal_over_brute_force`: the greatest, over small problems with and without bound and capacities; it must be 1.
    - `in_network_over_optimal`: bandwidth of In-Network over the optimum's, on average over the paper's settings.
    - `seconds_490_sites`: of the optimum for 31 operators; on a matrix of round trips with 490 sites if one is given.
    - `bytes_vs_warehouse`: of two sites that run, what shipping everything sends over what the optimal placement does;
      `latency_vs_warehouse` and `rows_vs_warehouse` are ours over the warehouse's.

    Bandwidth is bytes per second times milliseconds, the answers' way to the proxy included; stretch is the longest
    path over the warehouse's. A bound that the warehouse cannot keep is raised to what it needs. Seconds are the
    processor's, so that other work on the machine does not count. `correct`: the optimum equals brute force, no
    strategy beats it, every placement keeps to its problem, and what ran gave the right answers.
    """
    rng = random.Random(5)
    greatest, equal = _judge(random.Random(1), 30 if quick else 150)
    say(f"small problems: the optimum {'equals' if equal else 'DIFFERS from'} brute force")
    files = [_read(path, load) for load, paths in ((load_topology, topologies), (load_round_trips, round_trips))
             for path in paths]  # fmt: skip
    graphs, trees, depths = QUICK if quick else FULL
    settings: dict[str, dict[str, dict[str, float]]] = {}
    sound = True
    grounds = [transit_stub(rng, f"graph {i}") for i in range(graphs)]
    for placement, averages in PLACEMENTS.items():
        for bound, outcomes in _compare(grounds, averages, trees, depths, rng).items():
            settings[f"{placement}, {_said(bound)}"], fine = _table(outcomes)
            sound &= fine
        say(f"{placement}: done")
    paper = [rows["in-network"]["over_optimal"] for rows in settings.values()]
    for ground in files:
        for bound, outcomes in _compare([ground], None, graphs * trees, depths, rng).items():
            settings[f"{ground.name}, {_said(bound)}"], fine = _table(outcomes)
            sound &= fine
        say(f"{ground.name}: done")
    many = next((ground for ground in files if len(ground.network.sites) == MANY_SITES), None)
    timed = _timed(many or plane(rng, MANY_SITES), (None,) if quick else BOUNDS, rng)
    for line in _lines(settings):
        say(line)
    ratios = {
        "optimal_over_brute_force": greatest,
        "in_network_over_optimal": statistics.mean(paper),
        "seconds_490_sites": timed["seconds, no bound"],
    }
    same, ran, measured = run_two_sites(quick, say)
    measures = {"settings": settings, "many_sites": timed, "graphs": graphs, "trees_per_graph": trees, "run": measured}
    return result("placement", equal and sound and same, ratios | ran, measures)


def _said(bound: float | None) -> str:
    return "no bound" if bound is None else f"{bound:.0f} ms"


def _read(path: Path, load: Callable[[Path], NetworkFile]) -> Ground:
    """The largest part of a network file in which every place reaches every other."""
    file = load(path)
    reached = np.isfinite(file.latency_ms)
    inside = np.flatnonzero(reached[reached.sum(axis=1).argmax()])
    names = [file.names[i] for i in inside]
    return ground_of(path.stem, names, file.latency_ms[np.ix_(inside, inside)])


@dataclass(frozen=True)
class _Outcome:
    """One strategy on one tree, beside the optimum and the warehouse; `fault` says what is wrong with it."""

    strategy: str
    over_optimal: float
    bandwidth_ratio: float
    stretch: float
    shares: tuple[float, float, float]
    seconds: float
    messages: int
    fault: str | None


def _compare(
    grounds: Sequence[Ground], averages: Averages | None, trees: int, depths: Sequence[int], rng: random.Random
) -> dict[float | None, list[_Outcome]]:
    """By bound what every strategy makes of the same trees."""
    found: dict[float | None, list[_Outcome]] = {bound: [] for bound in BOUNDS}
    for ground in grounds:
        overlay = Overlay(ground.network)
        for _ in range(trees):
            tree = processing_tree(ground, rng.choice(depths), averages, rng)
            for bound in BOUNDS:
                found[bound] += _outcomes(bounded(tree, bound), overlay, rng)
    return found


def _outcomes(problem: Problem, overlay: Overlay, rng: random.Random) -> Iterator[_Outcome]:
    placed: dict[str, tuple[Placement | Infeasible, float, int]] = {}
    for name, place in (("warehouse", warehouse), ("optimal", optimal)):
        start = time.process_time()
        placed[name] = place(problem), time.process_time() - start, 0
    for strategy in DISTRIBUTED:
        start = time.process_time()
        told = place_distributed(problem, strategy, rng=rng, overlay=overlay)
        placed[strategy] = told.placement, time.process_time() - start, sum(told.messages.values())
    best, base = placed["optimal"][0], placed["warehouse"][0]
    assert isinstance(best, Placement)
    assert isinstance(base, Placement)
    # Where all streams are at the proxy, nothing crosses the network whatever is done.
    if best.cost <= 0:
        return
    for name, (found, seconds, messages) in placed.items():
        if isinstance(found, Infeasible):
            yield _Outcome(name, math.nan, math.nan, math.nan, (0, 0, 0), seconds, messages, found.reason)
            continue
        fault = next(iter(problem.faults_of(found.sites)), None)
        if found.cost < best.cost * (1 - ROUNDING):
            fault = f"{name} costs {found.cost:g}, the optimum {best.cost:g}"
        stretch = found.latency_ms / base.latency_ms
        yield _Outcome(
            name,
            found.cost / best.cost,
            found.cost / base.cost,
            stretch,
            shares_of(problem, found),
            seconds,
            messages,
            fault,
        )


def _table(outcomes: Sequence[_Outcome]) -> tuple[dict[str, dict[str, float]], bool]:
    """By strategy the means, and whether nothing is wrong with any placement."""
    table: dict[str, dict[str, float]] = {}
    for strategy in STRATEGIES:
        mine = [outcome for outcome in outcomes if outcome.strategy == strategy]
        columns = {
            "over_optimal": [each.over_optimal for each in mine],
            "bandwidth_ratio": [each.bandwidth_ratio for each in mine],
            "stretch": [each.stretch for each in mine],
            "at_sources": [each.shares[0] for each in mine],
            "inside": [each.shares[1] for each in mine],
            "at_proxy": [each.shares[2] for each in mine],
            "seconds": [each.seconds for each in mine],
            "messages": [float(each.messages) for each in mine],
        }
        table[strategy] = {name: round(statistics.fmean(values), 4) for name, values in columns.items()}
    return table, not any(outcome.fault for outcome in outcomes)


def _lines(settings: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    """The results as a table."""
    heads = ("over_optimal", "bandwidth_ratio", "stretch", "at_sources", "inside", "at_proxy", "seconds", "messages")
    wide = max(len(name) for name in settings)
    yield f"{'':{wide}}  {'strategy':10}  " + "  ".join(heads)
    for name, rows in settings.items():
        for strategy, row in rows.items():
            cells = "  ".join(f"{row[head]:{len(head)}.{0 if head == 'messages' else 3}f}" for head in heads)
            yield f"{name:{wide}}  {strategy:10}  {cells}"


def _timed(ground: Ground, bounds: Sequence[float | None], rng: random.Random) -> dict[str, Any]:
    """Seconds, at the median, of the optimum for 31 operators."""
    trees = [processing_tree(ground, 5, None, rng) for _ in range(TIMED_TREES)]
    found: dict[str, Any] = {"network": ground.name}
    for bound in bounds:
        seconds = []
        for tree in trees:
            problem = bounded(tree, bound)
            start = time.process_time()
            optimal(problem)
            seconds.append(time.process_time() - start)
        found[f"seconds, {_said(bound)}"] = round(statistics.median(seconds), 4)
    return found


def _judge(rng: random.Random, count: int) -> tuple[float, bool]:
    """The greatest cost of the optimum over brute force's, and whether both agree on all of so many small problems."""
    greatest, equal = 1.0, True
    for number in range(count):
        problem = small_problem(rng, bounded=number % 3 == 1, limited=number % 3 == 2)
        best, found = brute_force(problem), optimal(problem)
        if best is None or isinstance(found, Infeasible):
            equal &= best is None and isinstance(found, Infeasible)
            continue
        ratio = found.cost / best if best > 0 else 1.0 if found.cost <= ROUNDING else math.inf
        greatest = max(greatest, ratio)
        equal &= abs(ratio - 1) <= ROUNDING and not problem.faults_of(found.sites)
    return greatest, equal


def small_problem(rng: random.Random, bounded: bool, limited: bool) -> Problem:
    """A tree of two to four operators on four to six sites; latencies are no metric, some bounds cannot be kept."""
    sites = [f"s{i}" for i in range(rng.randint(4, 6))]
    latency = [[0.0] * len(sites) for _ in sites]
    for i, j in itertools.combinations(range(len(sites)), 2):
        latency[i][j] = latency[j][i] = float(rng.randint(1, 100))
    operators = [f"o{i}" for i in range(rng.randint(2, 4))]
    parts = [Part(name, load=float(rng.randint(1, 3))) for name in operators] + [Part("answers", rng.choice(sites))]
    flows = [Flow(name, ([*operators, "answers"])[rng.randint(i + 1, len(operators))], rng.uniform(0, 9))
             for i, name in enumerate(operators)]  # fmt: skip
    for i in range(rng.randint(2, 4)):
        parts.append(Part(f"stream {i}", rng.choice(sites)))
        flows.append(Flow(f"stream {i}", rng.choice(operators), rng.uniform(1, 10)))
    unfed = [name for name in operators if all(flow.target != name for flow in flows)]
    for name in unfed:
        parts.append(Part(f"stream of {name}", rng.choice(sites)))
        flows.append(Flow(f"stream of {name}", name, rng.uniform(1, 10)))
    capacity = {site: float(rng.randint(0, 5)) for site in sites} if limited else {}
    return Problem(
        tuple(parts),
        tuple(flows),
        Network(tuple(sites), tuple(map(tuple, latency))),
        float(rng.randint(5, 150)) if bounded else None,
        capacity,
    )


def brute_force(problem: Problem) -> float | None:
    """The least cost over all placements of a tree that keep to bound and capacities, counted one by one.

    It shares no arithmetic with what it judges: every flow is paid by itself, every path is walked.
    """
    free = [part.name for part in problem.parts if part.home is None]
    fixed = {part.name: part.home for part in problem.parts if part.home is not None}
    load = {part.name: part.load for part in problem.parts}
    distance = {(a, b): problem.network.distance_ms(a, b) for a in problem.network.sites for b in problem.network.sites}
    bound = math.inf if problem.max_latency_ms is None else problem.max_latency_ms * (1 + ROUNDING)
    best: float | None = None
    for chosen in itertools.product(problem.network.sites, repeat=len(free)):
        sites = {**fixed, **dict(zip(free, chosen, strict=True))}
        cost = sum(flow.bytes_per_s * distance[sites[flow.source], sites[flow.target]] for flow in problem.flows)
        if best is not None and cost >= best:
            continue
        if any(
            sum(load[name] for name, site in sites.items() if site == limited) > room * (1 + ROUNDING)
            for limited, room in problem.capacity.items()
        ):
            continue
        if _longest(problem, sites, distance) <= bound:
            best = cost
    return best


def _longest(problem: Problem, sites: dict[str, str], distance: dict[tuple[str, str], float]) -> float:
    arrived = dict.fromkeys(sites, 0.0)
    for name in problem.in_order:
        for flow in problem.flows:
            if flow.source == name:
                there = arrived[name] + distance[sites[name], sites[flow.target]]
                arrived[flow.target] = max(arrived[flow.target], there)
    return max(arrived.values())
