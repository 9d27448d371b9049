"""The value of an aggregate from its merged measures, and what to say where its type has no room for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import polars as pl

from headrace.errors import QueryFailure
from headrace.kernels.limbs import split, total, unscaled
from headrace.kernels.moments import columns_of_moments
from headrace.kernels.panes import Layout, columns_of_best, columns_of_measure
from headrace.model import (
    AGGREGATES,
    BUCKET_OFFSET,
    ROWS,
    Aggregate,
    Join,
    Operator,
    RowsAggregate,
    Scan,
    Union,
    WindowAggregate,
    columns_of,
)

__all__ = [
    "PlannedAggregate",
    "filled",
    "find_beyond",
    "finish_detail",
    "finish_error",
    "finish_plain",
    "finish_quantile",
    "spelled",
    "text_of",
]

# Where few rows were kept and their sum is too small, so is the spread that is told from them. Two rows more in the
# spread make up for it, as two successes and two failures more do for a share (Agresti and Coull 1998).
MORE_ROWS = 2


@dataclass(frozen=True, slots=True)
class PlannedAggregate:
    """One aggregate: its name, function, result type, where its measures are, and how the query writes it."""

    name: str
    function: str
    type: str
    distinct: bool
    synopsis: str
    columns: tuple[str, ...]
    parameters: tuple[float, ...]
    scaled: bool = False
    text: str = field(default="", compare=False)

    @property
    def reads(self) -> str:
        """How its value is read."""
        return AGGREGATES[self.function].reads

    @property
    def by_value(self) -> bool:
        """Whether it is read from rows counted by value, or by what stands for it."""
        return self.distinct or AGGREGATES[self.function].detail is not None

    @property
    def tries(self) -> bool:
        """Whether it is NULL where its type has no room for it, and no failure."""
        return self.function.startswith("try_")

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of a DECIMAL."""
        precision, _, scale = self.type.removeprefix("DECIMAL(").rstrip(")").partition(",")
        return int(precision), int(scale)

    def beyond(self, where: str) -> QueryFailure:
        """What to say of a value that its type has no room for."""
        wider = "DECIMAL(38,0) or DOUBLE" if self.type == "BIGINT" else "DOUBLE"
        return QueryFailure(
            f"{self.text or self.function.upper()} exceeds {self.type} in {where}; CAST its argument to {wider}"
        )


def text_of(aggregate: Aggregate, below: Operator) -> str:
    """An aggregate as SQL, over the expressions of the operator below it."""
    distinct = "DISTINCT " if aggregate.distinct else ""
    argument = "*" if aggregate.argument is None else _expression(below, aggregate.argument)
    return f"{aggregate.function.upper()}({distinct}{argument})"


def spelled(root: Operator) -> dict[str, str]:
    """What the columns of a query's root stand for, as SQL over its streams."""
    match root:
        case WindowAggregate(input=below, aggregates=aggregates) | RowsAggregate(input=below, aggregates=aggregates):
            columns = {column.name: _expression(below, column.name) for column in columns_of(below)}
            return columns | {aggregate.name: text_of(aggregate, below) for aggregate in aggregates}
        case _:
            return {}


def _expression(operator: Operator, name: str) -> str:
    match operator:
        case Union(inputs=inputs):
            return _expression(inputs[0], name)
        case Scan(columns=columns) | Join(columns=columns):
            return next((column.sql for column in columns if column.name == name), name)
        case _:
            return name


def finish_plain(aggregate: PlannedAggregate, layout: Layout) -> pl.Expr:
    """An aggregate's value from its merged measures; NULL where its type has no room for it (`find_beyond`)."""
    found = _finish_kept(aggregate, layout)
    if not aggregate.scaled:
        return found
    if aggregate.function == "avg":
        total_x, total_n = _scaled_ratio(aggregate, layout)
        exact = aggregate.type.startswith("DECIMAL")
        return found if exact else pl.when(total_n > 0).then(total_x / total_n)
    extra = pl.col(aggregate.columns[1]).fill_null(0.0)
    if aggregate.type.startswith("DECIMAL"):
        return found + extra.cast(pl.Decimal(*aggregate.digits), strict=False)
    return found + (extra if aggregate.type in ("DOUBLE", "FLOAT") else extra.round().cast(pl.Int64))


