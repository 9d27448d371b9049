"""What only Spark can judge: the types of rare functions, and whether it accepts an expression at all.

Every query is analysed over empty streams before a run starts; nothing is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.operators.finishing import windowed_ddl, with_over
from headrace.engine.sources.read import unite
from headrace.errors import Problem, SpecError
from headrace.language import parse_type
from headrace.model import (
    RESULTS,
    Aggregate,
    DataType,
    Finish,
    Join,
    JoinSide,
    Lookup,
    Operator,
    Query,
    Results,
    ResultTest,
    RowsAggregate,
    Scan,
    Step,
    Stream,
    Union,
    WindowAggregate,
    columns_of,
    result_type,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["judge"]


def judge(query: Query, streams: Sequence[Stream], spark: SparkSession, rows: DataFrame | None = None) -> Query:
    """The query with Spark's own types; SpecError with Spark's complaint if it refuses an expression."""
    if rows is None:
        everything = {s.name: frozenset(c.name for c in s.columns) for s in streams}
        empty = {
            s.name: spark.createDataFrame([], ", ".join(f"`{c.name}` {c.type}" for c in s.columns)) for s in streams
        }
        united = unite(streams, empty, everything)
        rows = united.by_stream(united.rows)
    root = _judged(query.root, query, rows)
    try:
        judged = replace(query, root=root, finish=_finish(root, query.finish, query, rows))
    except ValueError as error:  # a type that only Spark knew is none that the sink's layout can have
        raise SpecError(Problem(str(error), query=query.name)) from error
    _expected(judged, rows)
    return judged


def _expected(query: Query, rows: DataFrame) -> None:
    """SpecError if Spark refuses a condition over results."""
    tests = [each.test.sql for each in query.expect if isinstance(each.test, ResultTest)]
    if tests:
        columns = ", ".join(f"`{output.name}` {output.type}" for output in query.finish.outputs)
        _types(rows.sparkSession.createDataFrame([], columns).alias(RESULTS), tests, query)


def _finish(root: Operator, finish: Finish, query: Query, rows: DataFrame) -> Finish:
    """What is made of an operator's columns, with Spark's types."""
    if isinstance(root, WindowAggregate | RowsAggregate) or finish.over:
        columns = ", ".join(f"{column.name} {column.type}" for column in columns_of(root))
        ddl = windowed_ddl(columns_of(root)) if isinstance(root, WindowAggregate) else columns
        answers = rows.sparkSession.createDataFrame([], ddl)
        if finish.having is not None:
            _types(answers, [finish.having], query)
        types = _finished(answers, finish, query)
        return replace(finish, outputs=tuple(replace(o, type=t) for o, t in zip(finish.outputs, types, strict=True)))
    if isinstance(root, Join | Scan | Union | Lookup):
        known = {column.name: column.type for column in columns_of(root)}
        return replace(finish, outputs=tuple(replace(o, type=known[o.sql]) for o in finish.outputs))
    return finish


def _finished(answers: DataFrame, finish: Finish, query: Query) -> list[DataType]:
    """Types of results over answers of known columns."""
    _types(answers, [over.sql for over in finish.over], query)
    return _types(with_over(answers, finish), [output.sql for output in finish.outputs], query)


def _judged(operator: Operator, query: Query, rows: DataFrame) -> Operator:
    match operator:
        case Scan(of=Results() as results):
            root = _judged(results.root, query, rows)
            assert isinstance(root, WindowAggregate | RowsAggregate | Lookup | Scan)
            judged = replace(results, root=root, finish=_finish(root, results.finish, query, rows))
            fields = ", ".join(f"`{output.name}`: {output.type}" for output in judged.finish.outputs)
            made = rows.sparkSession.createDataFrame([], f"{operator.stream} STRUCT<{fields}>")
            scan = _judged(replace(operator, of=None), query, made)
            assert isinstance(scan, Scan)
            return replace(scan, of=judged)
        case Scan(columns=columns, where=where):
            types = _types(rows, [c.sql for c in columns], query)
            if where is not None:
                _types(rows, [where.sql], query)
            return replace(operator, columns=tuple(replace(c, type=t) for c, t in zip(columns, types, strict=True)))
        case Union(inputs=inputs):
            return replace(operator, inputs=tuple(_judged(child, query, rows) for child in inputs))
        case WindowAggregate(input=child, aggregates=aggregates) | RowsAggregate(input=child, aggregates=aggregates):
            below = _judged(child, query, rows)
            known = {column.name: column.type for column in columns_of(below)}
            return replace(operator, input=below, aggregates=tuple(_typed(a, known) for a in aggregates))
        case Step(input=child):
            return replace(operator, input=_judged(child, query, rows))
        case Join(left=left, right=right):
            sides = replace(operator, left=_side(left, query, rows), right=_side(right, query, rows))
            return _joined(sides, query, rows)
        case Lookup(input=child):
            return _looked_up(replace(operator, input=_judged(child, query, rows)), query, rows)


def _looked_up(lookup: Lookup, query: Query, rows: DataFrame) -> Lookup:
    """A lookup with Spark's types of its columns, over the judged columns of its input and those of its tables."""
    known = {lookup.alias: columns_of(lookup.input), **{side.alias: side.columns for side in lookup.sides}}
    structs = [
        f"{alias} STRUCT<{', '.join(f'`{column.name}`: {column.type}' for column in columns)}>"
        for alias, columns in known.items()
        if columns
    ]
    met = rows.sparkSession.createDataFrame([], ", ".join(structs))
    _types(met, [side.on.sql for side in lookup.sides], query)
    types = _types(met, [column.sql for column in lookup.columns], query)
    return replace(lookup, columns=tuple(replace(c, type=t) for c, t in zip(lookup.columns, types, strict=True)))


