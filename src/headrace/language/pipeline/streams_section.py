"""The `streams:` of a pipeline file."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import SpecError
from headrace.language.ddl import parse_schema
from headrace.language.expectations import stream_expected
from headrace.language.pipeline.expect_section import read_expect
from headrace.language.pipeline.formats import FILE_SOURCES, SOURCES, spelled
from headrace.language.pipeline.messages import RAW_SCHEMA, read_decoding, with_message_columns
from headrace.language.pipeline.options import check_file_options, read_options
from headrace.language.pipeline.paths import is_name, read_path
from headrace.language.pipeline.rates import read_rate
from headrace.language.pipeline.synthetic import (
    SYNTHETIC_COLUMNS,
    SYNTHETIC_FORMAT,
    SYNTHETIC_OPTIONS,
    SYNTHETIC_TIME,
    why_not,
)
from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.sql.selection import bind_selection
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.model import DEFAULT_AHEAD_US, DEFAULT_IDLE_US, Column, Expectation, Kind, Selection, Source, Stream

__all__ = ["read_streams"]

_KEYS = {
    "source": "format, path and options of a Spark streaming source",
    "schema": "the source's columns as Spark DDL",
    "select": "the columns that queries see, made of the source's: a SELECT list, and WHERE",
    "time": "the event-time column",
    "lateness": "how late a row may come",
    "ahead": "how far in the future a row may be",
    "idle": "silence after which the stream holds nobody back",
    "rate": "rows or bytes per second that come in at each of its sites",
    "expect": "what its rows should be like in every epoch",
}
_SOURCE_KEYS = {
    "format": "a Spark streaming format",
    "path": "where it reads",
    "options": "the source's options",
    "value": "how values of messages are read",
}
# Names that an expression over several streams would read as something else.
_TAKEN = frozenset({"window", "window_start", "window_end"})


def read_streams(section: Value | None, base: Path) -> tuple[Stream, ...]:
    """Every stream that could be read; problems are noted in the section's document."""
    streams: list[Stream] = []
    seen: dict[str, str] = {}
    for name, value in section.mapping().items() if section is not None else ():
        if not is_name(name) or name.lower() in _TAKEN:
            value.document.add(
                f"{shown(name)} cannot name a stream", value.line, "use letters, digits and _, such as packets_paris"
            )
        elif name.lower() in seen:
            value.document.add(
                f"streams '{seen[name.lower()]}' and '{name}' differ only in case", value.line, "rename one"
            )
        else:
            seen[name.lower()] = name
            stream = _read_stream(name, value, base)
            if stream is not None:
                streams.append(stream)
    if section is not None and isinstance(section.content, dict) and not section.content:
        section.document.add("streams is empty", section.line, "declare at least one stream")
    return tuple(streams)


def _read_stream(name: str, value: Value, base: Path) -> Stream | None:
    entries = value.mapping(_KEYS)
    if not entries:
        return None
    source = _read_source(name, entries.get("source"), value, base)
    columns, time = _read_schema(name, entries, value, source)
    select = None
    if "select" in entries:
        select = None if columns is None else _read_select(name, entries["select"], columns)
        columns = None if select is None else tuple(column for column, _ in select.columns)
    spans: dict[str, int] = {}
    for key, default in (("lateness", 0), ("ahead", DEFAULT_AHEAD_US), ("idle", DEFAULT_IDLE_US)):
        found = entries[key].duration_us() if key in entries else default
        spans[key] = default if found is None else found
        if key == "idle" and found == 0:
            entries[key].wrong("longer than nothing")
            spans[key] = default
    rate = read_rate(entries["rate"]) if "rate" in entries else None
    expect = _read_expect(entries.get("expect"))
    if columns is None or time is None:
        return None
    column = next((column for column in columns if column.name.lower() == time.lower()), None)
    if column is None:
        at = entries.get("time", value)
        value.document.add(
            f"stream '{name}' has no column '{time}' to take time from",
            at.line,
            nearest(time, [c.name for c in columns]),
        )
        return None
    if column.type.kind is not Kind.TIMESTAMP:
        at = entries.get("time", value)
        value.document.add(f"time column '{time}' of stream '{name}' is {column.type}, it must be TIMESTAMP", at.line)
        return None
    try:
        return Stream(
            name, columns, column.name, spans["lateness"], spans["ahead"], spans["idle"], source, rate, expect,
            select=select,
        )  # fmt: skip
    except ValueError as exc:
        value.document.add(str(exc), value.line)
        return None


