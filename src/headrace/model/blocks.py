"""Blocks of a join's rows, and which host makes the pairs of two of them.

KEY          rows of one hash slice of the equality keys; held by the slice's host
ONCE         rows dealt out one by one, whatever their key; held by the slice's host
EVERYWHERE   rows dealt out likewise and copied; held by all hosts, the slice's host is their home
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EVERYWHERE", "KEY", "ONCE", "Block", "host_of"]

KEY, ONCE, EVERYWHERE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one side: how they are held, in which slice, and whether they came in this epoch."""

    kind: int
    slice: int
    fresh: bool


def host_of(left: Block, right: Block, hosts: Sequence[int], mixed: bool = True) -> int | None:
    """The host that makes the pairs of two blocks; None if there are none to make in this epoch.

    `hosts` gives the host of each slice. Not `mixed` says that no key is in KEY blocks of one side and in others of the
    other, as is so when the same keys have been hot for as long as the windows reach back.
    """
    if not (left.fresh or right.fresh):
        return None
    if left.kind == right.kind == KEY:
        return hosts[left.slice] if left.slice == right.slice else None
    if not mixed and KEY in (left.kind, right.kind):
        return None
    if left.fresh and right.fresh:
        return hosts[right.slice] if left.kind == EVERYWHERE else hosts[left.slice]
    held, new = (right, left) if left.fresh else (left, right)
    # What is held everywhere meets a new row at that row's home; what is held once has new rows sent to it.
    return hosts[new.slice] if held.kind == EVERYWHERE else hosts[held.slice]
