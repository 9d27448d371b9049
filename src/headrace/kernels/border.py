"""Where kernels are called: what goes wrong in them becomes the failure of a query, told in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from headrace.errors import QueryFailure

__all__ = ["kernels", "told"]


@contextmanager
def kernels() -> Iterator[None]:
    """Around a call of kernels: a panic of Polars, which no `except Exception` sees, becomes a failure."""
    try:
        yield
    except pl.exceptions.PanicException as panic:
        raise QueryFailure(f"the kernel gave up: {_first_line(panic)}; please report it with the query") from panic


def told(failure: Exception) -> str:
    """A failure inside a task as the cause of a failed query.

    >>> told(QueryFailure("SUM(x) exceeds BIGINT")), told(ValueError("no such kind"))
    ('SUM(x) exceeds BIGINT', 'ValueError: no such kind')
    """
    if isinstance(failure, QueryFailure):
        return str(failure)
    return f"{type(failure).__name__}: {_first_line(failure)}"


def _first_line(failure: BaseException) -> str:
    return next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