def filled(aggregate: PlannedAggregate, column: pl.Expr) -> pl.Expr:
    """An aggregate's column with its value over nothing where it has none."""
    empty = AGGREGATES[aggregate.function].empty
    if empty is None:
        return column
    return column.fill_null(empty) if isinstance(empty, int) else column.fill_null([])


def finish_error(aggregate: PlannedAggregate, layout: Layout) -> pl.Expr:
    """One standard error of a scaled aggregate; 0 where all rows were kept."""
    if aggregate.function != "avg":
        extra, spread = (pl.col(aggregate.columns[i]).fill_null(0.0) for i in (1, 2))
        # What is one over the number of kept rows, if all count alike.
        per_row = (spread / extra**2).clip(upper_bound=1.0)
        return pl.when(spread > 0).then((spread * (1 + MORE_ROWS * per_row)).sqrt()).otherwise(0.0)
    total_x, total_n = _scaled_ratio(aggregate, layout)
    ratio = total_x / total_n
    spread_x, spread_n, cross = (pl.col(aggregate.columns[i]).fill_null(0.0) for i in (3, 5, 6))
    variance = spread_x - 2 * ratio * cross + ratio**2 * spread_n
    return pl.when(total_n > 0).then(variance.clip(lower_bound=0.0).sqrt() / total_n)


def _scaled_ratio(aggregate: PlannedAggregate, layout: Layout) -> tuple[pl.Expr, pl.Expr]:
    """The scaled sum and the scaled count whose ratio is an average."""
    measure, (kind, storage) = aggregate.columns[0], _kept(aggregate, layout)
    kept = total(measure, int(storage.partition(":")[2])) if kind == "limbs" else pl.col(measure)
    extra_x, extra_n = (pl.col(aggregate.columns[i]).fill_null(0.0) for i in (2, 4))
    return kept.cast(pl.Float64) + extra_x, pl.col(aggregate.columns[1]) + extra_n


def _finish_kept(aggregate: PlannedAggregate, layout: Layout) -> pl.Expr:
    """An aggregate's value over the rows that were kept."""
    measure = aggregate.columns[0]
    kind, storage = _kept(aggregate, layout)
    match aggregate.reads:
        case "sum" if kind == "limbs":
            return total(measure, aggregate.digits[1])
        case "sum" if storage == "wide":
            return pl.col(measure).cast(pl.Int64, strict=False)
        case "sum" if storage.startswith("decimal"):
            return pl.col(measure).cast(pl.Decimal(*aggregate.digits), strict=False)
        case "average":
            count = pl.col(aggregate.columns[1])
            if storage.startswith(("decimal", "limbs")):
                parts = [pl.col(column) for column in columns_of_measure(measure, kind)]
                return pl.struct(*parts, count).map_batches(
                    lambda found: _decimal_averages(found, int(storage.partition(":")[2]), aggregate),
                    return_dtype=pl.Decimal(*aggregate.digits),
                )
            return pl.when(count > 0).then(pl.col(measure).cast(pl.Float64) / count)
        case "of":
            return pl.col(columns_of_best(measure)[1])
        case "shape":
            return _shape(aggregate.function, *(pl.col(c) for c in columns_of_moments(measure, kind)))
        case "comoments":
            return _of_pairs(aggregate.function, *(pl.col(c) for c in columns_of_moments(measure, kind)))
        case "variance":
            n, m2 = pl.col(f"{measure}_n"), pl.col(f"{measure}_m2")
            sample = aggregate.function.endswith("_samp")
            variance = pl.when(n > (1 if sample else 0)).then(m2 / (n - (1 if sample else 0)))
            return variance.sqrt() if aggregate.function.startswith("stddev") else variance
        case _:
            return pl.col(measure)


def _shape(function: str, n: pl.Expr, mean: pl.Expr, m2: pl.Expr, m3: pl.Expr, m4: pl.Expr) -> pl.Expr:
    """Skewness and excess kurtosis of a population; NULL where values do not differ."""
    skewness = function == "skewness"
    found = n.cast(pl.Float64).sqrt() * m3 / (m2 * m2 * m2).sqrt() if skewness else n * m4 / (m2 * m2) - 3.0
    return pl.when((n > 0) & (m2 != 0)).then(found)


