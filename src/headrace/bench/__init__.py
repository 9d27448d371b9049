"""Benchmarks against what a user would use otherwise, in one run, results checked."""

from headrace.bench.catalogue import BENCHES

__all__ = ["BENCHES"]
