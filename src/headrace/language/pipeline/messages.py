"""The `value:` of a source whose rows are messages: how it is read, and the columns a stream then has."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.language.pipeline.files import read_text
from headrace.language.pipeline.options import read_options
from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.model import DECODINGS, MESSAGE_COLUMNS, Column, Decoding, Kind

__all__ = ["RAW_SCHEMA", "read_decoding", "with_message_columns"]

# What a raw value is called unless a schema names it.
RAW_SCHEMA = "value STRING"
_KEYS = {"format": ", ".join(DECODINGS), "schema": "an Avro schema, or the file it is in", "options": "the decoder's"}


def read_decoding(value: Value | None, kind: str | None, base: Path) -> Decoding | None:
    """How values are decoded; None when they are not, or after noting a problem."""
    if value is None:
        return None
    if kind != "kafka":
        value.document.add(f"{value.path} goes with format: kafka, not {kind}", value.line, "remove value:")
        return None
    entries = {"format": value} if isinstance(value.content, str) else value.mapping(_KEYS)
    if "format" not in entries:
        if isinstance(value.content, dict):
            value.document.add(f"{value.path} has no format", value.line, f"write format: {', '.join(DECODINGS)}")
        return None
    name = entries["format"].word()
    if name is None:
        return None
    if name.lower() not in DECODINGS:
        value.document.add(f"unknown value format '{name}'", entries["format"].line, nearest(name, DECODINGS))
        return None
    schema = _read_avro(entries.get("schema"), value, base) if name.lower() == "avro" else None
    if name.lower() == "avro" and schema is None:
        return None
    if name.lower() != "avro" and "schema" in entries:
        entries["schema"].document.add(
            "only Avro values have a schema of their own",
            entries["schema"].line,
            "declare columns in the stream's schema:",
        )
    return Decoding(name.lower(), read_options(entries.get("options")), schema)


def _read_avro(value: Value | None, owner: Value, base: Path) -> str | None:
    """The Avro schema as JSON, from the file named or as it stands there."""
    if value is None:
        owner.document.add(
            "an Avro value needs its schema", owner.line, "write value: {format: avro, schema: record.avsc}"
        )
        return None
    text = value.word()
    if text is None:
        return None
    if not text.lstrip().startswith(("{", "[", '"')):
        try:
            text = read_text(base / text)
        except (OSError, ValueError) as exc:
            value.document.add(
                f"cannot read the Avro schema {shown(text)}: {getattr(exc, 'strerror', None) or exc}", value.line
            )
            return None
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError) as exc:
        value.document.add(f"the Avro schema is not JSON: {exc}", value.line)
        return None


def with_message_columns(
    name: str, columns: tuple[Column, ...], decoding: Decoding, at: Value
) -> tuple[Column, ...] | None:
    """The columns of a decoded stream; None after noting what is wrong with those declared for the value."""
    if decoding.format == "raw" and (len(columns) != 1 or columns[0].type.kind not in (Kind.STRING, Kind.BINARY)):
        at.document.add(
            f"stream '{name}' has raw values, so its schema is one column of type STRING or BINARY", at.line,
            f"write schema: {RAW_SCHEMA}, or leave it out",
        )  # fmt: skip
        return None
    taken = {column.name for column in MESSAGE_COLUMNS}
    clash = next((column.name for column in columns if column.name.lower() in taken), None)
    if clash is not None:
        at.document.add(
            f"stream '{name}': every message has a column '{clash}' already", at.line, "remove it from schema:"
        )
        return None
    return (*columns, *MESSAGE_COLUMNS)
