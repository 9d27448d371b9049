"""Places with several parents and their parents agree on shares, in a few rounds of reports and grants.

The parents report, the places grant (`shares.py`), and all plan on that. A parent that has used less than its share
reports less in the next round, so that the others are granted more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from headrace.policies.shedding.amounts import Amount
from headrace.policies.shedding.fit.propagate import Tables, Terms, build_tables, plan_by_tables, update_tables
from headrace.policies.shedding.network import Network, Port, expected
from headrace.policies.shedding.plan import Plan, outcome

__all__ = ["Agreement", "agree_on_shares"]

# Twice as many bring random graphs 0.1 % closer to the optimum.
ROUNDS = 4
# A parent that has used less than its share reports a little more than it has used, in case it can use more.
HOPE = Fraction(11, 10)


@dataclass(frozen=True)
class Agreement:
    """Tables that are built on agreed shares, the plan for the present rates, and the round that found them.

    Until the next agreement every place looks rates up in its table on its own.
    """

    tables: Tables
    plan: Plan
    round: int


def agree_on_shares(
    network: Network, rates: Mapping[Port, Amount], terms: Terms | None = None, rounds: int = ROUNDS
) -> Agreement:
    """The best agreement of some rounds."""
    terms = terms or Terms()
    full = expected(network, rates)
    tables = build_tables(network, replace(terms, reports=full))
    best: Agreement | None = None
    most: Amount = 0
    for number in range(1, rounds + 1):
        plan = plan_by_tables(network, tables, rates)
        worth = outcome(network, rates, plan, terms.objective).worth
        if best is None or worth > most:
            best, most = Agreement(tables, plan, number), worth
        if number < rounds:
            reports = {**full, **_used(tables, plan, full)}
            tables = update_tables(tables, network, replace(terms, reports=reports))
    assert best is not None
    return best


def _used(tables: Tables, plan: Plan, full: Mapping[Port, Amount]) -> dict[Port, Amount]:
    """The reports of parents that have sent less than their share; the others report all that they could send."""
    found: dict[Port, Amount] = {}
    for port, granted in tables.shares.items():
        kept = next(each for each in plan.places[port.place].inputs if each.input == port.input)
        if kept.arriving < granted:
            found[port] = min(kept.arriving * HOPE, full[port])
    return found
