"""The input of a plan, the pipeline file, and what a run has noted; all from the plan and a folder.

home/pipeline.yml, home/journal.jsonl     the file that is edited; what happened, a line each
home/in/                                  input
home/disk/                                state and results: on a small disk of its own where that can be had
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from chaos_plan import AHEAD_S, LATENESS_S, STEP_S, Ask, Plan

SECOND = 1_000_000
START = 1_710_034_200 * SECOND
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("g", pa.int32()), ("i", pa.int32()),
                    ("id", pa.int64())])  # fmt: skip
DDL = "ts TIMESTAMP, k STRING, g INT, i INT, id BIGINT"
GARBAGE = ("nonsense", '{"ts": "2024-03-10T01', '{"ts": "2024-03-10T01:30:00Z", "i": "many"}', '{"k": "k1"}')
PARTITIONS = 3
# Messages an epoch takes, so that a file's worth takes an epoch or two.
INTAKE = 60


@dataclass(frozen=True)
class Row:
    """What one file or topic holds at one place: a row, or text that is none."""

    values: tuple[Any, ...] | None
    text: str = ""


class World:
    """The rows of a plan, by stream and file."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @cached_property
    def rows(self) -> dict[str, list[list[Row]]]:
        """By stream and file: in disorder, some late, some around or beyond the clock, some without time or sense."""
        found = {}
        for number, stream in enumerate(("q", "r")):
            rng, seen, serial = np.random.default_rng([self.plan.seed, number]), set[int](), 0
            files = []
            for file in range(self.plan.files):
                made = []
                for _ in range(int(rng.integers(self.plan.rows // 3, self.plan.rows + 1))):
                    time = START + file * STEP_S * SECOND + int(rng.integers(0, STEP_S * SECOND))
                    dice = rng.random()
                    if dice < 0.12:
                        time -= int(rng.integers(0, 60 * SECOND))  # some of these are late
                    elif dice < 0.17:
                        time += int(rng.integers(5, 40)) * SECOND  # some are beyond the clock by more than is allowed
                    elif dice < 0.19:
                        time += 5 * 3600 * SECOND
                    while time in seen:
                        time += 1
                    seen.add(time)
                    key = None if rng.random() < 0.05 else f"k{0 if rng.random() < 0.4 else rng.integers(0, 7)}"
                    # JSON with milliseconds would do; with microseconds nothing is lost.
                    values = (None if rng.random() < 0.02 else time, key, int(rng.integers(0, 4)),
                              int(rng.integers(-500, 500)), serial)  # fmt: skip
                    serial += 1
                    made.append(Row(values))
                    if self.as_text(stream) and rng.random() < 0.03:
                        made.append(Row(None, GARBAGE[int(rng.integers(0, len(GARBAGE)))]))
                files.append(made)
            found[stream] = files
        return found

    def as_text(self, stream: str) -> bool:
        """Whether a stream's rows are JSON, which can be malformed: q's files always, r's messages."""
        return stream == "q" or self.plan.kafka

    @cached_property
    def messages(self) -> list[Row]:
        """What is sent to the topic, in order; message i goes to partition i % 3."""
        return [row for file in self.rows["r"] for row in file]

    def sent(self, files: int) -> int:
        """How many messages the first files are."""
        return sum(len(file) for file in self.rows["r"][:files])


def text_of(row: Row) -> str:
    if row.values is None:
        return row.text
    time, k, g, i, id_ = row.values
    when = None if time is None else str(np.datetime64(time, "us")) + "Z"
    return json.dumps({"ts": when, "k": k, "g": g, "i": i, "id": id_})


def write_files(world: World, home: Path, last: int) -> None:
    """Gives the file streams their files up to a number; Spark takes them in the order of their modification times."""
    for stream in ("q", "r"):
        if stream == "r" and world.plan.kafka:
            continue
        folder = home / "in" / stream
        folder.mkdir(parents=True, exist_ok=True)
        for file in range(last):
            rows = world.rows[stream][file]
            name = f"{file:05d}.{'json' if world.as_text(stream) else 'parquet'}"
            if (folder / name).exists():
                continue
            hidden = folder / f".{name}"
            if world.as_text(stream):
                hidden.write_text("".join(text_of(row) + "\n" for row in rows))
            else:
                columns = zip(*(row.values for row in rows if row.values is not None), strict=True)
                arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
                pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), hidden)
            os.utime(hidden, (1_700_000_000 + file, 1_700_000_000 + file))
            hidden.rename(folder / name)


def send_messages(world: World, servers: str, files: int) -> None:
    """Gives the topic the messages of the first files, each to its partition, that it does not have."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "chaos"})
    try:
        places = [TopicPartition("r", partition) for partition in range(PARTITIONS)]
        there = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
    finally:
        consumer.close()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    failed: list[Any] = []
    for number in range(world.sent(files)):
        if number // PARTITIONS >= there[number % PARTITIONS]:
            producer.produce("r", text_of(world.messages[number]).encode(), None, number % PARTITIONS,
                             on_delivery=lambda error, _: failed.append(error) if error else None)  # fmt: skip
    producer.flush(60)
    if failed or len(producer):
        raise RuntimeError(f"the broker did not take the messages: {failed[:1]}")


def sql_of(ask: Ask) -> str:
    """The query in Headrace's words."""
    window = f"window(ts, '{ask.size_s} seconds', '{ask.slide_s} seconds')"
    match ask.kind:
        case "hop":
            return f"SELECT k, SUM(i) AS v, COUNT(*) AS n FROM r WHERE {ask.where} GROUP BY {window}, k"
        case "slide":
            return (
                f"SELECT k, MAX(i) AS v, COUNT(*) AS n FROM r [WINDOW {ask.size_s} s SLIDE {ask.slide_s} s] "
                f"WHERE {ask.where} GROUP BY k"
            )
        case "total":
            return f"SELECT SUM(i) AS v, COUNT(DISTINCT k) AS n FROM q WHERE {ask.where} GROUP BY {window}"
        case "having":
            return (
                f"SELECT g, SUM(i) + 1 AS v, COUNT(*) * 2 AS n FROM r WHERE {ask.where} GROUP BY {window}, g "
                "HAVING COUNT(*) > 1"
            )
        case "pairs" | "left":
            how = "LEFT " if ask.kind == "left" else ""
            return (
                f"SELECT r.id AS a, q.id AS b FROM r [RANGE {ask.size_s} s] {how}JOIN q [RANGE {ask.slide_s} s] "
                "ON r.k = q.k AND r.i < q.i"
            )
        case "rows":
            return (
                f"SELECT k, id, SUM(i) AS v, COUNT(*) AS n FROM r [PARTITION BY k ROWS {ask.size_s}] WHERE {ask.where}"
            )
        case _:
            return "SELECT k, id FROM r [PARTITION BY k]"


def place_of(ask: Ask) -> str:
    """Folder or table; a query that was given another SQL has another."""
    return f"{ask.name}_{ask.kind}_{ask.size_s}_{ask.slide_s}_{abs(hash_of(ask.where))}"


def hash_of(text: str) -> int:
    return sum((at + 1) * ord(letter) for at, letter in enumerate(text)) % 1000


def pipeline_text(plan: Plan, asks: Iterable[Ask], bins: int, services: dict[str, Any]) -> str:
    """The pipeline file with these queries."""
    kafka = {"kafka.bootstrap.servers": services.get("servers"), "subscribe": "r", "maxOffsetsPerTrigger": INTAKE}
    r = {"format": "kafka", "options": kafka, "value": "json"} if plan.kafka else {
        "format": "parquet", "path": "in/r", "options": {"maxFilesPerTrigger": 1}}  # fmt: skip
    q = {"format": "json", "path": "in/q", "options": {"maxFilesPerTrigger": 1}}
    streams = {
        name: {"source": source, "schema": DDL, "time": "ts", "lateness": f"{LATENESS_S[name]} seconds",
               "ahead": f"{AHEAD_S} seconds", "idle": "30 days"}
        for name, source in (("q", q), ("r", r))
    }  # fmt: skip
    queries: dict[str, Any] = {}
    for ask in asks:
        sink: dict[str, Any] = {"format": ask.sink, "path": f"disk/out/{place_of(ask)}"}
        if ask.sink == "jdbc":
            options = {"url": services["url"], "dbtable": place_of(ask), "user": "ann",
                       "password": "${env:HEADRACE_TEST_PASSWORD}"}  # fmt: skip
            sink = {"format": "jdbc", "options": options}
        queries[ask.name] = {"sql": sql_of(ask), "sink": sink}
        if ask.kind == "counted":
            queries[ask.name] |= {"function": "chaos_step:counted", "state": "k STRING, n BIGINT",
                                  "results": "k STRING, id BIGINT, n BIGINT"}  # fmt: skip
    engine = {"trigger": "0 seconds", "bins": bins, "checkpoint": "disk/state", "jars": services.get("jars", [])}
    # JSON is YAML.
    return json.dumps({"name": "chaos", "streams": streams, "queries": queries, "engine": engine}, indent=1)


class Journal:
    """What happened, a line of JSON each, durable as far as a kill -9 goes."""

    def __init__(self, home: Path) -> None:
        self._path, self._lock = home / "journal.jsonl", threading.Lock()

    def note(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "at_s": round(time.time(), 2), **facts}).encode() + b"\n"
        with self._lock, self._path.open("ab") as file:
            file.write(line)

    def read(self, what: str) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        lines = map(json.loads, self._path.read_text().splitlines())
        return [line for line in lines if line["what"] == what]
