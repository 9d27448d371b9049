"""At which periods the sub-groups of a group run, so that together they cost least.

Golab, Bijay, Ozsu, "Multi-Query Optimization of Sliding Window Aggregates by Schedule Synchronization", sections 4.2
and 4.3. A sub-group may run more often than asked if that makes it coincide with others: the execution then costs as
much as its longest window alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, inf, lcm

from headrace.policies.schedule.groups import Costs, SchedulePolicy, SubGroup

__all__ = ["PeriodChoice", "choose_periods", "cost_per_pane"]

# Instants are counted over the least common multiple of the periods, which is exact, if it is no longer than this.
EXACT_PANES = 1 << 17
# Otherwise over so many of the longest period: each period's share of time is then right to 1 %, mostly far better.
LONGEST_PERIODS = 100
# But never over more than this: what is due once in a million panes hardly costs anything beside what is due often.
MOST_PANES = 1 << 20
# The search compares, so it counts over a sixteenth of all these. Choices are judged by the full count in the end.
SEARCH_SHARE = 16
# Partial choices kept while searching: all there can be with six sub-groups.
WIDTH = 720
# With many sub-groups so many panes are looked at before the search narrows, about 10 ms.
SEARCH_WORK = 30_000_000
LEAST_WIDTH = 3
# Improvements mostly end after two rounds; more would only cost time.
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PeriodChoice:
    """The period in panes that each sub-group runs at, and costs per pane of event time."""

    policy: SchedulePolicy
    periods: Mapping[str, int]
    cost: float
    conservative_cost: float
    aggressive_cost: float
    reason: str


def choose_periods(policy: SchedulePolicy, subgroups: Sequence[SubGroup], costs: Costs) -> PeriodChoice:
    """Own periods (none, conservative), the shortest for all (aggressive), or the cheapest (hybrid).

    Aligned windows keep their periods under every policy. Hybrid is never costlier than conservative or aggressive.

    >>> example = [SubGroup("G1", 2, 10, 3), SubGroup("G2", 3, 15, 2), SubGroup("G3", 5, 30, 2)]
    >>> choose_periods(SchedulePolicy.HYBRID, example, Costs(-1, 1, 0)).reason
    'hybrid runs 3 sub-groups at 2 periods for 11.4 per pane; conservative 11.93, aggressive 14.5'
    """
    own = {subgroup.name: subgroup.period for subgroup in subgroups}
    shortest = min(own.values(), default=1)
    hurried = {s.name: s.period if s.every else shortest for s in subgroups}
    conservative = cost_per_pane(subgroups, own, costs)
    aggressive = cost_per_pane(subgroups, hurried, costs)
    match policy:
        case SchedulePolicy.NONE:
            periods, cost = own, sum(costs.of(s.panes, s.answers) / s.period for s in subgroups)
        case SchedulePolicy.CONSERVATIVE:
            periods, cost = own, conservative
        case SchedulePolicy.AGGRESSIVE:
            periods, cost = hurried, aggressive
        case _:
            found = _cheapest(subgroups, costs)
            # Own periods first: of equal choices the one that executes least often wins.
            options = [(conservative, own), (cost_per_pane(subgroups, found, costs), found), (aggressive, hurried)]
            cost, periods = min(options, key=lambda option: option[0])
    tasks = len(set(periods.values()))
    reason = (
        f"{policy} runs {_count(len(subgroups), 'sub-group')} at {_count(tasks, 'period')} for {_number(cost)} per pane"
        f"; conservative {_number(conservative)}, aggressive {_number(aggressive)}"
    )
    return PeriodChoice(policy, periods, cost, conservative, aggressive, reason)


def cost_per_pane(subgroups: Sequence[SubGroup], periods: Mapping[str, int], costs: Costs) -> float:
    """Average cost per pane of event time if all that is due at an instant is executed together.

    A joint execution costs what its longest window costs. Taken from the longest window down, a sub-group pays only
    for instants at which nothing longer is due. These are counted over the least common multiple of the periods where
    that is short, which is exact, and else over a hundred of the longest period. Answers are paid one by one.
    """
    instants = _Instants([(periods[s.name], s.phase) for s in subgroups])
    executed, count, total = 0, 0, 0.0
    for subgroup in sorted(subgroups, key=lambda s: -s.panes):
        joined = executed | instants.of(periods[subgroup.name], subgroup.phase)
        if joined != executed:
            before, executed, count = count, joined, joined.bit_count()
            total += costs.of(subgroup.panes, 0) * (count - before)
    answers = sum(costs.per_answer * s.answers / periods[s.name] for s in subgroups)
    return total / instants.panes + answers


class _Instants:
    """When something periodic is due, as the bits of an integer: bit `t` is the end of pane `t`."""

    def __init__(self, series: Sequence[tuple[int, int]], share: int = 1) -> None:
        # Only differences of phases matter, so a common divisor shortens what must be counted.
        self._unit = gcd(*(period for period, _ in series), *(phase for _, phase in series)) or 1
        every = lcm(*(period // self._unit for period, _ in series))
        most = max((period // self._unit for period, _ in series), default=1)
        longer = min(max(EXACT_PANES, LONGEST_PERIODS * most), MOST_PANES) // share
        self._length = every if every <= EXACT_PANES // share else longer
        self._known: dict[tuple[int, int], int] = {}

    @property
    def panes(self) -> int:
        """Panes counted over."""
        return self._length * self._unit

    def of(self, period: int, phase: int = 0) -> int:
        """Instants `phase + n * period`."""
        key = (period, phase)
        if key not in self._known:
            first, covered = phase % period // self._unit, period // self._unit
            bits = 1 << first if first < self._length else 0
            while covered < self._length:
                bits |= bits << covered
                covered *= 2
            self._known[key] = bits & ((1 << self._length) - 1)
        return self._known[key]


@dataclass(frozen=True, slots=True)
class _Partial:
    """Periods of the sub-groups with the longest windows, the instants at which they are executed, and their cost."""

    cost: float
    executed: int
    periods: tuple[int, ...]


def _cheapest(subgroups: Sequence[SubGroup], costs: Costs) -> dict[str, int]:
    """The cheapest periods: a dynamic programme, and improvements of its result where it had to leave choices out.

    The programme goes over sub-groups from the longest window to the shortest. What the rest will cost depends on the
    choices so far only through the instants they execute at, so of all choices with the same instants the cheapest is
    kept. There can be many such sets: the best `width` go on, which makes the programme polynomial, and exact while
    there are no more.
    """
    ordered = sorted(subgroups, key=lambda s: (-s.panes, s.period, s.name))
    instants = _Instants([(s.period, s.phase) for s in ordered], SEARCH_SHARE)
    width = max(LEAST_WIDTH, min(WIDTH, SEARCH_WORK // max(1, instants.panes * len(ordered) ** 2)))
    known = sorted({s.period for s in ordered}, reverse=True)
    best, exact = [_Partial(0.0, 0, ())], True
    for subgroup in ordered:
        allowed = [subgroup.period] if subgroup.every else [p for p in known if p <= subgroup.period]
        series = [(p, instants.of(p, subgroup.phase), costs.per_answer * subgroup.answers / p) for p in allowed]
        price = costs.of(subgroup.panes, 0) / instants.panes
        merged: dict[int, _Partial] = {}
        for partial in best:
            before = partial.executed.bit_count()
            free = False
            for period, due, answers in series:
                executed = partial.executed | due
                added = executed.bit_count() - before
                if not added and free:
                    continue  # A longer period is free of charge already, and has fewer answers.
                free = free or not added
                cost = partial.cost + price * added + answers
                rival = merged.get(executed)
                if rival is None or cost < rival.cost:
                    merged[executed] = _Partial(cost, executed, (*partial.periods, period))
        exact = exact and len(merged) <= width
        best = sorted(merged.values(), key=lambda partial: (partial.cost, partial.periods))[:width]
    cheapest = best[0]
    if not exact:
        # Choices with few periods are dear at first, so the programme may have left them out: start there, too.
        starts = (frozenset(cheapest.periods), frozenset(known[-1:]))
        climbed = (_climb(used, ordered, known, instants, costs) for used in starts)
        cheapest = min(cheapest, *climbed, key=lambda partial: partial.cost)
    return {s.name: period for s, period in zip(ordered, cheapest.periods, strict=True)}


def _climb(
    used: frozenset[int], ordered: Sequence[SubGroup], known: Sequence[int], instants: _Instants, costs: Costs
) -> _Partial:
    """Adds and removes one period in use after another, a few times round, where that is cheaper."""
    best = _filled(used, ordered, instants, costs, inf)
    assert best is not None
    for _ in range(ROUNDS):
        before = best.cost
        for period in known[:-1]:
            other = _filled(used ^ {period}, ordered, instants, costs, best.cost)
            if other is not None:
                used, best = used ^ {period}, other
        if best.cost == before:
            break
    return best


def _filled(
    used: frozenset[int], ordered: Sequence[SubGroup], instants: _Instants, costs: Costs, below: float
) -> _Partial | None:
    """Each sub-group at the longest of the periods in use that it may run at; None unless the cost is `below`."""
    rising = sorted(used)
    executed, count, cost, periods = 0, 0, 0.0, []
    for s in ordered:
        position = bisect_right(rising, s.period)
        period = s.period if s.every or not position else rising[position - 1]
        joined = executed | instants.of(period, s.phase)
        if joined != executed:
            before, executed, count = count, joined, joined.bit_count()
            cost += costs.of(s.panes, 0) / instants.panes * (count - before)
        cost += costs.per_answer * s.answers / period
        if cost >= below:
            return None
        periods.append(period)
    return _Partial(cost, executed, tuple(periods))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:.4g}"
