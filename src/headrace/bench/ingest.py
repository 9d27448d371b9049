"""x"""

from collections.abc import Callable
from typing import Any

__all__ = ["bench_ingest"]


def bench_ingest(quick: bool, say: Callable[[str], Any]) -> dict[str, Any]:
    """x"""
    return {}
