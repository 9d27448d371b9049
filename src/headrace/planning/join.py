"""How a windowed join is run: the rows kept of each side, and what is looked up by what."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.model import HALF, Column, Comparison, Join, JoinSide, NamedExpression, Query, columns_of
from headrace.planning.flow import FlowPlan, RowFeed, RowStore
from headrace.planning.synopsis import column_of, scans_of

__all__ = ["LEFT", "PAIR_TIME", "RIGHT", "JoinPlan", "plan_join"]

LEFT, RIGHT = "left", "right"
# The column that dates a pair below another operator: the later of its two times.
PAIR_TIME = "pair_time__"
_PLAIN = re.compile(r"`?(\w+)`?\.`?([^`]+)`?")


@dataclass(frozen=True)
class JoinPlan(FlowPlan):
    """A join of two inputs; `picked` are its result columns as `(side, column)`, None if one is an expression."""

    picked: tuple[tuple[str, int], ...] | None

    @property
    def join(self) -> Join:
        assert isinstance(self.query.root, Join)
        return self.query.root

    @property
    def equal(self) -> tuple[Comparison, ...]:
        """The comparisons by which rows can be hashed."""
        return tuple(c for c in self.join.comparisons if c.operator == "=")

    @property
    def shed_by_key(self) -> bool:
        """Whether the join may lose keys against overload: what other nodes make of rows is never shed."""
        return not self.below and self.query.shed_by_key

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """Streams by side, derived ones included."""
        return {s.role: tuple(dict.fromkeys(feed.stream for feed in s.feeds)) for s in self.stores}

    @property
    def span_us(self) -> int:
        return max(self.join.left.window.size_us, self.join.right.window.size_us)

    @property
    def reach_us(self) -> int:
        """How much older than a pair the rows can be that it and the pairs below it are made of."""
        return self.span_us + sum(plan.reach_us for plan in self.below if isinstance(plan, JoinPlan))

    def position(self, role: str, column: str) -> int:
        """Where a column of one side is in its store."""
        return [c.name for c in self.store(role).columns].index(column)

    def preserves(self, role: str) -> bool:
        """Whether rows of a side are results by themselves, because they have no match, or because they have one."""
        return self.join.how in (role, "full") or (role == LEFT and self.join.how in HALF)


def plan_join(query: Query) -> JoinPlan:
    """The plan of a join whose sides are streams or unions of streams, declared or derived."""
    join = query.root
    assert isinstance(join, Join)
    equal = [c for c in join.comparisons if c.operator == "="]
    stores = (
        _store(query, LEFT, join.left, [(c.left, c) for c in equal]),
        _store(query, RIGHT, join.right, [(c.right, c) for c in equal]),
    )
    return JoinPlan(query, stores, _picked(join))


def _store(query: Query, role: str, side: JoinSide, keys: list[tuple[str, Comparison]]) -> RowStore:
    feeds = tuple(
        RowFeed(
            scan.stream,
            scan.where.sql if scan.where else None,
            tuple(column.sql for column in scan.columns),
            tuple(_key(column_of(scan, name), comparison) for name, comparison in keys),
        )
        for scan in scans_of(side.input)
    )
    return RowStore(query.name, role, query.sql, feeds, tuple(Column(c.name, c.type) for c in columns_of(side.input)))


def _key(column: NamedExpression, comparison: Comparison) -> str:
    """What is hashed: equal values of both sides must have one hash, so one type, one NaN and one zero."""
    sql = column.sql if column.type == comparison.type else f"CAST({column.sql} AS {comparison.type})"
    if not comparison.type.is_float:
        return sql
    return f"CASE WHEN isnan({sql}) THEN {comparison.type}('NaN') ELSE {sql} + {comparison.type}(0) END"


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
