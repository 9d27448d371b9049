"""Panes that other sites have made are merged as rows are aggregated: in any parts, the result is that of all rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels.absorb import AbsorbTask, Bounds, EpochColumns, FeedColumns
from headrace.kernels.chunks import read_part
from headrace.kernels.panes import Layout

PANE_US = 10
LAYOUT = Layout(
    "x", PANE_US, 1, False,
    (("n", "rows", "wide"), ("sum", "sum", "wide"), ("least", "min", "wide"), ("dev", "moments", "float")), None,
)  # fmt: skip
OF_ROWS = FeedColumns(0, None, ("k",), None, (None, "v", "v", "v"), "h")
OF_PANES = FeedColumns(0, "here", ("k0",), None, (), "h", merged=tuple(LAYOUT.columns))
ROWS = st.lists(
    st.tuples(st.integers(0, 39), st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 2**31)), max_size=30
)


def absorbed(folder: Path, rows: pl.DataFrame, feed: FeedColumns) -> pl.DataFrame:
    """The panes that a task makes of rows."""
    projection = EpochColumns((), ((LAYOUT, (feed,)),), ("r",), False)
    task = AbsorbTask(str(folder), 3, (Bounds(0, 50),), projection)
    (made,) = task(iter(rows.to_arrow().to_batches()))
    frames = [
        frame for chunk in made.chunks for bin_ in (0, 1) for frame in read_part(str(folder), chunk.name, "x", bin_)
    ]
    return pl.concat(frames).sort("p", "k0") if frames else pl.DataFrame()


def rows_of(values: list[tuple[int, str | None, int | None]]) -> pl.DataFrame:
    table = pa.table(
        {
            "_t": pa.array([t for t, _, _ in values], pa.int64()),
            "k": pa.array([k for _, k, _ in values], pa.string()),
            "v": pa.array([v for _, _, v in values], pa.int64()),
        }
    )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(h=(pl.col("k") == "b").fill_null(True).cast(pl.Int32))


@settings(max_examples=25, deadline=None)
@given(ROWS, st.integers(0, 30))
def test_panes_of_two_sites_are_the_panes_of_all_their_rows(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int, str | None, int | None]], at: int
) -> None:
    folder = tmp_path_factory.mktemp("state")
    wanted = absorbed(folder, rows_of(values), OF_ROWS)
    sent = [absorbed(folder, rows_of(part), OF_ROWS) for part in (values[:at], values[at:]) if part]
    came = pl.concat(
        part.with_columns(
            # A pane is dated by its last instant; which bin its key is in says the receiver.
            _t=pl.col("p") + PANE_US - 1, here=pl.lit(True), h=(pl.col("k0") == "b").fill_null(True).cast(pl.Int32)
        ).drop("p")
        for part in sent
    ) if sent else pl.DataFrame()  # fmt: skip
    if came.is_empty():
        assert wanted.is_empty()
        return
    other = came.clear().vstack(came.head(1)).with_columns(here=pl.lit(None, pl.Boolean), n=pl.lit(99, pl.Int64))
    found = absorbed(folder, pl.concat([came, other]), OF_PANES)
    exact = [column for column in wanted.columns if not wanted.schema[column].is_float()]
    assert found.select(exact).equals(wanted.select(exact))
    floats = pl.selectors.float().fill_null(0.0)  # of no value there is neither
    for ours, theirs in zip(found.select(floats).rows(), wanted.select(floats).rows(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-3)
    assert found.schema == wanted.schema
