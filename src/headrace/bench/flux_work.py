"""What users would write to keep state by key: the same work as a function of Headrace's and of Spark's.

Functions are made by functions, so that executors get them whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

__all__ = ["Work", "filtering", "rolling", "with_state", "with_tables"]

# What is done with the values of one key, in order: those held and new ones in; of each new one a median and a
# deviation out, and what is to be held.
Work = Callable[[Any, Any], tuple[Any, Any, Any]]


def filtering(last: int) -> Work:
    """Hampel's filter: the median of the last values, and the median of their deviations from it."""

    def work(held: Any, new: Any) -> tuple[Any, Any, Any]:
        import numpy as np

        values = np.concatenate([held, new])
        padded = np.concatenate([np.full(last - 1, np.nan), values])
        windows = np.lib.stride_tricks.sliding_window_view(padded, last)[len(held) :]
        medians, deviations = np.empty(len(windows)), np.empty(len(windows))
        for first in range(0, len(windows), 500):
            some = windows[first : first + 500]
            each, n = np.arange(len(some)), (~np.isnan(some)).sum(axis=1)
            ordered = np.sort(some, axis=1)
            middle = (ordered[each, (n - 1) // 2] + ordered[each, n // 2]) / 2
            apart = np.sort(np.abs(some - middle[:, None]), axis=1)
            medians[first : first + 500] = middle
            deviations[first : first + 500] = (apart[each, (n - 1) // 2] + apart[each, n // 2]) / 2
        return medians, deviations, values[-(last - 1) :]

    return work


def rolling(last: int) -> Work:
    """A median as a user of pandas would write it."""

    def work(held: Any, new: Any) -> tuple[Any, Any, Any]:
        import numpy as np
        import pandas as pd

        values = np.concatenate([held, new])
        medians = pd.Series(values).rolling(last, min_periods=1).median().to_numpy()[len(held) :]
        return medians, np.full(len(new), np.nan), values[-(last - 1) :]

    return work


def with_tables(work: Work) -> Callable[[pa.Table, pa.Table], tuple[pa.Table, pa.Table]]:
    """A function of Headrace's, which is called with all keys of a mini-partition."""

    def step(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        import numpy as np
        import pyarrow as pa

        held, new = ([table[name].to_numpy() for name in ("k", "v")] for table in (state, rows))
        medians, deviations = np.empty(rows.num_rows), np.empty(rows.num_rows)
        others = ~np.isin(held[0], new[0])
        keys, values = [held[0][others]], [held[1][others]]
        for key in np.unique(new[0]):
            mine = new[0] == key
            medians[mine], deviations[mine], kept = work(held[1][held[0] == key], new[1][mine])
            keys.append(np.full(len(kept), key, np.int32))
            values.append(kept)
        results = (
            rows.select(["k", "ts"]).append_column("m", pa.array(medians)).append_column("d", pa.array(deviations))
        )
        return pa.table({"k": np.concatenate(keys), "v": np.concatenate(values)}, state.schema), results

    return step


def with_state(work: Work) -> Callable[[Any, Any, Any], Iterator[Any]]:
    """A function of Spark's, which is called for each key."""

    def step(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import numpy as np
        import pandas as pd

        rows = pd.concat(list(frames)).sort_values("ts")
        held = np.frombuffer(state.get[0] if state.exists else b"", dtype=float)
        medians, deviations, kept = work(held, rows["v"].to_numpy())
        state.update((kept.tobytes(),))
        yield pd.DataFrame({"k": key[0], "ts": rows["ts"].to_numpy(), "m": medians, "d": deviations})

    return step
