"""Rows of streams joined with tables: what a table is in FROM, and how a lookup becomes an operator.

A lookup is a node of its own, whose results are the rows of a stream to whatever is above it: so a table can stand
below a window, a join or nothing at all. Conditions that need no table are moved below it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.language.sql.emit import emit
from headrace.language.sql.names import HIDDEN_TIME
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, all_of, conjuncts, leaf, leaves, substitute
from headrace.model import (
    DataType,
    Finish,
    Kind,
    Lookup,
    LookupSide,
    NamedExpression,
    Operator,
    Output,
    Results,
    Scan,
    Table,
)

if TYPE_CHECKING:
    from headrace.language.sql.relation import Projection, Relation

__all__ = ["Draft", "LookupRelation", "TableRelation", "draft", "is_table", "looked_up", "named", "timed_aliases"]

BOOLEAN = DataType(Kind.BOOLEAN)
TIMESTAMP = DataType(Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class TableRelation:
    """A table under its alias; its rows have no time."""

    table: Table
    alias: str

    @property
    def columns(self) -> Mapping[Key, DataType]:
        return {(self.alias, column.name): column.type for column in self.table.columns}


@dataclass(frozen=True, slots=True)
class LookupRelation:
    """The rows of `base` with what a table has for them; `table` is one, or a projection of one.

    Of the columns that USING names, `shared`, there is only the left one, and it comes first.
    """

    base: Relation
    table: TableRelation | Projection
    how: str
    on: exp.Expr
    shared: tuple[tuple[Key, Key], ...] = ()  # (left column, right column)

    @property
    def columns(self) -> Mapping[Key, DataType]:
        if self.how in ("semi", "anti"):
            return self.base.columns
        both, hidden = {**self.base.columns, **self.table.columns}, {right for _, right in self.shared}
        order = dict.fromkeys([*(left for left, _ in self.shared), *both])
        return {key: both[key] for key in order if key not in hidden}


def is_table(relation: object) -> bool:
    """Whether rows come from a table alone, and have no time."""
    while not isinstance(relation, TableRelation | LookupRelation) and hasattr(relation, "base"):
        relation = relation.base
    return isinstance(relation, TableRelation)


def timed_aliases(relation: Relation) -> list[str]:
    """The aliases whose rows have a time: tables have none."""
    return [alias for alias, name in relation.columns if name == HIDDEN_TIME]


def named(name: str, node: exp.Expr, type_: DataType, env: Mapping[Key, DataType]) -> NamedExpression:
    """An expression over columns of known types, as Spark is to have it; raises Fault."""
    tables = {table.lower() for table, _ in leaves(node)}
    hidden = [v for inner in node.find_all(exp.Lambda) for v in inner.expressions if v.name.lower() in tables]
    if hidden:
        raise Fault(f"the variable '{hidden[0].name}' hides a stream", hidden[0], "give it another name")
    reads = tuple(".".join(part for part in key if part) for key in leaves(node))
    return NamedExpression(name, emit(node, env), type_, reads)


# To an operator -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of lookups before its input is an operator: the rows it is about, and what is wanted of them.

    `reads` are the columns of the input that the lookup needs, which `time` dates, and `gives` those that it gives.
    `where` holds of the input, `rest` of the rows that were looked up, `ons` are the conditions of the tables.
    """

    base: Relation
    chain: tuple[LookupRelation, ...]
    alias: str
    reads: tuple[Key, ...]
    time: exp.Expr
    gives: tuple[Key, ...]
    where: exp.Expr | None
    rest: exp.Expr | None
    ons: tuple[exp.Expr | None, ...]

    @property
    def takes(self) -> list[tuple[str, exp.Expr, DataType]]:
        """The columns of the input by the names they have in the lookup: c0, c1, ... and the time."""
        found = [(f"c{i}", leaf(*key), self.base.columns[key]) for i, key in enumerate(self.reads)]
        return [*found, (HIDDEN_TIME, self.time, TIMESTAMP)]


