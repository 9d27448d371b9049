"""How rows are looked up in tables: they pass through a store of one epoch, and Spark joins them with snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Column, Lookup, Query, columns_of
from headrace.planning.flow import FlowPlan, RowFeed, RowStore, refuse_unkept
from headrace.planning.synopsis import scans_of

__all__ = ["LookupPlan", "plan_lookup"]


@dataclass(frozen=True)
class LookupPlan(FlowPlan):
    """A lookup over streams, declared or derived; its store holds what it needs of their rows, in that order."""

    @property
    def lookup(self) -> Lookup:
        assert isinstance(self.query.root, Lookup)
        return self.query.root

    @property
    def forms(self) -> tuple[str, ...]:
        """None: no row outlives its epoch."""
        return ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, each once."""
        return tuple(dict.fromkeys(side.table for side in self.lookup.sides))


def plan_lookup(query: Query) -> LookupPlan:
    """The plan of a lookup; SpecError if it needs a column of a type that no store holds."""
    root = query.root
    assert isinstance(root, Lookup)
    columns = tuple(Column(c.name, c.type) for c in columns_of(root.input))
    refuse_unkept(columns, query.name, "a lookup in a table")
    feeds = tuple(
        RowFeed(scan.stream, scan.where.sql if scan.where else None, tuple(column.sql for column in scan.columns))
        for scan in scans_of(root.input)
    )
    # Named by its content alone: lookups, and SELECTs, that need the same of the same rows share it.
    return LookupPlan(query, (RowStore("", "select", "", feeds, columns),))
