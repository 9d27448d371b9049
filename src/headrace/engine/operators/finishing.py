"""From groups and aggregates to results: HAVING, the SELECT list, ORDER BY and LIMIT per window.

Most queries select plain columns: the answering task finishes them itself and writes their Parquet. All others are
finished by Spark SQL, so that every expression means what it means in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.finish import DirectFinish
from headrace.model import ERROR, KEPT, Column, DataType, Finish, Kind, Query, Scan, WindowAggregate, columns_of
from headrace.planning import is_scaled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "answer_columns",
    "answer_ddl",
    "answer_schema",
    "direct_finish",
    "plain_name",
    "refined",
    "shows_kept",
    "spark_finish",
    "windowed_ddl",
    "with_over",
]

_NAME = re.compile(r"`?([A-Za-z_]\w*)`?")
_WINDOW = (("window_start", pa.timestamp("us", "UTC")), ("window_end", pa.timestamp("us", "UTC")))


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
    if finish.having is not None or finish.distinct or finish.over:
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
    return DirectFinish(tuple(plain), tuple(keys), finish.limit, schema, finish.ties, finish.offset)


def answer_columns(query: Query) -> tuple[Column, ...]:
    """What answers have besides their window: groups, aggregates, errors of scaled ones, and the part that was kept."""
    aggregates = query.root.aggregates if isinstance(query.root, WindowAggregate) else ()
    added = [f"{aggregate.name}{ERROR}" for aggregate in aggregates if is_scaled(query, aggregate)]
    added += [KEPT] if shows_kept(query) else []
    return columns_of(query.root) + tuple(Column(name, DataType(Kind.DOUBLE)) for name in added)


def shows_kept(query: Query) -> bool:
    """Whether the results say which part of a window's rows was kept."""
    return any(output.sql == KEPT for output in query.finish.outputs)


def _column_types(query: Query) -> tuple[tuple[str, pa.DataType], ...]:
    return _WINDOW + tuple((column.name, arrow_type(column.type)) for column in answer_columns(query))


def answer_schema(query: Query) -> pa.Schema:
    """Columns and types of the groups and aggregates a task hands to Spark for finishing."""
    return pa.schema(list(_column_types(query)))


def answer_ddl(query: Query) -> str:
    """The same as Spark DDL."""
    return windowed_ddl(answer_columns(query))


def windowed_ddl(columns: Sequence[Column]) -> str:
    """Some columns of answers and their window as Spark DDL."""
    told = ", ".join(f"{column.name} {column.type}" for column in columns)
    return f"window_start TIMESTAMP, window_end TIMESTAMP{', ' if told else ''}{told}"


def spark_finish(answers: DataFrame, finish: Finish) -> DataFrame:
    """The results, by Spark SQL over the answers: HAVING, OVER, then DISTINCT, then ORDER BY and LIMIT per window."""
    rows = with_over(answers if finish.having is None else answers.filter(finish.having), finish)
    window, keys = "window_end", [key.sql for key in finish.order_by]
    outputs = [(output.name, output.sql) for output in finish.outputs]
    if finish.distinct:
        # Results are distinct within their window, also where they do not show it.
        named = [f"window_end AS {_DISTINCT}w"]
        named += [f"{sql} AS {_DISTINCT}k{i}" for i, sql in enumerate(keys)]
        named += [f"{sql} AS {_DISTINCT}o{i}" for i, (_, sql) in enumerate(outputs)]
        rows = rows.selectExpr(*named).distinct()
        window, keys = f"{_DISTINCT}w", [f"{_DISTINCT}k{i}" for i in range(len(keys))]
        outputs = [(name, f"{_DISTINCT}o{i}") for i, (name, _) in enumerate(outputs)]
    if finish.limit is not None:
        order = [
            f"{sql} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for sql, key in zip(keys, finish.order_by, strict=True)
        ]
        if not finish.ties:
            # All columns decide which of equal rows stay, so that every attempt keeps the same.
            order += [field.name for field in rows.schema.fields if field.dataType.typeName() not in _UNORDERED]
        place = "rank()" if finish.ties else "row_number()"
        over = f"{place} OVER (PARTITION BY {window} ORDER BY {', '.join(order)}) AS _rank"
        rows = rows.selectExpr("*", over).filter(f"_rank > {finish.offset} AND _rank <= {finish.limit}")
    return rows.selectExpr(*(f"{sql} AS `{name}`" for name, sql in outputs))


def with_over(rows: DataFrame, finish: Finish) -> DataFrame:
    """Rows with the values of OVER beside their own."""
    return rows.selectExpr("*", *(f"{over.sql} AS {over.name}" for over in finish.over)) if finish.over else rows


def refined(results: DataFrame, step: tuple[Scan, Finish]) -> DataFrame:
    """What a SELECT with OVER makes of the results of windows, each of which is there as a whole."""
    scan, finish = step
    names = ", ".join(f"`{name}`" for name in results.columns)
    rows = results.selectExpr(f"struct({names}) AS {scan.stream}")
    if scan.where is not None:
        rows = rows.filter(scan.where.sql)
    return spark_finish(rows.selectExpr(*(f"{column.sql} AS {column.name}" for column in scan.columns)), finish)


# Begins the names of columns while results are made distinct; columns of answers are called c0, a0 and so on.
_DISTINCT = "_d_"
_UNORDERED = frozenset({"map", "variant"})
