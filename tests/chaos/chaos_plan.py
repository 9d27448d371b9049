"""What happens under a seed, as frozen values: the streams, the queries that come and go, and every fault.

A plan is a function of its seed alone. It consists of lives: a life is one process of the engine, which the plan ends
by a kill, all but the last. A life consists of acts: an act is one run of the pipeline over some more input, with its
faults. What a seed cannot tell is when exactly a fault meets a process that is at work; that it met it is noted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

# An epoch takes one file of each stream; a file covers so many seconds of event time.
STEP_S = 20
LATENESS_S = {"q": 20, "r": 30}
AHEAD_S = 15
# The clock goes on while nobody runs: an epoch that is run again and asked the clock again would admit other rows.
LIFE_S = 7
# Points that every epoch with rows passes.
POINTS = ("before-decision", "after-decision", "mid-state", "after-state", "after-sinks", "before-manifest",
          "after-manifest")  # fmt: skip
# "mid-carry" and its like are passed by some epochs only; a kill there may come at the end of its act instead.
RARE_POINTS = ("mid-sinks", "after-keyed")
# Faults after which a run must go on as if nothing had happened; the others may end the run, never a query.
HARMLESS = frozenset({"kill worker", "stop", "clock", "rival", "kill executor"})


@dataclass(frozen=True)
class Ask:
    """One query; its kind says which of the other numbers matter."""

    name: str
    kind: str  # hop, slide, total, having, pairs, left, rows, counted
    size_s: int = 0
    slide_s: int = 0
    where: str = "TRUE"
    sink: str = "parquet"  # delta, jdbc

    @property
    def is_flow(self) -> bool:
        """Whether results come with the rows instead of with windows."""
        return self.kind in ("pairs", "left", "rows", "counted")


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, the point of an epoch it comes at (the nth time of the act), and what it is about."""

    kind: str
    point: str = ""
    nth: int = 0
    seconds: float = 0.0  # until it comes, how long it lasts, or how far the clock goes
    operation: int = 0  # of a storage error: after how many others
    after: bool = False  # of a storage error: it is told after the operation was carried out
    target: str = ""

    def __str__(self) -> str:
        where = f" at {self.point} #{self.nth}" if self.point else ""
        more = f" {self.seconds:+.2f} s" if self.seconds else ""
        if self.kind == "storage error":
            more += f", operation {self.operation}, {'after' if self.after else 'instead of'} its effect"
        return f"{self.kind}{' of ' + self.target if self.target else ''}{where}{more}"


@dataclass(frozen=True)
class Act:
    """One run: the files of each stream it is given, the queries that run, and its faults.

    In a live act the queries of the act before run first, and the pipeline file is edited half way.
    """

    first: int
    last: int
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    live: bool = False
    flush: bool = False


@dataclass(frozen=True)
class Life:
    """One process of the engine."""

    cores: int
    bins: int
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Plan:
    """All that a seed says."""

    seed: int
    rows: int  # of a file, at most
    kafka: bool
    postgres: bool
    cluster: bool
    by_chance: bool  # ways to join and places of state are drawn in every epoch
    lives: tuple[Life, ...]

    @property
    def files(self) -> int:
        return self.lives[-1].acts[-1].last

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for life in self.lives for act in life.acts for fault in act.faults)

    def __str__(self) -> str:
        kinds = [word for word in ("kafka", "postgres", "cluster", "by_chance") if getattr(self, word)]
        lines = [f"seed {self.seed}: {self.files} files of up to {self.rows} rows{''.join(f', {k}' for k in kinds)}"]
        before: tuple[Ask, ...] = ()
        for number, life in enumerate(self.lives):
            lines.append(f"  life {number}: {life.cores} cores, asks for {life.bins} bins")
            for act in life.acts:
                what = ("live " if act.live else "") + ("flush " if act.flush else "")
                lines.append(f"    {what}files {act.first}..{act.last - 1}: {'; '.join(map(str, act.faults)) or '-'}")
                lines += [f"      + {ask}" for ask in act.asks if ask not in before]
                lines += [f"      - {ask.name}" for ask in before if ask not in act.asks]
                before = act.asks
        return "\n".join(lines)


def make_plan(seed: int, kafka: bool = True, postgres: bool = True, cluster: bool = True, brief: bool = False) -> Plan:
    """The plan of a seed; services that are not to be had are left out, and the plan is another one then.

    A brief one has a life less and longer ones: most of the time of a life goes by until its first epoch is done.
    """
    rng = random.Random(f"headrace {seed}")
    place = rng.choices(["plain", "kafka", "postgres", "both", "cluster"], [8, 4, 3, 3, 2])[0]
    place = place if {"kafka": kafka, "postgres": postgres, "both": kafka and postgres, "cluster": cluster}.get(
        place, True) else "plain"  # fmt: skip
    on_cluster = place == "cluster"
    asks = _first_asks(rng, place in ("postgres", "both"))
    lives: list[Life] = []
    count = 2 if on_cluster or brief else 3
    turns = 3 if brief else 2
    file = 0
    number = 0
    kinds = ["kill worker", "stop", "storage error", "full disk", "clock", "rival"] + ["kill executor"] * 3 * on_cluster
    rng.shuffle(kinds)
    for at in range(count):
        acts: list[Act] = []
        last_life = at == count - 1
        for turn in range(turns):
            if number:
                asks = _edited(rng, asks, number)
            faults = _faults(rng, kinds[number % len(kinds)], turn == turns - 1 and not last_life)
            files = rng.randint(2, 3)
            live = number > 0 and not on_cluster and rng.random() < 0.4
            acts.append(Act(file, file + files, asks, faults, live))
            file += files
            number += 1
        if last_life:
            if rng.random() < 0.4 and not brief:
                # The next life finds a flush that nobody has ended.
                death = Fault("kill driver", rng.choice(["after-decision", "after-sinks", "after-manifest"]), 2)
                acts.append(Act(file, file + 2, asks, (death,), flush=True))
                lives.append(_life(rng, acts, on_cluster))
                acts, file = [], file + 2
            acts.append(Act(file, file, asks, (), flush=True))
        lives.append(_life(rng, acts, on_cluster))
    return Plan(seed, rng.choice([40, 90, 150]), place in ("kafka", "both"), place in ("postgres", "both"), on_cluster,
                rng.random() < 0.4, tuple(lives))  # fmt: skip