def _of_pairs(
    function: str, n: pl.Expr, x: pl.Expr, sxx: pl.Expr, y: pl.Expr, syy: pl.Expr, sxy: pl.Expr
) -> pl.Expr:  # fmt: skip
    """What SQL says about pairs (y, x) that have both; NULL where it divides by nothing."""
    some, differ = n > 0, (n > 1) & (sxx != 0)
    match function:
        case "regr_count":
            return n
        case "regr_avgx" | "regr_avgy" | "regr_sxx" | "regr_syy" | "regr_sxy":
            return {"avgx": x, "avgy": y, "sxx": sxx, "syy": syy, "sxy": sxy}[function.removeprefix("regr_")]
        case "covar_pop":
            return pl.when(some).then(sxy / n)
        case "covar_samp":
            return pl.when(n > 1).then(sxy / (n - 1))
        case "corr":
            return pl.when(differ & (syy != 0)).then(sxy / (sxx.sqrt() * syy.sqrt()))
        case "regr_slope":
            return pl.when(differ).then(sxy / sxx)
        case "regr_intercept":
            return pl.when(differ).then(y - sxy / sxx * x)
        case _:
            explained = pl.when(syy == 0).then(1.0).otherwise(sxy * sxy / (sxx * syy))
            return pl.when(differ).then(explained)


def _kept(aggregate: PlannedAggregate, layout: Layout) -> tuple[str, str]:
    """Kind and storage of an aggregate's first measure."""
    return next((kind, storage) for name, kind, storage in layout.measures if name == aggregate.columns[0])


def find_beyond(measures: pl.DataFrame, aggregate: PlannedAggregate, layout: Layout, value: pl.Series) -> int | None:
    """The first row whose measures have a value and whose aggregate has none: its type has no room for it."""
    kind, storage = _kept(aggregate, layout)
    exact = storage == "wide" or storage.startswith(("decimal", "limbs"))
    adds = aggregate.reads in ("sum", "average") and not aggregate.tries
    if not adds or not exact or not value.null_count():
        return None
    known = measures[columns_of_measure(aggregate.columns[0], kind)[0]].is_not_null()
    (rows,) = np.nonzero((known & value.is_null()).to_numpy())
    return int(rows[0]) if len(rows) else None


def _decimal_averages(parts: pl.Series, scale: int, aggregate: PlannedAggregate) -> pl.Series:
    """Averages of decimals as Spark rounds them, half up, from digits and counts; one division per group, not per row.

    NULL where the average does not fit its type.
    """
    precision, shown = aggregate.digits
    unit, most = Decimal(1).scaleb(-shown), Decimal(10) ** (precision - shown)
    found: list[Decimal | None] = []
    # A sum of 10^18 decimals has 56 digits, and Spark's own average rounds once, to the scale of the result.
    with localcontext(prec=120):
        for row in parts.to_list():
            *limbs, count = row.values()
            if not count:
                found.append(None)
                continue
            whole = limbs[0] if len(limbs) == 1 else Decimal(unscaled(*limbs)).scaleb(-scale)
            average = (whole / count).quantize(unit, rounding=ROUND_HALF_UP)
            found.append(average if abs(average) < most else None)
    return pl.Series(found, dtype=pl.Decimal(precision, shown))


def finish_detail(table: pl.DataFrame, aggregate: PlannedAggregate, groups: list[str]) -> pl.DataFrame:
    """One value per window and group from its counted details; those of a group lie side by side, in order."""
    number = table["_s"].to_numpy()
    (starts,) = np.nonzero(np.concatenate([[True], number[1:] != number[:-1]])) if len(number) else (np.empty(0, int),)
    keys = table.select(groups)[starts]
    each = table.group_by("_s", maintain_order=True)
    match aggregate.reads:
        case "registers":
            values = _hll_estimate(each, aggregate)
        case "list":
            values = each.agg(pl.col("d").repeat_by(ROWS).explode())["d"]
        case "set":
            values = each.agg(pl.col("d"))["d"]
        case "mode":
            # The values of a group lie in their order: of those that are as frequent the first is the least.
            values = each.agg(pl.col("d").get(pl.col(ROWS).arg_max()))["d"]
        case "heaviest":
            heaviest = table.sort(["_s", ROWS, "d"], descending=[False, True, False])
            item = pl.struct(pl.col("d").alias("item"), pl.col(ROWS).alias("count"))
            values = heaviest.group_by("_s", maintain_order=True).agg(item.head(int(aggregate.parameters[0])))["item"]
        case "value":
            values = pl.Series(np.diff(np.append(starts, len(number))), dtype=pl.Int64)
        case "sum" | "average" if table["d"].dtype.is_decimal() or (aggregate.reads == "sum" and _whole(table)):
            values = _exact(table, aggregate)
        case "sum":
            values = each.agg(pl.col("d").cast(pl.Float64).sum())["d"]
        case "average":
            values = each.agg(pl.col("d").cast(pl.Float64).mean())["d"]
        case "variance":
            column, ddof = pl.col("d").cast(pl.Float64), 1 if aggregate.function.endswith("_samp") else 0
            deviation = aggregate.function.startswith("stddev")
            values = each.agg(column.std(ddof=ddof) if deviation else column.var(ddof=ddof))["d"]
        case other:
            raise ValueError(f"unknown aggregate function '{other}'")
    return keys.with_columns(values.alias(aggregate.name))


