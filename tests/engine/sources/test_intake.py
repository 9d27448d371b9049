"""The intake of Kafka's streams: the engine sets it, and it follows the time of an epoch."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from trades import make_topic

import headrace as hr
from headrace.engine import Hooks, Manifest
from headrace.engine.sources import intake
from headrace.engine.sources.file_log import FileLog, Files
from headrace.engine.state.storage import LocalStorage
from headrace.language import intake_unit, parse_schema
from headrace.model import FIRST_BYTES, Entry, EpochDecision, Intake, Observed, Source, Stream
from headrace.policies.intake import LEAST_BYTES

MESSAGES = 12_000
PIPELINE = """
streams:
  lines:
    source: {{format: kafka, options: {{kafka.bootstrap.servers: "{servers}", subscribe: many{option}}}, value: raw}}
    time: kafka_timestamp
    lateness: 1 hour
queries:
  total: {{sql: "SELECT kafka_headers['side'] AS side, kafka_key AS k, COUNT(*) AS n, MIN(value) AS first FROM lines
                [WINDOW 1000 days] GROUP BY kafka_headers['side'], kafka_key", sink: memory}}
engine: {{trigger: 0 seconds}}
"""


@pytest.fixture(scope="module")
def many(kafka: Any) -> str:
    from confluent_kafka import Producer

    make_topic(kafka.servers, "many")
    producer = Producer({"bootstrap.servers": kafka.servers})
    for i in range(MESSAGES):
        producer.produce("many", f"line {i:05d}", f"k{i % 4}", i % 3, headers={"side": f"{i % 2}"})
    assert producer.flush(60) == 0
    return str(kafka.servers)


def start(
    spark: Any, folder: Path, servers: str, option: str = "", **settings: Any
) -> tuple[Any, list[Any], list[str]]:
    file = folder / "pipeline.yml"
    file.write_text(PIPELINE.format(servers=servers, option=option))
    decisions: list[EpochDecision] = []
    notes: list[str] = []
    hooks = Hooks(on_decision=decisions.append, on_note=notes.append)
    return hr.Pipeline.from_file(file).start(spark, hooks=hooks, **settings), decisions, notes


def test_small_epochs_grow_to_fill_their_time(
    spark: Any, many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_INTAKE", Intake(600, "for a test"))
    monkeypatch.setattr(intake, "UNPACED_S", 30.0)
    run, decisions, notes = start(spark, tmp_path, many)
    try:
        run.process_all_available()
        assert run.progress.ledger["lines"].used == MESSAGES
        assert run.waiting_rows() == {"lines": 0}
        run.flush()
    finally:
        run.stop()
    rows = [decision.intake.rows for decision in decisions if decision.intake is not None]
    assert rows[:3] == [600] * 3
    assert rows[-1] >= 2 * 600
    assert len(rows) < MESSAGES // 600, "the last epochs took more"
    assert any(note.startswith("epochs take up to") and "rows/s" in note for note in notes)
    table = run.table("total").select(["side", "k", "n", "first"]).to_pylist()
    assert sorted(tuple(row.values()) for row in table) == [
        (f"{i % 2}", f"k{i}", MESSAGES // 4, f"line {i:05d}") for i in sorted(range(4), key=lambda i: (i % 2, i))
    ]
    # What was learned is where the next run begins.
    again, decisions, _ = start(spark, tmp_path, many, once=True)
    again.await_termination()
    assert again._parts.epochs.intake.rows == rows[-1]


def test_what_the_user_has_set_stays(spark: Any, many: str, tmp_path: Path) -> None:
    run, decisions, _ = start(spark, tmp_path, many, ", maxOffsetsPerTrigger: 3000", once=True)
    run.await_termination()
    assert len(decisions) == MESSAGES // 3000
    assert {decision.intake for decision in decisions} == {None}
    file = tmp_path / "pipeline.yml"
    file.write_text(file.read_text().replace("subscribe: many", "subscribe: others"))
    with pytest.raises(hr.StateError, match=r"the streams lines \(kafka many\), not lines \(kafka others\)"):
        hr.Pipeline.from_file(file).start(spark, once=True)


def test_a_broker_that_is_not_there_ends_the_run_with_a_reason(spark: Any, kafka: Any, tmp_path: Path) -> None:
    impatient = ", kafka.default.api.timeout.ms: 1500, kafka.request.timeout.ms: 1000, fetchOffset.numRetries: 1"
    run, decisions, _ = start(spark, tmp_path, "127.0.0.1:9", impatient, once=True)
    with pytest.raises(hr.EngineError, match=r"the run stopped: .*Timed out") as caught:
        run.await_termination()
    assert "\n" not in str(caught.value)
    assert decisions == []


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        pytest.param(Source("kafka"), "rows", id="Kafka's"),
        pytest.param(Source("kafka", None, (("MaxOffsetsPerTrigger", "5"),)), None, id="not where the user has"),
        pytest.param(Source("parquet", "x"), "bytes", id="of files"),
        pytest.param(Source("json", "x", (("maxFilesPertrigger", "5"),)), None, id="not where the user counts files"),
        pytest.param(Source("json", "x", (("maxbytesPerTrigger", "5"),)), None, id="not where the user counts bytes"),
        pytest.param(Source("csv", "x", (("latestFirst", "TRUE"),)), None, id="not where older files come last"),
        pytest.param(Source("csv", "x", (("latestFirst", "false"),)), "bytes", id="where they come first"),
        pytest.param(Source("synthetic"), None, id="not of what is made up"),
        pytest.param(None, None, id="not of a DataFrame"),
    ],
)
def test_whose_intake_the_engine_sets(source: Source | None, unit: str | None) -> None:
    stream = Stream("s", parse_schema("ts TIMESTAMP"), "ts", source=source)
    assert intake_unit(stream) == unit
    assert bool(intake.streams_with_intake([stream], [], once=False)) == (unit is not None)
    assert bool(intake.streams_with_intake([stream], [], once=True)) == (unit == "rows")
    assert intake.streams_with_intake([stream], ["s"], once=False) == ()


def test_decisions_of_before_files_had_an_intake_are_read() -> None:
    value = EpochDecision(1, 1, 2, 3, ("q",), intake=Intake(5, "why")).to_json()
    del value["intake"]["bytes"]
    assert EpochDecision.from_json(value).intake == Intake(5, "why", FIRST_BYTES)


LOG = """v1
{{"path":"file://{home}/in/a%20b","timestamp":1,"batchId":{batch}}}
{{"path":"file://{home}/in/c","timestamp":1,"batchId":{batch}}}
"""


def test_what_an_epoch_took_is_in_the_log_of_spark(tmp_path: Path) -> None:
    """
    stream   batch 0     batch 1    batch 2
    a        -           Kafka's    Kafka's
    b        entry 0     no files   entry 1, which is compacted
    """
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b").write_bytes(b"x" * 30)
    (tmp_path / "in" / "c").write_bytes(b"x" * 12)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    for batch, (a, b) in enumerate([("-", 0), ('{"many":{}}', 0), ('{"many":{}}', 1)]):
        (tmp_path / "spark" / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{a}\n{{"logOffset":{b}}}')
    (tmp_path / "spark" / "sources" / "1").mkdir(parents=True)
    (tmp_path / "spark" / "sources" / "1" / "0").write_text(LOG.format(home=tmp_path, batch=0).rstrip())
    log = FileLog(LocalStorage(str(tmp_path)), ["a", "b"], None)  # type: ignore[arg-type]
    assert log.files(0, "b") == Files(2, 42, 30)
    assert log.files(1, "b") == Files(0, 0, 0)
    assert log.files(2, "b") is None, "compacted"
    assert log.files(7, "b") is None, "no such batch"
    assert log.files(1, "a") is None, "no files"
    (tmp_path / "in" / "c").unlink()
    assert log.files(0, "b") == Files(2, 60, 30), "like those that are still there"
    (tmp_path / "spark" / "offsets" / "0").write_text("nonsense")
    assert log.files(0, "b") is None


class Took:
    """A log that says what a test wants it to."""

    def __init__(self, files: Files | None) -> None:
        self.taken = files

    def files(self, batch: int, stream: str) -> Files | None:
        return self.taken


FILES = Stream("a", parse_schema("ts TIMESTAMP"), "ts", source=Source("parquet", "x"))


@pytest.mark.parametrize(
    ("files", "late", "words"),
    [
        pytest.param(Files(4, 60_000_000, 20_000_000), 0, None, id="nothing to say"),
        pytest.param(Files(1, 3_000_000_000, 3_000_000_000), 0,
                     "has a file of 3 GB, and epochs are to take 64 MB: a file is taken whole", id="a huge file"),
        pytest.param(Files(4, 60_000_000, 20_000_000), 7, "7 rows of stream 'a' came late while files", id="disorder"),
        pytest.param(Files(1, 60_000, 60_000), 7, None, id="late rows of a stream that does not wait"),
    ],
)  # fmt: skip
def test_what_does_not_fit_epochs_of_files_is_said_once(files: Files, late: int, words: str | None) -> None:
    notes: list[str] = []
    control = intake.IntakeControl([FILES], Intake(1, ""), 1.0, Took(files), notes.append)
    control.apply = lambda planned: False
    for epoch in range(3):
        ledger = {"a": Entry(late=late * epoch)}
        control.committed(Manifest(1, 1, observed=Observed(rows={"a": 9}, seconds=0.7), ledger=ledger))
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_epochs_of_which_nobody_knows_what_they_took_count_for_nothing() -> None:
    control = intake.IntakeControl([FILES], Intake(1, ""), 1.0, Took(None))
    planned: list[Intake] = []
    control.apply = lambda intake: bool(planned.append(intake))
    for _ in range(5):
        control.committed(Manifest(1, 1, observed=Observed(rows={"a": 9}, seconds=99.0), ledger={"a": Entry()}))
    assert planned == []


BACKLOG = """
streams:
  lines:
    source: {format: json, path: in}
    schema: ts TIMESTAMP, k STRING, v INT
    time: ts
    lateness: 1 minute
queries:
  total: {sql: "SELECT k, COUNT(*) AS n, SUM(v) AS v FROM lines [WINDOW 1 day] GROUP BY k", sink: memory}
engine: {trigger: 0 seconds, bins: 1}
"""


def test_a_backlog_of_files_is_taken_in_epochs_bounded_in_bytes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 files of about 2 kB, one of 20 kB among them; an epoch may take 5 kB, then as much as its time allows."""
    (tmp_path / "in").mkdir()
    counts: dict[str, list[int]] = {}
    for i in range(24):
        lines = []
        for j in range(400 if i == 5 else 40):
            lines.append(json.dumps({"ts": f"2024-01-01T{i:02d}:{j // 7:02d}:00Z", "k": f"k{j % 3}", "v": j}))
            counts.setdefault(f"k{j % 3}", []).append(j)
        (tmp_path / "in" / f"{i:02d}.json").write_text("\n".join(lines))
        os.utime(tmp_path / "in" / f"{i:02d}.json", (1_700_000_000 + i, 1_700_000_000 + i))
    (tmp_path / "pipeline.yml").write_text(BACKLOG)
    monkeypatch.setattr(intake, "FIRST_INTAKE", Intake(1, "for a test", 5_000))
    decisions: list[EpochDecision] = []
    notes: list[str] = []
    hooks = Hooks(on_decision=decisions.append, on_note=notes.append)
    run = hr.Pipeline.from_file(tmp_path / "pipeline.yml").start(spark, hooks=hooks)
    try:
        run.process_all_available()
        assert run.progress.ledger["lines"] == Entry(used=23 * 40 + 400)
        run.flush()
    finally:
        run.stop()
    taken = [decision.intake.bytes for decision in decisions if decision.intake is not None and not decision.flush]
    assert taken[:3] == [5_000] * 3
    assert taken[-1] >= LEAST_BYTES, "the last epochs may take more"
    assert 4 <= len(taken) < 12
    log = (tmp_path / "state/spark/sources/0/0").read_text().splitlines()[1:]
    first = [json.loads(line)["path"].rpartition("/")[2] for line in log]
    assert first == ["00.json", "01.json"], "the oldest, and no more than 5 kB"
    assert any(note.startswith("epochs take up to 1 MB of files from now on: epochs of 5 kB went at") for note in notes)
    table = run.table("total").select(["k", "n", "v"]).to_pylist()
    assert sorted(tuple(row.values()) for row in table) == [(k, len(v), sum(v)) for k, v in sorted(counts.items())]


def test_decisions_survive_their_file() -> None:
    decision = EpochDecision(1, 1, 2, 3, ("q",), intake=Intake(5, "why"))
    assert EpochDecision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


def manifest(**rows: int) -> Manifest:
    return Manifest(1, 1, observed=Observed(rows=rows, seconds=0.1))


@pytest.mark.parametrize("possible", [True, False])
def test_the_intake_is_set_once_a_stream_has_taken_its_share_three_times(possible: bool) -> None:
    """Two streams share 2000 rows; one of them is silent."""
    streams = [Stream(name, parse_schema("ts TIMESTAMP"), "ts", source=Source("kafka")) for name in ("a", "b")]
    control = intake.IntakeControl(streams, Intake(2000, "first"), 1.0)
    asked: list[Intake] = []
    done = threading.Event()

    def apply(planned: Intake) -> bool:
        asked.append(planned)
        done.set()
        return possible

    control.committed(manifest(a=1000))
    control.apply = apply
    for rows in (300, 1000, 990, 1000):
        assert not done.is_set()
        control.committed(manifest(a=rows, b=0))
    assert done.wait(10)
    with control._applying:
        assert [planned.rows for planned in asked] == [8000], "10,000 rows/s for eight tenths of a second"
        assert control.intake.rows == (8000 if possible else 2000)
