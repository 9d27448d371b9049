"""A cluster that runs windowed joins by load diffusion, in slices of a second (Gu, Yu, section 4).

Rows of each join come at random times and are sent to its hosts: those of the split stream to the least-loaded host
(`spread_slices`), those of the copied stream to all. Which stream is split is decided by `choose_way`. A host pays for
every row it receives, and for every pair it looks at; what it cannot do at once waits in its memory, and rows that come
while the memory is full are dropped. A row that waits makes the same pairs later: its windows are those of its time.

After a change of roles, rows of the newly split stream still go to all hosts for one window, as old rows of the other
stream are on one host each; one of the hosts makes their pairs with copied rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import JoinWay
from headrace.policies import JoinDemand, JoinStats, SideStats, choose_way, learn_speeds, spread_slices
from headrace.simulation.chance import uniforms

__all__ = ["JoinCluster", "Sampled", "Spread", "demand_of", "draw_cluster", "drawn_hosts", "play_joins", "single_hosts"]

# What a join operation and a received row cost, in the unit in which a host's speed is given.
PAIR_COST, ROW_COST = 50.0, 10.0
WINDOW_S = 10
# Slices per host: speeds are told apart as finely.
SLICES = 4

Array = NDArray[Any]


@dataclass(frozen=True)
class JoinCluster:
    """Hosts with the cost they can bear per second and the rows they can hold; rates of both streams of each join.

    Rates are given per change: `rates[change][join]`, each in force for `change_s`.
    """

    speeds: tuple[float, ...]
    memory_rows: tuple[int, ...]
    rates: tuple[tuple[tuple[float, float], ...], ...]
    change_s: int

    @property
    def joins(self) -> int:
        return len(self.rates[0])


@dataclass(frozen=True)
class Spread:
    """How joins are run: the hosts of each; whether roles follow the rates; which host gets a row of the split stream.

    By "queues" each row goes to the host that would be done with it first; by "speeds" hosts get rows in proportion to
    speeds that are learned, as the engine deals them; by "turns" rows go round the hosts.
    """

    hosts: tuple[tuple[int, ...], ...]
    adapts: bool = True
    deals: str = "queues"
    sample_s: int = 50


@dataclass(frozen=True)
class Sampled:
    """What a run gives: join operations in each sample; the share of its time that each host spent on them; rows that
    came and were dropped; roles changed; seconds per decision, if there was a clock."""

    operations: tuple[float, ...]
    utilisation: tuple[float, ...]
    received: float
    dropped: float
    switches: int
    decision_s: tuple[float, ...] = ()

    @property
    def throughput(self) -> float:
        """Join operations of the whole run."""
        return sum(self.operations)


def draw_cluster(chance: random.Random, nodes: int, joins: int, changes: int = 1, change_s: int = 5000) -> JoinCluster:
    """The paper's cluster: speeds in [1000, 5000], memory in [1000, 2000] rows, rates in [5, 20] rows per second."""
    return JoinCluster(
        tuple(chance.uniform(1000, 5000) for _ in range(nodes)),
        tuple(chance.randint(1000, 2000) for _ in range(nodes)),
        tuple(tuple((chance.uniform(5, 20), chance.uniform(5, 20)) for _ in range(joins)) for _ in range(changes)),
        change_s,
    )


def play_joins(
    cluster: JoinCluster,
    spread: Spread,
    seconds: int,
    chance: random.Random,
    clock: Callable[[], float] | None = None,
) -> Sampled:
    """The joins for so many seconds."""
    world = _Cluster(cluster, spread, _arrivals(cluster, seconds, chance))
    operations: list[float] = []
    took: list[float] = []
    for second in range(seconds):
        if second % spread.sample_s == 0:
            if second:
                operations.append(world.sampled())
            if second == 0 or spread.adapts:
                began = clock() if clock else 0.0
                world.decide(second)
                if clock:
                    took.append(clock() - began)
        world.step(second)
    operations.append(world.sampled())
    used = world.paired / (np.array(cluster.speeds) * seconds)
    return Sampled(
        tuple(operations),
        tuple(used.tolist()),
        float(world.received),
        float(world.dropped),
        world.switches,
        tuple(took),
    )


