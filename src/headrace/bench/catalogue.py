"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.bench.flux import bench_flux
from headrace.bench.ingest import bench_ingest
from headrace.bench.ingest_kafka import bench_ingest_kafka
from headrace.bench.join import bench_join
from headrace.bench.sharing import bench_policies, bench_sharing

__all__ = ["BENCHES"]

BENCHES: dict[str, Callable[[bool, Callable[[str], Any]], dict[str, Any]]] = {
    "ingest": bench_ingest,
    "ingest --source kafka": bench_ingest_kafka,
    "join": bench_join,
    "flux": bench_flux,
    "sharing": bench_sharing,
    "sharing --policies": bench_policies,
}
