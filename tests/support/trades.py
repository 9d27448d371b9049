"""Messages about trades: in disorder, some late, one in a hundred garbage; and what of them must be rejected."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

SECOND = 1_000_000
START = int(datetime(2024, 3, 10, 1, 30, tzinfo=UTC).timestamp()) * SECOND
PARTITIONS = 3
SYMBOLS = 20
SCHEMA = "ts TIMESTAMP, symbol STRING, price DOUBLE, qty INT"
# A trade that does not say when it was.
UNTIMED = b'{"symbol": "S1", "price": 1.0, "qty": 1}'
# What is no trade, whatever it is.
GARBAGE: tuple[bytes | None, ...] = (
    None,
    b"",
    b"   ",
    b"hello",
    b"12",
    b"null",
    b'{"ts": "2024-03-10T01:30:00Z", "symbol"',
    b'[{"ts": "2024-03-10T01:30:00Z", "symbol": "S1", "price": 1.0, "qty": 1}]',
    b'{"ts": "2024-03-10T01:30:00Z", "symbol": "S1", "price": "cheap", "qty": 1}',
    b'{"ts": "2024-03-10T01:30:00Z", "symbol": "S1", "price": 1.0, "qty": 99999999999}',
    b'{"ts": "yesterday", "symbol": "S1", "price": 1.0, "qty": 1}',
    b'{"ts": 1e300, "symbol": "S1", "price": 1.0, "qty": 1}',
    b'{"ts": "2024-03-10T01:30:00Z", "symbol": "\xff\xfe", "price": 1.0, "qty": 1}',
    b"\x00\xff\x80",
    b"[" * 5000,
    UNTIMED,
)


@dataclass(frozen=True)
class Trades:
    """All messages in the order they are sent, message i to partition i % 3; `good` says which are trades."""

    table: pa.Table
    good: np.ndarray[Any, np.dtype[np.bool_]]
    values: Sequence[bytes | None]

    def place(self, i: int) -> tuple[int, int]:
        """Partition and offset of message i."""
        return i % PARTITIONS, i // PARTITIONS


def make_trades(count: int, seed: int, step_us: int = 10_000) -> Trades:
    """`count` messages, a step of event time apart, up to 3 s out of order, some up to a minute old."""
    rng = np.random.default_rng(seed)
    ts = START + np.arange(count) * step_us - rng.integers(0, 3 * SECOND, count)
    ts -= np.where(rng.random(count) < 0.02, rng.integers(0, 60 * SECOND, count), 0)
    # Milliseconds, as most producers write them.
    ts = ts // 1000 * 1000
    symbols = np.where(rng.random(count) < 0.3, 0, rng.integers(0, SYMBOLS, count))
    price = rng.integers(0, 10_000, count) / 64
    qty = rng.integers(-5, 1000, count)
    good = rng.random(count) >= 0.01
    values: list[bytes | None] = []
    for i in range(count):
        if not good[i]:
            values.append(GARBAGE[i % len(GARBAGE)])
            continue
        when = datetime.fromtimestamp(int(ts[i]) / SECOND, UTC).isoformat(timespec="milliseconds")
        values.append(
            json.dumps({"ts": when, "symbol": f"S{symbols[i]}", "price": price[i], "qty": int(qty[i])}).encode()
        )
    table = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "symbol": pa.array([f"S{s}" for s in symbols]),
            "price": pa.array(price),
            "qty": pa.array(qty, pa.int32()),
            "kafka_partition": pa.array(np.arange(count) % PARTITIONS, pa.int32()),
        }
    )
    return Trades(table, good, values)


def send(servers: str, topic: str, trades: Trades, first: int, last: int) -> None:
    """Sends messages [first, last), each to its partition, and waits until the broker has them all."""
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    for i in range(first, last):
        key = trades.table["symbol"][i].as_py() if trades.good[i] else None
        producer.produce(topic, trades.values[i], key, i % PARTITIONS, headers={"number": str(i)},
                         on_delivery=lambda error, _: failed.append(error) if error else None)  # fmt: skip
        if i % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 50_000:
                producer.poll(0.1)
    producer.flush(60)
    assert not failed, failed[0]
    assert len(producer) == 0


def make_topic(servers: str, *topics: str) -> None:
    """Topics of three partitions that can be used: a broker makes partitions a little before it leads them."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

    client = AdminClient({"bootstrap.servers": servers})
    for future in client.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(30)
    places = [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    until = time.monotonic() + 30
    early = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
             KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT)  # fmt: skip
    while True:
        try:
            for future in client.list_offsets({place: OffsetSpec.latest() for place in places}).values():
                future.result(30)
            return
        except KafkaException as failure:
            if failure.args[0].code() not in early or time.monotonic() > until:
                raise
            time.sleep(0.05)


def read_topic(servers: str, topic: str) -> list[Any]:
    """All messages that are in a topic now."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    found: list[Any] = []
    try:
        places = [TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in places}
        consumer.assign(places)
        while len(found) < sum(ends.values()):
            found += [message for message in consumer.consume(10_000, timeout=10) if not message.error()]
    finally:
        consumer.close()
    return found
