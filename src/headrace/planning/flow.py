"""How one node is run, what is below it, and the rows that are kept for nodes whose results come with their rows.

The root of a query is a node, and so is every operator with state below it. A node below another makes a *derived*
stream of its results, with a clock of its own, which is absorbed as the declared ones are, in the same epoch: whatever
reads streams can read it.

A windowed aggregate is answered when its windows close, from panes. A *flow* (a join, a row window) makes results of
every epoch's rows, and keeps rows instead of panes: a `RowStore` is to it what a synopsis is to an aggregate. Both are
parts of the same chunks, written by the same pass over the rows, dropped when time has passed them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.errors import Problem, SpecError
from headrace.model import Column, DataType, Finish, Kind, Query, Scan, Stream, TimeWindow, streams_of
from headrace.policies import last_end_with_rows

__all__ = ["Derived", "FlowPlan", "NodePlan", "RowFeed", "RowStore", "refuse_unkept"]


@dataclass(frozen=True)
class Derived:
    """The stream that a node's results make for what is above it; `window` is that of the answers it is made of.

    `steps` make them of the node's answers: columns and conditions of a scan, and what OVER makes of these. No result
    to come is older than the least watermark of the node's streams less `delay_us`.
    """

    stream: Stream
    delay_us: int = 0
    window: TimeWindow | None = None
    steps: tuple[tuple[Scan, Finish], ...] = ()

    @property
    def name(self) -> str:
        return self.stream.name

    def latest_us(self, last_us: int) -> int:
        """The greatest time a result can have when the last row below has this one."""
        return last_us if self.window is None else last_end_with_rows(self.window, last_us) - 1


@dataclass(frozen=True)
class NodePlan:
    """How one node is run; its query's name is the user's, or made of its content where it is below others.

    `below` are the nodes whose derived streams it reads, `feeds` is the stream that it makes for those above it.
    """

    query: Query
    below: tuple[NodePlan, ...] = field(default=(), kw_only=True)
    feeds: Derived | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams that its rows come from, declared and derived."""
        return streams_of(self.query.root)

    @property
    def span_us(self) -> int:
        """How much older than a result the rows can be that it is made of."""
        return 0

    @property
    def forms(self) -> tuple[str, ...]:
        """What the rows are like that it keeps for itself."""
        return ()

    @property
    def tree(self) -> Iterator[NodePlan]:
        """All nodes of a query, each after those below it."""
        for plan in self.below:
            yield from plan.tree
        yield self


@dataclass(frozen=True, slots=True)
class RowFeed:
    """One stream's rows as a store takes them: Spark SQL for the filter, the columns, and the keys they are cut by."""

    stream: str
    where: str | None
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowStore:
    """Rows kept as they are, each with its event time, for one side (`role`) of one query."""

    query: str
    role: str
    sql: str
    feeds: tuple[RowFeed, ...]
    columns: tuple[Column, ...]

    @property
    def id(self) -> str:
        """A name made of the content alone; a query that changes keeps other rows."""
        value = [self.query, self.role, self.sql, [[f.stream, f.where, f.columns, f.keys] for f in self.feeds]]
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]

    @property
    def form(self) -> str:
        """What its rows are like: rows of another form are of no use to it."""
        return f"{self.id} {', '.join(f'{column.name} {column.type}' for column in self.columns)}"

    @property
    def keyed(self) -> bool:
        """Whether rows are cut by a key, so that rows of one key can be in one slice."""
        return bool(self.feeds[0].keys)


@dataclass(frozen=True)
class FlowPlan(NodePlan):
    """A node that makes results of every epoch's rows, and the stores it needs for that."""

    stores: tuple[RowStore, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(store.form for store in self.stores)

    def store(self, role: str) -> RowStore:
        """The store of one role."""
        return next(store for store in self.stores if store.role == role)


def refuse_unkept(columns: Iterable[Column], query: str, who: str) -> None:
    """SpecError for a column whose type no store can hold."""
    for column in columns:
        if _has(column.type, (Kind.MAP, Kind.INTERVAL, Kind.NULL)):
            raise SpecError(
                Problem(
                    f"{who} cannot keep a column of the type {column.type}",
                    query=query,
                    hint="use to_json(...) for a map, unix_micros(...) or a CAST for a span of time or a NULL",
                )
            )


def _has(type_: DataType, kinds: tuple[Kind, ...]) -> bool:
    return type_.kind in kinds or any(_has(field.type, kinds) for field in type_.fields)
