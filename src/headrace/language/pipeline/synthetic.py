"""The built-in `synthetic` source as a pipeline file knows it; the engine makes its rows."""

from __future__ import annotations

from datetime import datetime

from headrace.language.ddl import parse_schema
from headrace.model import Column
from headrace.units import parse_duration

__all__ = [
    "SYNTHETIC_COLUMNS",
    "SYNTHETIC_FORMAT",
    "SYNTHETIC_OPTIONS",
    "SYNTHETIC_SCHEMA",
    "SYNTHETIC_TIME",
    "why_not",
]

SYNTHETIC_FORMAT = "synthetic"
SYNTHETIC_SCHEMA = "ts TIMESTAMP, key STRING, value DOUBLE, amount INT, seq BIGINT"
SYNTHETIC_COLUMNS: tuple[Column, ...] = parse_schema(SYNTHETIC_SCHEMA)
SYNTHETIC_TIME = "ts"
# Option -> what it is, with the least and the most a number can be; rate is in rows per second of event time, rows the
# total after which the stream ends, epoch the rows that one epoch takes.
SYNTHETIC_OPTIONS: dict[str, str | tuple[float, float]] = {
    "rate": (1e-6, 1e9),
    "rows": (0, 1e15),
    "epoch": (1, 1e9),
    "keys": (1, 1e9),
    "skew": (0, 1000),
    "disorder": "duration",
    "burst": (1e-6, 1e6),
    "seed": (-(2.0**53), 2.0**53),
    "start": "timestamp",
}


def why_not(option: str, text: str) -> str | None:
    """What an option should be, if this text is something else.

    >>> why_not("rate", "5"), why_not("rate", "nan"), why_not("start", "soon")
    (None, 'a number from 1e-06 to 1e+09', 'a timestamp, such as 2026-01-31T12:00:00')
    """
    kind = SYNTHETIC_OPTIONS[option]
    try:
        if kind == "duration":
            parse_duration(text)
        elif kind == "timestamp":
            datetime.fromisoformat(text)
        elif not isinstance(kind, str) and not kind[0] <= float(text) <= kind[1]:
            return f"a number from {kind[0]:g} to {kind[1]:g}"
    except ValueError:
        examples = {"duration": "'5 seconds'", "timestamp": "2026-01-31T12:00:00"}
        return f"a {kind}, such as {examples[kind]}" if isinstance(kind, str) else "a number"
    return None