def _arrivals(cluster: JoinCluster, seconds: int, chance: random.Random) -> NDArray[np.int64]:
    """Rows of each join and side in each second: times between them are even in [1/2r, 2/r]."""
    found = np.zeros((cluster.joins, 2, seconds), dtype=np.int64)
    for join in range(cluster.joins):
        for side in (0, 1):
            for change, begins in enumerate(range(0, seconds, cluster.change_s)):
                length = min(cluster.change_s, seconds - begins)
                rate = cluster.rates[change % len(cluster.rates)][join][side]
                gaps = (0.5 + 1.5 * uniforms(chance, int(length * rate) + 10)) / rate
                times = np.cumsum(gaps)
                counts = np.bincount(times[times < length].astype(np.int64), minlength=length)
                found[join, side, begins : begins + length] = counts
    return found


class _Cluster:
    """Hosts at work; arrays have an entry per host of each join."""

    def __init__(self, cluster: JoinCluster, spread: Spread, arrivals: NDArray[np.int64]) -> None:
        self.cluster, self.spread, self.arrivals = cluster, spread, arrivals
        self.host = np.array([h for hosts in spread.hosts for h in hosts])
        self.join = np.array([j for j, hosts in enumerate(spread.hosts) for _ in hosts])
        self.first = np.cumsum([0, *(len(hosts) for hosts in spread.hosts)])
        entries, hosts = len(self.host), len(cluster.speeds)
        self.speeds, self.memory = np.array(cluster.speeds), np.array(cluster.memory_rows, dtype=np.float64)
        # Rows of either side that were taken in each of the last seconds; those of a side that a host makes pairs of.
        self.window = np.zeros((2, entries, WINDOW_S))
        self.work = np.zeros(entries)  # cost of pairs that wait
        self.waiting = np.zeros(entries)  # rows that wait
        self.paired = np.zeros(hosts)
        self.ways: list[JoinWay] = []
        self.since = [-(10**9)] * cluster.joins  # when the roles last changed
        self.turn = [0] * cluster.joins
        self.joins_at = np.bincount(self.host, minlength=hosts)
        self.learned: list[tuple[float, ...]] = [(1.0,) * len(own) for own in spread.hosts]
        self.order = [tuple(range(len(own))) for own in spread.hosts]
        self.made = 0.0
        self.received = self.dropped = 0.0
        self.switches = 0
        self.counted = 0

    def decide(self, second: int) -> None:
        """Chooses the roles of every join by the rates of the last sample; at the start, of the first rows."""
        begin, end = (second - self.spread.sample_s, second) if second else (0, 1)
        for join in range(self.cluster.joins):
            left, right = (float(self.arrivals[join, side, begin:end].sum()) / (end - begin) for side in (0, 1))
            stats = JoinStats(
                SideStats(left, left * WINDOW_S), SideStats(right, right * WINDOW_S), False,
                tuple(self.cluster.speeds[h] for h in self.spread.hosts[join]),
            )  # fmt: skip
            before = self.ways[join] if second else None
            way = choose_way(stats, "split", before)
            self._learn(join)
            if before is None:
                self.ways.append(way)
            elif way.split != before.split:
                self.ways[join] = way
                self.since[join] = second
                self.switches += 1

    def step(self, second: int) -> None:
        """One second: rows come, hosts work."""
        came = np.zeros((2, len(self.host)))  # that each host receives
        home = np.zeros((2, len(self.host)))  # of these, the rows whose pairs with copied rows it makes
        backlog = np.bincount(self.host, self.work, len(self.speeds))
        for join in range(self.cluster.joins):
            split = 0 if self.ways[join].split == "left" else 1
            part = slice(int(self.first[join]), int(self.first[join + 1]))
            rows = int(self.arrivals[join, split, second])
            came[1 - split, part] = home[1 - split, part] = self.arrivals[join, 1 - split, second]
            dealt = self._dealt(join, part, rows, backlog)
            home[split, part] = dealt
            came[split, part] = rows if second - self.since[join] < WINDOW_S else dealt
        taken = self._taken(came, home)
        held = self.window.sum(axis=2)
        # A row meets the rows of the other side that came before it; of two of one second, either may be the first.
        pairs = taken[0] * held[1] + taken[1] * held[0] + taken[0] * taken[1]
        self.work += PAIR_COST * pairs
        self.waiting += taken[0] + taken[1]
        self.window[:, :, second % WINDOW_S] = taken
        got = np.bincount(self.host, came[0] + came[1], len(self.speeds))
        self.received += float(got.sum())
        self._work(np.maximum(0.0, self.speeds - ROW_COST * got))

    def sampled(self) -> float:
        """Join operations since the last sample."""
        made, self.made = self.made, 0.0
        return made

    def _dealt(self, join: int, part: slice, rows: int, backlog: Array) -> Array:
        hosts = self.spread.hosts[join]
        if self.spread.deals == "queues":
            # What a row of this join costs a host: with it, what waits there is counted in such rows.
            cost = ROW_COST + PAIR_COST * max(1.0, self.window[:, part].sum() / len(hosts))
            speeds = [self.cluster.speeds[h] for h in hosts]
            chosen: Sequence[int] = spread_slices(rows, speeds, queued=[backlog[h] / cost for h in hosts])
        else:
            order = self.order[join]
            chosen = [order[(self.turn[join] + n) % len(order)] for n in range(rows)]
            self.turn[join] = (self.turn[join] + rows) % len(order)
        return np.bincount(np.array(chosen, dtype=np.int64), minlength=len(hosts)).astype(np.float64)

    def _learn(self, join: int) -> None:
        """The order in which hosts get rows, by speeds as they are learned: what a host gives one of its joins."""
        hosts = self.spread.hosts[join]
        if self.spread.deals == "speeds":
            rates = {n: self.cluster.speeds[h] / self.joins_at[h] for n, h in enumerate(hosts)}
            self.learned[join] = learn_speeds(self.learned[join], rates)
            self.order[join] = spread_slices(SLICES * len(hosts), self.learned[join], self.order[join])

    def _taken(self, came: Array, home: Array) -> Array:
        """The rows that hosts keep: as many as their memory holds beside what waits and what the windows hold."""
        used = np.bincount(self.host, self.window.sum(axis=(0, 2)) + self.waiting, len(self.speeds))
        wanted = np.bincount(self.host, home[0] + home[1], len(self.speeds))
        room = np.maximum(0.0, self.memory - used)
        part = np.minimum(1.0, room / np.maximum(wanted, 1e-12))
        self.dropped += float((wanted * (1 - part)).sum())
        taken: Array = home * part[self.host]
        return taken

    def _work(self, can: Array) -> None:
        waits = np.bincount(self.host, self.work, len(self.speeds))
        part = np.minimum(1.0, can / np.maximum(waits, 1e-12))
        done = self.work * part[self.host]
        self.work -= done
        self.waiting *= 1 - part[self.host]
        self.paired += np.bincount(self.host, done, len(self.speeds))
        self.made += float(done.sum()) / PAIR_COST


def drawn_hosts(chance: random.Random, nodes: int, joins: int, each: int, even: bool) -> tuple[tuple[int, ...], ...]:
    """Random hosts for each join; if `even`, of those that have the fewest joins."""
    used = [0] * nodes
    found: list[tuple[int, ...]] = []
    for _ in range(joins):
        order = sorted(range(nodes), key=lambda host: (used[host] if even else 0, chance.random()))
        for host in order[:each]:
            used[host] += 1
        found.append(tuple(sorted(order[:each])))
    return tuple(found)


def demand_of(cluster: JoinCluster) -> tuple[JoinDemand, ...]:
    """What each join costs per second at its first rates, and a copy of its slower stream at one more host."""
    # Times between rows are 1.25/r on average.
    rates = [(0.8 * left, 0.8 * right) for left, right in cluster.rates[0]]
    return tuple(
        JoinDemand(2 * PAIR_COST * left * right * WINDOW_S + ROW_COST * max(left, right), ROW_COST * min(left, right))
        for left, right in rates
    )


def single_hosts(cluster: JoinCluster) -> Spread:
    """The baseline: each join on one host, the least loaded for its speed."""
    return Spread(tuple((host,) for host in spread_slices(cluster.joins, cluster.speeds)), adapts=False)