def _read_select(name: str, value: Value, reads: tuple[Column, ...]) -> Selection | None:
    text = value.text()
    if text is None:
        return None
    try:
        return bind_selection(text, reads, name, file=value.document.file, place=value.place)
    except SpecError as error:
        value.document.problems.extend(error.problems)
        return None


def _read_expect(value: Value | None) -> tuple[Expectation, ...]:
    try:
        return stream_expected(read_expect(value))
    except ValueError as exc:
        assert value is not None
        value.document.add(f"{value.path}: {exc}", value.line)
        return ()


def _read_source(name: str, value: Value | None, owner: Value, base: Path) -> Source | None:
    if value is None:
        owner.document.add(
            f"stream '{name}' has no source", owner.line, "write source: {format: parquet, path: data/in}"
        )
        return None
    entries = value.mapping(_SOURCE_KEYS)
    if "format" not in entries:
        if entries:
            value.document.add(
                f"the source of stream '{name}' has no format", value.line, "write format: parquet, json, kafka, ..."
            )
        return None
    word = entries["format"].word()
    path = read_path(entries["path"], base) if "path" in entries else None
    options = read_options(entries.get("options"))
    kind = None if word is None else spelled(word, SOURCES)
    if kind == SYNTHETIC_FORMAT:
        _check_synthetic(entries.get("options"))
    if kind in FILE_SOURCES:
        check_file_options(entries.get("options"))
        if "path" not in entries:
            value.document.add(f"stream '{name}' reads files, and its source has no path", value.line, "write path:")
    decoding = read_decoding(entries.get("value"), kind, base)
    return None if kind is None else Source(kind, path, options, decoding)


def _check_synthetic(value: Value | None) -> None:
    for key, option in value.mapping(SYNTHETIC_OPTIONS).items() if value is not None else ():
        text = option.scalar_text()
        why = None if text is None or key not in SYNTHETIC_OPTIONS else why_not(key, text)
        if why is not None:
            option.wrong(why)


def _read_schema(
    name: str, entries: dict[str, Value], owner: Value, source: Source | None
) -> tuple[tuple[Column, ...] | None, str | None]:
    synthetic = source is not None and source.format == SYNTHETIC_FORMAT
    time = entries["time"].word() if "time" in entries else (SYNTHETIC_TIME if synthetic else None)
    if time is None and "time" not in entries:
        owner.document.add(
            f"stream '{name}' has no time", owner.line, "write time: and the name of its event-time column"
        )
    if synthetic:
        if "schema" in entries:
            entries["schema"].document.add(
                "the synthetic source has a schema of its own", entries["schema"].line, "remove schema:"
            )
        return SYNTHETIC_COLUMNS, time
    decoding = None if source is None else source.value
    if "schema" not in entries and decoding is not None and decoding.format == "raw":
        return with_message_columns(name, parse_schema(RAW_SCHEMA), decoding, owner), time
    if "schema" not in entries:
        owner.document.add(f"stream '{name}' has no schema", owner.line, "write schema: ts TIMESTAMP, src STRING, ...")
        return None, time
    text = entries["schema"].text()
    try:
        columns = None if text is None else parse_schema(text)
    except ValueError as exc:
        entries["schema"].document.add(f"schema of stream '{name}': {exc}", entries["schema"].line)
        return None, time
    if columns is not None and decoding is not None:
        columns = with_message_columns(name, columns, decoding, entries["schema"])
    return columns, time
