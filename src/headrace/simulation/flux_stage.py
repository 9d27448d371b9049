"""The paper's stage of producers and windowed group-bys on a cluster, as flows of tuples (Flux, sections 3 to 5).

Producers make tuples as fast as they are taken. A tuple of a node that cannot keep up waits in the producers' buffers;
when these are full, producers wait for that node, and all others with them (head-of-line blocking). A round collects,
decides by `policies.flux.load`, and moves: a partition that moves is quiesced, which takes as long as what is under way
to its node takes there, then shipped and installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model import Stay
from headrace.policies import BinLoad, FluxLimits, MiniLoad, load, next_collection_s, utilisation

__all__ = ["Burden", "FluxStage", "Second", "play_stage"]

# Seconds of simulated time per step: a fifth of the shortest collection.
STEP_S = 0.002


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
    # Two packets of 1 KB wait in the connection from each producer to each consumer.
    in_flight_tuples: int = 2 * 1000 // 80
    # 0.2 us per tuple to quiesce, and to install.
    handling_s: float = 0.2e-6
    point_to_point_bytes_per_s: float = 250e6 / 8
    cross_section_bytes_per_s: float = 500e6 / 8
    collect_least_s: float = 0.010
    limits: FluxLimits = field(default_factory=FluxLimits)

    @property
    def unloaded_per_s(self) -> float:
        """Tuples per second when no node has other work."""
        return self.nodes / self.tuple_s


@dataclass(frozen=True, slots=True)
class Burden:
    """Other work on some nodes from a time on, which leaves them a share of their speed.

    The paper's process computes for 100 us and sleeps for 50 us, and degrades a node by about 57 %.
    """

    nodes: tuple[int, ...]
    begins_s: float = 1.0
    leaves: float = 0.43


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the stage: tuples processed in it, and partitions moved until its end."""

    tuples: float
    moves: int


@dataclass
class _Round:
    """Where the rounds stand: collecting until a time, or moving until a time."""

    collect_s: float
    ends_s: float
    moving: tuple[tuple[int, int, int], ...] = ()  # (partition, source, target)


def play_stage(stage: FluxStage, burden: Burden, seconds: int, balances: bool = True) -> list[Second]:
    """The stage second by second; without balancing, partitions stay where they are."""
    owners = [p // stage.partitions_per_node for p in range(stage.nodes * stage.partitions_per_node)]
    share = 1 / len(owners)
    held = [0.0] * stage.nodes  # tuples in all buffers, by the node they are for
    room = float(stage.nodes * stage.buffer_tuples)
    busy = [0.0] * stage.nodes
    done = [0.0] * stage.nodes
    round_ = _Round(stage.collect_least_s, stage.collect_least_s)
    found, moves, tuples = list[Second](), 0, 0.0
    counts = [stage.partitions_per_node] * stage.nodes
    for step in range(round(seconds / STEP_S)):
        now = step * STEP_S
        speeds = [
            (burden.leaves if node in burden.nodes and now >= burden.begins_s else 1.0) / stage.tuple_s
            for node in range(stage.nodes)
        ]
        flow = _flow(speeds, counts, share, held, room - sum(held))
        for node in range(stage.nodes):
            came = flow * share * counts[node] * STEP_S
            processed = min(speeds[node] * STEP_S, held[node] + came)
            held[node] = max(0.0, held[node] + came - processed)
            busy[node] += processed / speeds[node]
            done[node] += processed
            tuples += processed
        if balances and now + STEP_S >= round_.ends_s:
            if round_.moving:
                for partition, source, target in round_.moving:
                    owners[partition] = target
                    counts[source] -= 1
                    counts[target] += 1
                moves += len(round_.moving)
                took = now + STEP_S - (round_.ends_s - _duration(round_.moving, stage, speeds))
                round_ = _Round(next_collection_s(round_.collect_s, took, stage.collect_least_s), 0.0)
                round_.ends_s = now + STEP_S + round_.collect_s
            else:
                round_ = _decided(stage, round_.collect_s, now + STEP_S, owners, busy, done, speeds)
            busy, done = [0.0] * stage.nodes, [0.0] * stage.nodes
        if (step + 1) % round(1 / STEP_S) == 0:
            found.append(Second(tuples, moves))
            tuples = 0.0
    return found


def _flow(speeds: Sequence[float], counts: Sequence[int], share: float, held: Sequence[float], room: float) -> float:
    """Tuples that producers make per second: what feeds the least loaded node, as long as buffers have room.

    With full buffers it is what the slowest node takes for its part.
    """
    wants = [speed / (share * count) for speed, count in zip(speeds, counts, strict=True) if count]
    if room > max(wants) * STEP_S:
        return max(wants)
    return min(wants)


def _decided(
    stage: FluxStage,
    collected_s: float,
    now: float,
    owners: Sequence[int],
    busy: Sequence[float],
    done: Sequence[float],
    speeds: Sequence[float],
) -> _Round:
    """The end of a collection: moves, or the next collection."""
    minis: list[list[MiniLoad]] = [[] for _ in range(stage.nodes)]
    for partition, owner in enumerate(owners):
        minis[owner].append(MiniLoad(partition, 0, stage.partition_bytes))
    bins = [
        BinLoad(
            node,
            utilisation(collected_s - busy[node], collected_s),
            # Keys are even: the partitions of a node have the same number of tuples.
            tuple(MiniLoad(m.mini, round(1000 * done[node] / len(own)), m.state_bytes) for m in own),
        )
        for node, own in enumerate(minis)
    ]
    moves = load(bins, stage.limits)
    if isinstance(moves, Stay):
        collect = next_collection_s(collected_s, None, stage.collect_least_s)
        return _Round(collect, now + collect)
    moving = tuple((move.mini, move.source, move.target) for move in moves)
    return _Round(collected_s, now + _duration(moving, stage, speeds), moving)


def _duration(moving: Sequence[tuple[int, int, int]], stage: FluxStage, speeds: Sequence[float]) -> float:
    """Seconds until all of these moves are done: what is under way is processed, then state is shipped."""
    tuples = stage.partition_bytes / stage.tuple_bytes
    link = min(stage.point_to_point_bytes_per_s, stage.cross_section_bytes_per_s / len(moving))
    drain = max(stage.nodes * stage.in_flight_tuples / speeds[source] for _, source, _ in moving)
    return drain + stage.partition_bytes / link + 2 * tuples * stage.handling_s
