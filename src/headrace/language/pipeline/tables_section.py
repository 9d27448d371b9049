"""The `tables:` of a pipeline file: what rows of streams are looked up in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from headrace.language.ddl import parse_schema
from headrace.language.pipeline.csv_header import columns_of_header
from headrace.language.pipeline.formats import FILE_SOURCES, TABLES, spelled
from headrace.language.pipeline.options import read_options
from headrace.language.pipeline.paths import is_name, local_path, read_path
from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.words import shown
from headrace.model import CATALOG, DEFAULT_LIMIT_BYTES, ON_ERROR, Column, Source, Stream, Table
from headrace.units import parse_size

__all__ = ["read_tables"]

_KEYS = {
    "source": "format, path and options of what Spark reads, or table: and a name of its catalog",
    "schema": "columns as Spark DDL",
    "refresh": "how often it is read again",
    "limit": "how large a copy of it may be",
    "on_error": "stop, or keep what was read before",
}
_SOURCE_KEYS = {
    "format": "a format that Spark reads",
    "path": "where it reads",
    "options": "the source's options",
    "table": "the name of a table in Spark's catalog, instead of the others",
}
_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,3}", re.ASCII)


def read_tables(section: Value | None, streams: Iterable[Stream], base: Path) -> tuple[Table, ...]:
    """Every table that could be read; problems are noted in the section's document."""
    tables: list[Table] = []
    seen = {stream.name.lower(): f"stream '{stream.name}'" for stream in streams}
    for name, value in section.mapping().items() if section is not None else ():
        if not is_name(name):
            value.document.add(f"{shown(name)} cannot name a table", value.line, "use letters, digits and _")
        elif name.lower() in seen:
            value.document.add(f"table '{name}' has the name of {seen[name.lower()]}", value.line,
                               "names ignore case; rename one")  # fmt: skip
        else:
            seen[name.lower()] = f"table '{name}'"
            table = _read_table(name, value, base)
            tables += [] if table is None else [table]
    return tuple(tables)


def _read_table(name: str, value: Value, base: Path) -> Table | None:
    entries, known = value.mapping(_KEYS), len(value.document.problems)
    if not entries:
        return None
    source = _read_source(name, entries.get("source"), value, base)
    columns = _read_columns(name, entries.get("schema"), value, source)
    refresh = entries["refresh"].duration_us() if "refresh" in entries else None
    if refresh == 0:
        entries["refresh"].wrong("longer than nothing", "leave it out to read the table at every start")
    limit = _read_limit(entries["limit"]) if "limit" in entries else DEFAULT_LIMIT_BYTES
    on_error = entries["on_error"].word() if "on_error" in entries else ON_ERROR[0]
    if on_error is not None and on_error not in ON_ERROR:
        entries["on_error"].wrong("stop or keep", "keep goes on with what was read before")
    if columns is None or source is None or len(value.document.problems) > known:
        return None
    return Table(name, columns, source, refresh, limit or DEFAULT_LIMIT_BYTES, on_error or ON_ERROR[0])


def _read_limit(value: Value) -> int | None:
    text = value.scalar_text()
    try:
        size = None if text is None else parse_size(text)
    except ValueError as exc:
        value.document.add(f"{value.path}: {exc}", value.line)
        return None
    if size == 0:
        value.wrong("more than nothing")
    return size


def _read_source(name: str, value: Value | None, owner: Value, base: Path) -> Source | None:
    if value is None:
        owner.document.add(f"table '{name}' has no source", owner.line, "write source: {format: parquet, path: hosts}")
        return None
    entries = value.mapping(_SOURCE_KEYS)
    if "table" in entries:
        return _of_catalog(entries)
    if "format" not in entries:
        if entries:
            value.document.add(f"the source of table '{name}' has no format", value.line,
                               "write format: parquet, csv, jdbc, or table: a name of Spark's catalog")  # fmt: skip
        return None
    word = entries["format"].word()
    path = read_path(entries["path"], base) if "path" in entries else None
    kind = None if word is None else spelled(word, TABLES)
    if kind in FILE_SOURCES and "path" not in entries:
        value.document.add(f"table '{name}' is read from files, and its source has no path", value.line, "write path:")
    return None if kind is None else Source(kind, path, read_options(entries.get("options")))


def _of_catalog(entries: dict[str, Value]) -> Source | None:
    for key, value in entries.items():
        if key in ("format", "path", "options"):
            value.document.add(f"{value.path} stands beside table:, which Spark's catalog knows all about", value.line,
                               "keep one of them")  # fmt: skip
    word = entries["table"].word()
    if word is not None and _CATALOG_NAME.fullmatch(word) is None:
        entries["table"].wrong("a name such as sales.hosts", "letters, digits and _, with dots between")
        return None
    return None if word is None else Source(CATALOG, word)


def _read_columns(name: str, value: Value | None, owner: Value, source: Source | None) -> tuple[Column, ...] | None:
    if value is not None:
        text = value.text()
        try:
            return None if text is None else parse_schema(text)
        except ValueError as exc:
            value.document.add(f"schema of table '{name}': {exc}", value.line)
            return None
    found = None if source is None else columns_of_header(source)
    place = None if source is None or source.path is None else local_path(source.path)
    if source is not None and source.format == "csv" and place is not None and not place.exists():
        owner.document.add(f"table '{name}' is read from {place}, which is not there", owner.line,
                           "without schema: its columns are those of the first line there")  # fmt: skip
    elif source is not None and found is None:
        owner.document.add(f"table '{name}' has no schema", owner.line,
                           "write schema: host STRING, zone INT, ...; only CSV files on this machine with header: true "
                           "do without, and have STRINGs")  # fmt: skip
    return found