def _joined(join: Join, query: Query, rows: DataFrame) -> Join:
    """A join with Spark's types of its columns, over the judged columns of its sides."""
    structs = [
        f"{side.alias} STRUCT<{', '.join(f'`{c.name}`: {c.type}' for c in columns_of(side.input))}>"
        for side in (join.left, join.right)
    ]
    pairs = rows.sparkSession.createDataFrame([], ", ".join(structs))
    conditions = (join.on, join.where, join.rest)
    _types(pairs, [condition.sql for condition in conditions if condition is not None], query)
    types = _types(pairs, [column.sql for column in join.columns], query)
    return replace(join, columns=tuple(replace(c, type=t) for c, t in zip(join.columns, types, strict=True)))


def _side(side: JoinSide, query: Query, rows: DataFrame) -> JoinSide:
    return replace(side, input=_judged(side.input, query, rows))


def _typed(aggregate: Aggregate, known: Mapping[str, DataType]) -> Aggregate:
    if aggregate.argument is None:
        return aggregate
    return replace(aggregate, type=result_type(aggregate.function, known[aggregate.argument]))


def _types(rows: DataFrame, sqls: Sequence[str], query: Query) -> list[DataType]:
    try:
        schema = rows.selectExpr(*(f"{sql} AS `{i}`" for i, sql in enumerate(sqls))).schema if sqls else None
    except Exception:
        for sql in sqls:
            try:
                rows.selectExpr(f"{sql} AS x").schema  # noqa: B018 - asks Spark to analyse it
            except Exception as exc:
                raise SpecError(Problem(f"Spark refuses '{sql}': {_complaint(exc)}", query=query.name)) from exc
        raise
    types = [] if schema is None else [parse_type(field.dataType.simpleString()) for field in schema.fields]
    for sql, type_ in zip(sqls, types, strict=True):
        if type_.is_void:
            problem = f"'{sql}' is always NULL and has no type of its own"
            raise SpecError(Problem(problem, query=query.name, hint="give it one, such as CAST(NULL AS STRING)"))
    return types


def _complaint(exc: Exception) -> str:
    return str(exc).splitlines()[0].strip()
