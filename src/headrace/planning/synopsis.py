"""Which partial aggregates answer a query: synopses whose identity belongs to no query.

Every aggregate is answered from tables of one shape, `(pane, group keys, detail) -> mergeable measures`:

    SUM, COUNT, AVG, MIN, MAX, VARIANCE   no detail
    COUNT(DISTINCT x), MEDIAN, mode       detail = x,              measure = rows
    approx_count_distinct(x)              detail = HLL register,   measure = greatest rank
    approx_percentile(x)                  detail = DDSketch bucket, measure = rows
    approx_top_k(x)                       detail = x, only the heaviest kept (Misra-Gries), measure = rows

which of these an aggregate is says `model/aggregates.py`,
so one kernel keeps them all, and sketches merge exactly as counts do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headrace.errors import Problem, SpecError
from headrace.model import (
    AGGREGATES,
    BUCKET_OFFSET,
    Aggregate,
    DataType,
    Feed,
    Kind,
    Measure,
    NamedExpression,
    Operator,
    Query,
    Scan,
    Synopsis,
    Union,
    WindowAggregate,
    sum_of,
)
from headrace.planning.flow import NodePlan
from headrace.planning.partial import panes_name

__all__ = [
    "AggregateColumns",
    "AnswerPlan",
    "Demand",
    "argument_of",
    "column_of",
    "normal",
    "plan_answer",
    "refuse_no_number",
    "scans_of",
]

_BIGINT = DataType(Kind.BIGINT)
_DOUBLE = DataType(Kind.DOUBLE)
_INT = DataType(Kind.INT)

# 2^11 registers: a standard error of 1.04 / sqrt(2048) = 2.3 %, in at most 2 kB per group and pane.
MIN_HLL_BITS = 11
MAX_HLL_BITS = 16
# Relative value error of approx_percentile when its accuracy argument asks for less than this.
MIN_RELATIVE_ERROR = 1e-3
DEFAULT_RELATIVE_ERROR = 1e-2
# Spark's default for maxItemsTracked is 10000, which would keep most key spaces whole in every pane.
DEFAULT_ITEMS_TRACKED = 1000


@dataclass(frozen=True, slots=True)
class Demand:
    """What a query needs of one synopsis."""

    synopsis: Synopsis
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class AggregateColumns:
    """Where one aggregate of a query comes from: a synopsis and the columns of its measures there."""

    aggregate: Aggregate
    synopsis: str
    columns: tuple[str, ...]
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class AnswerPlan(NodePlan):
    """How a query is answered: the first demand holds its groups, `columns` its aggregates.

    One that is `coarse` is answered beside another with more keys over the same rows.
    """

    columns: tuple[AggregateColumns, ...]
    demands: tuple[Demand, ...]
    coarse: bool = False

    @property
    def main(self) -> str:
        """The synopsis that knows all groups of a window."""
        return self.demands[0].synopsis.id

    @property
    def aggregate(self) -> WindowAggregate:
        assert isinstance(self.query.root, WindowAggregate)
        return self.query.root

    @property
    def span_us(self) -> int:
        return self.aggregate.window.size_us


@dataclass(slots=True)
class _Draft:
    """A demand being collected."""

    detail: tuple[str, ...] | None
    detail_type: DataType | None
    keep: int | None
    measures: list[Measure]

    def add(self, kind: str, arguments: tuple[str, ...] | None, type_: DataType) -> str:
        measure = Measure(kind, arguments, type_)
        if measure not in self.measures:
            self.measures.append(measure)
        return measure.column


def plan_answer(query: Query) -> AnswerPlan:
    """What answers a windowed aggregate over one stream or a union of streams."""
    root = query.root
    assert isinstance(root, WindowAggregate)
    scans = scans_of(root.input)
    plain = _Draft(None, None, None, [])
    plain.add("rows", None, _BIGINT)
    drafts = [plain]
    found: list[tuple[int, Aggregate, tuple[str, ...], tuple[float, ...]]] = []
    for aggregate in root.aggregates:
        arguments, type_ = argument_of(aggregate, scans)
        detail = _detail(aggregate, arguments, type_, query.name)
        if detail is None:
            columns = _plain(plain, aggregate, arguments, type_)
            if is_scaled(query, aggregate):
                columns += _scaling(plain, aggregate, arguments)
            found.append((0, aggregate, columns, ()))
            continue
        expressions, detail_type, keep, kind, extra, parameters = detail
        draft = next((d for d in drafts if d.detail == expressions and d.keep == keep), None)
        if draft is None:
            draft = _Draft(expressions, detail_type, keep, [])
            drafts.append(draft)
        column = draft.add(kind, extra, _BIGINT if kind == "rows" else _INT)
        found.append((drafts.index(draft), aggregate, (column,), parameters))
    demands = tuple(Demand(_build(draft, scans, root, query.shedding.apart), tuple(draft.measures)) for draft in drafts)
    return AnswerPlan(
        query,
        tuple(AggregateColumns(a, demands[i].synopsis.id, columns, p) for i, a, columns, p in found),
        demands,
    )


def argument_of(aggregate: Aggregate, scans: tuple[Scan, ...]) -> tuple[tuple[str, ...] | None, DataType]:
    """What an aggregate is over, in Spark SQL for each scan (None: over rows), and its type."""
    arguments = None if aggregate.argument is None else tuple(_masked(s, aggregate) for s in scans)
    if arguments is None and aggregate.filter is not None:
        arguments = tuple(f"CASE WHEN {column_of(s, aggregate.filter).sql} THEN true END" for s in scans)
    type_ = _BIGINT if aggregate.argument is None else column_of(scans[0], aggregate.argument).type
    of_numbers = AGGREGATES[aggregate.function].value in ("number", "quantity")
    if arguments is not None and of_numbers and type_.kind in (Kind.STRING, Kind.NULL):
        arguments, type_ = tuple(f"CAST({sql} AS DOUBLE)" for sql in arguments), _DOUBLE
    return arguments, type_


def _build(draft: _Draft, scans: tuple[Scan, ...], root: WindowAggregate, apart: bool) -> Synopsis:
    feeds = tuple(
        Feed(
            stream=scan.stream,
            where=scan.where.sql if scan.where else None,
            keys=tuple(normal(column_of(scan, key)) for key in root.keys),
            detail=draft.detail[i] if draft.detail else None,
        )
        for i, scan in enumerate(scans)
    )
    keys = tuple(column_of(scans[0], key).type for key in root.keys)
    made = Synopsis(feeds, keys, draft.detail_type, draft.keep, apart)
    if not any(scan.as_panes for scan in scans):
        return made
    named = (panes_name(made, i, draft.measures, root.window.pane_us) for i in range(len(feeds)))
    placed = zip(feeds, scans, named, strict=True)
    return replace(made, feeds=tuple(replace(f, panes=name) if scan.as_panes else f for f, scan, name in placed))


def scans_of(operator: Operator) -> tuple[Scan, ...]:
    """The scans below a node: of one stream, or of a union of streams, declared or derived."""
    if isinstance(operator, Union):
        return tuple(scan for child in operator.inputs for scan in scans_of(child))
    assert isinstance(operator, Scan)
    return (operator,)


def column_of(scan: Scan, name: str) -> NamedExpression:
    """The expression of a scan's column."""
    return next(column for column in scan.columns if column.name == name)


