"""Results as messages: what their keys are, and what a sink must be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trades import make_topic, read_topic

import headrace as hr
from headrace.engine.sinks.kafka import KafkaSink, key_columns
from headrace.engine.state.storage import LocalStorage
from headrace.errors import EngineError, SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import Query, SinkSpec, Stream

STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING, g INT, i INT"), "ts")


def query(sql: str, **options: str) -> Query:
    bound = bind_query("q", sql, {"r": STREAM})
    return replace(bound, sink=SinkSpec("kafka", None, tuple(options.items())))


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        pytest.param("SELECT k, SUM(i) AS v FROM r [WINDOW 1 min] GROUP BY k", ("k",), id="one key"),
        pytest.param("SELECT k AS name, SUM(i) AS v FROM r [WINDOW 1 min] GROUP BY k", ("name",), id="by another name"),
        pytest.param("SELECT SUM(i) AS v, g, k FROM r GROUP BY window(ts, '1 min'), k, g", ("g", "k"), id="two keys"),
        pytest.param("SELECT SUM(i) AS v FROM r [WINDOW 1 min] GROUP BY k", (), id="a key that is not selected"),
        pytest.param("SELECT SUM(i) AS v FROM r [WINDOW 1 min]", (), id="no key"),
        pytest.param("SELECT upper(k) AS u, SUM(i) AS v FROM r [WINDOW 1 min] GROUP BY upper(k)", ("u",),
                     id="an expression as a key"),
    ],
)  # fmt: skip
def test_a_message_is_keyed_by_its_group(sql: str, keys: tuple[str, ...]) -> None:
    assert key_columns(query(sql)) == keys


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "topic"])
def test_what_is_missing_is_said(missing: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    del options[missing]
    with pytest.raises(SpecError, match=f"a kafka sink needs the option '{missing}'"):
        KafkaSink(query("SELECT COUNT(*) AS n FROM r [WINDOW 1 min]", **options), LocalStorage("/nowhere"))


def test_from_python() -> None:
    made = hr.kafka("h:1", "t", **{"kafka.acks": "all"})
    assert made.spec == SinkSpec(
        "kafka", None, (("kafka.bootstrap.servers", "h:1"), ("topic", "t"), ("kafka.acks", "all"))
    )


def test_messages_and_a_broker_that_is_away(spark: Any, kafka: Any, tmp_path: Path) -> None:
    make_topic(kafka.servers, "results")
    sql = "SELECT k, g, SUM(i) AS v FROM r [WINDOW 1 min] GROUP BY k, g"
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": "results"}
    rows = spark.range(1).selectExpr("'x' AS k", "CAST(NULL AS INT) AS g", "TIMESTAMP'2024-01-02T03:04:05Z' AS v")
    KafkaSink(query(sql, **options), LocalStorage(str(tmp_path))).write(rows, 7, False)
    (message,) = read_topic(kafka.servers, "results")
    assert json.loads(message.key()) == {"k": "x", "g": None}
    assert json.loads(message.value()) == {"k": "x", "g": None, "v": "2024-01-02T03:04:05.000000Z"}
    assert dict(message.headers()) == {"headrace-query": b"q", "headrace-epoch": b"7"}
    away = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.max.block.ms": "500", "kafka.delivery.timeout.ms": "1000",
            "kafka.request.timeout.ms": "500", "topic": "results"}  # fmt: skip
    with pytest.raises(EngineError, match=r"query 'q' cannot write to Kafka: TimeoutException.*nothing is lost"):
        KafkaSink(query(sql, **away), LocalStorage(str(tmp_path))).write(rows, 8, False)
