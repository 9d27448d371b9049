"""How a windowed join is spread over hosts: which way, which stream is split, which host makes which pairs.

The windows of both sides lie in *blocks*, and a block says with its kind where it is held (Gu, Yu, Nahrstedt, "Adaptive
Load Diffusion for Stream Joins", 2005, with what it leaves out: other ways than its own, and exact switches):

    KEY          rows of one hash slice of the equality keys; held by the slice's host
    ONCE         rows dealt out one by one, whatever their key; held by the slice's host
    EVERYWHERE   rows dealt out likewise and copied; held by all hosts, the slice's host is their home

A *way* says of which kind the rows of an epoch become: *hash* makes KEY blocks of both sides, *split* ONCE blocks of
one side and EVERYWHERE blocks of the other, *biclique* ONCE blocks of both, *hybrid* KEY blocks of cold keys and splits
hot ones. `host_of` names, for any two blocks, the one host that makes their pairs: windows stay where they are and
deltas go to them. So every pair is made once, whatever was decided when its rows came: a switch needs no protocol.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model import JoinWay

__all__ = [
    "JoinStats",
    "Load",
    "SideStats",
    "choose_way",
    "learn_speeds",
    "load_of",
    "spread_slices",
]

LEFT, RIGHT = "left", "right"
# Seconds a host takes for a row it is sent, and for one of its window that it looks through; measured on one core.
RECEIVED_S, HELD_S = 2e-7, 2e-8
# Another way must save so much of the time before a join switches.
GAIN = 0.2
# A key is hot when it alone would be this part of an even share of one host.
HOT_SHARE = 0.25
# What an epoch's measurement of a host's speed counts for, and how quickly the speed of one without work is forgotten.
LEARNS, FORGETS = 0.2, 0.02
# No host is taken for slower: a speed is divided by.
SLOWEST = 0.01
# Slices are dealt out anew when the slowest host would take so many times as long as it must.
UNEVEN = 1.5


@dataclass(frozen=True, slots=True)
class SideStats:
    """One side of a join: rows per epoch, rows and bytes per row in its window, shares of its heaviest key hashes."""

    rows: float
    window_rows: float
    row_bytes: float = 100.0
    heavy: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinStats:
    """All that a way is chosen by: `speeds` are the hosts' relative speeds, `memory_bytes` what each may hold."""

    left: SideStats
    right: SideStats
    equality: bool
    speeds: tuple[float, ...]
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What the busiest host gets per epoch, and holds."""

    received_rows: float
    held_rows: float
    held_bytes: float
    shipped_rows: float  # to all hosts

    @property
    def seconds(self) -> float:
        return self.received_rows * RECEIVED_S + self.held_rows * HELD_S


def load_of(way: str, split: str | None, stats: JoinStats, hot: Sequence[int] = ()) -> Load:
    """The load of one way; k hosts are taken as equal, as their slices make them.

    >>> even = JoinStats(SideStats(900, 9000), SideStats(100, 1000), True, (1.0,) * 4)
    >>> load_of("split", "left", even).received_rows, load_of("split", "right", even).received_rows
    (325.0, 925.0)
    """
    k = len(stats.speeds)
    received = held = size = shipped = 0.0
    for side, mine in ((LEFT, stats.left), (RIGHT, stats.right)):
        match way:
            case "hash":
                share, copies, window = _busiest(mine.heavy, k), 1.0, _busiest(mine.heavy, k)
            case "split":
                share = window = 1 / k if side == split else 1.0
                copies = 1.0 if side == split else k
            case "biclique":
                share, copies, window = 1.0, float(k), 1 / k
            case _:
                warm = sum(mine.heavy.get(key, 0.0) for key in hot)
                cold = {key: s / (1 - warm) for key, s in mine.heavy.items() if key not in hot} if warm < 1 else {}
                spread = 1 / k if side == split else 1.0
                share = window = (1 - warm) * _busiest(cold, k) + warm * spread
                copies = 1 - warm + warm * (1.0 if side == split else k)
        received += share * mine.rows
        shipped += copies * mine.rows
        held += window * mine.window_rows
        size += window * mine.window_rows * mine.row_bytes
    return Load(received, held, size, shipped)


def _busiest(heavy: Mapping[int, float], k: int) -> float:
    """The share of rows in the fullest of k hash slices."""
    return max(1 / k, max(heavy.values(), default=0.0) + (1 - sum(heavy.values())) / k)


def choose_way(
    stats: JoinStats, wanted: str = "auto", before: JoinWay | None = None, slices: int | None = None
) -> JoinWay:
    """The way that takes the busiest host the least time, if that is clearly less than the way so far.

    Ways that do not fit the hosts' memory come last; if none fits, the one that needs least is taken and rows are shed.
    """
    k = len(stats.speeds)
    hosts = spread_slices(slices or k, stats.speeds, before.hosts if before else None)
    hot = _hot(stats)
    ways: dict[tuple[str, str | None], Load] = {}
    faster = LEFT if stats.left.rows >= stats.right.rows else RIGHT
    if stats.equality:
        ways["hash", None] = load_of("hash", None, stats)
        if hot or wanted == "hybrid":
            side = max((LEFT, RIGHT), key=lambda s: _warm_rows(stats, s, hot))
            ways["hybrid", side] = load_of("hybrid", side, stats, hot)
    for side in (LEFT, RIGHT):
        ways["split", side] = load_of("split", side, stats)
    ways["biclique", None] = load_of("biclique", None, stats)
    costs = {_name(way): round(load.seconds, 6) for way, load in ways.items()}
    named = {way: load for way, load in ways.items() if way[0] == wanted}
    if wanted == "hash" and not named:
        named = {("split", faster): ways["split", faster]}
    open_ = named or ways
    fitting = {way: load for way, load in open_.items() if _fits(load, stats)}
    # Memory decides first: another way before any row is shed, even one that was not asked for.
    fitting = fitting or {way: load for way, load in ways.items() if _fits(load, stats)}
    if fitting:
        best = min(fitting, key=lambda way: (fitting[way].seconds, _name(way)))
        keep = 1.0
    else:
        best = min(ways, key=lambda way: (ways[way].held_bytes, _name(way)))
        assert stats.memory_bytes is not None
        keep = stats.memory_bytes / ways[best].held_bytes
    way, split = best
    found = hot if way == "hybrid" else ()
    if before is not None and keep == 1.0 and (before.way, before.split) in {**open_, best: ways[best]}:
        # The hot keys of before are judged as they are: one that has become hot since then makes its host the busiest.
        known = load_of(before.way, before.split, stats, before.hot)
        if _fits(known, stats) and known.seconds - ways[best].seconds < GAIN * known.seconds:
            why = _reason(stats, before.way, before.split, known, before.hot, "stays")
            return JoinWay(before.way, before.split, before.hot, hosts, why, costs)
    chosen = "is least" if wanted == "auto" else "is asked for" if way == wanted else "fits the memory"
    return JoinWay(way, split, found, hosts, _reason(stats, way, split, ways[best], found, chosen), costs, keep)


def _name(way: tuple[str, str | None]) -> str:
    return way[0] if way[1] is None else f"{way[0]} {way[1]}"


def _fits(load: Load, stats: JoinStats) -> bool:
    return stats.memory_bytes is None or load.held_bytes <= stats.memory_bytes


def _hot(stats: JoinStats) -> tuple[int, ...]:
    if not stats.equality:
        return ()
    least = HOT_SHARE / len(stats.speeds)
    found = {key for side in (stats.left, stats.right) for key, share in side.heavy.items() if share > least}
    return tuple(sorted(found))


def _warm_rows(stats: JoinStats, side: str, hot: Sequence[int]) -> float:
    mine = stats.left if side == LEFT else stats.right
    return sum(mine.heavy.get(key, 0.0) for key in hot) * (mine.rows + mine.window_rows)


def _reason(stats: JoinStats, way: str, split: str | None, load: Load, hot: Sequence[int], why: str) -> str:
    rates = f"{stats.left.rows:.0f} and {stats.right.rows:.0f} rows per epoch on {len(stats.speeds)} hosts"
    warm = f", {len(hot)} hot keys" if way == "hybrid" else ""
    role = f" {split}" if split else ""
    return (
        f"{way}{role} {why}: {rates}{warm}; the busiest host gets {load.received_rows:.0f} rows and holds "
        f"{load.held_rows:.0f}, {load.seconds:.4f} s"
    )


def spread_slices(
    slices: int, speeds: Sequence[float], before: Sequence[int] | None = None, queued: Sequence[float] = ()
) -> tuple[int, ...]:
    """The host of each slice: the least loaded for its speed takes the next; what was dealt out stays if it is even.

    `queued` is what already waits at each host, in slices.

    >>> spread_slices(6, (2.0, 1.0))
    (0, 0, 1, 0, 0, 1)
    >>> spread_slices(3, (1.0, 1.0), queued=(2.0, 0.0))
    (1, 1, 0)
    """

    def longest(hosts: Sequence[int]) -> float:
        return max(hosts.count(h) / speed for h, speed in enumerate(speeds))

    waits = tuple(queued) or (0.0,) * len(speeds)
    # When each host would be done with one more slice; the first of those that are done first takes it.
    done = [((wait + 1) / speed, host) for host, (wait, speed) in enumerate(zip(waits, speeds, strict=True))]
    heapq.heapify(done)
    loads = list(waits)
    fresh: list[int] = []
    for _ in range(slices):
        _, host = done[0]
        loads[host] += 1
        heapq.heapreplace(done, ((loads[host] + 1) / speeds[host], host))
        fresh.append(host)
    known = before is not None and len(before) == slices and max(before) < len(speeds)
    return tuple(before) if before and known and longest(before) <= UNEVEN * longest(fresh) else tuple(fresh)


def learn_speeds(known: Sequence[float], rates: Mapping[int, float], idle: Collection[int] = ()) -> tuple[float, ...]:
    """The hosts' speeds, 1 on average, after an epoch that measured rows per second of some of them.

    A host without work shows no speed: little by little it is taken for one like the others, so that it is tried again.

    >>> learn_speeds((1.0, 1.0), {0: 300.0, 1: 100.0}), learn_speeds((1.5, 0.5), {0: 300.0}, idle=[1])
    ((1.1, 0.9), (1.4851, 0.5149))
    """
    learned = list(known)
    unit = sum(rates.values()) / sum(known[host] for host in rates) if rates else 0.0
    for host, rate in rates.items():
        if unit:
            learned[host] += LEARNS * (rate / unit - known[host])
    working = [speed for host, speed in enumerate(known) if host not in idle]
    for host in idle if working else ():
        learned[host] += FORGETS * (sum(working) / len(working) - known[host])
    mean = sum(learned) / len(learned)
    return tuple(round(max(SLOWEST, speed / mean), 4) for speed in learned)
