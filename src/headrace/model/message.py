"""Messages of a broker: how a value becomes columns, and what a message says besides its value."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.types import Column, DataType, Kind

__all__ = ["DECODINGS", "MESSAGE_COLUMNS", "PLACE", "Decoding"]

DECODINGS = ("json", "csv", "avro", "raw")

_TEXT = DataType(Kind.STRING)
# Columns that every decoded message has beside those of its value; keys and values of headers are text.
MESSAGE_COLUMNS = (
    Column("kafka_key", _TEXT),
    Column("kafka_topic", _TEXT),
    Column("kafka_partition", DataType(Kind.INT)),
    Column("kafka_offset", DataType(Kind.BIGINT)),
    Column("kafka_timestamp", DataType(Kind.TIMESTAMP)),
    Column("kafka_headers", DataType(Kind.MAP, fields=(Column("key", _TEXT), Column("value", _TEXT)))),
)


# Where a message was found; kept with every row, so that a rejected one can be looked up.
PLACE = ("kafka_topic", "kafka_partition", "kafka_offset")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a message's value is read: JSON and CSV by the declared columns, Avro by a schema of its own, or raw."""

    format: str
    options: tuple[tuple[str, str], ...] = ()
    schema: str | None = None  # Avro's, as JSON

    def __post_init__(self) -> None:
        if self.format not in DECODINGS:
            raise ValueError(f"unknown value format '{self.format}'; known: {', '.join(DECODINGS)}")
        if (self.schema is not None) != (self.format == "avro"):
            raise ValueError("an Avro value is read by an Avro schema, and nothing else is")
