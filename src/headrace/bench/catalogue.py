"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.bench.ingest import bench_ingest

__all__ = ["BENCHES"]

BENCHES: dict[str, Callable[[bool, Callable[[str], Any]], dict[str, Any]]] = {"ingest": bench_ingest}
