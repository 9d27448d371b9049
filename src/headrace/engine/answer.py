"""Answer: windows put together from panes, inside a Spark task, one task per bin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import polars as pl

from headrace.engine.chunks import read_part
from headrace.engine.panes import Layout, layout_of, merge
from headrace.model import HoppingWindow
from headrace.planning import AnswerPlan
from headrace.planning.synopsis import BUCKET_OFFSET
from headrace.policies import Due

__all__ = ["AnswerSpec", "PlannedAggregate", "answer", "load_panes", "spec_of"]

_UTC_US = pl.Datetime("us", "UTC")


@dataclass(frozen=True, slots=True)
class PlannedAggregate:
    """One aggregate: its name, function, result type, and where its measures are."""

    name: str
    function: str
    type: str
    distinct: bool
    synopsis: str
    measures: tuple[int, ...]
    parameters: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AnswerSpec:
    """All a task needs to answer one query: plain values that travel to it."""

    query: str
    size_us: int
    always: bool  # answer empty windows too: the papers' form without GROUP BY
    keys: tuple[str, ...]
    main: str
    aggregates: tuple[PlannedAggregate, ...]
    layouts: tuple[Layout, ...]


def spec_of(plan: AnswerPlan) -> AnswerSpec:
    """The part of a plan that tasks need."""
    root = plan.aggregate
    return AnswerSpec(
        plan.query.name,
        root.window.size_us,
        not root.keys and not isinstance(root.window, HoppingWindow),
        root.keys,
        plan.main,
        tuple(
            PlannedAggregate(
                s.aggregate.name,
                s.aggregate.function,
                str(s.aggregate.type),
                s.aggregate.distinct,
                s.synopsis,
                s.measures,
                s.parameters,
            )
            for s in plan.sources
        ),
        tuple(layout_of(s) for s in plan.synopses),
    )


def load_panes(
    folder: str, chunks: Mapping[str, Sequence[str]], spec: AnswerSpec, bin_: int, due: Due
) -> dict[str, pl.DataFrame]:
    """Per synopsis the panes of one bin that the due windows need, merged over chunks when several windows do."""
    panes: dict[str, pl.DataFrame] = {}
    for layout in spec.layouts:
        least, end = (due.first_us - spec.size_us) // layout.pane_us, due.last_us // layout.pane_us
        frames = [
            frame.filter(pl.col("p").is_between(least, end, closed="left"))
            for name in chunks.get(layout.id, ())
            for frame in read_part(folder, name, layout.id, bin_)
        ]
        frames = [frame for frame in frames if not frame.is_empty()]
        if frames:
            panes[layout.id] = pl.concat(frames) if due.count == 1 else merge(frames, layout, ["p", *layout.groups])
    return panes


def answer(spec: AnswerSpec, panes: Mapping[str, pl.DataFrame], due: Due) -> pl.DataFrame | None:
    """The groups and aggregates of all due windows, with `window_start` and `window_end`; None if there are none."""
    answers = [_window(spec, panes, end) for end in _ends(spec, panes, due)]
    found = [frame for frame in answers if frame is not None]
    # Empty windows are made of literals, whose types give way to those of the others.
    return pl.concat(found, how="vertical_relaxed") if found else None


def _ends(spec: AnswerSpec, panes: Mapping[str, pl.DataFrame], due: Due) -> Iterable[int]:
    """The due window ends to answer: all of them, or those whose window holds a pane."""
    if spec.always:
        return range(due.first_us, due.last_us + 1, due.slide_us)
    if spec.main not in panes:
        return ()
    pane_us = next(layout.pane_us for layout in spec.layouts if layout.id == spec.main)
    begin = panes[spec.main]["p"].unique().to_numpy() * pane_us
    first = begin - (begin - due.first_us) % due.slide_us + due.slide_us
    steps = np.arange(0, spec.size_us, due.slide_us)
    ends = first[:, None] + steps[None, :]
    held = ends[(ends <= begin[:, None] + spec.size_us) & (ends >= due.first_us) & (ends <= due.last_us)]
    return [int(end) for end in np.unique(held)]


def _window(spec: AnswerSpec, panes: Mapping[str, pl.DataFrame], end_us: int) -> pl.DataFrame | None:
    layouts = {layout.id: layout for layout in spec.layouts}
    by = [f"k{i}" for i in range(len(spec.keys))]
    tables: dict[str, pl.DataFrame] = {}
    for id_, frame in panes.items():
        layout = layouts[id_]
        inside = frame.filter(
            pl.col("p").is_between((end_us - spec.size_us) // layout.pane_us, end_us // layout.pane_us, closed="left")
        )
        if not inside.is_empty():
            tables[id_] = merge([inside], layout, layout.groups)
    main = tables.get(spec.main)
    if main is None:
        if not spec.always:
            return None
        out = pl.DataFrame({"_one": [0]})
    else:
        out = main
    columns: list[pl.Expr] = [
        pl.lit(end_us - spec.size_us).cast(_UTC_US).alias("window_start"),
        pl.lit(end_us).cast(_UTC_US).alias("window_end"),
        *(pl.col(f"k{i}").alias(name) for i, name in enumerate(spec.keys)),
    ]
    for aggregate in spec.aggregates:
        layout = layouts[aggregate.synopsis]
        if layout.detail:
            table = tables.get(aggregate.synopsis)
            if table is None or main is None:
                columns.append(_empty(aggregate))
                continue
            detail = _finish_detail(table.filter(pl.col("d").is_not_null()), aggregate, by)
            out = out.join(detail, on=by, how="left", nulls_equal=True) if by else out.join(detail, how="cross")
            column = pl.col(aggregate.name)
            columns.append(column.fill_null(0) if _counts(aggregate) else column)
        else:
            columns.append(
                _empty(aggregate) if main is None else _finish_plain(aggregate, layout).alias(aggregate.name)
            )
    return out.select(columns)


def _counts(aggregate: PlannedAggregate) -> bool:
    return aggregate.function in ("count", "approx_count_distinct")


def _empty(aggregate: PlannedAggregate) -> pl.Expr:
    return pl.lit(0 if _counts(aggregate) else None).alias(aggregate.name)


def _finish_plain(aggregate: PlannedAggregate, layout: Layout) -> pl.Expr:
    measure = f"m{aggregate.measures[0]}"
    kind, storage = layout.measures[aggregate.measures[0]]
    match aggregate.function:
        case "sum" if storage == "wide":
            return pl.col(measure).cast(pl.Int64)
        case "avg":
            total, count = pl.col(measure), pl.col(f"m{aggregate.measures[1]}")
            if storage.startswith("decimal"):
                scale = int(aggregate.type.rstrip(")").partition(",")[2])
                return pl.struct(total.alias("s"), count.alias("n")).map_batches(
                    lambda s: _decimal_average(s, scale), return_dtype=pl.Decimal(38, scale)
                )
            return pl.when(count > 0).then(total.cast(pl.Float64) / count)
        case "stddev_samp" | "var_samp" | "stddev_pop" | "var_pop":
            n, m2 = pl.col(f"{measure}_n"), pl.col(f"{measure}_m2")
            sample = aggregate.function.endswith("_samp")
            variance = pl.when(n > (1 if sample else 0)).then(m2 / (n - (1 if sample else 0)))
            return variance.sqrt() if aggregate.function.startswith("stddev") else variance
        case _:
            assert kind in ("rows", "count", "sum", "min", "max")
            return pl.col(measure)


def _decimal_average(parts: pl.Series, scale: int) -> pl.Series:
    """Averages of decimals as Spark rounds them: half up, in 38 digits; one division per group, not per row."""
    unit = Decimal(1).scaleb(-scale)
    with localcontext(prec=60):
        values = [
            None if not row["n"] else (row["s"] / row["n"]).quantize(unit, rounding=ROUND_HALF_UP)
            for row in parts.to_list()
        ]
    return pl.Series(values, dtype=pl.Decimal(38, scale))


def _finish_detail(table: pl.DataFrame, aggregate: PlannedAggregate, by: list[str]) -> pl.DataFrame:
    """One value per group from its counted details."""
    name = aggregate.name
    groups = by or ["_one"]
    if not by:
        table = table.with_columns(_one=pl.lit(0))
    match aggregate.function:
        case "percentile" | "percentile_disc" | "approx_percentile":
            made = _quantile(table, aggregate, groups)
        case "approx_count_distinct":
            made = _hll_estimate(table, int(aggregate.parameters[0]), groups, name)
        case "approx_top_k":
            made = (
                table.sort([*groups, "m0", "d"], descending=[*([False] * len(groups)), True, False])
                .group_by(groups)
                .agg(
                    pl.struct(pl.col("d").alias("item"), pl.col("m0").alias("count"))
                    .head(int(aggregate.parameters[0]))
                    .alias(name)
                )
            )
        case "count":
            made = table.group_by(groups).agg(pl.len().cast(pl.Int64).alias(name))
        case "sum":
            made = table.group_by(groups).agg(_exact(pl.col("d"), table).sum().alias(name))
        case "avg" if aggregate.type.startswith("DECIMAL"):
            scale = int(aggregate.type.rstrip(")").partition(",")[2])
            made = table.group_by(groups).agg(_exact(pl.col("d"), table).sum().alias("s"), pl.len().alias("n"))
            average = _decimal_average(made.select(pl.struct("s", "n").alias("x"))["x"], scale)
            made = made.select(*groups, average.alias(name))
        case "avg":
            made = table.group_by(groups).agg(pl.col("d").cast(pl.Float64).mean().alias(name))
        case "stddev_samp" | "var_samp" | "stddev_pop" | "var_pop":
            values, ddof = pl.col("d").cast(pl.Float64), 1 if aggregate.function.endswith("_samp") else 0
            made = table.group_by(groups).agg(
                (values.std(ddof=ddof) if aggregate.function.startswith("stddev") else values.var(ddof=ddof)).alias(
                    name
                )
            )
        case other:
            raise ValueError(f"unknown aggregate function '{other}'")
    if by:
        return made
    # Without keys there is one group, also when no detail is there to be counted.
    return made.drop("_one") if not made.is_empty() else pl.DataFrame({name: [0 if _counts(aggregate) else None]})


def _exact(column: pl.Expr, table: pl.DataFrame) -> pl.Expr:
    """Integers summed without overflow, floats in double precision; the cast to the result type says what fits."""
    dtype = table["d"].dtype
    if dtype.is_integer():
        return column.cast(pl.Decimal(38, 0))
    return column.cast(pl.Float64) if dtype.is_float() else column


def _quantile(table: pl.DataFrame, aggregate: PlannedAggregate, groups: list[str]) -> pl.DataFrame:
    """Quantiles of counted values: by linear interpolation (percentile) or the value at the rank (the others)."""
    fraction = aggregate.parameters[0]
    ranked = table.sort([*groups, "d"]).with_columns(
        _upto=pl.col("m0").cum_sum().over(groups), _n=pl.col("m0").sum().over(groups)
    )
    if aggregate.function == "percentile":
        place = fraction * (pl.col("_n") - 1)
        low, high = place.floor(), place.ceil()
    else:
        low = high = (fraction * pl.col("_n")).ceil().clip(lower_bound=1) - 1
        place = low
    picked = ranked.group_by(groups).agg(
        _low=pl.col("d").filter(pl.col("_upto") > low).first().cast(pl.Float64),
        _high=pl.col("d").filter(pl.col("_upto") > high).first().cast(pl.Float64),
        _weight=(place - low).first(),
    )
    value = pl.col("_low")
    if aggregate.function == "percentile":
        # Equal neighbours need no interpolation, and infinities do not survive one.
        apart = pl.col("_low") != pl.col("_high")
        value = (
            pl.when(apart & (pl.col("_weight") > 0))
            .then(pl.col("_low") * (1 - pl.col("_weight")) + pl.col("_high") * pl.col("_weight"))
            .otherwise(pl.col("_low"))
        )
    elif aggregate.function == "approx_percentile":
        value = _bucket_value(aggregate.parameters[1])
        if aggregate.type in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            value = value.round(0)
        elif aggregate.type.startswith("DECIMAL"):
            value = value.cast(pl.Decimal(38, int(aggregate.type.rstrip(")").partition(",")[2])))
    return picked.select(*groups, value.alias(aggregate.name))


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


def _hll_estimate(table: pl.DataFrame, bits: int, groups: list[str], name: str) -> pl.DataFrame:
    """Distinct values from HyperLogLog registers, by Ertl's improved estimator (2017), which needs no bias table."""
    m = float(1 << bits)
    per_group = table.group_by(groups).agg(
        _touched=pl.len(), _power=(pl.lit(2.0) ** (-pl.col("m0").cast(pl.Float64))).sum()
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
    return per_group.select(*groups, pl.Series(name, estimate))
