"""Queries whose results come with their rows, and the rows that are kept for them.

A windowed aggregate is answered when its windows close, from panes. A *flow* (a join, a row window) makes results of
every epoch's rows, and keeps rows instead of panes: a `RowStore` is to it what a synopsis is to an aggregate. Both are
parts of the same chunks, written by the same pass over the rows, dropped when time has passed them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from headrace.model import Column, Query

__all__ = ["FlowPlan", "RowFeed", "RowStore"]


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
class FlowPlan:
    """A query that makes results of every epoch's rows, and the stores it needs for that."""

    query: Query
    stores: tuple[RowStore, ...]

    @property
    def all_stores(self) -> tuple[RowStore, ...]:
        """Its own stores, and those of the flows below it."""
        return self.stores

    @property
    def forms(self) -> tuple[str, ...]:
        """What the rows of all its stores are like."""
        return tuple(store.form for store in self.all_stores)

    def store(self, role: str) -> RowStore:
        """The store of one role."""
        return next(store for store in self.stores if store.role == role)
