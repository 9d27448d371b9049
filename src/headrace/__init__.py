"""Headrace: many continuous SQL queries over streams, on Apache Spark."""

from headrace.api import Pipeline, call, console, csv, delta, jdbc, json, kafka, memory, parquet, sink, step
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
    "call",
    "console",
    "csv",
    "delta",
    "jdbc",
    "json",
    "kafka",
    "memory",
    "parquet",
    "sink",
    "step",
]
