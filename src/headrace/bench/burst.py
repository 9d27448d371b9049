"""A stream of files that are written while engines run, with rows dated by the clock, and what a run was seen to do."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine import Hooks, Manifest
from headrace.model import EpochDecision

__all__ = ["SCHEMA", "TICK_S", "TRIGGER_S", "Feed", "Lag", "Seen"]

SCHEMA = "ts TIMESTAMP, k INT, g INT, v INT, seq BIGINT"
KEYS, TRIGGER_S = 100, 1.0
# Files come so often.
TICK_S = 0.25


class Feed:
    """Writes files at a rate that depends on the time since it began, of so many rows at most; a thread of its own."""

    def __init__(
        self, folder: Path, rate: Callable[[float], float], seconds: float, file_rows: int | None = None
    ) -> None:
        self._folder, self._rate, self._seconds, self._most = folder, rate, seconds, file_rows
        self.rows, self.files = 0, 0
        folder.mkdir(parents=True)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feed:
        self.began_s = time.time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        rng, last = np.random.default_rng(7), self.began_s
        while last < self.began_s + self._seconds:
            time.sleep(max(0.0, last + TICK_S - time.time()))
            now = time.time()
            count = max(1, int(self._rate(last - self.began_s) * (now - last)))
            times = np.sort(rng.integers(int(last * 1e6), int(now * 1e6), count))
            for part in np.array_split(times, 1 if self._most is None else math.ceil(count / self._most)):
                self._write(rng, part)
            last = now

    def _write(self, rng: np.random.Generator, times: np.ndarray[Any, Any]) -> None:
        count = len(times)
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, KEYS, count), pa.int32()),
                "g": pa.array(rng.integers(0, 10, count), pa.int32()),
                "v": pa.array(rng.integers(1, 1500, count), pa.int32()),
                "seq": pa.array(np.arange(self.rows, self.rows + count), pa.int64()),
            }
        )
        path = self._folder / f".{self.files:06d}.tmp"
        pq.write_table(table, path)
        path.rename(self._folder / f"{self.files:06d}.parquet")
        self.rows, self.files = self.rows + count, self.files + 1


class Lag(NamedTuple):
    """When an epoch began and ended, in seconds since 1970, and how many triggers its oldest row had waited by then."""

    began_s: float
    ended_s: float
    epochs: float


@dataclass
class Seen:
    """Manifests and decisions of a run with a trigger, each with the wall time at which it came."""

    trigger_s: float = TRIGGER_S
    manifests: list[tuple[float, Manifest]] = field(default_factory=list)
    decisions: dict[int, EpochDecision] = field(default_factory=dict)

    def hooks(self) -> Hooks:
        return Hooks(
            on_epoch=lambda manifest: self.manifests.append((time.time(), manifest)),
            on_decision=lambda decision: self.decisions.__setitem__(decision.epoch, decision),
        )

    def lags(self, begin_s: float, end_s: float) -> list[Lag]:
        """Of epochs that ended in a time, how many triggers their rows had waited since the epoch before began."""
        found, before = [], None
        for at, manifest in self.manifests:
            began = at - manifest.observed.seconds
            if before is not None and begin_s <= at < end_s:
                found.append(Lag(began, at, (at - before) / self.trigger_s))
            before = began
        return found
