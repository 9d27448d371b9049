"""Hot keys: a mini-partition with more rows than a bin's fair share slows all others, wherever it is.

Moving it does not help. Where an operator's state merges, several bins share its work; elsewhere it gets a bin of its
own, and whoever looks is told why that bin is the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.model import Isolate, Move, Split
from headrace.policies.keyed.flux import BinLoad, FluxLimits, MiniLoad, after_moves, has_room

__all__ = ["find_hot", "isolate", "split"]

# Rows seen before a share of them says anything.
LEAST_ROWS = 1000


def find_hot(bins: Sequence[BinLoad]) -> tuple[MiniLoad, ...]:
    """Mini-partitions with more than a bin's fair share of all rows, the hottest first."""
    total = sum(bin_.rows for bin_ in bins)
    if len(bins) < 2 or total < LEAST_ROWS:
        return ()
    found = [mini for bin_ in bins for mini in bin_.minis if mini.rows * len(bins) > total]
    return tuple(sorted(found, key=lambda mini: (-mini.rows, mini.mini)))


def split(bins: Sequence[BinLoad], before: Sequence[Split] = ()) -> tuple[Split, ...]:
    """Hot mini-partitions with the bins that share the work of each: as many as it has shares, its own and the idlest.

    One that is split stays so while it has half a fair share or more: splitting and joining again is work too. It gets
    more bins when it has come to more shares than bins.
    """
    total, known = sum(bin_.rows for bin_ in bins), {item.mini: item for item in before}
    hot = {mini.mini for mini in find_hot(bins)}
    found: list[Split] = []
    for bin_ in bins:
        for mini in bin_.minis:
            share = mini.rows / total if total else 0.0
            wanted = min(len(bins), math.ceil(share * len(bins)))
            enough = mini.mini in known and (total < LEAST_ROWS or len(known[mini.mini].bins) >= wanted)
            if enough and (total < LEAST_ROWS or 2 * share * len(bins) >= 1):
                found.append(known[mini.mini])
            elif mini.mini in hot:
                others = sorted((b for b in bins if b.bin != bin_.bin), key=lambda b: (b.utilisation, b.bin))
                helpers = (bin_.bin, *sorted(b.bin for b in others[: wanted - 1]))
                reason = f"it has {share:.0%} of all rows, a bin's fair share is {1 / len(bins):.0%}"
                found.append(Split(mini.mini, helpers, reason))
    return tuple(sorted(found, key=lambda item: item.mini))


def isolate(bins: Sequence[BinLoad], limits: FluxLimits | None = None) -> tuple[tuple[Isolate, ...], tuple[Move, ...]]:
    """Hot mini-partitions that stay alone in their bins, and the moves that take all others there away.

    Others go to the idlest bin that holds no hot one and has room; where there is none, they stay.
    """
    limits = limits or FluxLimits()
    hot = {mini.mini for mini in find_hot(bins)}
    total = sum(bin_.rows for bin_ in bins)
    alone = tuple(
        Isolate(
            mini.mini, bin_.bin,
            f"it has {mini.rows / total:.0%} of all rows, more than a bin's fair share of {1 / len(bins):.0%}, "
            "and its state cannot be split",
        )
        for bin_ in bins for mini in bin_.minis if mini.mini in hot
    )  # fmt: skip
    moves: list[Move] = []
    taken = {item.bin for item in alone}
    for item in alone:
        own = next(bin_ for bin_ in bins if bin_.bin == item.bin)
        for mini in sorted(own.minis, key=lambda m: (-m.rows, m.mini)):
            free = [bin_ for bin_ in bins if bin_.bin not in taken and has_room(mini, bin_, limits)]
            if mini.mini in hot or not free:
                continue
            target = min(free, key=lambda b: (b.utilisation, b.bin))
            move = Move(
                mini.mini,
                item.bin,
                target.bin,
                mini.state_bytes,
                f"bin {item.bin} is left to mini-partition {item.mini}, which is hot",
            )
            moves.append(move)
            bins = after_moves(bins, [move])
    return alone, tuple(moves)
