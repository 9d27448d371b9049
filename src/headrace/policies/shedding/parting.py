"""Which queries of shared synopses are kept apart from the others, because what they need is worth more by itself.

Queries that share a synopsis lose the same rows. That is right where they need the same: a row is then worth the sum of
their weights for one cost. A heavy query that needs little suffers from a light one that needs much, though:

    needs                  cost of a row    weight    worth per cost
    heavy   sums                       1         9    9                   apart it is kept first
    light   sums, values               4         1    (9 + 1) / 4 = 2.5   together
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Sharer", "part_sharers"]

# Apart, queries need synopses of their own, which cost time in calm hours, too. It pays if weights differ by this
# factor and if under overload the heavy queries, or by fairness all of them, get so many times as much.
DIFFERS, PAYS = 4.0, 2.0


@dataclass(frozen=True, slots=True)
class Sharer:
    """A query, its weight, and by synopsis that it needs what a row costs there, in any unit."""

    query: str
    weight: float
    costs: Mapping[str, float]


def part_sharers(sharers: Sequence[Sharer], *, fair: bool = False) -> frozenset[str]:
    """The queries, the heaviest of all, that are to have synopses of their own; none where that does not pay.

    >>> sums, values = {"sums": 1.0}, {"sums": 1.0, "values": 3.0}
    >>> sorted(part_sharers([Sharer("heavy", 9.0, sums), Sharer("light", 1.0, values)]))
    ['heavy']
    >>> sorted(part_sharers([Sharer("heavy", 9.0, sums), Sharer("light", 1.0, sums)]))
    []
    """
    best, most = frozenset[str](), PAYS
    for least in sorted({each.weight for each in sharers}, reverse=True)[:-1]:
        heavy = [each for each in sharers if each.weight >= least]
        light = [each for each in sharers if each.weight < least]
        differs = least >= DIFFERS * max(each.weight for each in light)
        if differs and (gain := _gain(heavy, light, fair)) >= most:
            best, most = frozenset(each.query for each in heavy), gain
    return best


def _gain(heavy: Sequence[Sharer], light: Sequence[Sharer], fair: bool) -> float:
    """How many times as much parting brings: worth per cost of the heavy, or of rows by which all shares grow alike."""
    together, apart, rest = _cost([*heavy, *light]), _cost(heavy), _cost(light)
    if fair:
        most, others = (max(each.weight for each in some) for some in (heavy, light))
        return most * together / (most * apart + others * rest)
    mine, all_weights = (sum(each.weight for each in some) for some in (heavy, [*heavy, *light]))
    return mine / apart / (all_weights / together)


def _cost(sharers: Sequence[Sharer]) -> float:
    return sum({id_: cost for each in sharers for id_, cost in each.costs.items()}.values())
