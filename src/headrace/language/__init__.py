"""SQL and pipeline files to model, without Spark."""

from headrace.language.ddl import parse_schema, parse_type
from headrace.language.expectations import Given, given_of, stream_expected, with_expectations
from headrace.language.pipeline.cases_file import load_cases
from headrace.language.pipeline.csv_header import columns_of_header
from headrace.language.pipeline.formats import FILE_SINKS, FILE_SOURCES, PATHLESS_SINKS, SINKS, SOURCES, TABLES
from headrace.language.pipeline.intake import intake_unit, is_set
from headrace.language.pipeline.known_options import near_miss, near_setting
from headrace.language.pipeline.network_files import NetworkFile
from headrace.language.pipeline.options import is_text_option
from headrace.language.pipeline.packages import NEEDS_DELTALAKE, lacking_packages
from headrace.language.pipeline.paths import absolute, is_name, local_path
from headrace.language.pipeline.pipeline_file import include_patterns, line_of, load_pipeline
from headrace.language.pipeline.places import clashes
from headrace.language.pipeline.round_trips import load_round_trips
from headrace.language.pipeline.synthetic import (
    SYNTHETIC_COLUMNS,
    SYNTHETIC_FORMAT,
    SYNTHETIC_OPTIONS,
    SYNTHETIC_SCHEMA,
    SYNTHETIC_TIME,
)
from headrace.language.pipeline.topologies import load_topology
from headrace.language.sql.binder import bind_query
from headrace.language.sql.kept_text import is_own_text
from headrace.language.sql.selection import bind_selection
from headrace.language.sql.spark_text import quoted
from headrace.language.suggest import nearest

__all__ = [
    "FILE_SINKS",
    "FILE_SOURCES",
    "NEEDS_DELTALAKE",
    "PATHLESS_SINKS",
    "SINKS",
    "SOURCES",
    "SYNTHETIC_COLUMNS",
    "SYNTHETIC_FORMAT",
    "SYNTHETIC_OPTIONS",
    "SYNTHETIC_SCHEMA",
    "SYNTHETIC_TIME",
    "TABLES",
    "Given",
    "NetworkFile",
    "absolute",
    "bind_query",
    "bind_selection",
    "clashes",
    "columns_of_header",
    "given_of",
    "include_patterns",
    "intake_unit",
    "is_name",
    "is_own_text",
    "is_set",
    "is_text_option",
    "lacking_packages",
    "line_of",
    "load_cases",
    "load_pipeline",
    "load_round_trips",
    "load_topology",
    "local_path",
    "near_miss",
    "near_setting",
    "nearest",
    "parse_schema",
    "parse_type",
    "quoted",
    "stream_expected",
    "with_expectations",
]
