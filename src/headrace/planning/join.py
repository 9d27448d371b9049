"""How a windowed join is run: the rows kept of each side, what is looked up by what, and what its pairs feed.

The pairs of a join can be rows of another join or of an aggregate: they are then a *derived* stream, with a clock of
its own, that is absorbed as the declared ones are, in the same epoch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.errors import Problem, SpecError
from headrace.model import (
    Column,
    Comparison,
    DataType,
    Finish,
    Join,
    JoinSide,
    Kind,
    NamedExpression,
    Operator,
    Output,
    Query,
    Scan,
    Stream,
    Union,
    WindowAggregate,
    columns_of,
)
from headrace.planning.flow import FlowPlan, RowFeed, RowStore
from headrace.planning.synopsis import AnswerPlan, plan_answer

__all__ = ["LEFT", "PAIR_TIME", "RIGHT", "Derived", "JoinPlan", "plan_aggregate_over_join", "plan_join"]

LEFT, RIGHT = "left", "right"
# The column that dates a pair: the later of its two times.
PAIR_TIME = "pair_time__"
_PLAIN = re.compile(r"`?(\w+)`?\.`?([^`]+)`?")


@dataclass(frozen=True)
class Derived:
    """The stream that a join's pairs make; `time` is the column that dates them.

    No pair to come is older than the least watermark of the join's streams less `delay_us`.
    """

    stream: Stream
    delay_us: int

    @property
    def name(self) -> str:
        return self.stream.name


@dataclass(frozen=True)
class JoinPlan(FlowPlan):
    """A join of two inputs; `picked` are its result columns as `(side, column)`, None if one is an expression.

    `below` are the joins that its sides are made of, `feeds` the stream that its pairs make for what is above it.
    """

    picked: tuple[tuple[str, int], ...] | None
    below: Mapping[str, JoinPlan] = field(default_factory=dict)
    feeds: Derived | None = None

    @property
    def join(self) -> Join:
        assert isinstance(self.query.root, Join)
        return self.query.root

    @property
    def all_stores(self) -> tuple[RowStore, ...]:
        return (*self.stores, *(store for plan in self.below.values() for store in plan.all_stores))

    @property
    def in_order(self) -> Iterator[JoinPlan]:
        """All joins of the tree, those below first."""
        for plan in self.below.values():
            yield from plan.in_order
        yield self

    @property
    def equal(self) -> tuple[Comparison, ...]:
        """The comparisons by which rows can be hashed."""
        return tuple(c for c in self.join.comparisons if c.operator == "=")

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """Streams by side, derived ones included."""
        return {s.role: tuple(dict.fromkeys(feed.stream for feed in s.feeds)) for s in self.stores}

    @property
    def reach_us(self) -> int:
        """How long after a row the last result with it can come, in event time."""
        own = max(self.join.left.window.size_us, self.join.right.window.size_us)
        return own + sum(plan.reach_us for plan in self.below.values())

    def position(self, role: str, column: str) -> int:
        """Where a column of one side is in its store."""
        return [c.name for c in self.store(role).columns].index(column)

    def keeps(self, role: str) -> bool:
        """Whether rows of a side without a match are results too."""
        return self.join.how in (role, "full")


def plan_join(query: Query, feeds: str | None = None, time: str | None = None) -> JoinPlan:
    """The plan of a join; its sides are streams, unions of streams, or joins.

    With `feeds` its pairs make the stream of that name, dated by the column `time` or by the later of their times.
    """
    join = query.root
    assert isinstance(join, Join)
    equal = [c for c in join.comparisons if c.operator == "="]
    below = {
        role: plan_join(_inner(query, role, side.input), _name(query, role))
        for role, side in ((LEFT, join.left), (RIGHT, join.right))
        if isinstance(side.input, Join)
    }
    stores = (
        _store(query, LEFT, join.left, [(c.left, c) for c in equal]),
        _store(query, RIGHT, join.right, [(c.right, c) for c in equal]),
    )
    plan = JoinPlan(query, stores, _picked(join), below)
    if feeds is None:
        return plan
    dated = Column(PAIR_TIME, DataType(Kind.TIMESTAMP))
    columns = (*(Column(c.name, c.type) for c in join.columns), dated)
    # A pair that is dated by one of its rows, or is none, can be as old as the oldest row that still meets new ones.
    delay = plan.reach_us if time is not None or join.how != "inner" else 0
    return replace(plan, feeds=Derived(Stream(feeds, columns, time or PAIR_TIME), delay))


def plan_aggregate_over_join(query: Query) -> AnswerPlan:
    """The plan of an aggregate over a join: of one over the stream that the join's pairs make."""
    root = query.root
    assert isinstance(root, WindowAggregate)
    join = root.input
    assert isinstance(join, Join)
    name = _name(query, "pairs")
    pairs = plan_join(_inner(query, "pairs", join), name, root.time)
    columns = tuple(NamedExpression(c.name, f"{name}.{c.name}", c.type, (f"{name}.{c.name}",)) for c in join.columns)
    over = replace(query, root=replace(root, input=Scan(name, columns), time=None))
    return replace(plan_answer(over), pairs=pairs)


