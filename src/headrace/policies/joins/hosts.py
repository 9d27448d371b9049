"""How many hosts a join is given, and which: as many as bear its work, each of which costs a copy of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.policies.joins.diffusion import spread_slices

__all__ = ["JoinDemand", "choose_hosts"]


@dataclass(frozen=True, slots=True)
class JoinDemand:
    """What a join costs per second, and what receiving the copied stream costs every host it has."""

    work: float
    copied: float


def choose_hosts(joins: Sequence[JoinDemand], speeds: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """The hosts of each join: the fastest free host goes to the join that lacks most, until none lacks any.

    A host bears `speed - copied` of a join's work: k hosts receive (k - 1) more copies than one (Gu, Yu, section 3). So
    a host too slow for the copies is not given, and no join has more hosts than its work needs. Where joins are more
    than hosts, each has one.

    >>> choose_hosts([JoinDemand(25.0, 1.0), JoinDemand(5.0, 1.0)], [10.0] * 8)
    ((0, 2, 3), (1,))
    """
    if len(joins) >= len(speeds):
        return tuple((host,) for host in spread_slices(len(joins), speeds))
    given: list[list[int]] = [[] for _ in joins]
    lacks = [join.work for join in joins]
    for host in sorted(range(len(speeds)), key=lambda h: (-speeds[h], h)):
        join = min(range(len(joins)), key=lambda j: (bool(given[j]), -lacks[j], j))
        gain = speeds[host] - joins[join].copied
        if given[join] and (lacks[join] <= 0 or gain <= 0):
            break
        given[join].append(host)
        lacks[join] -= gain
    return tuple(tuple(sorted(hosts)) for hosts in given)
