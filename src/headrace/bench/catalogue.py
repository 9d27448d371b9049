"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.bench.flux import bench_flux
from headrace.bench.ingest import bench_ingest
from headrace.bench.ingest_kafka import bench_ingest_kafka
from headrace.bench.join import bench_join
from headrace.bench.placement import bench_placement
from headrace.bench.sharing import bench_policies, bench_sharing
from headrace.bench.shedding import bench_shedding
from headrace.bench.simulate import bench_simulate

__all__ = ["BENCHES"]

# Each takes whether to be quick and what to say progress to; some take more.
BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": bench_ingest,
    "ingest --source kafka": bench_ingest_kafka,
    "join": bench_join,
    "flux": bench_flux,
    "placement": bench_placement,
    "sharing": bench_sharing,
    "sharing --policies": bench_policies,
    "shedding": bench_shedding,
    "simulate": bench_simulate,
}
