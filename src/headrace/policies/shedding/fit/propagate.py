"""The tables of a whole network, propagated from the leaves upstream, and updated where a cost or selectivity changes.

A table depends on its place, on the tables of the children and on the terms, and on nothing else. So after a change
only the changed places and their ancestors are built again, and only as far up as tables differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from headrace.policies.shedding.amounts import Amount
from headrace.policies.shedding.fit.build import Prepared, TableSettings, build_table
from headrace.policies.shedding.fit.look_up import look_up
from headrace.policies.shedding.fit.shares import grant, share_of
from headrace.policies.shedding.fit.table import Table
from headrace.policies.shedding.network import Network, Place, Port, rate_at
from headrace.policies.shedding.objective import Fair, Objective, Throughput
from headrace.policies.shedding.plan import PlacePlan, Plan

__all__ = ["Tables", "Terms", "build_tables", "plan_by_tables", "update_tables"]


@dataclass(frozen=True)
class Terms:
    """What tables are built for, beside the network; all mappings are by input.

    most         the highest rate that can arrive, rows per second, where known: a few times the highest rate seen
    reports      what the parents of places with several parents would send, rows per second
    row_prices   what a row is worth to the place that sends it, instead of what the child's table says
    """

    objective: Objective = field(default_factory=Throughput)
    settings: TableSettings = field(default_factory=TableSettings)
    most: Mapping[Port, Amount] = field(default_factory=dict)
    reports: Mapping[Port, Amount] = field(default_factory=dict)
    row_prices: Mapping[Port, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class Tables:
    """Every place with its table, the terms they were built on, and what places with several parents have granted."""

    places: Mapping[str, Prepared]
    terms: Terms
    shares: Mapping[Port, Amount] = field(default_factory=dict)


def build_tables(network: Network, terms: Terms | None = None) -> Tables:
    """All tables of a network; the inputs of places with several parents need reports or prices."""
    terms = terms or Terms()
    return _build(network, Tables({}, terms), terms)


def update_tables(tables: Tables, network: Network, terms: Terms | None = None) -> Tables:
    """The tables of a changed network, equal to building them anew; unchanged tables are the same objects."""
    return _build(network, tables, tables.terms if terms is None else terms)


def _build(network: Network, old: Tables, terms: Terms) -> Tables:
    found: dict[str, Prepared] = {}
    shares: dict[Port, Amount] = {}
    new = Tables(found, terms, shares)
    changed: set[str] = set()
    has_same_goal = (old.terms.objective, old.terms.settings) == (terms.objective, terms.settings)
    for name in reversed(network.in_order):
        place, before = network.by_name[name], old.places.get(name) if has_same_goal else None
        if (
            before is not None
            and before.place == place
            and not changed.intersection(network.children[name])
            and ((old.terms is terms and not network.shared) or _told(place, old) == _told(place, new))
        ):
            found[name] = before
        else:
            tables = {child: _table_for(name, child, network, new) for child in _asked(place, terms)}
            found[name] = build_table(
                place,
                tables,
                terms.objective,
                terms.settings,
                most=terms.most,
                row_prices=terms.row_prices,
                before=before,
            )
            if before is None or before.table != found[name].table:
                changed.add(name)
        ports = [Port(name, each.name) for each in place.inputs]
        if name in network.shared and all(port in terms.reports for port in ports):
            granted = grant(found[name], {port.input: terms.reports[port] for port in ports})
            shares |= {Port(name, key): rate for key, rate in granted.items()}
    return new


def _asked(place: Place, terms: Terms) -> list[str]:
    """The children whose tables a place needs."""
    ports = [branch.child for _, branch in place.branches if branch.child is not None]
    return list(dict.fromkeys(port.place for port in ports if port not in terms.row_prices))


def _told(place: Place, tables: Tables) -> tuple[object, ...]:
    """What a place is told beside its children's tables: its highest rates, and the children's shares and prices."""
    own = [tables.terms.most.get(Port(place.name, each.name)) for each in place.inputs]
    ports = [branch.child for _, branch in place.branches if branch.child is not None]
    children = {port.place for port in ports}
    granted = {port: rate for port, rate in tables.shares.items() if port.place in children}
    return own, granted, [tables.terms.row_prices.get(port) for port in ports]


def _table_for(parent: str, child: str, network: Network, tables: Tables) -> Table:
    """The table that a child sends to one of its parents: its own, or the parent's share of it."""
    table = tables.places[child].table
    mine = [port.input for port, (feeder, _) in network.feeders.items() if feeder == parent and port.place == child]
    if set(mine) == set(table.inputs):
        return table
    granted = {port.input: rate for port, rate in tables.shares.items() if port.place == child}
    if not granted:
        raise ValueError(
            f"place '{child}' takes rows from '{parent}' and from others, so all of them must report what they would "
            "send; `agree_on_shares` lets them"
        )
    return share_of(table, mine, granted, additive=not isinstance(tables.terms.objective, Fair))


def plan_by_tables(network: Network, tables: Tables, rates: Mapping[Port, Amount]) -> Plan:
    """What every place keeps when each looks up the rates that it observes, from the sources downstream."""
    arriving: dict[Port, Amount] = {port: rate_at(rates, port) for port in network.sources}
    plans: dict[str, PlacePlan] = {}
    for name in network.in_order:
        place = network.by_name[name]
        plans[name] = look_up(tables.places[name], [arriving[Port(name, each.name)] for each in place.inputs])
        for (_, branch), rate in zip(place.branches, plans[name].branches, strict=True):
            if branch.child is not None:
                arriving[branch.child] = rate * branch.selectivity
    shedding = [name for name, plan in plans.items() if plan.sheds]
    reason = f"rows are shed at {', '.join(shedding)}" if shedding else "all rows fit everywhere"
    return Plan("fit", plans, reason, _bound(network, tables, rates))


def _bound(network: Network, tables: Tables, rates: Mapping[Port, Amount]) -> Amount | None:
    """The most that any plan can be worth; None if a table's error is unknown or a place has several parents."""
    if network.shared or any(port in tables.terms.most and rates[port] > tables.terms.most[port] for port in rates):
        return None
    found: Amount = Fraction(0)
    for name in network.in_order:
        table = tables.places[name].table
        if network.parents[name]:
            continue
        if table.error is None:
            return None
        found += table.error + table.worth_at([rates[Port(name, each)] for each in table.inputs])
    return found
