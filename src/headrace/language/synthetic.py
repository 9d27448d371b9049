"""The built-in `synthetic` source as a pipeline file knows it; the engine makes its rows."""

from __future__ import annotations

from headrace.language.ddl import parse_schema
from headrace.model import Column

__all__ = ["SYNTHETIC_COLUMNS", "SYNTHETIC_FORMAT", "SYNTHETIC_OPTIONS", "SYNTHETIC_SCHEMA", "SYNTHETIC_TIME"]

SYNTHETIC_FORMAT = "synthetic"
SYNTHETIC_SCHEMA = "ts TIMESTAMP, key STRING, value DOUBLE, amount INT, seq BIGINT"
SYNTHETIC_COLUMNS: tuple[Column, ...] = parse_schema(SYNTHETIC_SCHEMA)
SYNTHETIC_TIME = "ts"
# Option -> what it is; rate is in rows per second of event time, rows the total after which the stream ends,
# epoch the rows that one epoch takes.
SYNTHETIC_OPTIONS = {
    "rate": "number",
    "rows": "number",
    "epoch": "number",
    "keys": "number",
    "skew": "number",
    "disorder": "duration",
    "burst": "number",
    "seed": "number",
    "start": "timestamp",
}
