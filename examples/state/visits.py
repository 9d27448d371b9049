"""Visits: rows of a host that are less than five seconds apart. A visit is told when the next one begins."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa

GAP = timedelta(seconds=5)


def visits(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The state is the open visit of each host; rows come in the order of their time, of several hosts at once."""
    new = pl.from_arrow(rows).select("host", began="ts", ended="ts", packets=pl.lit(1, pl.Int64), bytes="amount")
    parts = pl.concat([pl.from_arrow(state), new], how="vertical_relaxed").sort("host", "began", maintain_order=True)
    apart = (pl.col("began") - pl.col("ended").shift().over("host") > GAP).fill_null(False)
    numbered = parts.with_columns(apart=apart).with_columns(visit=pl.col("apart").cum_sum().over("host"))
    known = numbered.group_by("host", "visit", maintain_order=True).agg(
        pl.col("began").min(), pl.col("ended").max(), pl.col("packets").sum(), pl.col("bytes").sum()
    )
    is_open = pl.col("visit") == pl.col("visit").max().over("host")
    return known.filter(is_open).drop("visit").to_arrow(), known.filter(~is_open).drop("visit").to_arrow()
