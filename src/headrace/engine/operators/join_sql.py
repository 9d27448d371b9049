"""The part of a join that Spark SQL does: conditions over both sides, expressions in SELECT, sinks of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.operators.projection import text_literal
from headrace.kernels.arrow_types import arrow_type
from headrace.model import KEPT, Column
from headrace.planning import LEFT, PAIR_TIME, RIGHT, JoinPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["pairs_ddl", "pairs_schema", "spark_join"]

_SIDES = (("l", LEFT), ("r", RIGHT))


def pairs_schema(plan: JoinPlan) -> pa.Schema:
    """Columns and types of the pairs that tasks hand to Spark; see `Host.candidates`."""
    columns = [(f"{letter}{n}", arrow_type(c.type)) for letter, side in _SIDES for n, c in _numbered(plan, side)]
    return pa.schema([("_what", pa.int32()), ("_row", pa.int64()), *columns, ("_pair", pa.bool_()), ("_t", pa.int64())])


def pairs_ddl(plan: JoinPlan) -> str:
    """The same as Spark DDL."""
    columns = [f"{letter}{n} {c.type}" for letter, side in _SIDES for n, c in _numbered(plan, side)]
    return ", ".join(["_what INT", "_row BIGINT", *columns, "_pair BOOLEAN", "_t BIGINT"])


def _numbered(plan: JoinPlan, side: str) -> list[tuple[int, Column]]:
    return list(enumerate(plan.store(side).columns))


@contextmanager
def spark_join(candidates: DataFrame, plan: JoinPlan, told: float = 1.0) -> Iterator[DataFrame]:
    """The results of a join: pairs for which all of ON holds, and rows that met none, or met one, if those are wanted.

    `told` is the part of the rows that was kept, for a query that tells it.
    """
    from pyspark.sql.functions import expr

    join = plan.join
    names = {LEFT: join.left.alias, RIGHT: join.right.alias}
    structs = [
        f"named_struct({', '.join(f'{text_literal(c.name)}, {letter}{n}' for n, c in columns)}) AS `{names[side]}`"
        for letter, side in _SIDES
        if (columns := _numbered(plan, side))
    ]
    rows = candidates.selectExpr("_what", "_row", "_pair", "_t", *structs)
    holds = "true" if join.rest is None else f"coalesce({join.rest.sql}, false)"
    outer = join.how != "inner"
    if outer:
        # Pairs and unmatched rows are read from the same candidates.
        rows = rows.persist()
    try:
        results = rows.filter(f"_what = 0 AND {holds}") if outer else rows.filter(holds)
        if outer:
            kept = ["_t", *(f"`{names[side]}`" for _, side in _SIDES if plan.store(side).columns)]
            met = rows.filter("_what > 0").selectExpr("*", f"CASE WHEN _pair THEN {holds} ELSE false END AS _met")
            sides = (expr(f"any_value({k}) FILTER (WHERE NOT _pair) AS {k}") for k in kept)
            grouped = met.groupBy("_what", "_row").agg(expr("max(_met) AS _met"), *sides)
            alone = grouped.filter("_met" if join.how == "semi" else "NOT _met").select(*kept)
            results = results.select(*kept).unionAll(alone)
        if outer and join.where is not None:
            results = results.filter(join.where.sql)
        sqls = {KEPT: f"CAST({told!r} AS DOUBLE)"} | {column.name: column.sql for column in join.columns}
        time = [] if plan.feeds is None else [f"timestamp_micros(_t) AS {PAIR_TIME}"]
        yield results.selectExpr(*(f"{sqls[o.sql]} AS `{o.name}`" for o in plan.query.finish.outputs), *time)
    finally:
        if outer:
            rows.unpersist()
