"""Trades and quotes from a real Kafka broker into files, a Delta table, a real PostgreSQL and Kafka again.

Each answer once. One run over 200,000 messages is killed -9 twice, once after its sinks have taken an epoch that no
manifest knows of; the broker is stopped for 20 seconds on the way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import jars
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from postgres import PASSWORD, Postgres
from trades import PARTITIONS, SCHEMA, UNTIMED, Trades, make_topic, make_trades, read_topic, send
from world import Admission, admit, assert_same, expected, results

from headrace.bench.broker import Broker

MESSAGES = {"quotes": 40_000, "trades": 160_000}
LATENESS_S = 5
EPOCHS = 6
RANGE_MS = 200
OUTAGE_S = 20
SUPPORT = Path(__file__).parents[2] / "support"
# Several drivers are started one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)

VOLUMES = (
    "SELECT symbol, SUM(qty) AS qty, COUNT(*) AS n, MAX(price) AS high FROM trades "
    "GROUP BY window(ts, '1 minute', '20 seconds'), symbol"
)
SPREAD = (
    "SELECT kafka_partition AS part, SUM(price) / COUNT(*) + 1 AS mean, COUNT(DISTINCT symbol) AS symbols FROM trades "
    "GROUP BY window(ts, '1 minute'), kafka_partition"
)
NEAR = (
    "SELECT t.symbol, t.qty, q.price FROM trades AS t [RANGE {range} ms] JOIN quotes AS q [RANGE {range} ms] "
    "ON t.symbol = q.symbol AND t.price < q.price"
)
STREAM = """
  {topic}:
    source:
      format: kafka
      options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, maxOffsetsPerTrigger: {intake}}}
      value: json
    schema: {schema}
    time: ts
    lateness: {lateness} seconds
"""
PIPELINE = """
name: trades
streams:
{streams}
queries:
  near: {{sql: "{near}"}}
  volumes: {{sql: "{volumes}"}}
  spread: {{sql: "{spread}"}}
  lake: {{sql: "{volumes}", sink: {{format: delta}}}}
  shelf:
    sql: "{volumes}"
    sink:
      format: jdbc
      options: {{url: "{url}", dbtable: shelf, user: ann, password: "${{env:HEADRACE_TEST_PASSWORD}}"}}
  echo:
    sql: "{volumes}"
    sink: {{format: kafka, options: {{kafka.bootstrap.servers: "{servers}", topic: answers}}}}
engine: {{trigger: 0 seconds, bins: 2, jars: {jars}}}
"""


@dataclass
class Played:
    """What the run was given and what it left; everything by topic, which is also the name of the stream."""

    home: Path
    sent: dict[str, Trades]
    batches: dict[str, list[list[int]]]  # the messages of each batch, by number
    ledger: dict[str, list[int]] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    shelf: list[tuple[str, ...]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    @cached_property
    def admitted(self) -> dict[str, Admission]:
        """The rows that the contract on time admits, batch by batch."""
        found = {}
        for topic, sent in self.sent.items():
            batches = (np.array(batch, dtype=np.int64) for batch in self.batches[topic])
            found[topic] = admit([sent.table.take(batch[sent.good[batch]]) for batch in batches], LATENESS_S)
        return found

    def wanted(self, select: str, group_by: str, size_s: int, slide_s: int) -> list[tuple[Any, ...]]:
        """DuckDB's answers about trades."""
        return expected(self.admitted["trades"].rows, select, group_by, size_s, slide_s, True)

    @cached_property
    def volumes(self) -> list[tuple[Any, ...]]:
        return self.wanted("symbol, sum(qty)::bigint, count(*), max(price)", "symbol", 60, 20)

    @property
    def killed_at(self) -> tuple[int, int]:
        """The epochs in which the two drivers died."""
        first, second = (self.home / f"killed-{point}" for point in ("after-sinks", "before-manifest"))
        return int(first.read_text()), int(second.read_text())


