"""Rows of the `synthetic` source: a deterministic stream for demos, tests and benchmarks.

Row `i` is a function of `i`, the seed and the options alone, so any range of rows can be made again anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.units import SECOND_US, parse_duration

__all__ = ["make_rows"]

# 2024-01-01T00:00:00Z: old enough that no row is ever ahead of the wall clock.
_START_US = 1_704_067_200 * SECOND_US
# A burst lasts for the first second of every ten.
_CYCLE_S = 10


def make_rows(options: dict[str, str], first: int, end: int) -> pa.RecordBatch:
    """Rows `first` to `end - 1` of the stream."""
    rate = float(options.get("rate", "1000"))
    keys = int(float(options.get("keys", "100")))
    skew = float(options.get("skew", "0"))
    seed = int(float(options.get("seed", "0")))
    burst = float(options.get("burst", "1"))
    disorder_us = parse_duration(options["disorder"]) if "disorder" in options else 0
    start_us = _start_us(options.get("start"))
    i = np.arange(first, end, dtype=np.int64)
    cycle, place = np.divmod(i.astype(np.float64), rate * (_CYCLE_S - 1 + burst))
    calm = place - rate * burst
    within_s = np.where(calm < 0, place / (rate * burst), 1 + calm / rate)
    ts = start_us + ((cycle * _CYCLE_S + within_s) * SECOND_US).astype(np.int64)
    ts -= (_uniform(i, seed, 1) * disorder_us).astype(np.int64)
    # u^(1 + skew) gathers rows on the first keys; 0 is uniform, 3 gives one percent of the keys a third of the rows.
    key = (keys * _uniform(i, seed, 2) ** (1 + skew)).astype(np.int64)
    names = pa.array([f"key{n:04d}" for n in range(keys)]) if keys <= 100_000 else None
    return pa.RecordBatch.from_pydict(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "key": names.take(pa.array(key)) if names is not None else pa.array([f"key{n}" for n in key]),
            "value": pa.array(np.round(_uniform(i, seed, 3) * 1000, 3)),
            "amount": pa.array((_uniform(i, seed, 4) * 1500).astype(np.int32)),
            "seq": pa.array(i),
        }
    )


def _start_us(text: str | None) -> int:
    return int(np.datetime64(text.rstrip("Z"), "us").astype(np.int64)) if text else _START_US


def _uniform(i: np.ndarray[Any, np.dtype[np.int64]], seed: int, salt: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers in [0, 1) from a mixed counter (splitmix64)."""
    z = i.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + salt * 0xBF58476D1CE4E5B9) % 2**64)
    with np.errstate(over="ignore"):
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / float(1 << 53)
