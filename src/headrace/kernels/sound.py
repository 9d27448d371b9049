"""Frames as Arrow tables that others can read, too."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

__all__ = ["to_arrow"]


def to_arrow(frame: pl.DataFrame) -> pa.Table:
    """The rows of a frame, in types that Spark's Arrow knows.

    Empty lists that polars has taken out of several chunks have offsets beyond their values. Polars and Parquet do not
    mind, but Arrow's IPC makes nonsense of them: lists are copied, which sets their offsets right.

    >>> part = pl.DataFrame({"x": [[7, 8], []]})
    >>> taken = to_arrow(pl.concat([part, part], rechunk=False)[[3]])
    >>> message = pa.ipc.read_message(taken.to_batches()[0].serialize())
    >>> pa.ipc.read_record_batch(message, taken.schema).to_pydict()
    {'x': [[]]}
    """
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    everything = pa.array(np.arange(frame.height))
    for number, type_ in enumerate(frame.dtypes):
        if type_.is_nested():
            table = table.set_column(number, table.field(number), table.column(number).take(everything))
    return table
