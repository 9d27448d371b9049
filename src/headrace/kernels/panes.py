"""The kernel: partial aggregates of plain columns by pane, in Polars, inside a Spark task.

Frames have the columns `p` (when the pane begins, in microseconds), `k0...` (group keys), `d` (detail, if any) and one
or more columns per measure. `partial` makes them from rows, `merge` makes one of many; merging is associative and
commutative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.kernels.limbs import columns_of_limbs, fits, split
from headrace.kernels.moments import MOMENTS, columns_of_moments, merged_moments, moments_of, moments_of_row
from headrace.model import PAIR, ROWS, SCALING, DataType, Kind, Measure, Synopsis, sum_of

__all__ = [
    "Layout",
    "columns_of_best",
    "columns_of_measure",
    "concat",
    "keep_heaviest",
    "layout_of",
    "merge",
    "partial",
    "row_measure",
    "storage_of",
]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a frame of a synopsis looks like, in plain values that travel to tasks.

    `measures` are `(column, kind, type)` with type one of int | wide | float | decimal:<scale> | limbs:<scale> | other.
    """

    id: str
    pane_us: int
    keys: int
    detail: bool
    measures: tuple[tuple[str, str, str], ...]
    keep: int | None

    @property
    def groups(self) -> list[str]:
        """Names of the columns that identify a row within a pane."""
        return [f"k{i}" for i in range(self.keys)] + (["d"] if self.detail else [])

    @property
    def columns(self) -> list[str]:
        """Names of the columns that hold measures."""
        return [column for name, kind, _ in self.measures for column in columns_of_measure(name, kind)]


def layout_of(synopsis: Synopsis, measures: Iterable[Measure], pane_us: int) -> Layout:
    """The layout of a synopsis's frames with these measures."""
    return Layout(
        synopsis.id,
        pane_us,
        len(synopsis.keys),
        synopsis.detail is not None,
        tuple((m.column, "sum" if m.kind in SCALING else m.kind, storage_of(m.type)) for m in measures),
        synopsis.keep,
    )


def columns_of_measure(name: str, kind: str) -> tuple[str, ...]:
    """The columns of one measure."""
    if kind == "limbs":
        return columns_of_limbs(name)
    if kind in MOMENTS:
        return columns_of_moments(name, kind)
    return columns_of_best(name) if kind in ("max_by", "min_by") else (name,)


def columns_of_best(name: str) -> tuple[str, str]:
    """What the best row is best by, and its value."""
    return f"{name}_by", f"{name}_of"


def storage_of(type_: DataType) -> str:
    """How a sum is kept: exact and without overflow for integers and decimals."""
    match type_.kind:
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT:
            return "int"
        case Kind.BIGINT:
            return "wide"
        case Kind.FLOAT | Kind.DOUBLE:
            return "float"
        case Kind.DECIMAL:
            return f"{'limbs' if sum_of(type_) == 'limbs' else 'decimal'}:{type_.scale}"
        case _:
            return "other"


def _wide(column: pl.Expr, storage: str) -> pl.Expr:
    """A value as sums of it are kept."""
    match storage:
        case "int":
            return column.cast(pl.Int64)
        case "float":
            return column.cast(pl.Float64)
        case "wide":
            return column.cast(pl.Decimal(38, 0))
        case _:
            return column.cast(pl.Decimal(38, int(storage.partition(":")[2])))


def _sum(column: pl.Expr, storage: str) -> pl.Expr:
    # SQL: the sum of no value is NULL, where Polars says zero.
    return pl.when(column.count() > 0).then(_wide(column, storage).sum())


def _extreme(column: pl.Expr, kind: str, floats: bool) -> pl.Expr:
    """The least or the greatest value: NaN is greater than any number."""
    if kind == "min":
        return column.min()
    return column.nan_max() if floats else column.max()


def _bits(column: pl.Expr, kind: str) -> pl.Expr:
    match kind:
        case "bit_and":
            return column.bitwise_and()
        case "bit_or":
            return column.bitwise_or()
        case _:
            return column.bitwise_xor()


def _parts_of_pair(column: pl.Expr, name: str) -> list[pl.Expr]:
    of, by = (column.struct.field(field) for field in PAIR)
    return [part.alias(called) for part, called in zip((by, of), columns_of_best(name), strict=True)]


