"""SQL and pipeline files to model, without Spark."""

from headrace.language.binder import bind_query
from headrace.language.ddl import parse_schema, parse_type
from headrace.language.pipeline_file import include_patterns, load_pipeline
from headrace.language.synthetic import (
    SYNTHETIC_COLUMNS,
    SYNTHETIC_FORMAT,
    SYNTHETIC_OPTIONS,
    SYNTHETIC_SCHEMA,
    SYNTHETIC_TIME,
)

__all__ = [
    "SYNTHETIC_COLUMNS",
    "SYNTHETIC_FORMAT",
    "SYNTHETIC_OPTIONS",
    "SYNTHETIC_SCHEMA",
    "SYNTHETIC_TIME",
    "bind_query",
    "include_patterns",
    "load_pipeline",
    "parse_schema",
    "parse_type",
]