def _name(query: Query, role: str) -> str:
    return "pairs_" + hashlib.sha256(f"{query.name} {role} {query.sql}".encode()).hexdigest()[:12]


def _inner(query: Query, role: str, join: Operator) -> Query:
    """The join below as a query of its own, all of whose columns are results."""
    outputs = tuple(Output(c.name, c.name, c.type) for c in columns_of(join))
    return Query(f"{query.name}/{role}", query.sql, join, Finish(outputs))


def _store(query: Query, role: str, side: JoinSide, keys: list[tuple[str, Comparison]]) -> RowStore:
    feeds = tuple(
        RowFeed(
            scan.stream,
            scan.where.sql if scan.where else None,
            tuple(column.sql for column in scan.columns),
            tuple(_key(_column(scan, name), comparison) for name, comparison in keys),
        )
        for scan in _scans(side.input, query, role)
    )
    return RowStore(query.name, role, query.sql, feeds, tuple(Column(c.name, c.type) for c in columns_of(side.input)))


def _key(column: NamedExpression, comparison: Comparison) -> str:
    """What is hashed: equal values of both sides must have one hash, so one type, one NaN and one zero."""
    sql = column.sql if column.type == comparison.type else f"CAST({column.sql} AS {comparison.type})"
    if not comparison.type.is_float:
        return sql
    return f"CASE WHEN isnan({sql}) THEN {comparison.type}('NaN') ELSE {sql} + {comparison.type}(0) END"


def _column(scan: Scan, name: str) -> NamedExpression:
    return next(column for column in scan.columns if column.name == name)


def _scans(operator: Operator, query: Query, role: str) -> tuple[Scan, ...]:
    """What feeds a side: streams, or the one that the join below makes."""
    match operator:
        case Scan():
            return (operator,)
        case Union(inputs=inputs) if all(isinstance(child, Scan) for child in inputs):
            return tuple(scan for child in inputs for scan in _scans(child, query, role))
        case Union():
            raise SpecError(
                Problem(
                    "a union with a join in it cannot be joined by this version",
                    query=query.name.partition("/")[0],
                    hint="join the streams of the union one by one, in queries of their own",
                )
            )
        case _:
            name = _name(query, role)
            columns = (NamedExpression(c.name, f"{name}.{c.name}", c.type) for c in columns_of(operator))
            return (Scan(name, tuple(columns)),)


def _picked(join: Join) -> tuple[tuple[str, int], ...] | None:
    """Where each result column comes from, when all of them are columns of a side as they are."""
    found: list[tuple[str, int]] = []
    for column in join.columns:
        match = _PLAIN.fullmatch(column.sql)
        if match is None:
            return None
        for role, side in ((LEFT, join.left), (RIGHT, join.right)):
            names = [c.name for c in columns_of(side.input)]
            if match.group(1) == side.alias and match.group(2) in names:
                found.append((role, names.index(match.group(2))))
                break
        else:
            return None
    return tuple(found)
