"""Which queries can be finished by Spark SQL in one job, and the table that they share (`kernels/slots.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.engine.operators.finishing import answer_columns, plain_name
from headrace.engine.operators.renaming import renamed
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.finish import DirectFinish
from headrace.kernels.slots import HEAD, OWN, Slots
from headrace.model import DataType, Query

__all__ = ["slots_of"]


def slots_of(queries: Sequence[Query]) -> tuple[Slots, list[int]]:
    """The table for those of the queries that fit it, and which these are.

    Those that do not are ordered by an expression, whose type only Spark knows, or want distinct results or OVER.
    """
    fitting = [n for n, query in enumerate(queries) if _fits(query)]
    given: dict[tuple[str, DataType], str] = {}
    results: dict[tuple[str, DataType], str] = {}
    made: dict[str, dict[str, list[int]]] = {}
    kept: dict[str, list[int]] = {}
    finishes, places = [], []
    for number, position in enumerate(fitting):
        query = queries[position]
        mine = {column.name: _slot(given, column.name, column.type) for column in answer_columns(query)}
        outputs = []
        for i, output in enumerate(query.finish.outputs):
            slot = _slot(results, f"o{i}", output.type)
            made.setdefault(slot, {}).setdefault(renamed(output.sql, mine), []).append(number)
            outputs.append((f"o{i}", slot))
        if query.finish.having is not None:
            kept.setdefault(renamed(query.finish.having, mine), []).append(number)
        finishes.append(_finish(query))
        places.append((*mine.items(), *outputs))
    select = [
        *HEAD.names,
        *given.values(),
        f"{_case(kept, 'true')} AS _keep",
        *(f"{_case(exprs, 'NULL')} AS {slot}" for slot, exprs in made.items()),
    ]
    columns = tuple((slot, type_) for (_, type_), slot in given.items())
    return Slots(columns, tuple(select), tuple(finishes), tuple(places)), fitting


def _fits(query: Query) -> bool:
    finish = query.finish
    columns = {*OWN, *(column.name for column in answer_columns(query))}
    return (
        not finish.distinct
        and not finish.over
        and all(plain_name(key.sql) in columns for key in finish.order_by)
        and len({output.name.lower() for output in finish.outputs}) == len(finish.outputs)
    )


def _finish(query: Query) -> DirectFinish:
    """What is left to do after Spark: order and cut by columns that are there, and name the results."""
    finish = query.finish
    order = tuple((plain_name(key.sql) or "", key.descending, key.nulls_first) for key in finish.order_by)
    schema = pa.schema([(output.name, arrow_type(output.type)) for output in finish.outputs])
    return DirectFinish(
        tuple((output.name, f"o{i}") for i, output in enumerate(finish.outputs)),
        order,
        finish.limit,
        schema,
        finish.ties,
        finish.offset,
    )


def _slot(slots: dict[tuple[str, DataType], str], name: str, type_: DataType) -> str:
    if (name, type_) not in slots:
        slots[name, type_] = f"{name}_{sum(1 for known, _ in slots if known == name)}"
    return slots[name, type_]


def _case(expressions: Mapping[str, Sequence[int]], otherwise: str) -> str:
    """One expression per query; other queries' rows never see it."""
    whens = (
        f"WHEN _q IN ({', '.join(map(str, numbers))}) THEN {sql}" for sql, numbers in expressions.items()
    )  # fmt: skip
    return f"CASE {' '.join(whens)} ELSE {otherwise} END" if expressions else otherwise
