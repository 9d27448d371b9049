"""How a join is spread over hosts: decided before an epoch from what is remembered, and remembered after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model import JoinDecision, JoinMeasures, JoinSample, JoinState, JoinWay, SideSample
from headrace.planning.join import LEFT, RIGHT, JoinPlan
from headrace.planning.sharing import Workload
from headrace.policies import JoinStats, SideStats, StreamClock, choose_way, learn_speeds, watermark_of

__all__ = [
    "JoinEpoch",
    "SideEpoch",
    "advance_us",
    "closed_us",
    "decide_join",
    "expired_rows",
    "host_rates",
    "last_row_us",
    "learn_join",
    "may_shed_join",
    "window_us",
]

# Slices per host: enough to give a host that is half as fast half as many.
SLICES_PER_HOST = 4
# Epochs over which rates, shares of keys and speeds are sampled before a way is chosen anew.
PERIOD = 5
# What a side is taken for before its first epoch.
FIRST = SideStats(1000.0, 5000.0)
# Hashes that a sample remembers.
HEAVIEST = 32
# A host that worked for less says more about the clock than about its speed.
LEAST_BUSY_S = 0.2
SIDES = (LEFT, RIGHT)
# Before any watermark.
_EVER = -(2**62)


def decide_join(
    plan: JoinPlan,
    state: JoinState | None,
    hosts: int,
    wanted: str,
    memory_bytes: float | None,
    *,
    urgent: bool = False,
) -> JoinDecision:
    """How a join runs in the coming epoch; `wanted` is what the pipeline asks for, `memory_bytes` a host's.

    `urgent` says that an even spread of joins is to help against overload.
    """
    if state is None:
        slices = SLICES_PER_HOST * hosts
        way = _wanted(plan, None, slices, hosts, wanted, memory_bytes)
        return JoinDecision(way, slices, (1.0,) * hosts, sampled=True, guess=True, mixed=False)
    # The first choice is a guess: what the first epoch brings decides the second. Overload does not wait.
    due = urgent or state.guess or state.sample.epochs >= PERIOD or max(state.way.hosts) >= hosts
    way = _wanted(plan, state, state.slices, hosts, wanted, memory_bytes) if due else state.way
    mixed = way.cut_by != state.way.cut_by or state.until is not None
    return JoinDecision(way, state.slices, _known_speeds(state, hosts), due, guess=False, mixed=mixed)


@dataclass(frozen=True)
class SideEpoch:
    """One side in an epoch: rows that came and those of them left out, sampled hashes of keys, and what hosts hold."""

    rows: int = 0
    shed: int = 0
    sampled: int = 0
    heavy: Mapping[int, int] = field(default_factory=dict)
    held_rows: int = 0
    held_bytes: int = 0


@dataclass(frozen=True)
class JoinEpoch:
    """What an epoch tells of a join: its sides, whether rows came at all, and how far event time went.

    By side, `last_us` is the last row before the epoch, and `expired` the time before which no row is needed any more.
    `rates` are the rows per second of hosts that had enough to do to tell.
    """

    left: SideEpoch
    right: SideEpoch
    came: bool
    advance_us: int
    last_us: Mapping[str, int]
    expired: Mapping[str, int]
    rates: Mapping[int, float] = field(default_factory=dict)

    def side(self, role: str) -> SideEpoch:
        return self.left if role == LEFT else self.right


def learn_join(forms: tuple[str, ...], state: JoinState | None, decision: JoinDecision, epoch: JoinEpoch) -> JoinState:
    """What the next decisions are made by; `forms` are those of the rows that the join keeps."""
    sample = JoinSample() if decision.sampled or state is None else state.sample
    sides = [_sampled(sample.side(side), epoch.side(side)) for side in SIDES]
    until = None if state is None else state.until
    if state is not None and decision.way.cut_by != state.way.cut_by:
        # From now on keys are cut otherwise: until what is here has expired, a key may be in blocks of both kinds.
        until = dict(epoch.last_us)
    if until is not None and all(epoch.expired[side] > until[side] for side in SIDES):
        until = None
    idle = set(range(len(decision.speeds))) - set(decision.way.hosts)
    return JoinState(
        decision.way,
        decision.slices,
        decision.guess,
        forms,
        until,
        JoinSample(sample.epochs + epoch.came, sample.advance_us + epoch.advance_us, *sides),
        (0 if state is None else state.shed) + epoch.left.shed + epoch.right.shed,
        tuple(learn_speeds(decision.speeds, epoch.rates, idle=idle)),
    )


def host_rates(measures: JoinMeasures, hosts: Sequence[int], known: int) -> dict[int, float]:
    """Rows per second of the hosts that had enough to do; `hosts` are those of the measures, `known` how many count."""
    found = zip(hosts, measures.received, measures.held, measures.seconds, strict=True)
    return {h: (sum(got) + sum(held)) / s for h, got, held, s in found if s > LEAST_BUSY_S and h < known}


def may_shed_join(workload: Workload, node: str) -> bool:
    """Whether rows may be left out: of an outer join that would make others look as if they had met nobody."""
    trees = (workload.queries[query].tree for query in workload.queries_over(node))
    return all(not isinstance(plan, JoinPlan) or plan.join.how == "inner" for tree in trees for plan in tree)


def window_us(plan: JoinPlan, side: str) -> int:
    """How long a row of a side can meet others."""
    return (plan.join.left if side == LEFT else plan.join.right).window.size_us


def closed_us(plan: JoinPlan, side: str, clocks: Mapping[str, StreamClock]) -> int | None:
    """The time before which rows of a side can meet no row to come; None before there is any."""
    other = RIGHT if side == LEFT else LEFT
    now = watermark_of(clocks, plan.streams[other])
    return None if now is None else now - window_us(plan, side)


def expired_rows(plan: JoinPlan, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
    """Per side the time before which no row can be met by a row to come, nor is needed to tell who met nobody."""
    found: dict[str, int] = {}
    for side, other in (SIDES, SIDES[::-1]):
        closed = closed_us(plan, side, clocks)
        times = [_EVER if closed is None else closed]
        if plan.preserves(other):
            theirs = closed_us(plan, other, clocks)
            # A row of the other side that is open may have met rows as old as this side's range before it.
            times.append(_EVER if theirs is None else theirs - window_us(plan, side))
        found[side] = min(times)
    return found


def last_row_us(plan: JoinPlan, side: str, clocks: Mapping[str, StreamClock]) -> int:
    """The time of the last row of a side; before any time where there is none."""
    known = [clocks[stream].last_us for stream in plan.streams[side]]
    return max((last for last in known if last is not None), default=_EVER)


def advance_us(plan: JoinPlan, before: Mapping[str, StreamClock], after: Mapping[str, StreamClock]) -> int:
    """How far an epoch has brought event time."""
    first, last = (max(last_row_us(plan, side, clocks) for side in SIDES) for clocks in (before, after))
    return 0 if first == _EVER else last - first


def _wanted(
    plan: JoinPlan, state: JoinState | None, slices: int, hosts: int, wanted: str, memory_bytes: float | None
) -> JoinWay:
    stats = JoinStats(
        _stats(state, LEFT, window_us(plan, LEFT)),
        _stats(state, RIGHT, window_us(plan, RIGHT)),
        bool(plan.equal),
        _known_speeds(state, hosts),
        memory_bytes,
    )
    return choose_way(stats, wanted, None if state is None else state.way, slices)


def _stats(state: JoinState | None, side: str, size_us: int) -> SideStats:
    if state is None or not state.sample.epochs:
        return FIRST
    sample = state.sample
    mine, rows = sample.side(side), sample.side(side).rows / sample.epochs
    heavy = {key: count / max(1, mine.sampled) for key, count in mine.heavy.items() if count > 1}
    if mine.window_rows is not None:
        # What would be held if nothing were shed.
        window_rows = mine.window_rows / state.way.keep
    else:
        # Pairs that Spark finishes come without an account of what was read: as many epochs as the window is long.
        window_rows = rows * max(1.0, size_us * sample.epochs / max(1, sample.advance_us))
    return SideStats(rows, window_rows, 100.0 if mine.row_bytes is None else mine.row_bytes, heavy)


def _sampled(sample: SideSample, epoch: SideEpoch) -> SideSample:
    """A sample with one epoch more: rows, counts of the heaviest hashes, and the most that a window held.

    Where the other side brings nothing, a window is not looked at: so the most of a period counts.
    """
    counts = dict(sample.heavy)
    for key, count in epoch.heavy.items():
        counts[key] = counts.get(key, 0) + count
    heaviest = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:HEAVIEST]
    rows, size = epoch.held_rows, epoch.held_bytes
    more = bool(rows) and rows >= (sample.window_rows or 0)
    return SideSample(
        sample.rows + epoch.rows,
        sample.sampled + epoch.sampled,
        dict(heaviest),
        rows if more else sample.window_rows,
        round(size / rows, 2) if more else sample.row_bytes,
    )


def _known_speeds(state: JoinState | None, hosts: int) -> tuple[float, ...]:
    known = () if state is None else state.speeds
    return known if len(known) == hosts else (1.0,) * hosts
