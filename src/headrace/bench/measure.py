"""What benchmarks share: a machine's description, progress lines, and Spark's own account of its epochs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Say", "batch_seconds", "descendants", "machine", "peak_bytes", "result"]

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


def peak_bytes() -> dict[str, int]:
    """The most memory that the driver's Python, and all processes under it (Spark's JVM, its Python workers), held."""
    import resource

    return {
        "driver": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "processes": sum(_resident(pid) for pid in descendants(os.getpid())),
    }


def descendants(pid: int) -> list[int]:
    """All processes under a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *descendants(child)]
    return found


def _resident(pid: int) -> int:
    """The most a process has had in memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def result(bench: str, correct: bool, ratios: dict[str, float], measures: dict[str, Any]) -> dict[str, Any]:
    """A benchmark's outcome in the form all of them have."""
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    return {"bench": bench, "correct": correct, "ratios": rounded, "measures": measures, "machine": machine()}