def _best(name: str, kind: str, types: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """What the best row is best by, and its value: of equally good rows the greatest or the least value there is."""
    by, of = (pl.col(column) for column in columns_of_best(name))
    extreme = kind.removesuffix("_by")
    best = _extreme(by, extreme, types["by"].is_float())
    value = _extreme(of.filter(by == best), extreme, types["of"].is_float())
    return [found.alias(column) for found, column in zip((best, value), columns_of_best(name), strict=True)]


def row_measure(name: str, kind: str, storage: str, argument: str) -> list[pl.Expr]:
    """The columns of a measure over each row by itself."""
    column = pl.col(argument)
    match kind:
        case "count":
            return [column.is_not_null().cast(pl.Int64).alias(name)]
        case "sum":
            return [_wide(column, storage).alias(name)]
        case "limbs":
            return split(column, name)
        case "min" | "max" | "bit_and" | "bit_or" | "bit_xor":
            return [column.alias(name)]
        case "max_by" | "min_by":
            return _parts_of_pair(column, name)
        case _ if kind in MOMENTS:
            return moments_of_row(column, name, kind)
        case other:
            raise ValueError(f"unknown measure kind '{other}'")


def partial(rows: pl.DataFrame, layout: Layout, arguments: Sequence[str | None], carry: Sequence[str]) -> pl.DataFrame:
    """Partial aggregates of rows that have `p`, the group columns, and for each measure its argument's column.

    Columns in `carry` are functions of the group keys and are kept along.
    """
    aggregates: list[pl.Expr] = [pl.col(name).first() for name in carry]
    before: list[pl.Expr] = []
    after: list[pl.Expr] = []
    for (name, kind, storage), argument in zip(layout.measures, arguments, strict=True):
        if argument is None:
            aggregates.append(pl.len().cast(pl.Int64).alias(name))
            continue
        column = pl.col(argument)
        match kind:
            case "count":
                aggregates.append(column.count().cast(pl.Int64).alias(name))
            case "sum":
                aggregates.append(_sum(column, storage).alias(name))
            case "limbs":
                # Split rows cost several times as much; few epochs have values that need it.
                if fits(rows[argument]):
                    aggregates.append(_sum(column, storage).alias(name))
                    after += split(pl.col(name), name)
                else:
                    before += split(column, name)
                    aggregates += [_sum(pl.col(limb), "wide").alias(limb) for limb in columns_of_limbs(name)]
            case "min" | "max":
                aggregates.append(_extreme(column, kind, storage == "float").alias(name))
            case "bit_and" | "bit_or" | "bit_xor":
                aggregates.append(_bits(column, kind).alias(name))
            case "max_by" | "min_by":
                before += _parts_of_pair(column, name)
                aggregates += _best(name, kind, rows[argument].struct.schema)
            case _ if kind in MOMENTS:
                aggregates += moments_of(column, name, kind)
            case other:
                raise ValueError(f"unknown measure kind '{other}'")
    made = (rows.with_columns(before) if before else rows).group_by(["p", *layout.groups]).agg(aggregates)
    # In the order of the layout: frames of one synopsis are put side by side.
    return made.with_columns(after).select("p", *layout.groups, *carry, *layout.columns) if after else made


def concat(frames: Sequence[pl.DataFrame], layout: Layout, carry: Sequence[str] = ()) -> pl.DataFrame:
    """All rows of frames that may lack a measure, kept since later than they were made, or have one nobody needs."""
    columns = ["p", *layout.groups, *carry, *layout.columns]
    if all(frame.columns == columns for frame in frames):
        return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical")
    return pl.concat([frame.select(c for c in columns if c in frame.columns) for frame in frames], how="diagonal")


def merge(frames: Sequence[pl.DataFrame], layout: Layout, by: Sequence[str], carry: Sequence[str] = ()) -> pl.DataFrame:
    """Frames merged into one row per value of the columns in `by`; a measure that all of them lack stays away."""
    rows = concat(frames, layout, carry)
    aggregates: list[pl.Expr] = [pl.col(name).first() for name in carry]
    for name, kind, storage in layout.measures:
        if columns_of_measure(name, kind)[0] not in rows.columns:
            continue
        column = pl.col(name)
        match kind:
            case "rows" | "count":
                aggregates.append(column.sum())
            case "sum":
                aggregates.append(pl.when(column.count() > 0).then(column.sum()).alias(name))
            case "limbs":
                limbs = map(pl.col, columns_of_limbs(name))
                aggregates += [pl.when(limb.count() > 0).then(limb.sum()) for limb in limbs]
            case "min" | "max":
                aggregates.append(_extreme(column, kind, storage == "float"))
            case "bit_and" | "bit_or" | "bit_xor":
                aggregates.append(_bits(column, kind))
            case "max_by" | "min_by":
                types = dict(zip(("by", "of"), (rows.schema[c] for c in columns_of_best(name)), strict=True))
                aggregates += _best(name, kind, types)
            case _:
                aggregates += merged_moments(name, kind)
    if not by:
        return rows.select(aggregates)
    return rows.group_by(list(by)).agg(aggregates)


def keep_heaviest(frame: pl.DataFrame, layout: Layout, by: Sequence[str]) -> pl.DataFrame:
    """At most `keep` details per group: the summary of Misra and Gries, off by at most rows / (keep + 1) per count."""
    if layout.keep is None:
        return frame
    keep = layout.keep
    over = (
        frame.group_by(list(by), maintain_order=True)
        .agg(pl.col(ROWS).sort(descending=True).slice(keep, 1).first().alias("_cut"))
        .filter(pl.col("_cut").is_not_null())
    )
    if over.is_empty():
        return frame
    cut = frame.join(over, on=list(by), how="left", nulls_equal=True) if by else frame.join(over, how="cross")
    return cut.with_columns(pl.col(ROWS) - pl.col("_cut").fill_null(0)).filter(pl.col(ROWS) > 0).drop("_cut")
