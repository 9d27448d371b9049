"""Whether an executor has what kernels are made of; this module needs none of it, or it could not tell."""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Iterable, Iterator

__all__ = ["NEEDED", "find_lacking"]

# What tasks import besides Headrace itself and PySpark, which comes with Spark.
NEEDED = ("numpy", "pyarrow", "polars")


def find_lacking(wanted: dict[str, str], numbers: Iterable[int]) -> Iterator[str]:
    """A sentence for each package that this task cannot import, or has in another version than `wanted`."""
    where = f"executors on {socket.gethostname()}"
    for name in NEEDED:
        try:
            found = str(importlib.import_module(name).__version__)
        except ImportError:
            yield f"{where} lack {name} in {sys.executable}"
            continue
        if found != wanted[name]:
            yield f"{where} have {name} {found} in {sys.executable}, the driver has {wanted[name]}"
