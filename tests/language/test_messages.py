"""Streams of messages: how their values are read, and the columns they then have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.model import MESSAGE_COLUMNS, Decoding, Stream

AVRO = {"type": "record", "name": "Trade", "fields": [{"name": "symbol", "type": "string"}]}


def stream(folder: Path, source: str, rest: str = "schema: 'ts TIMESTAMP, symbol STRING', time: ts") -> Stream:
    (folder / "trade.avsc").write_text(json.dumps(AVRO))
    file = folder / "pipeline.yml"
    file.write_text(
        f"streams:\n  trades: {{source: {{format: kafka, {source}}}, {rest}}}\n"
        'queries: {n: {sql: "SELECT COUNT(*) AS n FROM trades [WINDOW 1 min]"}}\n'
    )
    return load_pipeline(file).streams[0]


@pytest.mark.parametrize(
    ("value", "decoding"),
    [
        pytest.param("value: json", Decoding("json"), id="a format alone"),
        pytest.param("value: {format: csv, options: {sep: ';', header: false}}",
                     Decoding("csv", (("sep", ";"), ("header", "false"))), id="a format with options"),
        pytest.param("value: {format: avro, schema: trade.avsc}", Decoding("avro", (), json.dumps(AVRO)),
                     id="an Avro schema in a file"),
        pytest.param("value: {format: Avro, schema: '\"string\"'}", Decoding("avro", (), '"string"'),
                     id="an Avro schema in its place"),
    ],
)  # fmt: skip
def test_a_value_is_decoded_by_the_declared_columns(tmp_path: Path, value: str, decoding: Decoding) -> None:
    found = stream(tmp_path, value)
    assert found.source is not None
    assert found.source.value == decoding
    assert [column.name for column in found.value_columns] == ["ts", "symbol"]
    assert found.columns[2:] == MESSAGE_COLUMNS


def test_a_raw_value_needs_no_schema(tmp_path: Path) -> None:
    found = stream(tmp_path, "value: raw", "time: kafka_timestamp")
    assert [str(column.type) for column in found.value_columns] == ["STRING"]
    found = stream(tmp_path, "value: raw", "schema: body BINARY, time: kafka_timestamp")
    assert [column.name for column in found.value_columns] == ["body"]


def test_without_a_value_a_message_has_the_columns_that_kafka_gives_it(tmp_path: Path) -> None:
    found = stream(tmp_path, "options: {subscribe: t}", "schema: 'value BINARY, timestamp TIMESTAMP', time: timestamp")
    assert found.source is not None
    assert found.source.value is None
    assert found.value_columns == found.columns


@pytest.mark.parametrize(
    ("source", "rest", "message"),
    [
        pytest.param("value: yaml", "", "unknown value format 'yaml'", id="an unknown format"),
        pytest.param("value: {options: {}}", "", "has no format", id="no format"),
        pytest.param("value: {format: json, schema: x}", "", "only Avro values have a schema of their own",
                     id="a schema for JSON"),
        pytest.param("value: avro", "", "an Avro value needs its schema", id="Avro without a schema"),
        pytest.param("value: {format: avro, schema: none.avsc}", "", "cannot read the Avro schema 'none.avsc': No such",
                     id="a schema file that is not there"),
        pytest.param("value: {format: avro, schema: '{'}", "", "the Avro schema is not JSON",
                     id="a schema that is no JSON"),
        pytest.param("value: raw", "schema: 'a STRING, b STRING', time: kafka_timestamp",
                     "one column of type STRING or BINARY", id="a raw value in two columns"),
        pytest.param("value: json", "schema: 'ts TIMESTAMP, Kafka_Key STRING', time: ts",
                     "every message has a column 'Kafka_Key' already", id="a column every message has"),
    ],
)  # fmt: skip
def test_a_wrong_value_says_what_is_wrong(tmp_path: Path, source: str, rest: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        stream(tmp_path, source, rest or "schema: 'ts TIMESTAMP', time: ts")
    assert message in str(caught.value)


def test_only_messages_have_values(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yml"
    file.write_text(
        "streams:\n  trades: {source: {format: json, path: x, value: json}, schema: 'ts TIMESTAMP', time: ts}\n"
    )
    with pytest.raises(SpecError, match=r"pipeline\.yml:2: .*goes with format: kafka, not json"):
        load_pipeline(file)
