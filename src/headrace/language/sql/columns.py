"""Names c0, c1, ... for the expressions an operator's input must compute, and a0, a1, ... for aggregates, each once."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.language.sql.aggregates import AggregateCall, aggregate_type, is_aggregate, read_aggregate, unfolded
from headrace.language.sql.infer import infer
from headrace.language.sql.names import Scope
from headrace.language.sql.relation import Take
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, leaf, rebuilt, spark_text
from headrace.model import Aggregate, DataType, Kind, result_type

__all__ = ["Columns", "refuse_void"]


class Columns:
    """Collects what a query needs from its input, whose rows have a `time`, while its clauses are bound."""

    def __init__(self, scope: Scope, time: exp.Expr | None = None) -> None:
        self._scope, self._time = scope, time
        self._takes: dict[str, Take] = {}
        self._aggregates: dict[tuple[object, ...], Aggregate] = {}
        self._types: dict[Key, DataType] = {}

    @property
    def takes(self) -> tuple[Take, ...]:
        return tuple(self._takes.values())

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple(self._aggregates.values())

    @property
    def types(self) -> dict[Key, DataType]:
        """Types of all columns named so far, under the empty alias."""
        return self._types

    def column(self, node: exp.Expr) -> exp.Column:
        """The input column that holds a bound expression."""
        text = spark_text(node)
        if text not in self._takes:
            name = f"c{len(self._takes)}"
            take = Take(name, node.copy(), infer(node, self._scope.columns))
            refuse_void(take.type, node)
            self._takes[text] = take
            self._types["", name] = take.type
        return leaf("", self._takes[text].name)

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        """The result of a bound aggregate call."""
        wider = unfolded(node)
        if wider is not None:
            return self._over_aggregates(wider)
        call = read_aggregate(node, self._time)
        if call.filter is not None:
            found = infer(call.filter, self._scope.columns)
            if found.kind not in (Kind.BOOLEAN, Kind.UNKNOWN):
                raise Fault(f"FILTER needs a condition, not {found}", call.filter, "compare the value with something")
        argument = None if call.argument is None else infer(call.argument, self._scope.columns)
        if argument is not None and argument.kind is Kind.NULL:
            call, argument = _with_type(call, node)
        type_ = aggregate_type(call, argument, [infer(part, self._scope.columns) for part in call.parts], node)
        argument_name = None if call.argument is None else self.column(call.argument).name
        filter_name = None if call.filter is None else self.column(call.filter).name
        key = (call.function, argument_name, call.distinct, filter_name, call.parameters)
        if key not in self._aggregates:
            name = f"a{len(self._aggregates)}"
            self._aggregates[key] = Aggregate(
                name, call.function, argument_name, type_, call.distinct, filter_name, call.parameters
            )
            self._types["", name] = type_
        return leaf("", self._aggregates[key].name)

    def _over_aggregates(self, node: exp.Expr) -> exp.Expr:
        if is_aggregate(node):
            return self.aggregate(node)
        return rebuilt(node, self._over_aggregates)


def refuse_void(type_: DataType, at: exp.Expr) -> None:
    """Raise Fault for an expression that is NULL whatever the rows are: no sink has a column for its type."""
    if type_.is_void:
        raise Fault("this is always NULL and has no type of its own", at, "give it one, such as CAST(NULL AS STRING)")


def _with_type(call: AggregateCall, at: exp.Expr) -> tuple[AggregateCall, DataType]:
    """An aggregate of NULL over the type that Spark gives it; raises Fault where Spark gives none."""
    type_ = DataType(Kind.BOOLEAN if call.takes == "condition" else Kind.DOUBLE)
    if type_.kind is not Kind.BOOLEAN:
        refuse_void(result_type(call.function, DataType(Kind.NULL)), at)
    return replace(call, argument=exp.cast(exp.Null(), str(type_))), type_