def start(file: Path, until: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
                   "HEADRACE_TEST_PASSWORD": PASSWORD}  # fmt: skip
    command = [sys.executable, str(SUPPORT / "kafka_victim.py"), str(file), until]
    with (file.parent / "log.txt").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def log_of(home: Path) -> str:
    return (home / "log.txt").read_text(errors="replace")[-4000:]


def wait_for_epoch(home: Path, process: subprocess.Popen[bytes], epoch: int) -> None:
    deadline = time.monotonic() + 200
    while not any(int(path.stem) >= epoch for path in (home / "state" / "manifests").glob("*.json")):
        assert process.poll() is None, log_of(home)
        assert time.monotonic() < deadline, log_of(home)
        time.sleep(0.1)


def batches(home: Path) -> dict[str, list[list[int]]]:
    """The messages of each batch, from the offsets that Spark has logged: our own reading, not the engine's."""
    found: dict[str, list[list[int]]] = {topic: [] for topic in MESSAGES}
    before = {topic: dict.fromkeys(range(PARTITIONS), 0) for topic in MESSAGES}
    logs = sorted((home / "state" / "spark" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert [int(path.name) for path in logs] == list(range(len(logs))), "Spark has forgotten the first offsets"
    for path in logs:
        for ends in map(json.loads, path.read_text().splitlines()[-len(MESSAGES) :]):
            ((topic, partitions),) = ends.items()
            after = {int(partition): offset for partition, offset in partitions.items()}
            start = before[topic]
            found[topic].append([o * PARTITIONS + p for p in start for o in range(start[p], after[p])])
            before[topic] = after
    return found


def write_pipeline(file: Path, servers: str, url: str, needed: list[Path]) -> None:
    streams = [
        STREAM.format(topic=topic, servers=servers, intake=count // EPOCHS, schema=SCHEMA, lateness=LATENESS_S)
        for topic, count in MESSAGES.items()
    ]
    queries = {"near": NEAR.format(range=RANGE_MS), "volumes": VOLUMES, "spread": SPREAD}
    paths = json.dumps([str(jar) for jar in needed])
    file.write_text(PIPELINE.format(streams="".join(streams), servers=servers, url=url, jars=paths, **queries))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("kafka")
    needed = [*jars.need_kafka(), *jars.need(jars.POSTGRES)]
    sent = {topic: make_trades(count, seed=count, step_us=1_600_000_000 // count) for topic, count in MESSAGES.items()}
    with Postgres(home) as database, Broker(home / "broker") as broker:

        def send_part(first: float, last: float) -> None:
            for topic, count in MESSAGES.items():
                send(broker.servers, topic, sent[topic], int(count * first), int(count * last))

        make_topic(broker.servers, *MESSAGES, "answers")
        file = home / "pipeline.yml"
        write_pipeline(file, broker.servers, database.url, needed)
        send_part(0, 0.6)
        process = start(file, "after-sinks@1")
        assert process.wait(200) == -signal.SIGKILL, log_of(home)
        process = start(file, "before-manifest@3")
        wait_for_epoch(home, process, 1)
        broker.stop()
        time.sleep(OUTAGE_S)
        broker.start()
        send_part(0.6, 1)
        assert process.wait(200) == -signal.SIGKILL, log_of(home)
        process = start(file, "once")
        assert process.wait(200) == 0, log_of(home)
        outcome = json.loads((home / "ledger.json").read_text())
        yield Played(
            home, sent, batches(home), outcome["ledger"], outcome["queries"],
            database.query("SELECT * FROM shelf", user="ann"), read_topic(broker.servers, "answers"),
        )  # fmt: skip


def test_the_faults_have_happened_and_every_message_came(played: Played) -> None:
    assert played.killed_at[0] == 1
    assert played.killed_at[1] >= 3
    for topic, count in MESSAGES.items():
        assert sorted(i for batch in played.batches[topic] for i in batch) == list(range(count))
        assert len(played.batches[topic]) >= EPOCHS


def test_all_queries_run(played: Played) -> None:
    assert {name: state[0] for name, state in played.states.items()} == dict.fromkeys(played.states)


def test_answers_in_files_equal_duckdb(played: Played) -> None:
    assert_same(results(played.home / "out" / "volumes"), played.volumes)
    wanted = played.wanted(
        "kafka_partition, sum(price) / count(*) + 1, count(DISTINCT symbol)", "kafka_partition", 60, 60
    )
    assert_same(results(played.home / "out" / "spread"), wanted)


def test_a_join_equals_duckdb(played: Played) -> None:
    connection = duckdb.connect()
    for topic in MESSAGES:
        connection.register(f"{topic}_rows", played.admitted[topic].rows)
        connection.execute(f"CREATE TABLE {topic} AS SELECT *, epoch_us(ts) AS t FROM {topic}_rows")
    wanted = connection.execute(
        "SELECT t.symbol, t.qty, q.price FROM trades t JOIN quotes q "
        f"ON t.symbol = q.symbol AND t.price < q.price AND abs(t.t - q.t) <= {RANGE_MS * 1000}"
    ).fetchall()
    assert len(wanted) > 10_000
    assert Counter(results(played.home / "out" / "near")) == Counter(wanted)


@pytest.mark.parametrize("topic", MESSAGES)
def test_the_ledger_balances(played: Played, topic: str) -> None:
    used, late, shed, rejected = played.ledger[topic]
    admitted = played.admitted[topic]
    assert (used, late, shed) == (admitted.rows.num_rows, admitted.late, 0)
    assert late > 0
    assert used + late + rejected == MESSAGES[topic]


@pytest.mark.parametrize("topic", MESSAGES)
def test_garbage_is_rejected_with_its_place(played: Played, topic: str) -> None:
    files = (played.home / "state" / "rejected").glob("epoch-*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = [row for row in rows if row["topic"] == topic]
    sent = played.sent[topic]
    garbage = [i for i in range(MESSAGES[topic]) if not sent.good[i]]
    assert sorted((row["partition"], row["offset"]) for row in found) == sorted(map(sent.place, garbage))
    assert {row["stream"] for row in found} == {topic}
    for row in found:
        value = sent.values[row["offset"] * PARTITIONS + row["partition"]]
        reason = "no event time" if value == UNTIMED else "unparseable"
        assert row["reason"] == reason, row
        if reason == "unparseable":
            assert row["row"] == (value or b"").decode(errors="replace")


def test_a_delta_table_has_each_answer_once(played: Played) -> None:
    """As Delta's own readers see it."""
    table = DeltaTable(str(played.home / "out" / "lake"))
    found = [tuple(row.values()) for row in pa.table(table.to_pyarrow_table()).to_pylist()]
    assert_same(found, played.volumes)


def test_postgresql_has_each_answer_once(played: Played) -> None:
    texts = Counter((end, symbol, int(qty), int(n), float(high)) for _, end, symbol, qty, n, high in played.shelf)
    wanted = Counter((f"{row[1]:%Y-%m-%d %H:%M:%S}+00", *row[2:]) for row in played.volumes)
    assert texts == wanted


def test_messages_carry_each_answer_with_its_key_and_epoch(played: Played) -> None:
    """At least once: what came twice has the same headers, and only epochs that were given again came twice."""
    found: Counter[tuple[Any, ...]] = Counter()
    for message in played.answers:
        value = json.loads(message.value())
        assert message.key().decode() == value["symbol"]
        headers = dict(message.headers())
        assert headers["headrace-query"] == b"echo"
        epoch = int(headers["headrace-epoch"])
        found[value["window_end"], value["symbol"], value["qty"], value["n"], value["high"], epoch] += 1
    repeated = {row[-1] for row, times in found.items() if times > 1}
    assert repeated <= set(played.killed_at)
    wanted = {(f"{row[1]:%Y-%m-%dT%H:%M:%S.%f}Z", *row[2:]) for row in played.volumes}
    assert {row[:-1] for row in found} == wanted
    assert len(found) == len(wanted)


def test_no_secret_is_left_anywhere(played: Played) -> None:
    kept = [path for path in (played.home / "state").rglob("*") if path.is_file()]
    assert [str(path) for path in (*kept, played.home / "log.txt") if PASSWORD.encode() in path.read_bytes()] == []
