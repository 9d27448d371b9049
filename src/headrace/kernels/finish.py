"""The end of a query that selects plain columns: order, limit and names, in the task that answers it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from headrace.kernels.sound import to_arrow

__all__ = ["DirectFinish"]


@dataclass(frozen=True)
class DirectFinish:
    """A finish without expressions: result columns by name, order by column, rows per window."""

    outputs: tuple[tuple[str, str], ...]
    order_by: tuple[tuple[str, bool, bool], ...]
    limit: int | None
    schema: pa.Schema
    ties: bool = False
    offset: int = 0

    @property
    def cut(self) -> tuple[object, ...]:
        """What `head` depends on."""
        return self.order_by, self.limit, self.ties

    def head(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The first `limit` rows of each window, in an order that all columns decide; correct on any part of the rows.

        Those before `offset` are among them, for no part of the rows knows which they are.
        With ties those that equal the last of them in the columns of ORDER BY stay, too.
        """
        return frame if self.limit is None else self._reached(frame, 0, self.limit)

    def _reached(self, frame: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
        """The rows of each window from a place to another."""
        keys = [name for name, _, _ in self.order_by]
        rest = [name for name in frame.columns if name not in {"window_end", *keys}]
        sortable = [name for name in rest if not frame[name].dtype.is_nested()]
        ordered = frame.sort(
            ["window_end", *keys, *sortable],
            descending=[False, *(descending for _, descending, _ in self.order_by), *([False] * len(sortable))],
            nulls_last=[True, *(not first for _, _, first in self.order_by), *([True] * len(sortable))],
        )
        place = pl.int_range(pl.len())
        if self.ties:
            another = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in keys)
            place = pl.when(another | (place == 0)).then(place).forward_fill()
        place = place.over("window_end")
        return ordered.filter((place >= first) & (place < last))

    def table(self, frame: pl.DataFrame) -> pa.Table:
        """The result columns of all rows that `head` gave, typed as Spark types them."""
        shown = self._reached(frame, self.offset, self.limit) if self.offset and self.limit is not None else frame
        named = shown.select(pl.col(source).alias(f"{i}") for i, (_, source) in enumerate(self.outputs))
        table = to_arrow(named).rename_columns([n for n, _ in self.outputs])
        return table.cast(self.schema)