def normal(expression: NamedExpression) -> str:
    """Keys as GROUP BY compares them: one NaN and one zero."""
    if not expression.type.is_float:
        return expression.sql
    sql = expression.sql
    return f"CASE WHEN isnan({sql}) THEN {expression.type}('NaN') ELSE {sql} + {expression.type}(0) END"


def _masked(scan: Scan, aggregate: Aggregate) -> str:
    assert aggregate.argument is not None
    argument = column_of(scan, aggregate.argument)
    by_value = aggregate.distinct or AGGREGATES[aggregate.function].detail == "value"
    sql = normal(argument) if by_value else argument.sql
    if aggregate.filter is None:
        return sql
    return f"CASE WHEN {column_of(scan, aggregate.filter).sql} THEN {sql} END"


def is_scaled(query: Query, aggregate: Aggregate) -> bool:
    """Whether an aggregate over the kept rows is scaled to all rows: sums, counts, and what is made of these."""
    return query.shedding.scale and aggregate.function in ("sum", "count", "avg") and not aggregate.distinct


def _scaling(draft: _Draft, aggregate: Aggregate, arguments: tuple[str, ...] | None) -> tuple[str, ...]:
    """The measures that scale an aggregate and give its error; an average is a ratio, whose parts vary together."""
    mine = tuple(draft.add(kind, arguments, _DOUBLE) for kind in ("extra", "spread"))
    if aggregate.function != "avg":
        return mine
    assert arguments is not None
    known = tuple(f"CASE WHEN {sql} IS NOT NULL THEN 1.0D END" for sql in arguments)
    return (
        *mine,
        *(draft.add(kind, known, _DOUBLE) for kind in ("extra", "spread")),
        draft.add("cross", arguments, _DOUBLE),
    )


