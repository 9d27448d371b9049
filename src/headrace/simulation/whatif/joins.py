"""Joins in simulated time: what each host gets, holds and makes of an epoch's rows, the way it was decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model import JoinDecision, JoinMeasures, JoinState
from headrace.planning import LEFT, RIGHT, JoinPlan, SideEpoch, window_us
from headrace.policies.joins.diffusion import HELD_S, RECEIVED_S
from headrace.simulation.whatif.machine import PAIR_S, Joined
from headrace.units import SECOND_US

__all__ = ["JoinWorld", "PlayedJoin"]

SIDES = (LEFT, RIGHT)
# Rows of an epoch whose hashes are looked at.
SAMPLED = 1000
# Bytes of a row of which nothing is known.
ROW_BYTES = 100.0
# Parts in which a window that was full before is emptied again.
FILLED = 16
# Values of a key beside the heavy ones.
OTHER_VALUES = 1000.0


@dataclass(frozen=True)
class PlayedJoin:
    """A join's part of an epoch: what hosts measured, the seconds until the last was done, and what is learned."""

    measures: JoinMeasures
    seconds: float
    pairs: float
    left: SideEpoch
    right: SideEpoch


@dataclass
class JoinWorld:
    """One join: the rows of each side that still meet others, and how its keys' hashes are spread."""

    plan: JoinPlan
    costs: Joined
    heavy: Mapping[str, Mapping[int, float]]
    row_bytes: float = ROW_BYTES
    held: dict[str, deque[tuple[int, float]]] = field(default_factory=lambda: {side: deque() for side in SIDES})

    @classmethod
    def of(cls, plan: JoinPlan, costs: Joined, state: JoinState | None) -> JoinWorld:
        """A join whose hot keys are as a run has sampled them."""
        if state is None:
            return cls(plan, costs, {side: {} for side in SIDES})
        heavy = {}
        for side in SIDES:
            sample = state.sample.side(side)
            heavy[side] = {key: n / max(1, sample.sampled) for key, n in sample.heavy.items() if n > 1}
        known = state.sample.left.row_bytes or state.sample.right.row_bytes
        return cls(plan, costs, heavy, ROW_BYTES if known is None else known)

    def holds(self, side: str) -> float:
        """Rows of a side that still meet others."""
        return sum(rows for _, rows in self.held[side])

    def play(
        self,
        decision: JoinDecision,
        offered: Mapping[str, float],
        now_us: int,
        speeds: Sequence[float],
        keys: float = 1.0,
    ) -> PlayedJoin:
        """An epoch that brings so many rows to each side, of which the way may keep a part.

        `keys` is the part of the keys whose rows are kept, on both sides: what is kept matches as often as before.
        """
        rows = {side: offered[side] * decision.way.keep * keys for side in SIDES}
        pairs = 0.0
        for side, other in (SIDES, SIDES[::-1]):
            kept = self.held[side]
            while kept and kept[0][0] < now_us - window_us(self.plan, side):
                kept.popleft()
            # Of two rows of one epoch either may be the first.
            pairs += self.costs.matching / max(keys, 1e-9) * rows[side] * (self.holds(other) + 0.5 * rows[other])
        for side in SIDES:
            if rows[side]:
                self.held[side].append((now_us, rows[side]))
        hosts = max(decision.way.hosts) + 1
        received, held, made = self._spread(decision, rows, pairs, hosts)
        work = [
            RECEIVED_S * sum(r) + HELD_S * sum(h) + PAIR_S * p for r, h, p in zip(received, held, made, strict=True)
        ]
        taken = [self.costs.host.of(each, speeds[host]) for host, each in enumerate(work)]
        measures = JoinMeasures(
            tuple((round(r[0]), round(r[1])) for r in received),
            tuple((round(h[0]), round(h[1])) for h in held),
            tuple(round(each, 4) for each in taken),
            round(pairs),
        )
        left, right = (self._side(side, offered[side], rows[side]) for side in SIDES)
        return PlayedJoin(measures, max(taken), pairs, left, right)

    def fill(self, side: str, now_us: int, rate: float) -> None:
        """A window that has been filled at a rate, in rows per second, until now."""
        size_us = window_us(self.plan, side)
        for part in range(FILLED):
            self.held[side].append((now_us - size_us * (FILLED - part) // FILLED, rate * size_us / SECOND_US / FILLED))

    def _side(self, side: str, offered: float, rows: float) -> SideEpoch:
        sampled = min(SAMPLED, round(rows))
        heavy = {key: n for key, share in self.heavy[side].items() if (n := round(share * sampled)) > 1}
        held = round(self.holds(side))
        return SideEpoch(
            round(offered), round(offered) - round(rows), sampled, heavy, held, round(held * self.row_bytes)
        )

    def _spread(
        self, decision: JoinDecision, rows: Mapping[str, float], pairs: float, hosts: int
    ) -> tuple[list[tuple[float, float]], list[tuple[float, float]], list[float]]:
        """By host the rows it is sent and holds of each side, and the pairs it makes."""
        gets = {side: self._parts(decision, side, hosts) for side in SIDES}
        received = [tuple(rows[side] * gets[side][0][host] for side in SIDES) for host in range(hosts)]
        held = [tuple(self.holds(side) * gets[side][1][host] for side in SIDES) for host in range(hosts)]
        weights = self._pairs(decision, hosts)
        made = [pairs * weight for weight in weights]
        return received, held, made  # type: ignore[return-value]

    def _parts(self, decision: JoinDecision, side: str, hosts: int) -> tuple[list[float], list[float]]:
        """The part of a side's rows that each host is sent, and that it holds."""
        even, whole, way = _dealt(decision, hosts), [1.0] * hosts, decision.way
        match way.way:
            case "split":
                return (even, even) if way.split == side else (whole, whole)
            case "biclique":
                return whole, even
            case "hash":
                hashed = self._hashed(decision, self.heavy[side], hosts)
                return hashed, hashed
            case _:
                hot = {key: share for key, share in self.heavy[side].items() if key in way.hot}
                cold = {key: share for key, share in self.heavy[side].items() if key not in way.hot}
                warm = min(1.0, sum(hot.values()))
                own = even if way.split == side else whole
                hashed = self._hashed(decision, cold, hosts, 1 - warm)
                mixed = [h + warm * o for h, o in zip(hashed, own, strict=True)]
                return mixed, mixed

    def _hashed(
        self, decision: JoinDecision, heavy: Mapping[int, float], hosts: int, total: float = 1.0
    ) -> list[float]:
        """Rows by hash: a heavy key is where its slice is, the others are everywhere."""
        rest = max(0.0, total - sum(heavy.values()))
        found = [rest * share for share in _dealt(decision, hosts)]
        for key, share in heavy.items():
            found[decision.way.hosts[key % decision.slices]] += share
        return found

    def _pairs(self, decision: JoinDecision, hosts: int) -> list[float]:
        """The part of all pairs that each host makes: those of a heavy key together, unless its rows are dealt out."""
        even, way = _dealt(decision, hosts), decision.way
        if way.way in ("split", "biclique"):
            return even
        left, right = self.heavy[LEFT], self.heavy[RIGHT]
        keys = sorted(left.keys() & right.keys())
        by_key = {key: left[key] * right[key] for key in keys if key not in way.hot}
        rests = max(0.0, 1 - sum(left.values())) * max(0.0, 1 - sum(right.values())) / OTHER_VALUES
        hot = sum(left[key] * right[key] for key in keys if key in way.hot)
        total = sum(by_key.values()) + rests + hot
        if total <= 0:
            return even
        found = [(rests + hot) / total * share for share in even]
        for key, part in by_key.items():
            found[way.hosts[key % decision.slices]] += part / total
        return found


def _dealt(decision: JoinDecision, hosts: int) -> list[float]:
    """The part of all slices that each host has."""
    counts = [0] * hosts
    for host in decision.way.hosts:
        counts[host] += 1
    return [count / decision.slices for count in counts]
