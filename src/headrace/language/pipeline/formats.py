"""Formats that Spark reads and writes by itself, and those the engine adds; others come with packages or jars."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.language.words import words

__all__ = ["FILE_SINKS", "FILE_SOURCES", "PATHLESS_SINKS", "SINKS", "SOURCES", "TABLES", "spelled"]

# Sources that take in files as they appear in a folder.
FILE_SOURCES = words("parquet json csv orc text xml avro binaryFile")
SOURCES = FILE_SOURCES | words("kafka rate rate-micro-batch socket synthetic")
# Sinks whose files the engine names by epoch.
FILE_SINKS = words("parquet json csv orc")
# What tables are read from; those of Spark's catalog have no format.
TABLES = FILE_SOURCES | words("jdbc catalog")
# Sinks that write to no path.
PATHLESS_SINKS = words("console memory noop python kafka jdbc")
SINKS = PATHLESS_SINKS | words("parquet json csv orc text xml avro delta")


def spelled(format_: str, known: Iterable[str]) -> str:
    """A format as it is called here: Spark ignores case in names of formats, so nothing may depend on it.

    >>> spelled("Parquet ", SINKS), spelled("org.example.Source", SINKS)
    ('parquet', 'org.example.Source')
    """
    name = format_.strip()
    return next((each for each in known if each.lower() == name.lower()), name)
