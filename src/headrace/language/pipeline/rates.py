"""Rates as pipeline files write them: rows, bytes, or both, per second."""

from __future__ import annotations

import re

from headrace.language.pipeline.yaml_nodes import Value
from headrace.language.words import shown
from headrace.model import Rate

__all__ = ["parse_rate", "read_byte_rate", "read_rate"]

# Spelled as they are measured: Mb is a megabit to people who measure networks, so case counts.
_UNITS: dict[str, tuple[str, float]] = {
    "row/s": ("rows", 1), "rows/s": ("rows", 1),
    "B/s": ("bytes", 1), "byte/s": ("bytes", 1), "bytes/s": ("bytes", 1),
    "kB/s": ("bytes", 1e3), "KB/s": ("bytes", 1e3), "MB/s": ("bytes", 1e6), "GB/s": ("bytes", 1e9),
    "KiB/s": ("bytes", 2.0**10), "MiB/s": ("bytes", 2.0**20), "GiB/s": ("bytes", 2.0**30),
}  # fmt: skip
_PART = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+/s)\s*", re.ASCII)
_FORM = "write rows or bytes per second, such as '50000 rows/s', '4 MB/s', or both: '50000 rows/s, 4 MB/s'"
# No rate that somebody means is longer; Python takes its time over numbers of thousands of digits.
_MOST_CHARACTERS = 100


def parse_rate(text: str) -> Rate:
    """Rows, bytes, or both, per second; raises ValueError with the accepted form.

    >>> parse_rate("50000 rows/s, 4 MB/s")
    Rate(rows_per_s=50000.0, bytes_per_s=4000000.0)
    >>> parse_rate("4 Mb/s")
    Traceback (most recent call last):
    ...
    ValueError: '4 Mb/s' is not a rate; known units: row/s, rows/s, B/s, byte/s, bytes/s, kB/s, KB/s, MB/s, GB/s, \
KiB/s, MiB/s, GiB/s
    """
    found: dict[str, float] = {}
    for part in text.split(",") if len(text) <= _MOST_CHARACTERS else ("",):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{shown(text)} is not a rate; {_FORM}")
        if match.group(2) not in _UNITS:
            raise ValueError(f"{shown(text)} is not a rate; known units: {', '.join(_UNITS)}")
        what, factor = _UNITS[match.group(2)]
        if what in found:
            raise ValueError(f"{shown(text)} says {what} twice; keep one")
        found[what] = float(match.group(1)) * factor
    return Rate(found.get("rows"), found.get("bytes"))


def read_rate(value: Value) -> Rate | None:
    """The rate that a value says; None after noting what is wrong with it."""
    text = value.scalar_text()
    if text is None:
        return None
    try:
        return parse_rate(text)
    except ValueError as exc:
        value.document.add(f"{value.path}: {exc}", value.line)
        return None


def read_byte_rate(value: Value) -> float | None:
    """The bytes per second that a value says; None after noting what is wrong with it."""
    rate = read_rate(value)
    if rate is None:
        return None
    if rate.bytes_per_s is None or rate.rows_per_s is not None:
        value.wrong("bytes per second, such as 40 MB/s")
        return None
    return rate.bytes_per_s
