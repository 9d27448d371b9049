"""The latest result of each key, by Spark: of an epoch's results, and of a table's and theirs together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["latest_of", "merged"]

_NEW, _RANK = "_headrace_new", "_headrace_rank"
# Types that Spark does not order by.
_UNORDERED = frozenset({"map", "variant"})


def latest_of(results: DataFrame, key: Sequence[str], latest: str) -> DataFrame:
    """One result of each key: that with the greatest `latest`, of equals one that all columns decide."""
    names = results.columns
    return _first(results, [_descending(latest), *_decided(results)], key).select(*map(_quoted, names))


def merged(results: DataFrame, files: Sequence[str], key: Sequence[str], latest: str) -> DataFrame:
    """What a table keeps that has these files, after an epoch's results: of equal `latest`, the epoch's."""
    if not files:
        return latest_of(results, key, latest)
    names = results.columns
    known = results.sparkSession.read.schema(results.schema).parquet(*files)
    both = known.selectExpr("*", f"0 AS {_NEW}").unionByName(results.selectExpr("*", f"1 AS {_NEW}"))
    order = [_descending(latest), f"{_NEW} DESC", *_decided(results)]
    return _first(both, order, key).select(*map(_quoted, names))


def _first(rows: DataFrame, order: Sequence[str], key: Sequence[str]) -> DataFrame:
    by = ", ".join(map(_quoted, key))
    ranked = rows.selectExpr("*", f"row_number() OVER (PARTITION BY {by} ORDER BY {', '.join(order)}) AS {_RANK}")
    return ranked.filter(f"{_RANK} = 1")


def _descending(name: str) -> str:
    return f"{_quoted(name)} DESC NULLS LAST"


def _decided(rows: DataFrame) -> list[str]:
    return [_quoted(field.name) for field in rows.schema.fields if field.dataType.typeName() not in _UNORDERED]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
