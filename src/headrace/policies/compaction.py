"""Which state chunks to merge, so that their number stays small and every row is rewritten a few times only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["FAN_IN", "ChunkSize", "Merge", "NoMerge", "plan_merge"]

# Sixteen small chunks become one per bin: a pane is rewritten log16(chunks per window) times, and at most about
# 16 * bins * log16(chunks per window) chunks are open.
FAN_IN = 16
# A chunk of this size costs more to write again than it saves to have fewer of them, up to so many.
LARGE_BYTES, MOST_LARGE = 1 << 21, 96


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """A chunk's name, how often it has been merged (`level`), the greatest pane end it holds, and its size."""

    name: str
    level: int
    last_end_us: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Merge:
    """These chunks become one of the given level."""

    chunks: tuple[str, ...]
    level: int
    reason: str


@dataclass(frozen=True, slots=True)
class NoMerge:
    """Nothing to merge."""

    reason: str


def plan_merge(chunks: Sequence[ChunkSize], fan_in: int = FAN_IN, pieces: int = 1) -> Merge | NoMerge:
    """Merges the highest level that is full; a merge makes up to `pieces` chunks, one per bin.

    Highest first, because an epoch of many tasks fills the lowest level every time. A merged level is full when it
    holds `fan_in` merges, or merging would go round and round without leaving fewer chunks. Large chunks are left as
    they are while there are not too many.

    >>> plan_merge([ChunkSize(str(i), 0, i) for i in range(3)], fan_in=3)
    Merge(chunks=('0', '1', '2'), level=1, reason='3 chunks of level 0')
    >>> plan_merge([ChunkSize("a", 0, 1)])
    NoMerge(reason='1 chunk, fewer than 16 of any level')
    """
    worth = [chunk for chunk in chunks if chunk.bytes < LARGE_BYTES or len(chunks) > MOST_LARGE]
    levels = sorted({chunk.level for chunk in worth}, reverse=True)
    for level in levels:
        full = [chunk for chunk in worth if chunk.level == level]
        if len(full) >= fan_in * (pieces if level else 1):
            return Merge(tuple(c.name for c in full), level + 1, f"{len(full)} chunks of level {level}")
    plural = "chunk" if len(chunks) == 1 else "chunks"
    return NoMerge(f"{len(chunks)} {plural}, fewer than {fan_in} of any level")
