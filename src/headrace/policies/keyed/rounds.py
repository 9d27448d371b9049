"""Rounds of Flux: how long to collect before state moves again, and what was collected (section 5.3).

A collection is as long as the moves before it took, so that at most half of the time is spent moving; half as long as
the one before if nothing moved; and never shorter than a least, which grows by itself while moves go to and fro.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model import LEAST_S, Collected, Move, Rounds
from headrace.policies.keyed.flux import BinLoad, MiniLoad

__all__ = ["bins_of", "next_collection_s", "next_round", "utilisation"]

# After so long without a move even an hourly change of load is no thrashing any more.
MOST_LEAST_S = 600.0
# Thrashing is seen in flows of so many rounds.
REMEMBERED = 8
# The least doubles with every round that moves state back, and shrinks by a tenth with every round that does not.
GROWS, SHRINKS = 2.0, 0.9


def next_collection_s(collected_s: float, moves_s: float | None, least_s: float) -> float:
    """How long to collect next: as long as the moves took, or half as long as before if nothing moved (None).

    >>> next_collection_s(4.0, 2.5, 1.0), next_collection_s(4.0, None, 1.0), next_collection_s(1.5, None, 1.0)
    (2.5, 2.0, 1.0)
    """
    return max(least_s, collected_s / 2 if moves_s is None else moves_s)


def next_round(
    rounds: Rounds, moves: Sequence[Move], moves_s: float, least_s: float = LEAST_S, tunes: bool = True
) -> Rounds:
    """The round after these moves, which took so many seconds; none are a round too.

    The least collection is `least_s`, and more while moves go to and fro if it `tunes` itself.
    """
    known = tuple(flow for flow in rounds.flows if flow[0] > rounds.number - REMEMBERED)
    against = {(target, source) for _, source, target in known}
    thrashes = tunes and any((move.source, move.target) in against for move in moves)
    least = min(MOST_LEAST_S, rounds.least_s * GROWS) if thrashes else max(least_s, rounds.least_s * SHRINKS)
    return Rounds(
        rounds.number + 1,
        next_collection_s(rounds.collect_s, moves_s if moves else None, least),
        least,
        known + tuple((rounds.number, s, t) for s, t in dict.fromkeys((m.source, m.target) for m in moves)),
    )


def utilisation(idle_s: float, collected_s: float) -> float:
    """The share of the time in which a bin was not idle.

    >>> utilisation(2.0, 8.0), utilisation(0.0, 0.0)
    (0.75, 0.0)
    """
    return min(1.0, max(0.0, 1 - idle_s / collected_s)) if collected_s > 0 else 0.0


def bins_of(
    collected: Collected,
    owners: Sequence[int],
    state_bytes: Sequence[int],
    spilled: frozenset[int],
    memory_bytes: Sequence[int],
) -> tuple[BinLoad, ...]:
    """The bins as the policies see them; `owners[mini]` is the bin of a mini-partition."""
    minis: list[list[MiniLoad]] = [[] for _ in memory_bytes]
    for mini, owner in enumerate(owners):
        rows = collected.rows[mini] if collected.rows else 0
        minis[owner].append(MiniLoad(mini, rows, state_bytes[mini], mini in spilled))
    busy = collected.busy_s or (0.0,) * len(memory_bytes)
    return tuple(
        BinLoad(bin_, utilisation(collected.seconds - busy[bin_], collected.seconds), tuple(own), memory_bytes[bin_])
        for bin_, own in enumerate(minis)
    )
