"""What benchmarks share: a machine's description, progress lines, and Spark's own account of its epochs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from typing import Any

__all__ = ["Say", "batch_seconds", "machine", "result"]

Say = Callable[[str], Any]


def machine() -> dict[str, Any]:
    """Cores, memory (bytes) and versions of what ran."""
    import pyspark

    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_bytes": pages,
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def batch_seconds(query: Any, skip: int = 0) -> float:
    """Median seconds of a streaming query's micro-batches, the first `skip` left out."""
    progress = [p for p in query.recentProgress if "addBatch" in p.durationMs]
    return float(statistics.median(p.durationMs["triggerExecution"] for p in progress[skip:])) / 1000


def result(bench: str, correct: bool, ratios: dict[str, float], measures: dict[str, Any]) -> dict[str, Any]:
    """A benchmark's outcome in the form all of them have."""
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    return {"bench": bench, "correct": correct, "ratios": rounded, "measures": measures, "machine": machine()}
