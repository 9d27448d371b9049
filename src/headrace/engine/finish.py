"""From groups and aggregates to results: HAVING, the SELECT list, ORDER BY and LIMIT per window.

Most queries select plain columns: the answering task finishes them itself and writes their Parquet. All others are
finished by Spark SQL, so that every expression means what it means in Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.engine.arrow_types import arrow_type
from headrace.model import Finish, Query, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DirectFinish", "answer_ddl", "answer_schema", "direct_finish", "plain_name", "spark_finish"]

_NAME = re.compile(r"`?([A-Za-z_]\w*)`?")
_WINDOW = (("window_start", pa.timestamp("us", "UTC")), ("window_end", pa.timestamp("us", "UTC")))


@dataclass(frozen=True)
class DirectFinish:
    """A finish without expressions: result columns by name, order by column, rows per window."""

    outputs: tuple[tuple[str, str], ...]
    order_by: tuple[tuple[str, bool, bool], ...]
    limit: int | None
    schema: pa.Schema

    def head(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The first `limit` rows of each window, ties broken by all other columns; correct on any part of the rows."""
        if self.limit is None:
            return frame
        rest = [name for name in frame.columns if name not in {name for name, _, _ in self.order_by}]
        sortable = [name for name in rest if not frame[name].dtype.is_nested()]
        return (
            frame.sort(
                ["window_end", *(name for name, _, _ in self.order_by), *sortable],
                descending=[False, *(descending for _, descending, _ in self.order_by), *([False] * len(sortable))],
                nulls_last=[True, *(not first for _, _, first in self.order_by), *([True] * len(sortable))],
            )
            .group_by("window_end", maintain_order=True)
            .head(self.limit)
        )

    def table(self, frame: pl.DataFrame) -> pa.Table:
        """The result columns, typed as Spark types them."""
        named = frame.select(pl.col(source).alias(f"{i}") for i, (_, source) in enumerate(self.outputs))
        table = named.to_arrow(compat_level=pl.CompatLevel.oldest()).rename_columns([n for n, _ in self.outputs])
        return table.cast(self.schema)


def plain_name(sql: str) -> str | None:
    """The column that an expression is, if it is nothing else.

    >>> plain_name("`a0`"), plain_name("a0 + 1")
    ('a0', None)
    """
    match = _NAME.fullmatch(sql)
    return match.group(1) if match else None


def direct_finish(query: Query) -> DirectFinish | None:
    """The finish of a query that selects plain columns, or None if it needs Spark."""
    finish = query.finish
    if finish.having is not None or finish.distinct:
        return None
    types = dict(_column_types(query))
    plain: list[tuple[str, str]] = []
    for output in finish.outputs:
        name = plain_name(output.sql)
        if name is None or name not in types:
            return None
        plain.append((output.name, name))
    keys: list[tuple[str, bool, bool]] = []
    for key in finish.order_by:
        name = plain_name(key.sql)
        if name is None or name not in types:
            return None
        keys.append((name, key.descending, key.nulls_first))
    if len({name.lower() for name, _ in plain}) < len(plain):
        return None
    schema = pa.schema([(name, types[source]) for name, source in plain])
    return DirectFinish(tuple(plain), tuple(keys), finish.limit, schema)


def _column_types(query: Query) -> tuple[tuple[str, pa.DataType], ...]:
    return _WINDOW + tuple((column.name, arrow_type(column.type)) for column in columns_of(query.root))


def answer_schema(query: Query) -> pa.Schema:
    """Columns and types of the groups and aggregates a task hands to Spark for finishing."""
    return pa.schema(list(_column_types(query)))


def answer_ddl(query: Query) -> str:
    """The same as Spark DDL."""
    columns = ", ".join(f"{column.name} {column.type}" for column in columns_of(query.root))
    return f"window_start TIMESTAMP, window_end TIMESTAMP{', ' if columns else ''}{columns}"


def spark_finish(answers: DataFrame, finish: Finish) -> DataFrame:
    """The results, by Spark SQL over the answers' columns."""
    rows = answers
    if finish.having is not None:
        rows = rows.filter(finish.having)
    if finish.limit is not None:
        order = ", ".join(
            f"{key.sql} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in finish.order_by
        )
        ties = ", ".join(field.name for field in answers.schema.fields if field.dataType.typeName() not in _UNORDERED)
        rows = rows.selectExpr(
            "*", f"row_number() OVER (PARTITION BY window_end ORDER BY {order}, {ties}) AS _rank"
        ).filter(f"_rank <= {finish.limit}")
    results = rows.selectExpr(*(f"{output.sql} AS `{output.name}`" for output in finish.outputs))
    return results.distinct() if finish.distinct else results


_UNORDERED = frozenset({"map", "variant"})
