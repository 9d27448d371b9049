"""Flux (Shah, Hellerstein, Chandrasekaran, Franklin, 2003): Figures 3 and 6 to 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.policies import FluxSettings
from headrace.reproduce.figure import Claim, Figure, Made, Paper, Picture, Settings, Value, times_of, within
from headrace.simulation import Burden, FluxStage, Played, Pressure, Second, hottest_node, paper_settings, play_stage

__all__ = ["FLUX"]

STATIC = paper_settings(moves=False)
# Length of an epoch of the engine, which decides between two of them.
EPOCH_S = 1.0


def _stage(settings: Settings, quick_nodes: int = 32) -> FluxStage:
    return FluxStage(nodes=int(settings.number("nodes", 32, quick_nodes)))


def _ways(stage: FluxStage) -> tuple[tuple[str, FluxStage, FluxSettings], ...]:
    """The three that are compared: nothing moves, the paper's policy and settings, and those of production."""
    return (
        ("static", stage, STATIC),
        ("paper", stage, paper_settings()),
        ("production", replace(stage, epoch_s=EPOCH_S), FluxSettings()),
    )


def _first(played: Played, begin: int, holds: Callable[[Second], bool]) -> int:
    """The end of the first second from `begin` on that is so; the end of the run if there is none."""
    for number, second in enumerate(played.seconds[begin:], begin + 1):
        if holds(second):
            return number
    return len(played.seconds)


