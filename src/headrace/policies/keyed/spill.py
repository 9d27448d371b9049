"""Which mini-partitions stay in memory, and which take turns on disk, where a bin's state does not fit (section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model import Residence
from headrace.policies.keyed.flux import MiniLoad

__all__ = ["reside"]

# What comes back from disk is so many times as warm as what goes there in its place: each such change is a read.
CLEARLY = 1.5


def reside(minis: Sequence[MiniLoad], memory_bytes: int, before: Residence) -> Residence:
    """The coldest go to disk, fewest rows first, until the rest and the largest of those on disk fit together.

    One that has been on disk comes back when there is room, or another is clearly colder. Those on disk take turns:
    each epoch as many as fit into what is left, at least one, the longest waiting first.

    >>> minis = [MiniLoad(0, 90, 40), MiniLoad(1, 5, 40), MiniLoad(2, 50, 40)]
    >>> reside(minis, 200, Residence())
    Residence(spilled=(), turn=())
    >>> reside(minis, 90, Residence())
    Residence(spilled=(1, 2), turn=(1,))
    >>> reside(minis, 90, reside(minis, 90, Residence()))
    Residence(spilled=(2, 1), turn=(2,))
    """
    by_number = {mini.mini: mini for mini in minis}
    left = sum(mini.state_bytes for mini in minis)
    if left <= memory_bytes:
        return Residence()
    chosen: list[int] = []
    largest = 0
    were = frozenset(before.spilled)
    cold = {m.mini: (m.rows / CLEARLY, 0) if m.mini in were else (float(m.rows), 1) for m in minis}
    for mini in sorted(minis, key=lambda m: (cold[m.mini], -m.state_bytes, m.mini)):
        if left + largest <= memory_bytes:
            break
        if mini.state_bytes:
            chosen.append(mini.mini)
            left -= mini.state_bytes
            largest = max(largest, mini.state_bytes)
    # Who had a turn goes to the end of the queue; who is new on disk had its rows processed until now.
    waiting = [m for m in before.spilled if m in chosen and m not in before.turn]
    queue = waiting + [m for m in before.turn if m in chosen]
    queue += [m for m in chosen if m not in queue]
    turn: list[int] = []
    room = memory_bytes - left
    for number in queue:
        if turn and by_number[number].state_bytes > room:
            break
        turn.append(number)
        room -= by_number[number].state_bytes
    return Residence(tuple(queue), tuple(turn))
