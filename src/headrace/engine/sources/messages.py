"""Messages to rows: the value decoded, what a message says besides it, and its text when it cannot be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.model import Column, Decoding, Kind, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

__all__ = ["CORRUPT", "decode"]

CORRUPT = "_corrupt_record"
# A header may be repeated; the last one counts.
_NAMES = "array_distinct(transform(headers, h -> make_valid_utf8(h.key)))"
_LAST = "CAST(element_at(filter(headers, h -> make_valid_utf8(h.key) = name), -1).value AS STRING)"
_MESSAGE = {
    "kafka_key": "make_valid_utf8(CAST(key AS STRING))",
    "kafka_topic": "topic",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp": "timestamp",
    "kafka_headers": f"map_from_arrays({_NAMES}, transform({_NAMES}, name -> make_valid_utf8({_LAST})))",
}


def decode(messages: DataFrame, stream: Stream) -> DataFrame:
    """The columns of a stream of messages, and `CORRUPT`: a message's text if its value cannot be read, else null.

    A message without a value cannot be read. What follows the first object of a JSON value is not looked at.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    assert stream.source is not None
    assert stream.source.value is not None
    decoding, columns = stream.source.value, stream.value_columns
    text = F.col("value").cast("string")
    # Spark's parsers put signs of their own in the place of what is not UTF-8, and go on.
    foreign = ~F.is_valid_utf8(text)
    match decoding.format:
        case "json":
            value = F.from_json(text, _schema(columns), _options(decoding.options))
            # Spark would take the first element of an array and forget the others.
            other = ~F.expr("startswith(trim(LEADING ' \\t\\r\\n' FROM CAST(value AS STRING)), '{')")
            unread = F.when(foreign | other, text).otherwise(F.col(f"_v.{CORRUPT}"))
        case "csv":
            value = F.from_csv(text, _schema(columns), _options(decoding.options))
            unread = F.when(foreign | F.col("_v").isNull(), text).otherwise(F.col(f"_v.{CORRUPT}"))
        case "avro":
            from pyspark.sql.avro.functions import from_avro

            assert decoding.schema is not None
            # What Spark cannot read it makes a record of nulls: one field more, always true, tells it from others.
            marked = F.concat(F.lit(b"\x01"), F.col("value"))
            value = from_avro(marked, _marked(decoding.schema), {**dict(decoding.options), "mode": "PERMISSIVE"})
            unread = F.when(F.col("_v.read").isNull(), F.hex("value"))
        case _:
            value = F.struct(_raw(columns[0]).alias(columns[0].name))
            unread = F.when(F.col(f"_v.`{columns[0].name}`").isNull(), F.hex("value"))
    rows = messages.select(value.alias("_v"), "key", "value", "topic", "partition", "offset", "timestamp", "headers")
    return rows.select(
        *(_field(column, decoding).alias(column.name) for column in columns),
        *(F.expr(sql).alias(name) for name, sql in _MESSAGE.items()),
        F.when(F.col("value").isNull(), "").otherwise(unread).alias(CORRUPT),
    )


def _schema(columns: tuple[Column, ...]) -> str:
    return ", ".join([*(f"`{column.name}` {column.type}" for column in columns), f"{CORRUPT} STRING"])


def _options(options: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {**dict(options), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def _raw(column: Column) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr("value" if column.type.kind is Kind.BINARY else "try_validate_utf8(CAST(value AS STRING))")


def _marked(schema: str) -> str:
    """An Avro schema of what `schema` reads after a byte that says true."""
    fields = [{"name": "read", "type": "boolean"}, {"name": "value", "type": json.loads(schema)}]
    return json.dumps({"type": "record", "name": "headrace_marked", "fields": fields})


def _field(column: Column, decoding: Decoding) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    if decoding.schema is None:
        return F.col(f"_v.`{column.name}`")
    declared = json.loads(decoding.schema)
    is_record = isinstance(declared, dict) and declared.get("type") == "record"
    field = f"CAST(_v.value{f'.`{column.name}`' if is_record else ''} AS {column.type})"
    # Avro takes any bytes for text; tasks and files do not.
    return F.expr(f"make_valid_utf8({field})" if column.type.kind is Kind.STRING else field)