def _whole(table: pl.DataFrame) -> bool:
    return table["d"].dtype.is_integer()


def _exact(table: pl.DataFrame, aggregate: PlannedAggregate) -> pl.Series:
    """Sums and averages of distinct integers or decimals, without overflow on the way."""
    scale = getattr(table["d"].dtype, "scale", 0)
    decimals = pl.col("d").cast(pl.Decimal(38, scale))
    limbs = table.select("_s", *split(decimals, "d")).group_by("_s", maintain_order=True)
    made = limbs.agg(pl.col("d_hi").sum(), pl.col("d_lo").sum(), pl.len().alias("n"))
    if aggregate.reads == "average":
        values = _decimal_averages(made.select(pl.struct("d_hi", "d_lo", "n").alias("x"))["x"], scale, aggregate)
    else:
        room = pl.Int64 if aggregate.type == "BIGINT" else pl.Decimal(*aggregate.digits)
        values = made.select(total("d", scale).cast(room, strict=False)).to_series()
    if values.null_count() and not aggregate.tries:
        raise aggregate.beyond("one of its windows")
    return values


def finish_quantile(aggregate: PlannedAggregate) -> pl.Expr:
    """The quantile from its neighbours `_low` and `_high`."""
    value = pl.col("_low")
    if aggregate.function == "percentile":
        # As Spark interpolates: infinities cancel out, and equal neighbours need no interpolation.
        apart = pl.col("_low") != pl.col("_high")
        value = (
            pl.when(apart & (pl.col("_weight") > 0))
            .then(pl.col("_low") + (pl.col("_high") - pl.col("_low")) * pl.col("_weight"))
            .otherwise(pl.col("_low"))
        )
    elif aggregate.function == "approx_percentile":
        value = _bucket_value(aggregate.parameters[1])
        if aggregate.type in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            value = value.round(0)
        elif aggregate.type.startswith("DECIMAL"):
            value = value.cast(pl.Decimal(38, int(aggregate.type.rstrip(")").partition(",")[2])))
    return value


def _bucket_value(error: float) -> pl.Expr:
    """The value a DDSketch bucket stands for: within `error`, relatively, of every value in it."""
    gamma = (1 + error) / (1 - error)
    bucket = pl.col("_low")
    size = (bucket.abs() - BUCKET_OFFSET) * math.log(gamma)
    value = size.exp() * (2 / (1 + gamma)) * bucket.sign()
    return (
        pl.when(bucket == 0)
        .then(0.0)
        .when(bucket == 2**31 - 1)
        .then(float("nan"))
        .when(bucket.abs() == 2**31 - 2)
        .then(bucket.sign() * float("inf"))
        .otherwise(value)
    )


def _hll_estimate(each: Any, aggregate: PlannedAggregate) -> pl.Series:
    """Distinct values from HyperLogLog registers, by Ertl's improved estimator (2017), which needs no bias table."""
    m = float(1 << int(aggregate.parameters[0]))
    per_group = each.agg(
        _touched=pl.len(), _power=(pl.lit(2.0) ** (-pl.col(aggregate.columns[0]).cast(pl.Float64))).sum()
    )
    untouched = (m - per_group["_touched"].to_numpy()) / m
    # sigma(x) = x + sum of x^(2^k) * 2^(k-1): what the empty registers say about small cardinalities.
    x, total, weight = untouched.astype(np.float64), untouched.astype(np.float64), 1.0
    for _ in range(64):
        x = x * x
        total = total + x * weight
        weight += weight
    denominator = per_group["_power"].to_numpy() + m * total
    estimate = np.rint((m * m / (2 * math.log(2))) / denominator).astype(np.int64)
    return pl.Series(estimate)