def _buffer(settings: Settings) -> Made:
    stage = _stage(settings, 16)
    seconds = stage.nodes // 2
    sizes = (0, 128, 1024, 4096) if settings.quick else (0, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    burden = Burden(begins_s=0.0, rotates_s=0.5)
    found: dict[tuple[str, int], float] = {}
    for done, size in enumerate(sizes):
        settings.progress(done, len(sizes))
        for way, pooled in (("Flux", True), ("Exchange", False)):
            # A producer's buffer has as much room for each destination as the paper's has on 32 nodes.
            at = replace(stage, buffer_tuples=size * stage.nodes // 32, pooled=pooled)
            played = play_stage(at, STATIC, seconds, settings.chance("rows"), burden)
            found[way, size] = played.mean() / stage.unloaded_per_s
    rows = [(way, size, share, share * stage.unloaded_per_s) for (way, size), share in found.items()]
    largest = max(sizes)
    between = [size for size in sizes if 0 < size < largest]
    most = 1 - 0.57 / stage.nodes
    claims = (
        Claim("with no buffer the stage falls to about half of the unloaded rate", "about half",
              f"{found['Exchange', 0]:.2f}", within(found["Exchange", 0], 0.5)),
        Claim("a large enough buffer approaches the unloaded rate", "approaches", f"{found['Flux', largest]:.3f}",
              found["Flux", largest] > 0.97 * most),
        Claim("one buffer beats the same space spread over queues", "quickly beats Exchange",
              ", ".join(f"{s}: {found['Flux', s]:.2f} against {found['Exchange', s]:.2f}" for s in between),
              all(found["Flux", size] > found["Exchange", size] for size in between)),
    )  # fmt: skip
    return Made(("way", "buffer_tuples", "share", "tuples_per_s"), tuple(sorted(rows)), claims,
                (Picture("buffer_tuples", "tuples_per_s", "way"),))  # fmt: skip


def _load(settings: Settings) -> Made:
    stage = _stage(settings)
    seconds = int(settings.number("seconds", 20))
    found: dict[str, Played] = {}
    calm = play_stage(stage, STATIC, 3, settings.chance("rows"))
    for done, (way, at, policy) in enumerate(_ways(stage)):
        settings.progress(done, 3)
        found[way] = play_stage(at, policy, seconds, settings.chance("rows"), Burden((0,)), clock=settings.clock)
    rows = [
        (way, n + 1, second.tuples, second.moves)
        for way, played in found.items()
        for n, second in enumerate(played.seconds)
    ]
    rate, paper = stage.unloaded_per_s, found["paper"]
    felt = _first(found["static"], 1, lambda second: second.tuples < 0.9 * rate)
    steady = paper.mean(-3)
    back = _first(paper, felt, lambda second: second.tuples > 0.99 * steady)
    gone = sum(source == 0 and at < back for at, source, _ in paper.moves)
    slack = stage.nodes * stage.buffer_tuples * (1 - 1 / stage.nodes) / (0.552 / stage.tuple_s)
    ours = found["production"]
    began = paper.moves[0][0] if paper.moves else 0.0
    moving = paper.moving_s / (seconds - began)
    claims = (
        Claim("the unloaded stage", "6.9e5 tuples/s", f"{calm.mean(1):.3g}",
              within(calm.mean(1), 6.9e5 * stage.nodes / 32)),
        Claim("the load at t = 1 s is felt when the buffers are full", "about t = 5 s", f"t = {felt - 1} to {felt} s",
              within(felt - 0.5, 5, 0.2),
              f"{stage.nodes} x {stage.buffer_tuples} tuples fill at 0.55 of a node's rate in {slack:.1f} s, "
              "so the load is felt at about 6.3 s; 4 s of slack need buffers of 1550 tuples"),
        Claim("from then on, without balancing, all wait for the slow node", "about 0.43",
              f"{found['static'].mean(-5) / rate:.2f}",
              within(found["static"].mean(-5) / rate, 0.43)),
        Claim("balancing feels the load at the same time", "the same", f"first move at {began:.1f} s",
              abs(began - felt) < 2),
        Claim("a collection is as long as the moves before it: half of the time at most goes into moves", "half",
              f"{moving:.2f} of it from the first move on", moving < 0.55),
        Claim("the steady state is reached", "t = 14 s", f"t = {back} s", within(back, 14, 0.2)),
        Claim("partitions that the slow node has given away by then", "32", f"{gone}", within(gone, 32)),
        Claim("the rate after balancing", "near the unloaded rate", f"{steady / rate:.2f}", steady > 0.85 * rate),
        Claim("production's settings reach it too", "beyond the paper",
              f"{ours.mean(-3) / rate:.2f} of the unloaded rate, {len(ours.moves)} moves", ours.mean(-3) > 0.85 * rate),
    )  # fmt: skip
    return Made(("way", "second", "tuples_per_s", "moves"), tuple(rows), claims,
                (Picture("second", "tuples_per_s", "way"),),
                times_of("The paper's", paper.decision_s) + times_of("Production's", ours.decision_s))  # fmt: skip


def _degradation(settings: Settings) -> Made:
    stage = _stage(settings, 16)
    seconds = int(settings.number("seconds", 20, 12))
    counts = [round(share * stage.nodes) for share in ((1 / 16, 0.5, 1) if settings.quick else
              (0, 1 / 32, 1 / 8, 0.25, 0.5, 0.75, 1))]  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    share: dict[tuple[str, int], float] = {}
    for done, count in enumerate(counts):
        settings.progress(done, len(counts))
        nodes = tuple(settings.chance("nodes", count).sample(range(stage.nodes), count))
        for way, at, policy in _ways(stage):
            # With full buffers from the start: a steady state is looked at.
            played = play_stage(at, policy, seconds, settings.chance("rows"), Burden(nodes, begins_s=0.0))
            steady = played.mean(-3)
            share[way, count] = steady / stage.unloaded_per_s
            rows.append((way, count, steady, (stage.nodes - 0.57 * count) / stage.nodes))
    some = [count for count in counts if count]

    def of_capacity(way: str) -> float:
        return min(share[way, count] / ((stage.nodes - 0.57 * count) / stage.nodes) for count in counts)

    claims = (
        Claim("without balancing the rate falls with the first node, and stays", "0.43 throughout",
              ", ".join(f"{share['static', count]:.2f}" for count in some),
              all(within(share["static", count], 0.43) for count in some)),
        Claim("with balancing it falls in proportion to what nodes have left", "linear",
              f"at least {of_capacity('paper'):.2f} of it", of_capacity("paper") > 0.85),
        Claim("production's settings do so too", "beyond the paper", f"at least {of_capacity('production'):.2f} of it",
              of_capacity("production") > 0.8),
    )  # fmt: skip
    return Made(("way", "loaded_nodes", "tuples_per_s", "capacity_share"), tuple(sorted(rows)), claims,
                (Picture("loaded_nodes", "tuples_per_s", "way"),))  # fmt: skip


def _collection(settings: Settings) -> Made:
    stage = replace(_stage(settings), skew=0.8)
    seconds = int(settings.number("seconds", 60, 12))
    leasts = (0.01, 0.15, 0.25) if settings.quick else (0.01, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
    # The same chance gives the same groups to the same partitions: the hottest node is found once.
    hot = hottest_node(stage, settings.chance("rows"))
    others = settings.chance("nodes").sample([n for n in range(stage.nodes) if n != hot], max(0, stage.nodes // 4 - 1))
    burden = Burden((hot, *others), begins_s=0.0)

    def play(policy: FluxSettings, loaded: bool, at: FluxStage = stage, merges: bool = False) -> float:
        return play_stage(
            at, policy, seconds, settings.chance("rows"), burden if loaded else None, merges=merges
        ).mean()

    base = play(STATIC, False)
    rows: list[tuple[Value, ...]] = [("static", 0.0, base, 1.0), ("static, loaded", 0.0, play(STATIC, True), 0.0)]
    found: dict[tuple[str, float], float] = {}
    for done, least in enumerate(leasts):
        settings.progress(done, len(leasts))
        for way, loaded in (("paper", False), ("paper, loaded", True)):
            found[way, least] = play(paper_settings(least), loaded) / base
    own = replace(stage, epoch_s=EPOCH_S)
    for way, loaded, merges in (("production, alone", False, False), ("production, shared", False, True)):
        found[way, 1.0] = play(FluxSettings(), loaded, own, merges) / base
    rows += [(way, least, share * base, share) for (way, least), share in found.items()]
    least = min(leasts)
    claims = (
        Claim("with the shortest collections balancing halves the rate", "half", f"{found['paper', least]:.2f}",
              found["paper", least] < 0.7,
              "the partition with the hottest group has 26 % of all tuples: wherever it is it makes the busiest node; "
              "no move of it lowers the ratio of two utilisations, and it stays; the paper's policy kept shifting it"),
        Claim("from 250 ms on balancing is better than static", "better", f"{found['paper', 0.25]:.2f}",
              found["paper", 0.25] > 1),
        Claim("from 150 ms on with a quarter of the nodes loaded, better than static without load", "better",
              f"{found['paper, loaded', 0.15]:.2f}", found["paper, loaded", 0.15] > 1),
        Claim("a hot partition whose state merges is shared by several nodes", "beyond the paper",
              f"{found['production, shared', 1.0]:.1f} times static", found["production, shared", 1.0] > 2),
    )  # fmt: skip
    note = (
        "80/20 is read as self-similar: 80 % of tuples in a fifth of the 16K groups, 80 % of these in a fifth of that "
        "fifth, and so on."
    )
    return Made(("way", "least_collection_s", "tuples_per_s", "of_static"), tuple(rows), claims,
                (Picture("least_collection_s", "tuples_per_s", "way"),), (note,))  # fmt: skip


def _memory_stage(settings: Settings) -> FluxStage:
    return replace(_stage(settings), partitions_per_node=128, partition_bytes=6_000_000)


def _memory(settings: Settings) -> Made:
    stage = _memory_stage(settings)
    seconds = int(settings.number("seconds", 60, 45))
    found: dict[str, Played] = {}
    for done, (way, at, policy) in enumerate(_ways(stage)):
        settings.progress(done, 3)
        found[way] = play_stage(
            at, policy, seconds, settings.chance("rows"), pressure=Pressure((0,)), clock=settings.clock
        )
    rows = [
        (way, n + 1, second.tuples, 1e6 * second.latency_s, second.moves, second.spilled)
        for way, played in found.items()
        for n, second in enumerate(played.seconds)
    ]
    rate, static, paper, ours = stage.unloaded_per_s, *found.values()

    def whole(second: Second) -> bool:
        return second.tuples > 0.95 * rate and not second.spilled

    halted = _first(static, 1, lambda second: second.tuples < 0.05 * rate)
    resumed = _first(static, halted, lambda second: second.tuples > 0.05 * rate) - 1
    back = _first(paper, halted, whole)
    own = _first(ours, halted, whole)
    latency = (
        1e6 * sum(s.latency_s * s.tuples for s in static.seconds[-20:]) / sum(s.tuples for s in static.seconds[-20:])
    )
    share = 32 / stage.nodes
    claims = (
        Claim("the stage stands still while 256 MB are written", "to about t = 15 s", f"to t = {resumed} s",
              within(resumed, 15, 0.2)),
        Claim("with balancing it is back when all partitions are in memory", "t = 37 s", f"t = {back} s",
              within(back, 37, 0.2)),
        Claim("steady rate without balancing", "1.6e5 tuples/s", f"{static.mean(-20) * share:.3g}",
              within(static.mean(-20) * share, 1.6e5)),
        Claim("average latency without balancing, one node under pressure", "2.4e5 us", f"{latency / share:.3g} us",
              within(latency / share, 2.4e5, 0.2)),
        Claim("latency with balancing, in the end", "45 us", f"{1e6 * paper.seconds[-1].latency_s:.3g} us",
              within(1e6 * paper.seconds[-1].latency_s, 45)),
        Claim("production's settings, which plan several rounds ahead, are back earlier", "beyond the paper",
              f"t = {own} s, {len(ours.moves)} moves", own < back),
    )  # fmt: skip
    note = (
        "Rates and latencies of a stage of another size are given for 32 nodes. The paper does not say how long a "
        "partition that was read stays in memory: 0.19 s makes the static rate the paper's; latencies follow from it."
    )
    return Made(("way", "second", "tuples_per_s", "latency_us", "moves", "spilled"), tuple(rows), claims,
                (Picture("second", "tuples_per_s", "way"), Picture("second", "latency_us", "way", log_y=True)),
                (note,))  # fmt: skip


def _pressure(settings: Settings) -> Made:
    stage = _memory_stage(settings)
    stage = replace(stage, nodes=int(settings.number("nodes", 32, 8)))
    seconds = int(settings.number("seconds", 70, 55))
    counts = [1, stage.nodes] if settings.quick else [1, stage.nodes // 8, stage.nodes // 4, stage.nodes]
    rows: list[tuple[Value, ...]] = []
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for done, count in enumerate(counts):
        settings.progress(done, len(counts))
        for way, at, policy in _ways(stage):
            if way == "paper" and (settings.quick or count == stage.nodes):
                continue  # with every node short of memory, moves have nowhere to go
            pressure = Pressure(tuple(range(count)))
            last = play_stage(at, policy, seconds, settings.chance("rows"), pressure=pressure).seconds[-15:]
            tuples = sum(second.tuples for second in last)
            found[way, count] = (
                tuples / len(last) / stage.unloaded_per_s,
                1e6 * sum(second.latency_s * second.tuples for second in last) / tuples,
            )
            rows.append((way, count, tuples / len(last), found[way, count][1]))
    some, all_ = found["static", counts[0]], found["static", stage.nodes]
    few = found["production", counts[-2]]
    claims = (
        Claim("without balancing the rate falls with the first node, and stays", "1.6e5 of 6.9e5 tuples/s",
              f"{some[0]:.2f} and {all_[0]:.2f} of the unloaded rate", all(within(x[0], 0.232) for x in (some, all_))),
        Claim("average latency without balancing, all nodes under pressure", "6.7e6 us", f"{all_[1]:.3g} us",
              within(all_[1], 6.7e6, 0.2)),
        Claim("with balancing, latency stays that of memory while the cluster has room", "45 us", f"{few[1]:.3g} us",
              within(few[1], 45, 0.2)),
    )  # fmt: skip
    return Made(("way", "pressed_nodes", "tuples_per_s", "latency_us"), tuple(sorted(rows)), claims,
                (Picture("pressed_nodes", "latency_us", "way", log_y=True),))  # fmt: skip


def _beyond(settings: Settings) -> Made:
    nodes = int(settings.number("nodes", 1000, 100))
    stage = replace(FluxStage(), nodes=nodes, groups=max(16384, 64 * nodes), epoch_s=EPOCH_S)
    # Links between switches grow with the cluster.
    stage = replace(stage, cross_section_bytes_per_s=stage.cross_section_bytes_per_s * nodes / 32)
    seconds = int(settings.number("seconds", 25, 12))
    burden = Burden(tuple(settings.chance("nodes").sample(range(nodes), nodes // 10)), begins_s=0.0)
    rows: list[tuple[Value, ...]] = []
    found: dict[str, Played] = {}
    policy = FluxSettings(budget_bytes=FluxSettings().budget_bytes * nodes // 32)
    for done, (way, own) in enumerate((("static", STATIC), ("production", policy))):
        settings.progress(done, 2)
        found[way] = play_stage(stage, own, seconds, settings.chance("rows"), burden, clock=settings.clock)
        rows += [(way, n + 1, second.tuples, second.moves) for n, second in enumerate(found[way].seconds)]
    rate = stage.unloaded_per_s
    static, ours = found["static"].mean(-3) / rate, found["production"].mean(-3) / rate
    claims = (
        Claim("with a tenth of the nodes loaded, static falls to the slowest", "as in Figure 7", f"{static:.2f}",
              within(static, 0.43)),
        Claim("balancing keeps most of what is left", "as in Figure 7", f"{ours:.2f} of {1 - 0.057:.2f}",
              ours > 0.8 * 0.943),
    )  # fmt: skip
    return Made(("way", "second", "tuples_per_s", "moves"), tuple(rows), claims,
                (Picture("second", "tuples_per_s", "way"),),
                times_of(f"{nodes} nodes, {stage.partitions} partitions", found["production"].decision_s))  # fmt: skip


def _figures() -> Sequence[Figure]:
    sized = ("nodes", "seconds")
    return (
        Figure("3", "Load that goes round the nodes, over the size of the buffers", _buffer, ("nodes",)),
        Figure("6", "Load on one node from t = 1 s on", _load, sized),
        Figure("7", "Steady rate over the number of loaded nodes", _degradation, sized),
        Figure("8", "Skewed groups, over the least collection", _collection, sized),
        Figure("9", "Memory halved on one node at t = 1 s (Figures 9 and 10)", _memory, sized),
        Figure("10", "Memory halved on several nodes (section 6.2)", _pressure, sized),
        Figure("1000", "Load on a tenth of 1000 nodes", _beyond, sized),
    )


FLUX = Paper(
    "flux",
    "Flux: An Adaptive Partitioning Operator for Continuous Query Systems (Shah, Hellerstein, Chandrasekaran, "
    "Franklin, 2003)",
    tuple(_figures()),
)
