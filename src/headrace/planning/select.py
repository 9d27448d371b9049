"""How a SELECT without a window is run: its rows pass through a store of one epoch, and nothing stays."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Column, Output, Query, columns_of
from headrace.planning.flow import FlowPlan, RowFeed, RowStore, refuse_unkept
from headrace.planning.synopsis import scans_of

__all__ = ["SelectPlan", "plan_select"]


@dataclass(frozen=True)
class SelectPlan(FlowPlan):
    """A SELECT over one stream or a union of streams, declared or derived; its store holds the result columns."""

    @property
    def store_id(self) -> str:
        return self.stores[0].id

    @property
    def forms(self) -> tuple[str, ...]:
        """None: no row outlives its epoch."""
        return ()

    def position(self, output: Output) -> int:
        """Where a result column is in the store."""
        return [column.name for column in self.stores[0].columns].index(output.sql.strip("`"))

    def sql_of(self, output: Output) -> str:
        """A result column as SQL over the first of the streams."""
        return self.stores[0].feeds[0].columns[self.position(output)]


def plan_select(query: Query) -> SelectPlan:
    """The plan of a SELECT without a window; SpecError if it selects a type that no store holds."""
    columns = columns_of(query.root)
    refuse_unkept((Column(c.name, c.type) for c in columns), query.name, "a SELECT without a window")
    feeds = tuple(
        RowFeed(scan.stream, scan.where.sql if scan.where else None, tuple(column.sql for column in scan.columns))
        for scan in scans_of(query.root)
    )
    # The store is named by its content alone: queries that select the same rows and columns share it.
    return SelectPlan(query, (RowStore("", "select", "", feeds, columns),))