def draft(relation: LookupRelation, nodes: Sequence[exp.Expr], where: exp.Expr | None, time: exp.Expr) -> Draft:
    """What a chain of lookups needs to give some expressions of the rows for which `where` holds; `time` dates them."""
    chain: list[LookupRelation] = [relation]
    while isinstance(chain[0].base, LookupRelation):
        chain.insert(0, chain[0].base)
    base = chain[0].base
    pushed, rest, ons = list[exp.Expr](), list[exp.Expr](), list[exp.Expr | None]()
    for part in conjuncts(where):
        (pushed if _is_of(part, base) else rest).append(part)
    for each in chain:
        kept = [part for part in conjuncts(each.on) if each.how != "inner" or not _is_of(part, base)]
        # What holds of the input alone holds before an inner lookup as well as after it.
        pushed += [part for part in conjuncts(each.on) if each.how == "inner" and _is_of(part, base)]
        ons.append(all_of(kept))
    above = leaves(*nodes, all_of(rest))
    used = {*above, *leaves(*ons)}
    columns = tuple(key for key in base.columns if key in used)
    aliases = list(dict.fromkeys(table for table, _ in base.columns))
    taken = {alias.lower() for each in chain for alias, _ in each.table.columns}
    alias = aliases[0] if len(aliases) == 1 else _fresh("looked", taken)
    everything = dict.fromkeys([*base.columns, *(key for each in chain for key in each.table.columns)])
    gives = tuple(key for key in everything if key in above)
    return Draft(base, tuple(chain), alias, columns, time, gives, all_of(pushed), all_of(rest), tuple(ons))


def looked_up(plan: Draft, child: Operator, takes: Sequence[tuple[str, exp.Expr, DataType]]) -> Scan:
    """The scan of a lookup's results, as the columns `takes`; its input is `child`."""
    names: dict[Key, exp.Expr] = {key: leaf(plan.alias, f"c{i}") for i, key in enumerate(plan.reads)}
    env: dict[Key, DataType] = {(plan.alias, name): type_ for name, _, type_ in plan.takes}
    types = dict(plan.base.columns)
    sides: list[LookupSide] = []
    for each, on in zip(plan.chain, plan.ons, strict=True):
        alias = next(iter(each.table.columns))[0]
        table, items, condition = _unfolded(each.table, alias)
        names |= items
        types |= each.table.columns
        env |= {(alias, column.name): column.type for column in table.columns}
        whole = all_of([*conjuncts(on), *conjuncts(condition)]) or exp.Boolean(this=True)
        bound = named("on", substitute(whole, names), BOOLEAN, env)
        sides.append(LookupSide(alias, table.name, each.how, table.columns, bound))
    columns = tuple(named(f"c{i}", substitute(leaf(*key), names), types[key], env) for i, key in enumerate(plan.gives))
    time = named(HIDDEN_TIME, leaf(plan.alias, HIDDEN_TIME), TIMESTAMP, env)
    lookup = Lookup(plan.alias, child, _pruned(sides, columns), (*columns, time))
    finish = Finish(tuple(Output(c.name, c.name, c.type) for c in lookup.columns))
    results = Results(lookup, finish, HIDDEN_TIME)
    name = "lookup_" + hashlib.sha256(repr(results).encode()).hexdigest()[:12]
    above = {key: leaf(name, column.name) for key, column in zip(plan.gives, columns, strict=True)}
    seen = {(name, column.name): column.type for column in lookup.columns}
    scanned = tuple(named(take, substitute(node, above), type_, seen) for take, node, type_ in takes)
    where = None if plan.rest is None else named("where", substitute(plan.rest, above), BOOLEAN, seen)
    return Scan(name, scanned, where, results)


def _unfolded(relation: object, alias: str) -> tuple[Table, dict[Key, exp.Expr], exp.Expr | None]:
    """The table below a projection of it, what its columns stand for, as columns of `alias`, and which rows it has."""
    if isinstance(relation, TableRelation):
        return relation.table, {key: leaf(alias, key[1]) for key in relation.columns}, None
    projection: Projection = relation  # type: ignore[assignment]
    table, below, where = _unfolded(projection.base, alias)
    items = {(projection.alias, name): substitute(node, below) for name, (node, _) in projection.items.items()}
    own = None if projection.where is None else substitute(projection.where, below)
    return table, items, all_of([*conjuncts(where), *conjuncts(own)])


def _pruned(sides: Sequence[LookupSide], columns: Sequence[NamedExpression]) -> tuple[LookupSide, ...]:
    """The sides with those columns of their tables that anything reads."""
    read = {name for each in (*(side.on for side in sides), *columns) for name in each.reads}
    return tuple(
        LookupSide(s.alias, s.table, s.how, tuple(c for c in s.columns if f"{s.alias}.{c.name}" in read), s.on)
        for s in sides
    )


def _is_of(part: exp.Expr, base: Relation) -> bool:
    """Whether a condition is about the input alone."""
    keys = leaves(part)
    return bool(keys) and all(key in base.columns for key in keys)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
