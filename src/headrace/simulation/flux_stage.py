"""The paper's stage of producers and windowed group-bys on a cluster, in slices of time (Flux, sections 3 to 6).

Producers make tuples as fast as they are taken, each for a random group. A tuple of a node that cannot keep up waits in
the producers' buffers; when these are full, producers wait for that node, and all others with them (head-of-line
blocking). `decide_keyed` decides and `account` accounts, as in the engine: an epoch is a collection, or the moves that
a collection led to. A partition that moves is quiesced, which takes as long as what is under way to its node takes
there, then shipped and installed. A node whose memory is too small writes and reads partitions one after the other, and
processes nothing meanwhile; tuples of partitions on disk wait there until it is their turn.

The buffers of all producers are one here: which producer holds a tuple does not matter to anything that is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import KeyedDecision, KeyedState, Residence
from headrace.policies import FluxSettings, KeyedEpoch, account, begin, decide_keyed
from headrace.policies.keyed.decide import MEMORY_SHARE
from headrace.simulation.chance import picks

__all__ = ["Burden", "FluxStage", "Played", "Pressure", "Second", "hottest_node", "paper_settings", "play_stage"]

# The longest slice of simulated time: half of the shortest collection.
SLICE_S = 0.005
# Turns of several nodes that end closer together than this end in one epoch.
LEAST_TURN_S = 0.04
# More than any link carries in an epoch: the paper's moves end with the round that they belong to.
NO_LIMIT = 2**60

Array = NDArray[Any]


def paper_settings(least_s: float = 0.010, **changes: object) -> FluxSettings:
    """The paper's policy: one move per pair and round, a fixed least collection, no regard for hot partitions."""
    settings = FluxSettings(
        budget_bytes=NO_LIMIT, buffer_rows=NO_LIMIT, ahead=1, least_s=least_s, tunes=False, hot=False
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class FluxStage:
    """The paper's set-up: section 3 and the beginning of 5.4."""

    nodes: int = 32
    partitions_per_node: int = 64
    partition_bytes: int = 800_000
    tuple_bytes: int = 80
    # 45 us for the group-by, 0.5 us for the producer on the same machine, and a little for both queues: 6.9e5 tuples/s.
    tuple_s: float = 46.4e-6
    buffer_tuples: int = 2048  # per producer
    # Whether the buffer is one for all destinations (Flux), or an equal part of it for each (Exchange).
    pooled: bool = True
    # Two packets of 1 KB wait in the connection from each producer to each consumer.
    in_flight_tuples: int = 2 * 1000 // 80
    # 0.2 us per tuple for quiescing and installing.
    handling_s: float = 0.2e-6
    point_to_point_bytes_per_s: float = 250e6 / 8
    cross_section_bytes_per_s: float = 500e6 / 8
    groups: int = 16384
    # The share of tuples in the first fifth of the groups, and in the first fifth of these, and so on; 0.2 is even.
    skew: float = 0.2
    memory_bytes: float = 1e9
    disk_bytes_per_s: float = 20e6
    seek_s: float = 0.005
    # How long a partition that has been read stays before another has its turn.
    turn_s: float = 0.19
    # Engines decide between epochs of a length of their own; None: whenever a collection or its moves end.
    epoch_s: float | None = None

    @property
    def unloaded_per_s(self) -> float:
        """Tuples per second when no node has other work."""
        return self.nodes / self.tuple_s

    @property
    def partitions(self) -> int:
        return self.nodes * self.partitions_per_node


@dataclass(frozen=True, slots=True)
class Burden:
    """Other work on some nodes from a time on, which leaves them a share of their speed.

    The paper's process computes for 100 us and sleeps for 50 us, and degrades a node by about 57 %. If it `rotates`,
    each node of the stage has it in turn, for so many seconds.
    """

    nodes: tuple[int, ...] = ()
    begins_s: float = 1.0
    leaves: float = 0.43
    rotates_s: float | None = None

    def speeds(self, nodes: int, now: float) -> Array:
        """The share of its speed that each node has at a time."""
        found = np.ones(nodes)
        if now < self.begins_s:
            return found
        if self.rotates_s is not None:
            found[int((now - self.begins_s) / self.rotates_s + 1e-9) % nodes] = self.leaves
        else:
            found[list(self.nodes)] = self.leaves
        return found


@dataclass(frozen=True, slots=True)
class Pressure:
    """Some nodes have less memory from a time on."""

    nodes: tuple[int, ...] = ()
    begins_s: float = 1.0
    memory_bytes: float = 512e6


@dataclass(frozen=True, slots=True)
class Second:
    """One second: tuples processed in it, their mean latency, and moves and partitions on disk at its end."""

    tuples: float
    latency_s: float
    moves: int
    spilled: int


@dataclass(frozen=True, slots=True)
class Played:
    """A stage second by second, who gave a partition to whom and when, and what decisions took if there was a clock."""

    seconds: tuple[Second, ...]
    moves: tuple[tuple[float, int, int], ...]  # (when it began, source, target)
    moving_s: float = 0.0  # in which some move was under way
    decision_s: tuple[float, ...] = ()

    def mean(self, begin: int = 0, end: int | None = None) -> float:
        """Tuples per second between two seconds."""
        part = self.seconds[begin:end]
        return sum(second.tuples for second in part) / len(part)


@dataclass
class _Epoch:
    """What is measured in an epoch."""

    seconds: float
    busy_s: Array
    rows: Array
    arrived: Array


@dataclass
class _Disk:
    """A node's disk: partitions it still writes or reads, seconds left of the first, and of the turn after the last."""

    queue: list[tuple[int, bool]] = field(default_factory=list)  # (partition, whether it is written)
    left_s: float = 0.0
    turn_left_s: float = 0.0


class _Stage:
    """The machines: where tuples wait, and who processes them."""

    def __init__(self, stage: FluxStage, burden: Burden, pressure: Pressure, chance: random.Random) -> None:
        self.stage, self.burden, self.pressure, self.chance = stage, burden, pressure, chance
        self.now = 0.0
        # A group is picked evenly out of this table, whatever the skew: entries are partitions.
        self.weights, self.table = _shares(stage, chance)
        self.held = np.zeros(stage.partitions)  # in the buffers and connections
        self.kept = np.zeros(stage.partitions)  # on disk
        self.on_disk = np.zeros(stage.partitions, dtype=bool)
        self.paused = np.zeros(stage.partitions, dtype=bool)
        self.disks = [_Disk() for _ in range(stage.nodes)]
        self.carry = 0.0
        self.part = np.arange(stage.partitions)  # entries of the map: partition, node, share of the work
        self.node = np.array([p % stage.nodes for p in range(stage.partitions)])
        self.share = np.ones(stage.partitions)
        self.seconds: list[Second] = []
        self.tuples = self.waited = 0.0
        self.moves: list[tuple[float, int, int]] = []
        self._made(self._flow())

    def memory(self) -> tuple[int, ...]:
        """Bytes of state that each node may hold now, as the policy expects them: of which it uses a share."""
        stage, pressed = self.stage, self.now >= self.pressure.begins_s
        return tuple(
            round((self.pressure.memory_bytes if pressed and n in self.pressure.nodes else stage.memory_bytes)
                  / MEMORY_SHARE)
            for n in range(stage.nodes)
        )  # fmt: skip

    def mapped(self, decision: KeyedDecision) -> None:
        """Takes over who works on what, and which partitions are to be on disk."""
        split = {item.mini: item.bins for item in decision.splits}
        owners = np.array(decision.owners)
        extra = [(mini, bin_) for mini, bins in split.items() for bin_ in bins if bin_ != decision.owners[mini]]
        self.part = np.concatenate([np.arange(len(owners)), np.array([m for m, _ in extra], dtype=np.int64)])
        self.node = np.concatenate([owners, np.array([b for _, b in extra], dtype=np.int64)])
        self.share = np.array([1 / len(split.get(int(mini), (0,))) for mini in self.part])
        moved = {move.mini for move in decision.moves}
        for node, (disk, residence) in enumerate(zip(self.disks, decision.residence, strict=True)):
            out = set(residence.spilled) - set(residence.turn)
            busy = disk.queue[:1] if disk.left_s > 0 else []
            doing = {mini for mini, _ in busy}
            own = set(np.flatnonzero(owners == node).tolist()) if residence.spilled or self.on_disk.any() else set()
            writes = [(m, True) for m in residence.spilled if m in out and not self.on_disk[m] and m not in doing]
            reads = [(m, False) for m in sorted(own - out) if self.on_disk[m] and m not in doing and m not in moved]
            if len(busy) + len(writes) + len(reads) and not disk.queue:
                disk.turn_left_s = self.stage.turn_s
            disk.queue = [*busy, *writes, *reads]

    def run(self, seconds: float, pauses: Sequence[int] = (), paused_s: float = 0.0) -> _Epoch:
        """So many seconds go by; some partitions wait for the first of them."""
        stage = self.stage
        found = _Epoch(seconds, np.zeros(stage.nodes), np.zeros(stage.partitions), np.zeros(stage.partitions))
        self.paused[list(pauses)] = True
        end, free = self.now + seconds, self.now + paused_s
        while self.now < end - 1e-9:
            step = min(SLICE_S, end - self.now, np.floor(self.now + 1 + 1e-9) - self.now)
            if self.now < free - 1e-9:
                step = min(step, free - self.now)
            else:
                self.paused[:] = False
            self._slice(step, found)
            self.now += step
            if abs(self.now - round(self.now)) < 1e-9:
                self.now = float(round(self.now))
                self._second()
        return found

    def io_s(self) -> float:
        """Seconds until the first node that is at its disk has had its turn."""
        times = [
            self._io(len(disk.queue) - bool(disk.left_s)) + disk.left_s + disk.turn_left_s
            for disk in self.disks if disk.queue or disk.turn_left_s > 0
        ]  # fmt: skip
        return max(LEAST_TURN_S, min(times)) if times else float("inf")

    def turns(self, residence: Sequence[Residence]) -> tuple[Residence, ...]:
        """Where partitions are, with only those turns that have ended: others go on."""
        return tuple(
            each if not (disk.queue or disk.turn_left_s > 0)
            else Residence((*each.turn, *(m for m in each.spilled if m not in each.turn)), ())
            for each, disk in zip(residence, self.disks, strict=True)
        )  # fmt: skip

    def move_s(self, decision: KeyedDecision) -> float:
        """Seconds that these moves take: what is under way is processed, then state is shipped and installed."""
        stage, moves = self.stage, decision.moves
        if not moves:
            return 0.0
        tuples = stage.partition_bytes / stage.tuple_bytes
        link = min(stage.point_to_point_bytes_per_s, stage.cross_section_bytes_per_s / len(moves))
        speeds = self.burden.speeds(stage.nodes, self.now) / stage.tuple_s
        by_node = np.bincount(self.node, self.share * self.held[self.part], stage.nodes)
        waits = [
            min(by_node[m.source], stage.nodes * stage.in_flight_tuples) / speeds[m.source]
            # A node answers when it has written or read a partition, and reads one that goes away.
            + self.disks[m.source].left_s + (self._io(1) if self.on_disk[m.mini] else 0.0)
            for m in moves
        ]  # fmt: skip
        for move in moves:
            self.on_disk[move.mini] = False
        return float(max(waits)) + stage.partition_bytes / link + tuples * stage.handling_s

    # ------------------------------------------------------------------------------------------------------------------

    def _io(self, partitions: int) -> float:
        return partitions * (self.stage.partition_bytes / self.stage.disk_bytes_per_s + self.stage.seek_s)

    def _slice(self, step: float, epoch: _Epoch) -> None:
        stage = self.stage
        free = np.full(stage.nodes, step)
        for node, disk in enumerate(self.disks):
            if disk.queue or disk.turn_left_s > 0:
                free[node] -= self._disk(disk, step)
        speeds = self.burden.speeds(stage.nodes, self.now) / stage.tuple_s
        idle_disk = self.on_disk.any()
        ready = self.held * ~self.paused
        if idle_disk:
            # A node that is not at its disk takes what comes for partitions there, and keeps it beside them.
            takes = self.on_disk & (free[self.node[: stage.partitions]] > 0) & ~self.paused
            self.kept[takes] += self.held[takes]
            self.held[takes] = 0.0
            ready = self.held * ~(self.paused | self.on_disk)
        can = speeds * free
        done = np.zeros(stage.nodes)
        if self.kept.any():
            # What waited on disk is older than what waits in the buffers.
            done, rows = self._served(self.kept * ~(self.on_disk | self.paused), can)
            self.kept -= rows
            epoch.rows += rows
        more, taken = self._served(ready, can - done)
        self.held -= taken
        done += more
        epoch.busy_s += (step - free) + done / speeds
        epoch.rows += taken
        self.tuples += float(done.sum())
        self.waited += float(self.kept.sum()) * step
        epoch.arrived += self._made(self._flow())

    def _served(self, offered: Array, can: Array) -> tuple[Array, Array]:
        """Tuples that each node processes of what is offered, and of which partitions they are."""
        stage = self.stage
        parts = self.share * offered[self.part]
        by_node = np.bincount(self.node, parts, stage.nodes)
        served = np.minimum(1.0, can / np.maximum(by_node, 1e-12))
        return by_node * served, np.bincount(self.part, parts * served[self.node], stage.partitions)

    def _disk(self, disk: _Disk, step: float) -> float:
        """Seconds of a slice in which a node is at its disk."""
        used = 0.0
        while disk.queue and used < step:
            if disk.left_s <= 0:
                disk.left_s = self._io(1)
            now = min(disk.left_s, step - used)
            disk.left_s -= now
            used += now
            if disk.left_s <= 1e-12:
                partition, written = disk.queue.pop(0)
                self.on_disk[partition] = written
                disk.left_s = 0.0
        if not disk.queue:
            left = disk.turn_left_s - (step - used)
            disk.turn_left_s = left if left > 1e-9 else 0.0
        return used

    def _flow(self) -> float:
        """Tuples that fit now: what a node has in its connections is free, the rest fills the buffers."""
        stage = self.stage
        line = stage.nodes * stage.in_flight_tuples
        waits = self.paused
        shares = np.bincount(self.node, self.share * (self.weights * ~waits)[self.part], stage.nodes)
        held = np.bincount(self.node, self.share * (self.held * ~waits)[self.part], stage.nodes)
        room = stage.nodes * stage.buffer_tuples
        if not stage.pooled:
            ends = (line + room / stage.nodes - held) / np.maximum(shares, 1e-12)
            return float(max(0.0, ends.min()))
        stuck = float((self.held * waits).sum())
        return _filled(shares, held - line, room - stuck, float((self.weights * waits).sum()))

    def _made(self, flow: float) -> Array:
        """So many tuples come, each for a random group; what they are for each partition."""
        self.carry += min(flow, 4 * self.stage.unloaded_per_s * SLICE_S if self.now else flow)
        count = int(self.carry)
        self.carry -= count
        came = np.bincount(self.table[picks(self.chance, count, len(self.table))], minlength=self.stage.partitions)
        self.held += came
        return came.astype(np.float64)

    def _second(self) -> None:
        latency = 45e-6 + (self.waited / self.tuples if self.tuples else 0.0)
        self.seconds.append(Second(self.tuples, latency, len(self.moves), int(self.on_disk.sum())))
        self.tuples = self.waited = 0.0


def _filled(shares: Array, beyond: Array, room: float, stuck: float) -> float:
    """The most tuples x with sum(max(0, beyond + x shares)) + x stuck <= room."""
    at = -beyond / np.maximum(shares, 1e-12)  # where a node's tuples begin to fill the buffers
    order = np.argsort(at)
    at, slope, base = at[order], np.cumsum(shares[order]) + stuck, np.cumsum(beyond[order])
    # With the first n nodes filling the buffers, they are full at ends[n]; the first that comes before the next begins.
    ends = (room - base) / np.maximum(slope, 1e-12)
    nexts = np.append(at[1:], np.inf)
    fits = ends <= nexts
    return float(max(0.0, ends[int(np.argmax(fits))]))


def _shares(stage: FluxStage, chance: random.Random) -> tuple[Array, NDArray[np.int64]]:
    """The share of tuples of each partition, and a table in which each partition has as many entries as its share."""
    groups = stage.groups
    places = list(range(groups))
    chance.shuffle(places)
    exponent = np.log(stage.skew) / np.log(0.2)
    ends = (np.arange(groups + 1) / groups) ** exponent
    # A million entries: the coldest of 16K groups has a dozen.
    entries = np.diff(np.round(ends * (groups if stage.skew == 0.2 else 1 << 20))).astype(np.int64)
    table = np.repeat(np.array(places) % stage.partitions, entries)
    return np.bincount(table, minlength=stage.partitions) / len(table), table


def play_stage(
    stage: FluxStage,
    settings: FluxSettings,
    seconds: int,
    chance: random.Random,
    burden: Burden | None = None,
    pressure: Pressure | None = None,
    merges: bool = False,
    clock: Callable[[], float] | None = None,
) -> Played:
    """The stage second by second, under the settings of a policy; with `moves` off partitions stay where they are."""
    world = _Stage(stage, burden or Burden(), pressure or Pressure(), chance)
    state = replace(
        begin(stage.nodes, stage.partitions, settings),
        state_bytes=(stage.partition_bytes,) * stage.partitions,
        memory_bytes=world.memory(),
    )
    took: list[float] = []
    epoch, moving_s = 0, 0.0
    while len(world.seconds) < seconds:
        state = replace(state, residence=world.turns(state.residence), memory_bytes=world.memory())
        began = clock() if clock else 0.0
        decision = decide_keyed(state, stage.nodes, settings, merges)
        if clock:
            took.append(clock() - began)
        move_s = world.move_s(decision)
        moving_s += move_s
        world.moves += [(world.now, move.source, move.target) for move in decision.moves]
        world.mapped(decision)
        length = _length(stage, world, state, settings, move_s)
        measured = world.run(length, [m.mini for m in decision.moves] + [m.move.mini for m in decision.moving], move_s)
        state = account(state, decision, _measured(world, measured, move_s), epoch, settings)
        epoch += 1
    return Played(tuple(world.seconds[:seconds]), tuple(world.moves), moving_s, tuple(took))


def _length(stage: FluxStage, world: _Stage, state: KeyedState, settings: FluxSettings, move_s: float) -> float:
    if stage.epoch_s is not None:
        return max(stage.epoch_s, move_s)
    if move_s:
        return move_s
    collects = state.rounds.collect_s - state.collected.seconds if settings.moves else 1.0
    if collects <= 0:  # a round has ended without moves: the next is half as long
        collects = max(settings.least_s, state.rounds.collect_s / 2)
    return max(min(collects, world.io_s()), 1e-4)


def _measured(world: _Stage, epoch: _Epoch, move_s: float) -> KeyedEpoch:
    stage = world.stage
    return KeyedEpoch(
        epoch.seconds,
        tuple(epoch.busy_s.tolist()),
        (move_s,) * stage.nodes,
        world.memory(),
        tuple(np.round(epoch.rows).astype(np.int64).tolist()),
        tuple(epoch.arrived.astype(np.int64).tolist()),
        (stage.partition_bytes,) * stage.partitions,
    )


def hottest_node(stage: FluxStage, chance: random.Random) -> int:
    """The node that has the most tuples to process when the stage begins, given the generator that it begins with."""
    world = _Stage(stage, Burden(), Pressure(), chance)
    return int(np.argmax(np.bincount(world.node, world.weights, stage.nodes)))
