"""Adaptive Load Diffusion for Stream Joins (Gu, Yu, 2005): Figures 4 to 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.policies import choose_hosts
from headrace.reproduce.figure import Claim, Figure, Made, Paper, Picture, Settings, Value, times_of
from headrace.simulation import (
    JoinCluster,
    Sampled,
    Spread,
    demand_of,
    draw_cluster,
    drawn_hosts,
    play_joins,
    single_hosts,
)

__all__ = ["SSP"]

# Hosts per join that Figures 4 and 5 sweep.
EACH = (1, 2, 5, 8, 10, 12, 15, 18, 20, 25, 30, 40, 60, 80, 100)
QUICK_EACH = (5, 10, 12, 15, 20, 30, 60)
DEALS = ("queues", "speeds", "turns")
EVEN, LOOSE, BY_COST = "split, even draw", "split, independent draw", "chosen by cost"


def _cluster(settings: Settings, nodes: int, joins: int, changes: int = 1, change_s: int = 5000) -> JoinCluster:
    return draw_cluster(settings.chance("cluster", nodes, joins), nodes, joins, changes, change_s)


def _played(settings: Settings, cluster: JoinCluster, spread: Spread, seconds: int) -> Sampled:
    # All ways see the same rows.
    return play_joins(cluster, spread, seconds, settings.chance("rows"), settings.clock)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _scaling(settings: Settings) -> Made:
    nodes, joins = int(settings.number("nodes", 100)), int(settings.number("joins", 10))
    seconds, draws = int(settings.number("seconds", 5000, 400)), int(settings.number("draws", 3, 2))
    each = [k for k in (QUICK_EACH if settings.quick else EACH) if k <= nodes]
    sums: dict[tuple[str, int], list[float]] = {}
    took: list[float] = []

    def add(way: str, k: int, found: Sampled) -> None:
        values = (found.throughput, _mean(found.utilisation), found.dropped / max(1.0, found.received))
        known = sums.setdefault((way, k), [0.0, 0.0, 0.0])
        sums[way, k] = [old + new / draws for old, new in zip(known, values, strict=True)]

    counts: list[int] = []
    for draw in range(draws):
        cluster = draw_cluster(settings.chance("cluster", draw), nodes, joins)
        single = _played(settings, cluster, single_hosts(cluster), seconds)
        for done, k in enumerate(each):
            settings.progress(draw * len(each) + done, draws * len(each))
            add("one host", k, single)
            for way, even in ((EVEN, True), (LOOSE, False)):
                hosts = drawn_hosts(settings.chance("hosts", draw, k), nodes, joins, k, even)
                found = _played(settings, cluster, Spread(hosts), seconds)
                took += found.decision_s
                add(way, k, found)
        chosen = choose_hosts(demand_of(cluster), cluster.speeds)
        counts += [len(hosts) for hosts in chosen]
        add(BY_COST, round(nodes / joins), _played(settings, cluster, Spread(chosen), seconds))
    rows: list[tuple[Value, ...]] = [(way, k, *values) for (way, k), values in sorted(sums.items())]
    return Made(
        ("way", "hosts_per_join", "join_operations", "utilisation", "dropped"),
        tuple(rows),
        _scaling_claims(sums, counts),
        (Picture("hosts_per_join", "join_operations", "way"), Picture("hosts_per_join", "utilisation", "way")),
        (
            f"Means of {draws} clusters. The paper draws the hosts of each join at random. Drawn among those with the "
            "fewest joins, all hosts have work from 10 hosts per join on, and throughput hardly changes up to 20; "
            "drawn independently, a fifth of the hosts has none at 15 per join, and the peak comes later.",
            *times_of("Roles of all joins", took),
        ),
    )


def _scaling_claims(sums: Mapping[tuple[str, int], Sequence[float]], counts: Sequence[int]) -> tuple[Claim, ...]:
    split = {k: (values[0], values[1]) for (way, k), values in sums.items() if way == EVEN}
    loose = {k: values[0] for (way, k), values in sums.items() if way == LOOSE}
    single = {round(values[0], 3) for (way, _), values in sums.items() if way == "one host"}
    by_cost = next(values[0] for (way, _), values in sums.items() if way == BY_COST)
    peak, busiest = max(split, key=lambda k: split[k][0]), max(split, key=lambda k: split[k][1])
    best, last, near = split[peak][0], split[max(split)][0], split.get(15, (0.0, 0.0))[0]
    return (
        Claim("throughput peaks at a number of servers per join", "about 15",
              f"peak at {peak}; {near / best:.3f} of it at 15", 10 <= peak <= 20 and near > 0.98 * best),
        Claim("beyond the peak, copies cost more than hosts bring", "it falls",
              f"{last / best:.2f} of the peak with {max(split)} hosts", last < 0.97 * best),
        Claim("with one server per join, throughput does not change", "unchanged", f"{len(single)} value",
              len(single) == 1),
        Claim("diffusion does several times the join operations of one server per join", "greatly improves",
              f"{best / min(single):.1f} times", best > 3 * min(single)),
        Claim("utilisation rises and falls alike (Fig. 5)", "peak at the same number", f"peak at {busiest}",
              10 <= busiest <= 20 and split.get(15, (0.0, 0.0))[1] > 0.98 * split[busiest][1]),
        Claim("where hosts are drawn independently, more of them are needed before all have work", "not said",
              f"peak at {max(loose, key=lambda k: loose[k])}", max(loose, key=lambda k: loose[k]) >= peak),
        Claim("hosts chosen by cost, (k - 1) copies counted, do as well as the best k", "beyond the paper",
              f"{by_cost / best:.2f} of the peak with {min(counts)} to {max(counts)} hosts per join",
              by_cost > 0.98 * best),
    )  # fmt: skip


def _even(settings: Settings) -> Made:
    nodes, joins = int(settings.number("nodes", 10)), int(settings.number("joins", 2))
    seconds = int(settings.number("seconds", 5000, 400))
    cluster = _cluster(settings, nodes, joins)
    everywhere = tuple(tuple(range(nodes)) for _ in range(joins))
    ways = {
        "one host": single_hosts(cluster),
        "split, least loaded": Spread(everywhere),
        "split, by learned speeds": Spread(everywhere, deals="speeds"),
        "split, in turns": Spread(everywhere, deals="turns"),
    }
    rows: list[tuple[Value, ...]] = []
    uneven: dict[str, float] = {}
    found: dict[str, Sampled] = {}
    for done, (way, spread) in enumerate(ways.items()):
        settings.progress(done, len(ways))
        found[way] = _played(settings, cluster, spread, seconds)
        used = found[way].utilisation
        uneven[way] = (sum((u - _mean(used)) ** 2 for u in used) / len(used)) ** 0.5 / _mean(used)
        rows += [(way, node, used[node], cluster.speeds[node]) for node in range(nodes)]
    least, speeds = uneven["split, least loaded"], uneven["split, by learned speeds"]
    # At the paper's rates all hosts are overloaded, whoever gets a row. Here half of what they bear comes.
    calm = replace(cluster, rates=(((3.5, 3.5),) * joins,))
    light = {deals: _played(settings, calm, Spread(everywhere, deals=deals), seconds) for deals in DEALS}
    rows += [
        (f"half load, {deals}", n, light[deals].utilisation[n], cluster.speeds[n])
        for deals in DEALS
        for n in range(nodes)
    ]
    part = {deals: light[deals].throughput / light["queues"].throughput for deals in DEALS}
    idle = sum(u < 0.01 for u in found["one host"].utilisation)
    claims = (
        Claim("load is far more even than with one server per join", "more balanced",
              f"deviation over mean {least:.2f} against {uneven['one host']:.2f}", 4 * least < uneven["one host"]),
        Claim("one server per join leaves the others idle", "inter-operator only", f"{idle} of {nodes} idle",
              idle == nodes - joins),
        Claim("at half load, rows in turns leave work undone at slow hosts that the least-loaded host would have done",
              "least-loaded host", f"{part['turns']:.3f} of its join operations", part["turns"] < 0.99),
        Claim("at half load, rows by learned speeds, as the engine deals them, leave none", "beyond the paper",
              f"{part['speeds']:.3f} of its join operations", part["speeds"] > 0.98),
        Claim("rows by learned speeds, as the engine deals them, come near the least-loaded host", "beyond the paper",
              f"{speeds:.3f}; join operations {_ratio(found, 'split, by learned speeds')} of least loaded",
              speeds < 0.3 and found["split, by learned speeds"].throughput
              > 0.95 * found["split, least loaded"].throughput),
    )  # fmt: skip
    pictures = (Picture("node", "utilisation", "way", bars=True),)
    return Made(("way", "node", "utilisation", "speed"), tuple(rows), claims, pictures)


def _ratio(found: dict[str, Sampled], way: str) -> str:
    return f"{found[way].throughput / found['split, least loaded'].throughput:.3f}"


def _adaptive(settings: Settings) -> Made:
    nodes, joins = int(settings.number("nodes", 100)), int(settings.number("joins", 10))
    each, seconds = int(settings.number("hosts", 5)), int(settings.number("seconds", 5000, 1500))
    cluster = _cluster(settings, nodes, joins, changes=max(1, seconds // 500), change_s=500)
    hosts = drawn_hosts(settings.chance("hosts", each), nodes, joins, each, even=True)
    settings.progress(0, 2)
    adaptive = _played(settings, cluster, Spread(hosts), seconds)
    settings.progress(1, 2)
    static = _played(settings, cluster, Spread(hosts, adapts=False), seconds)
    samples = list(zip(adaptive.operations, static.operations, strict=True))
    # Roles of the first sample after a change follow the rates of before; in the second, joins that switch copy both
    # streams for one window.
    settled = min((a / s for n, (a, s) in enumerate(samples) if n % 10 > 1), default=1.0)
    fewest = min(a / s for a, s in samples)
    rows = [
        (way, 50 * (n + 1), value)
        for way, values in (("adaptive", adaptive.operations), ("static", static.operations))
        for n, value in enumerate(values)
    ]
    claims = (
        Claim("adaptive roles do at least as much as static ones at every sample", "consistently better",
              f"least ratio {fewest:.4f}", fewest >= 1.0 - 1e-9,
              "a change of rates is seen one sample later, and a switch copies both streams for a window: exact "
              "results need that, and the paper leaves it out"),
        Claim("adaptive roles do at least as much from the second sample after a change on", "consistently better",
              f"least ratio {settled:.4f}", settled > 0.999),
        Claim("adaptive roles do more in all", "better",
              f"{adaptive.throughput / static.throughput:.4f} times", adaptive.throughput > static.throughput),
        Claim("copied rows received are fewer", "least overhead (k - 1) r",
              f"{adaptive.received / static.received:.2f} times", adaptive.received < static.received),
        Claim("roles change with the rates", "every 500 s at most",
              f"{adaptive.switches} changes of {joins} joins", 0 < adaptive.switches <= joins * (seconds // 500)),
    )  # fmt: skip
    note = "The stream of the higher rate is split: the copies, (k - 1) times the rate of the other, are then fewest."
    return Made(("way", "second", "join_operations"), tuple(rows), claims,
                (Picture("second", "join_operations", "way"),),
                (note, *times_of("Roles of all joins", adaptive.decision_s)))  # fmt: skip


def _beyond(settings: Settings) -> Made:
    nodes = int(settings.number("nodes", 1000, 200))
    joins, seconds = nodes // 10, int(settings.number("seconds", 500, 150))
    cluster = _cluster(settings, nodes, joins)
    single = _played(settings, cluster, single_hosts(cluster), seconds)
    rows: list[tuple[Value, ...]] = [("one host", 1, single.throughput, _mean(single.utilisation))]
    took: list[float] = []
    each = (5, 15, 60)
    for done, k in enumerate(each):
        settings.progress(done, len(each))
        hosts = drawn_hosts(settings.chance("hosts", k), nodes, joins, k, even=True)
        found = _played(settings, cluster, Spread(hosts), seconds)
        took += found.decision_s
        rows.append(("split", k, found.throughput, _mean(found.utilisation)))
    began = settings.clock() if settings.clock else 0.0
    chosen = choose_hosts(demand_of(cluster), cluster.speeds)
    hosts_s = [settings.clock() - began] if settings.clock else []
    by_cost = _played(settings, cluster, Spread(chosen), seconds)
    mean = round(_mean([len(hosts) for hosts in chosen]))
    rows.append(("chosen by cost", mean, by_cost.throughput, _mean(by_cost.utilisation)))
    few, best, many = (float(row[2]) for row in rows[1:4])
    claims = (
        Claim("15 hosts per join do more than 5 and more than 60", "as in Figure 4",
              f"{best / few:.2f} and {best / many:.2f} times", best > few and best > many),
        Claim("diffusion does several times the join operations of one server per join", "as in Figure 4",
              f"{best / single.throughput:.1f} times", best > 3 * single.throughput),
        Claim("hosts chosen by cost do as well as 15 per join", "beyond the paper",
              f"{by_cost.throughput / best:.2f} times", by_cost.throughput > 0.98 * best),
    )  # fmt: skip
    return Made(("way", "hosts_per_join", "join_operations", "utilisation"), tuple(rows), claims,
                notes=(*times_of("Roles of all joins", took), *times_of("Hosts of all joins", hosts_s)))  # fmt: skip


SSP = Paper(
    "ssp",
    "Adaptive Load Diffusion for Stream Joins (Gu, Yu, 2005)",
    (
        Figure("4", "Join operations and utilisation over servers per join (Figures 4 and 5)", _scaling,
               ("nodes", "joins", "seconds", "draws")),
        Figure("6", "Utilisation of each server", _even, ("nodes", "joins", "seconds")),
        Figure("7", "Roles that follow the rates", _adaptive, ("nodes", "joins", "hosts", "seconds")),
        Figure("1000", "The same at 1000 hosts", _beyond, ("nodes", "seconds")),
    ),
)  # fmt: skip
