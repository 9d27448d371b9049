"""Messages to rows: every format of a value, what a message says besides it, and what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jars
import pytest

from headrace.engine.sources.messages import CORRUPT, decode
from headrace.language import load_pipeline
from headrace.model import Stream

KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
WHEN = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "a", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
}


def stream(folder: Path, value: str, schema: str) -> Stream:
    file = folder / "pipeline.yml"
    file.write_text(
        f"streams: {{m: {{source: {{format: kafka, value: {value}}}, schema: '{schema}', time: kafka_timestamp}}}}\n"
        "queries: {n: {sql: 'SELECT COUNT(*) AS n FROM m [WINDOW 1 min]'}}\n"
    )
    return load_pipeline(file).streams[0]


def decoded(spark: Any, folder: Path, value: str, schema: str, values: Sequence[bytes | None]) -> list[Any]:
    """The rows of messages with these values, in their order."""
    messages = [(b"k", v, "t", 1, i, WHEN, []) for i, v in enumerate(values)]
    rows = decode(spark.createDataFrame(messages, KAFKA), stream(folder, value, schema))
    return sorted(rows.collect(), key=lambda row: row.kafka_offset)


def long(number: int) -> bytes:
    """As Avro writes it: zigzag, seven bits a byte."""
    rest, out = number << 1, b""
    while rest > 127:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


CASES = [
    pytest.param("json", "a INT, b STRUCT<c: DOUBLE>, at TIMESTAMP", [
        (b'{"a": 1, "b": {"c": 2.5}, "at": "2024-01-02T03:04:05.678901Z"}', (1, (2.5,), WHEN)),
        (b' \n\t{"a": null, "other": 5}', (None, None, None)),
        (b'{"a": 1.5}', None), (b'{"a": "x"}', None), (b"[]", None), (b"{", None), (b"", None), (None, None),
        (b"\xff", None), (b'{"a": 99999999999}', None), (b'{"a": 1, "other": "\xff"}', None),
    ], id="JSON"),
    pytest.param("{format: csv, options: {sep: ';'}}", "a INT, s STRING", [
        (b"1;x", (1, "x")), (b'2;"y;z"', (2, "y;z")), (b";", (None, None)),
        (b"x;y", None), (b"1", None), (b"1;2;3", None), (b"1;\xff", None), (None, None),
    ], id="CSV"),
    pytest.param(f"{{format: avro, schema: '{json.dumps(AVRO)}'}}", "a BIGINT, s STRING", [
        (long(300) + long(1) + long(2) + b"ab", (300, "ab")), (long(7) + long(0), (7, None)),
        (long(7) + long(1) + long(1) + b"\xff", (7, "\ufffd")),
        (b"", None), (long(7) + long(1) + long(50) + b"ab", None), (None, None),
    ], id="Avro"),
    pytest.param("{format: avro, schema: '[\"null\", \"long\"]'}", "n INT", [
        (long(0), (None,)), (long(1) + long(12), (12,)), (b"", None), (long(5), None), (None, None),
    ], id="Avro without a record"),
    pytest.param("raw", "line STRING", [
        ("grüße".encode(), ("grüße",)), (b"", ("",)), (b"\xff\xfe", None), (None, None),
    ], id="raw text"),
    pytest.param("raw", "body BINARY", [(b"\xff\x00", (b"\xff\x00",)), (b"", (b"",)), (None, None)], id="raw bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "schema", "cases"), CASES)
def test_a_value_is_read_or_kept_as_it_is(
    spark: Any, tmp_path: Path, value: str, schema: str, cases: list[tuple[bytes | None, tuple[Any, ...] | None]]
) -> None:
    if "avro" in value:
        jars.need(jars.AVRO)
    rows = decoded(spark, tmp_path, value, schema, [case[0] for case in cases])
    width = len(stream(tmp_path, value, schema).value_columns)
    for row, (sent, wanted) in zip(rows, cases, strict=True):
        if wanted is None:
            assert row[CORRUPT] is not None, sent
        else:
            assert row[CORRUPT] is None, sent
            found = tuple(tuple(v) if isinstance(v, list | tuple) else v for v in row[:width])
            assert tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in found) == wanted


def test_what_a_message_says_besides_its_value(spark: Any, tmp_path: Path) -> None:
    headers = [("trace", b"1"), ("trace", b"2"), ("odd", b"\xff"), ("none", None)]
    messages = [(b"k\xff", b"v", "t", 3, 9, WHEN, headers), (None, b"v", "t", 3, 10, WHEN, None)]
    made = decode(spark.createDataFrame(messages, KAFKA), stream(tmp_path, "raw", "v STRING"))
    first, second = sorted(made.collect(), key=lambda row: row.kafka_offset)
    assert (first.kafka_key, first.kafka_topic, first.kafka_partition, first.kafka_offset) == ("k\ufffd", "t", 3, 9)
    assert first.kafka_timestamp.astimezone(UTC) == WHEN
    assert first.kafka_headers == {"trace": "2", "odd": "\ufffd", "none": None}, "of several the last counts"
    assert (second.kafka_key, second.kafka_headers) == (None, None)


def test_columns_are_those_the_stream_declares(spark: Any, tmp_path: Path) -> None:
    declared = stream(tmp_path, "json", "a INT, b STRUCT<c: DOUBLE>")
    made = decode(spark.createDataFrame([], KAFKA), declared)
    found = {field.name: field.dataType.simpleString().upper() for field in made.schema.fields}
    assert found.pop(CORRUPT) == "STRING"
    assert found == {column.name: str(column.type).upper().replace(": ", ":") for column in declared.columns}


def test_a_fault_in_a_column_that_nobody_reads_counts_too(spark: Any, tmp_path: Path) -> None:
    messages = spark.createDataFrame([(b"k", b'{"a": 1, "b": "x"}', "t", 1, 0, WHEN, [])], KAFKA)
    assert decode(messages, stream(tmp_path, "json", "a INT, b INT")).select("a", CORRUPT).collect()[0][1] is not None