def _life(rng: random.Random, acts: list[Act], on_cluster: bool) -> Life:
    return Life(2 if on_cluster else rng.choice([1, 2, 2, 3]), rng.choice([1, 2, 3]), tuple(acts))


def _first_asks(rng: random.Random, postgres: bool) -> tuple[Ask, ...]:
    """Queries that run from the first row to the last."""
    sinks = ["parquet", "delta"] + ["jdbc"] * 2 * postgres
    asks = [
        Ask("hop", "hop", 40, 20, sink="jdbc" if postgres else rng.choice(sinks)),
        Ask("slide", "slide", 60, 20, sink=rng.choice(["parquet", "parquet", "delta"])),
        Ask("pairs", "pairs", 9, 4, sink=rng.choice(["parquet", "delta"])),
        Ask("rows", "rows", rng.randint(2, 6), sink="parquet"),
        Ask("counted", "counted", sink="parquet"),
    ]
    more = [
        Ask("total", "total", 40, 20, sink="parquet"),
        Ask("having", "having", 50, 10, sink=rng.choice(sinks)),
        Ask("lake", "hop", 20, 20, sink="delta"),
        Ask("outer", "left", 6, 2, sink="parquet"),
    ]
    return (*asks, *rng.sample(more, 2))


def _edited(rng: random.Random, asks: tuple[Ask, ...], number: int) -> tuple[Ask, ...]:
    """The queries after an edit: a guest comes, goes, or is given another SQL and place."""
    guests = [ask for ask in asks if ask.name.startswith("guest")]
    kind = rng.choice(["add", "add", "drop", "change", "nothing"])
    if kind in ("drop", "change") and guests:
        gone = rng.choice(guests)
        kept = tuple(ask for ask in asks if ask is not gone)
        return kept if kind == "drop" else (*kept, replace(_guest(rng, number), name=gone.name))
    return (*asks, _guest(rng, number)) if kind == "add" else asks


def _guest(rng: random.Random, number: int) -> Ask:
    kind, sink = rng.choice(["hop", "slide", "pairs", "rows"]), rng.choice(["parquet", "delta"])
    where = rng.choice(["TRUE", "g < 2", "i > 0"])
    if kind == "pairs":
        return Ask(f"guest{number}", kind, rng.randint(2, 8), rng.randint(0, 5), sink=sink)
    if kind == "rows":
        return Ask(f"guest{number}", kind, rng.randint(2, 5), where=where)
    slide = rng.choice([10, 20])
    return Ask(f"guest{number}", kind, slide * rng.randint(1, 3), slide, where=where, sink=sink)


def _faults(rng: random.Random, kind: str, deadly: bool) -> tuple[Fault, ...]:
    """The faults of an act; what ends the run comes after what does not."""
    first = _fault(rng, kind)
    if deadly and rng.random() < 0.3:
        return (Fault("kill driver", seconds=rng.uniform(0.1, 5)),)
    if deadly:
        # Whoever is stopped would stay so if its driver died; the clock is set between two epochs of a run.
        quick = (replace(first, nth=0),) if kind in HARMLESS - {"stop", "clock"} else ()
        return (*quick, Fault("kill driver", rng.choice([*POINTS, *RARE_POINTS]), 1))
    if kind in HARMLESS and rng.random() < 0.4:
        return first, _fault(rng, rng.choice(["kill worker", "stop", "clock"]))
    return (first,)


def _fault(rng: random.Random, kind: str) -> Fault:
    point, nth = rng.choice(POINTS), rng.randint(0, 1)
    match kind:
        case "kill worker":
            # Where tasks are at work soon after.
            return Fault(kind, rng.choice(["mid-state", "after-state", "after-decision"]), nth, rng.uniform(0, 0.3))
        case "kill executor":
            return Fault(kind, rng.choice(["mid-state", "after-state"]), nth, rng.uniform(0, 0.5))
        case "stop":
            return Fault(kind, point, nth, rng.uniform(0.5, 2), target=rng.choice(["driver", "worker"]))
        case "storage error":
            # The last epoch of an act has few operations left after its sinks: there it is the first one's turn.
            nth = 0 if point in ("after-sinks", "before-manifest", "after-manifest") else nth
            return Fault(kind, point, nth, operation=rng.randint(0, 9), after=rng.random() < 0.5)
        case "clock":
            return Fault(kind, seconds=float(rng.choice([3600, -3600, 7, 7, -12, -12])))
        case _:
            return Fault(kind, point, nth)
