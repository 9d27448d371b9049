"""Which fraction of each bucket of keys is kept, so that rare groups stay whole and the frequent ones pay."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BUCKETS", "protect_rare"]

# Keys are hashed into so many buckets: a rare key is whole unless it shares its bucket with a frequent one.
BUCKETS = 64


def protect_rare(counts: Sequence[float], keep: float) -> tuple[float, ...]:
    """By bucket the fraction to keep, given its rows of late, so that `keep` of all rows are kept.

    Every bucket keeps all its rows, or as many rows as every other bucket that loses some (water-filling). Where
    nothing has been counted, all buckets keep the same fraction.

    >>> protect_rare([1000.0, 10.0, 10.0], 0.5)
    (0.49, 1.0, 1.0)
    """
    total = float(sum(counts))
    if total <= 0:
        return (keep,) * len(counts)
    room, left = keep * total, sorted(count for count in counts if count > 0)
    level = room
    while left:
        level = room / len(left)
        if left[0] > level:
            break
        room -= left.pop(0)
    return tuple(1.0 if count <= level else round(level / count, 4) for count in counts)