def _plain(draft: _Draft, aggregate: Aggregate, arguments: tuple[str, ...] | None, type_: DataType) -> tuple[str, ...]:
    if arguments is None:
        return (draft.add("rows", None, _BIGINT),)
    kinds = AGGREGATES[aggregate.function].keeps.split()
    return tuple(
        draft.add(sum_of(type_) if kind == "sum" else kind, arguments, _kept_as(kind, type_)) for kind in kinds
    )


def _kept_as(kind: str, type_: DataType) -> DataType:
    """The type that a kind of measure is named by."""
    return {"count": _BIGINT, "moments": _DOUBLE}.get(kind, type_)


_Detail = tuple[tuple[str, ...], DataType, int | None, str, tuple[str, ...] | None, tuple[float, ...]]


def _detail(aggregate: Aggregate, arguments: tuple[str, ...] | None, type_: DataType, query: str) -> _Detail | None:
    """Detail expression per feed, its type, how many to keep, the measure, its argument, parameters of the finish."""
    parameters = aggregate.parameters
    if arguments is None:
        return None
    match AGGREGATES[aggregate.function].detail:
        case None if not aggregate.distinct:
            return None
        case "register":
            # The registers that give the wanted standard error, but never fewer than the default.
            wanted = math.ceil(2 * math.log2(1.04 / parameters[0])) if parameters else 0
            bits = min(MAX_HLL_BITS, max(MIN_HLL_BITS, wanted))
            return *_hll(arguments, type_, bits), (float(bits),)
        case "bucket":
            refuse_no_number(aggregate, type_, query)
            error = DEFAULT_RELATIVE_ERROR if len(parameters) < 2 else 1.0 / max(parameters[1], 1.0)
            error = min(0.1, max(MIN_RELATIVE_ERROR, error))
            return tuple(_bucket(sql, error) for sql in arguments), _INT, None, "rows", None, (parameters[0], error)
        case "heaviest":
            k = int(parameters[0]) if parameters else 5
            tracked = int(parameters[1]) if len(parameters) > 1 else DEFAULT_ITEMS_TRACKED
            return arguments, type_, max(k, tracked), "rows", None, (float(k),)
        case _:
            return arguments, type_, None, "rows", None, parameters


def refuse_no_number(aggregate: Aggregate, type_: DataType, query: str) -> None:
    """SpecError for approx_percentile of what is no number."""
    if AGGREGATES[aggregate.function].detail == "bucket" and not type_.is_numeric:
        problem = f"{aggregate.function} needs a number, not {type_}"
        raise SpecError(Problem(problem, query=query, hint="cast it, or use percentile"))


def _hll(
    arguments: tuple[str, ...], type_: DataType, bits: int
) -> tuple[tuple[str, ...], DataType, None, str, tuple[str, ...]]:
    """Register and rank of each value (Flajolet et al. 2007), from Spark's own 64-bit hash."""
    hashes = tuple(f"xxhash64({sql} + {type_}(0))" if type_.is_float else f"xxhash64({sql})" for sql in arguments)
    registers = tuple(
        f"CASE WHEN {sql} IS NOT NULL THEN CAST({hashed} & {(1 << bits) - 1}L AS INT) END"
        for sql, hashed in zip(arguments, hashes, strict=True)
    )
    # log2 of zero is NULL: a hash without a single bit left has the greatest rank there is.
    ranks = tuple(
        f"COALESCE({64 - bits} - CAST(FLOOR(LOG2(CAST(shiftrightunsigned({hashed}, {bits}) AS DOUBLE))) AS INT),"
        f" {65 - bits})"
        for hashed in hashes
    )
    return registers, _INT, None, "max", ranks


def _bucket(sql: str, error: float) -> str:
    """Logarithmic bucket of a value (DDSketch, Masson et al. 2019), in the order of the values."""
    value = f"CAST({sql} AS DOUBLE)"
    log_gamma = math.log((1 + error) / (1 - error))
    bucket = f"CAST(CEIL(LN(ABS({value})) / {log_gamma!r}D) AS INT) + {BUCKET_OFFSET}"
    return (
        f"CASE WHEN {sql} IS NULL THEN NULL WHEN isnan({value}) THEN {2**31 - 1}"
        f" WHEN ABS({value}) = DOUBLE('Infinity') THEN {2**31 - 2} * CAST(SIGN({value}) AS INT)"
        f" WHEN {value} = 0 THEN 0 WHEN {value} > 0 THEN {bucket} ELSE -({bucket}) END"
    )
