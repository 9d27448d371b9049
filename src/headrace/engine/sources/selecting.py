"""What a stream's `select` makes of its source's rows, in Spark; a row that it cannot make says why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headrace.engine.operators.projection import text_literal
from headrace.engine.sources.messages import CORRUPT
from headrace.errors import Problem, SpecError
from headrace.language import parse_type
from headrace.model import PLACE, Selection, Stream, Term, Unfolding

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["UNMADE", "judge_select", "selected"]

# Why a row could not be made; null of all others.
UNMADE = "_unmade"
# Of a value that could not be used so many characters are shown.
_SHOWN = 100
_GOOD = f"{UNMADE} IS NULL AND {CORRUPT} IS NULL"
# Always true, and Spark does not know it: so it neither evaluates a term before the guard, as it would one that stands
# in two columns, nor merges layers, which would evaluate a term as often as it is read.
_GUARD = f"{_GOOD} AND spark_partition_id() >= 0"


def selected(rows: DataFrame, stream: Stream) -> DataFrame:
    """The stream's columns made of its source's rows, and beside them `CORRUPT` and `UNMADE` of rows that are rejected.

    `CORRUPT` then holds the source's row, as far as it is read, `UNMADE` the column that could not be made and of which
    values. Rows of messages keep their place. SpecError if Spark refuses an expression, or gives it another type.
    """
    selection = stream.select
    assert selection is not None
    try:
        made = _made(rows, stream, selection)
    except Exception as exc:
        complaint = str(exc).splitlines()[0]
        raise SpecError(Problem(f"select of stream '{stream.name}': {complaint}")) from exc
    for (column, _), field in zip(selection.columns, made.schema.fields, strict=False):
        found = field.dataType.simpleString()
        if parse_type(found) != column.type:
            what = f"column '{column.name}' is {column.type}, and to Spark {found}"
            hint = f"CAST it: CAST(... AS {column.type}) AS {column.name}"
            raise SpecError(Problem(f"select of stream '{stream.name}': {what}", hint=hint))
    return made


def judge_select(spark: SparkSession, stream: Stream) -> None:
    """SpecError if Spark refuses what a stream selects."""
    columns = ", ".join(f"`{column.name}` {column.type}" for column in stream.source_columns)
    selected(spark.createDataFrame([], columns), stream)


def _made(rows: DataFrame, stream: Stream, selection: Selection) -> DataFrame:
    messages = stream.source is not None and stream.source.value is not None
    place = [name for name in PLACE if messages and name in rows.columns]
    read = selection.read or selection.reads[:1]
    whole = ", ".join(f"{text_literal(column.name)}, `{column.name}`" for column in read)
    corrupt = CORRUPT if CORRUPT in rows.columns else f"CAST(NULL AS STRING) AS {CORRUPT}"
    made = rows.selectExpr(
        f"named_struct({whole}) AS `{stream.name}`", corrupt, f"CAST(NULL AS STRING) AS {UNMADE}",
        *(f"`{name}` AS _{name}" for name in place),
    )  # fmt: skip
    if selection.where is not None:
        made = _evaluated(made, (selection.where,)).filter(f"NOT ({_GOOD}) OR {selection.where.name}")
    for layer, terms in groupby(sorted(selection.terms, key=lambda term: term.layer), key=lambda term: term.layer):
        made = _evaluated(made, tuple(terms))
        if selection.unfolding is not None and selection.unfolding.layer == layer:
            made = _unfolded(made, selection.unfolding)
    taken = {column.name.lower() for column, _ in selection.columns}
    return made.selectExpr(
        *(f"{name} AS `{column.name}`" for column, name in selection.columns),
        f"COALESCE({CORRUPT}, CASE WHEN {UNMADE} IS NOT NULL THEN to_json(`{stream.name}`) END) AS {CORRUPT}",
        UNMADE,
        *(f"_{name} AS `{name}`" for name in place if name.lower() not in taken),
    )


def _evaluated(rows: DataFrame, terms: Sequence[Term]) -> DataFrame:
    """Rows with the terms of a layer, each null where it cannot be evaluated, which `UNMADE` then tells."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    tried = [
        F.when(F.expr(_GUARD), _tried(F.expr(f"named_struct('v', {term.sql})"))).alias(f"_{term.name}")
        for term in terms
    ]
    whys = " ".join(f"WHEN _{term.name} IS NULL THEN {_why(term)}" for term in terms)
    kept = [name for name in rows.columns if name != UNMADE]
    return rows.select("*", *tried).selectExpr(
        *(f"`{name}`" for name in kept),
        *(f"_{term.name}.v AS {term.name}" for term in terms),
        f"CASE WHEN NOT ({_GOOD}) THEN {UNMADE} {whys} END AS {UNMADE}",
    )


def _tried(value: SparkColumn) -> SparkColumn:
    """A value, or null where it cannot be evaluated; Spark has an expression for that, and SQL no word."""
    from pyspark import SparkContext
    from pyspark.sql import Column

    context: Any = SparkContext._active_spark_context
    utils = context._jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = context._jvm.org.apache.spark.sql.catalyst.expressions.TryEval
    inner: Any = value
    return Column(utils.column(attempt(utils.expression(inner._jc))))


def _why(term: Term) -> str:
    """The reason that a row is given, in Spark SQL."""
    told = [text_literal(f"{term.made} cannot be evaluated")]
    for number, (name, sql) in enumerate(term.reads):
        value = f"COALESCE(make_valid_utf8(substring(CAST({sql} AS STRING), 1, {_SHOWN})), 'NULL')"
        told += [text_literal(f"{', ' if number else ' with '}{name} = "), value]
    return f"concat({', '.join(told)})"


def _unfolded(rows: DataFrame, unfolding: Unfolding) -> DataFrame:
    """A row for each element of an array; one for a row that is rejected."""
    call = "explode_outer" if unfolding.outer else "explode"
    element = unfolding.term.type.fields[0].type
    array = f"CASE WHEN {_GOOD} THEN {unfolding.term.name} ELSE array(CAST(NULL AS {element})) END"
    return rows.selectExpr("*", f"{call}({array}) AS {unfolding.name}")
