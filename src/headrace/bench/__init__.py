"""Benchmarks against what a user would use otherwise, in one run, results checked."""

from headrace.bench.catalogue import BENCHES
from headrace.bench.draw import draw

__all__ = ["BENCHES", "draw"]
