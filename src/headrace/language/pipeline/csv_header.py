"""The names of columns in the first line of CSV files."""

from __future__ import annotations

import csv
from pathlib import Path

from headrace.language.pipeline.paths import local_path
from headrace.model import Column, DataType, Kind, Source

__all__ = ["columns_of_header"]

# Of a file's beginning so many bytes are looked at; the first line of a table with a thousand columns is shorter.
_MOST_BYTES = 64_000


def columns_of_header(source: Source) -> tuple[Column, ...] | None:
    """The columns that the first line of CSV files names, all of them texts; None if it cannot be read here."""
    options = {key.lower(): text for key, text in source.options}
    if source.format != "csv" or options.get("header", "").lower() != "true" or source.path is None:
        return None
    place = local_path(source.path)
    names = None if place is None else _header(place, options.get("sep", options.get("delimiter", ",")))
    if not names or len({name.lower() for name in names}) < len(names) or any("`" in name for name in names):
        return None
    return tuple(Column(name, DataType(Kind.STRING)) for name in names)


def _header(place: Path, separator: str) -> list[str] | None:
    """The fields of the first line of a file, or of the first file in a folder; None if there is no such line."""
    try:
        if place.is_dir():
            files = sorted(each for each in place.iterdir() if each.is_file() and each.name[0] not in "._")
            place = files[0] if files else place
        if not place.is_file() or len(separator) != 1:
            return None
        with open(place, "rb") as file:
            line, newline, _ = file.read(_MOST_BYTES).decode("utf-8-sig").partition("\n")
        rows = list(csv.reader([line.rstrip("\r")], delimiter=separator)) if newline else []
    except (OSError, ValueError, csv.Error):
        return None
    names = rows[0] if rows else []
    return names if names and all(name.strip() for name in names) else None
