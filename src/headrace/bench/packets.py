"""The workload of the paper on synchronised schedules: packets, and groups of top-k and percentile queries over them.

Eight groups: top k by bytes for source, destination, pairs of these, protocol, port, protocol and port; percentiles of
lengths by protocol and by port. Windows of 20 to 100 s, slides of 1 s to half the window.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["EPOCH_S", "SCHEMA", "START_US", "PacketQuery", "packet_queries", "write_packets"]

SCHEMA = "ts TIMESTAMP, src INT, dst INT, protocol INT, port INT, length INT"
START_US = 1_704_067_200_000_000
EPOCH_S = 10
TOP = (("src",), ("dst",), ("src", "dst"), ("protocol",), ("port",), ("protocol", "port"))
PERCENTILES = (("protocol",), ("port",))


@dataclass(frozen=True)
class PacketQuery:
    """One query of the workload."""

    name: str
    keys: tuple[str, ...]
    fraction: float | None  # of a percentile; None: the top k by bytes
    size_s: int
    slide_s: int
    k: int = 10

    @property
    def sql(self) -> str:
        """In the papers' form."""
        keys, window = ", ".join(self.keys), f"[WINDOW {self.size_s} s SLIDE {self.slide_s} s]"
        if self.fraction is not None:
            value = f"percentile(length, {self.fraction}) AS length"
            return f"SELECT {keys}, {value} FROM packets {window} GROUP BY {keys}"
        first = f"ORDER BY bytes DESC LIMIT {self.k}"
        return f"SELECT {keys}, SUM(length) AS bytes FROM packets {window} GROUP BY {keys} {first}"


def packet_queries(per_group: int, seed: int = 3) -> list[PacketQuery]:
    """So many queries in each of the eight groups; the first of a larger workload are those of a smaller one."""
    groups = [(keys, False) for keys in TOP] + [(keys, True) for keys in PERCENTILES]
    made = []
    for number, (keys, percentile) in enumerate(groups):
        rng = np.random.default_rng([seed, number])
        for i in range(per_group):
            size = int(rng.integers(20, 101))
            slide = int(rng.integers(1, size // 2 + 1))
            fraction = float(rng.choice([0.5, 0.9, 0.99])) if percentile else None
            kind = "p" if percentile else "top"
            made.append(PacketQuery(f"{kind}_{'_'.join(keys)}_{i:02d}", keys, fraction, size, slide))
    return made


def write_packets(
    folder: Path,
    epochs: int,
    rows: int,
    late: float = 0.0,
    files: int = 2,
    addresses: int = 1000,
    seconds: int = EPOCH_S,
) -> None:
    """Files of `rows` packets per epoch, an epoch's rows within some seconds of event time, modified in their order.

    A share `late` of the rows is up to a minute older than the rest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    for number in range(epochs * files):
        n = rows // files
        begin = START_US + (number // files) * seconds * 1_000_000
        ts = begin + rng.integers(0, seconds * 1_000_000, n)
        if late:
            ts -= np.where(rng.random(n) < late, rng.integers(0, 60_000_000, n), 0)
        table = pa.table(
            {
                "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                "src": pa.array(_skewed(rng, n, addresses), pa.int32()),
                "dst": pa.array(_skewed(rng, n, addresses), pa.int32()),
                "protocol": pa.array(_skewed(rng, n, 100), pa.int32()),
                "port": pa.array(_skewed(rng, n, 100), pa.int32()),
                "length": pa.array(rng.integers(40, 1500, n), pa.int32()),
            }
        )
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _skewed(rng: np.random.Generator, n: int, values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Values of which the first are the most frequent."""
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = (values * rng.random(n) ** 2).astype(np.int64)
    return found
