"""The intake of Kafka's streams: the engine sets it, and it follows the time of an epoch."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from trades import make_topic

import headrace as hr
from headrace.engine import Hooks, Manifest, intake
from headrace.engine import run as running
from headrace.engine.sources import has_intake
from headrace.language import parse_schema
from headrace.model import EpochDecision, Intake, Source, Stream

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
    monkeypatch.setattr(running, "FIRST_INTAKE", Intake(600, "for a test"))
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
    ("source", "is_ours"),
    [
        pytest.param(Source("kafka"), True, id="Kafka's"),
        pytest.param(Source("kafka", None, (("MaxOffsetsPerTrigger", "5"),)), False, id="not where the user has"),
        pytest.param(Source("parquet", "x"), False, id="not of files"),
        pytest.param(None, False, id="not of a DataFrame"),
    ],
)
def test_whose_intake_the_engine_sets(source: Source | None, is_ours: bool) -> None:
    assert has_intake(Stream("s", parse_schema("ts TIMESTAMP"), "ts", source=source)) is is_ours


def test_decisions_survive_their_file() -> None:
    decision = EpochDecision(1, 1, 2, 3, ("q",), intake=Intake(5, "why"))
    assert EpochDecision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


def manifest(**rows: int) -> Manifest:
    return Manifest(1, 1, observed={"rows": rows, "seconds": 0.1})


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
