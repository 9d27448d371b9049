"""Headrace: many continuous SQL queries over streams, on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from headrace.api import Pipeline, call, console, csv, delta, expect, jdbc, json, kafka, memory, parquet, sink, step
    from headrace.errors import (
        CorruptStateError,
        EngineError,
        EnvironmentProblem,
        HeadraceError,
        LockedError,
        SpecError,
        StateError,
        VersionError,
    )

__all__ = [
    "CorruptStateError",
    "EngineError",
    "EnvironmentProblem",
    "HeadraceError",
    "LockedError",
    "Pipeline",
    "SpecError",
    "StateError",
    "VersionError",
    "__version__",
    "call",
    "console",
    "csv",
    "delta",
    "expect",
    "jdbc",
    "json",
    "kafka",
    "memory",
    "parquet",
    "sink",
    "step",
]


def __getattr__(name: str) -> Any:
    """Imports what is asked for: tasks import `headrace.kernels`, and have no SQL or YAML parser to import."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    if name == "__version__":
        from importlib.metadata import version

        return version("headrace")
    from headrace import api, errors

    return getattr(errors if hasattr(errors, name) else api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
