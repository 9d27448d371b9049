"""A CSV matrix of round trips in milliseconds, with names in its first row and column or without any.

    region,paris,rome,hub          0,30,12
    paris,1,30,12            or    30,0,25
    rome,30,2,25                   12,25,0
    hub,12,25,1

What is between two places is half their round trip; where it differs by direction, half the mean. The diagonal is not
read: some files have 0 there, some the way out of the machine and back.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np

from headrace.language.pipeline.network_files import (
    MOST_LATENCY_MS,
    MOST_PLACES,
    Latencies,
    NetworkFile,
    load_network_file,
    note_detours,
    shortest_paths,
)
from headrace.language.pipeline.yaml_nodes import Document
from headrace.language.words import shown

__all__ = ["load_round_trips", "read_round_trips"]

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
# Of a name: it stands in tables and on maps.
_MOST_CHARACTERS = 200
# Of a number; no double needs more.
_MOST_DIGITS = 40


def load_round_trips(path: Path) -> NetworkFile:
    """The places of a CSV file of round trips; without names they are numbered from 1. SpecError with its problems."""
    return load_network_file(path, read_round_trips)


def read_round_trips(text: str, document: Document) -> NetworkFile | None:
    """The places of a CSV text; None after noting what is wrong with it.

    >>> found = read_round_trips(",a,b\\na,0,30\\nb,34,0", Document("rtt.csv"))
    >>> float(found.latency_ms[0, 1]), found.notes
    (16.0, ("1 of 1 pairs have another round trip each way (the most: 'a' and 'b', 30 and 34 ms); the mean counts",))
    """
    rows = _rows(text, document)
    if not rows:
        if not document.problems:
            document.add("the file is empty", 1, "write a square matrix of round trips in milliseconds")
        return None
    if len(rows) > MOST_PLACES + 1 or max(len(cells) for _, cells in rows) > MOST_PLACES + 1:
        document.add(f"the matrix has more than {MOST_PLACES} rows or columns", rows[-1][0], f"keep {MOST_PLACES}")
        return None
    named = not _NUMBER.fullmatch(rows[0][1][0])
    names = rows[0][1][1:] if named else [str(i) for i in range(1, len(rows[0][1]) + 1)]
    if not names:
        document.add("the first row is neither numbers nor names", rows[0][0], "write numbers with commas between them")
        return None
    if named:
        _check_names(rows, names, document)
        rows = [(line, cells[1:]) for line, cells in rows[1:]]
    _check_shape(rows, names, document)
    return _read_cells(rows, names, document)


def _rows(text: str, document: Document) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with its line."""
    reader = csv.reader(io.StringIO(text), strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                found.append((reader.line_num, [cell.strip() for cell in cells]))
            if len(found) > MOST_PLACES + 1:
                break
    except csv.Error as exc:
        document.add(f"not CSV: {exc}", reader.line_num)
        return []
    return found


def _check_names(rows: list[tuple[int, list[str]]], names: list[str], document: Document) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or len(name) > _MOST_CHARACTERS or not name.isprintable():
            document.add(f"{shown(name)} cannot name a place", rows[0][0], "every column has a name of its own")
        elif name in seen:
            document.add(f"two columns are named {shown(name)}", rows[0][0], "every column has a name of its own")
        seen.add(name)
    for (line, cells), name in zip(rows[1:], names, strict=False):
        if cells[0] != name:
            document.add(
                f"the row of {shown(cells[0])} stands where that of {shown(name)} should",
                line,
                "rows have the names of the columns, in their order",
            )


def _check_shape(rows: list[tuple[int, list[str]]], names: list[str], document: Document) -> None:
    for line, cells in rows:
        if len(cells) != len(names):
            document.add(
                f"{len(cells)} numbers in this row, and the matrix has {len(names)} columns", line, "it must be square"
            )
    if len(rows) != len(names):
        last = rows[-1][0] if rows else 1
        document.add(f"the matrix has {len(names)} columns and {len(rows)} rows", last, "it must be square")


def _read_cells(rows: list[tuple[int, list[str]]], names: list[str], document: Document) -> NetworkFile | None:
    """The places of a matrix; None if anything is wrong with it, its shape included."""
    trips = np.zeros((len(names), len(names)))
    for i, (line, cells) in enumerate(rows[: len(names)]):
        for j, cell in enumerate(cells[: len(names)]):
            if i == j:
                continue
            number = float(cell) if _NUMBER.fullmatch(cell) and len(cell) <= _MOST_DIGITS else None
            if number is not None and 0 <= number <= 2 * MOST_LATENCY_MS:
                trips[i, j] = number
            elif not cell:
                document.add(
                    f"no round trip from {shown(names[i])} to {shown(names[j])}", line, "write its milliseconds"
                )
            else:
                least = "0 or more" if number is not None and number < 0 else "a number of at most two days"
                what = f"the round trip from {shown(names[i])} to {shown(names[j])} is {shown(cell)}"
                document.add(f"{what}; milliseconds are {least}", line)
    if document.problems:
        return None
    notes = [_note_directions(trips, names)]
    if any(cells[i] and not _is_zero(cells[i]) for i, (_, cells) in enumerate(rows)):
        notes.append("the diagonal is not 0, and is ignored")
    # Half a round trip, of the mean of both directions.
    direct = (trips + trips.T) / 4
    found = shortest_paths(direct)
    notes.append(note_detours(direct, found))
    return NetworkFile(tuple(names), found, notes=tuple(note for note in notes if note is not None))


def _is_zero(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell)) and float(cell) == 0


def _note_directions(trips: Latencies, names: list[str]) -> str | None:
    """That some pairs have two round trips, and which differ the most."""
    differences = np.triu(np.abs(trips - trips.T), 1)
    count = int(np.count_nonzero(differences))
    if count == 0:
        return None
    i, j = (int(x) for x in np.unravel_index(np.argmax(differences), differences.shape))
    pairs = len(names) * (len(names) - 1) // 2
    most = f"{shown(names[i])} and {shown(names[j])}, {trips[i, j]:g} and {trips[j, i]:g} ms"
    return f"{count} of {pairs} pairs have another round trip each way (the most: {most}); the mean counts"
