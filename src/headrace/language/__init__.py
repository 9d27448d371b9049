"""SQL and pipeline files to model, without Spark."""

from headrace.language.binder import bind_query
from headrace.language.ddl import parse_schema, parse_type
from headrace.language.formats import FILE_SOURCES, PATHLESS_SINKS, SINKS, SOURCES
from headrace.language.kept_text import is_own_text
from headrace.language.paths import is_name, local_path
from headrace.language.pipeline_file import include_patterns, line_of, load_pipeline
from headrace.language.suggest import nearest
from headrace.language.synthetic import (
    SYNTHETIC_COLUMNS,
    SYNTHETIC_FORMAT,
    SYNTHETIC_OPTIONS,
    SYNTHETIC_SCHEMA,
    SYNTHETIC_TIME,
)

__all__ = [
    "FILE_SOURCES",
    "PATHLESS_SINKS",
    "SINKS",
    "SOURCES",
    "SYNTHETIC_COLUMNS",
    "SYNTHETIC_FORMAT",
    "SYNTHETIC_OPTIONS",
    "SYNTHETIC_SCHEMA",
    "SYNTHETIC_TIME",
    "bind_query",
    "include_patterns",
    "is_name",
    "is_own_text",
    "line_of",
    "load_pipeline",
    "local_path",
    "nearest",
    "parse_schema",
    "parse_type",
]
