"""Rows that are late, ahead, without time or unparseable; several streams; streams that fall silent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from world import ARROW, SCHEMA, SECOND, START, admit, assert_same, expected, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.model import EpochDecision
from headrace.policies import Reading


def lines(home: Path, number: int, rows: list[str]) -> None:
    home.mkdir(exist_ok=True)
    path = home / f"{number:05d}.json"
    path.write_text("\n".join(rows) + "\n")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def row(second: int | None, v: object = 1) -> str:
    ts = None if second is None else f"2024-03-10T01:{30 + second // 60:02d}:{second % 60:02d}Z"
    return json.dumps({"ts": ts, "v": v})


def test_every_row_is_used_late_or_rejected_with_a_reason(spark: Any, tmp_path: Path) -> None:
    """
    epoch 0   10 20 30            wall clock 01:30:00, ahead 60 s
    epoch 1   15(late) 40 null {bad 300(ahead)
    """
    spec = tmp_path / "p.yml"
    spec.write_text(
        f"""
name: t
streams:
  r:
    source: {{format: json, path: {tmp_path / "in"}, options: {{maxFilesPerTrigger: 1}}}}
    schema: ts TIMESTAMP, v INT
    time: ts
    lateness: 5 seconds
    ahead: 60 seconds
queries:
  q: {{sql: "SELECT COUNT(*) AS n, SUM(v) AS v FROM r [WINDOW 20 s]"}}
output: {tmp_path / "out"}
engine: {{checkpoint: {tmp_path / "state"}}}
"""
    )
    lines(tmp_path / "in", 0, [row(10), row(20), row(30)])
    lines(tmp_path / "in", 1, [row(15), row(40), row(None), "{bad", row(300), row(41, "text")])
    run = hr.Pipeline.from_file(spec).start(spark, once=True, flush=True, hooks=Hooks(clock_us=lambda epoch: START))
    run.await_termination()
    entry = run.progress.ledger["r"]
    assert (entry.rows_in, entry.used, entry.late, entry.rejected) == (9, 4, 1, 4)
    kept = [
        json.loads(line)
        for file in (tmp_path / "state" / "rejected").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted((k["stream"], k["reason"]) for k in kept) == [
        ("r", "no event time"),
        ("r", "too far ahead"),
        ("r", "unparseable"),
        ("r", "unparseable"),
    ]
    assert "{bad" in {k["row"] for k in kept}
    found = sorted((r[1].isoformat()[14:19], r[2], r[3]) for r in results(tmp_path / "out" / "q"))
    assert found == [("30:20", 1, 1), ("30:40", 2, 2), ("31:00", 1, 1)]


def test_a_union_of_two_streams_follows_the_slower_one(spark: Any, tmp_path: Path) -> None:
    ours, theirs = make_epochs(seed=21, epochs=6), make_epochs(seed=22, epochs=6)
    pipe = hr.Pipeline("union")
    for name, tables in (("a", ours), ("b", theirs)):
        write_epochs(tmp_path / name, tables)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
        pipe.stream(name, rows, time="ts", lateness="20 seconds")
    both = "(SELECT k, i FROM a UNION ALL SELECT upper(s), g FROM b WHERE b) u"
    pipe.query(
        "q", f"SELECT k, SUM(i) AS v, COUNT(*) AS n FROM {both} [WINDOW 60 s SLIDE 20 s] GROUP BY k",
        sink=hr.parquet(str(tmp_path / "q")),
    )  # fmt: skip
    pipe.query(
        "only_b", "SELECT COUNT(*) AS n FROM b [WINDOW 60 s SLIDE 20 s]", sink=hr.parquet(str(tmp_path / "only_b"))
    )
    run = pipe.start(spark, str(tmp_path / "state"), bins=2, once=True, flush=True)
    run.await_termination()
    connection = duckdb.connect()
    connection.register("a", admit(ours, 20).rows)
    b = admit(theirs, 20).rows
    connection.register("b", b)
    connection.execute("SET TimeZone = 'UTC'")
    rows = connection.sql("SELECT ts, k, i FROM a UNION ALL SELECT ts, upper(s), g FROM b WHERE b")
    wanted = expected(rows.to_arrow_table(), "k, sum(i)::bigint, count(*)", "k", 60, 20, False)
    assert_same(results(tmp_path / "q"), wanted)
    assert_same(results(tmp_path / "only_b"), expected(b, "count(here)", "", 60, 20, False))


def test_a_silent_stream_stops_holding_the_others_back(spark: Any, tmp_path: Path) -> None:
    """
    a   0..19  20..39  40..59  60..79        one file per epoch, 30 s of wall time each
    b   0..19  (silent)                      idle after 40 s: from epoch 2 on a query over both follows a
    """

    def table(epoch: int) -> pa.Table:
        ts = [START + (epoch * 20 + s) * SECOND for s in range(20)]
        return pa.Table.from_pydict(
            {**{f.name: pa.nulls(20, f.type) for f in ARROW}, "ts": pa.array(ts, ARROW.field("ts").type)}, schema=ARROW
        )

    pipe = hr.Pipeline("idle")
    for name, epochs in (("a", 4), ("b", 1)):
        write_epochs(tmp_path / name, [table(e) for e in range(epochs)])
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
        pipe.stream(name, rows, time="ts", idle="40 seconds", ahead="1 day")
    both = "(SELECT i FROM a UNION ALL SELECT i FROM b) u"
    pipe.query("q", f"SELECT COUNT(*) AS n FROM {both} [WINDOW 20 s]", sink=hr.parquet(str(tmp_path / "q")))
    wall = Hooks(clock_us=lambda epoch: START + epoch * 30 * SECOND)
    run = pipe.start(spark, str(tmp_path / "state"), once=True, hooks=wall)
    run.await_termination()
    assert [r[2] for r in sorted(results(tmp_path / "q"))] == [40, 20, 20]
    decisions = [
        json.loads(p.read_text().partition("\n")[2]) for p in (tmp_path / "state" / "decisions").glob("*.json")
    ]
    idle = [(d["epoch"], i["stream"], i["reason"]) for d in decisions for i in d["idle"]]
    assert min(idle) == (2, "b", "silent for 1 min")


# Before each epoch: seconds that pass, seconds the wall clock is set by, seconds of it that the engine listened.
CLOCKS = [
    (0, 0, 0),
    (20, -3600, 20),  # set back by an hour
    (5 * 3600, 0, 1),  # suspended for five hours
    (20, 7200, 20),  # set forward by two hours
    (20, -3600, 20),  # set right
    (20, -3600, 20),  # the engine restarts, on a clock that is an hour behind its log
    (20, 3600, 20),
]


def test_clocks_that_jump_reject_nothing_and_silence_nobody(spark: Any, tmp_path: Path) -> None:
    """
    a   a row in every epoch, dated when it came          ahead 60 s: a clock that is an hour behind would reject it
    b   a row in epochs 0 and 4                           idle 110 s: five hours of suspension are no silence
    """
    readings, dated, passed, error, listened = list[Reading](), list[int](), 0, 0, 0
    for after_s, leap_s, listened_s in CLOCKS:
        passed, error, listened = passed + after_s * SECOND, error + leap_s * SECOND, listened + listened_s * SECOND
        readings.append(Reading(START + passed + error, passed, listened))
        dated.append(START + passed)
    pipe, notes, decisions = hr.Pipeline("clocks"), list[str](), list[EpochDecision]()
    for name, mine in (("a", range(len(dated))), ("b", (0, 4))):
        tables = [
            pa.Table.from_pydict(
                {
                    **{f.name: pa.nulls(1 if n in mine else 0, f.type) for f in ARROW},
                    "ts": pa.array([ts] if n in mine else [], ARROW.field("ts").type),
                },
                schema=ARROW,
            )
            for n, ts in enumerate(dated)
        ]
        write_epochs(tmp_path / name, tables)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
        pipe.stream(name, rows, time="ts", ahead="60 seconds", lateness="6 hours", idle="110 seconds")
    both = "(SELECT i FROM a UNION ALL SELECT i FROM b) u"
    pipe.query("q", f"SELECT COUNT(*) AS n FROM {both} [WINDOW 20 s]", sink=hr.parquet(str(tmp_path / "q")))

    restarts = [5]

    def probe(point: str) -> None:
        if point == "before-decision" and restarts == [len(decisions)]:
            restarts.clear()
            raise RuntimeError("the engine is restarted here")

    hooks = Hooks(
        clocks=lambda: readings[len(decisions)], probe=probe, on_decision=decisions.append, on_note=notes.append
    )
    with pytest.raises(hr.EngineError, match="restarted here"):
        pipe.start(spark, str(tmp_path / "state"), once=True, hooks=hooks).await_termination()
    run = pipe.start(spark, str(tmp_path / "state"), once=True, hooks=hooks)
    run.await_termination()
    assert [d.epoch for d in decisions] == list(range(len(CLOCKS)))
    assert {name: (e.used, e.late, e.rejected) for name, e in run.progress.ledger.items()} == {
        "a": (len(CLOCKS), 0, 0),
        "b": (2, 0, 0),
    }
    assert [d.idle for d in decisions] == [()] * len(CLOCKS), "nobody was silent for 110 s of the time anybody listened"
    walls = [d.wall_us for d in decisions]
    assert walls == sorted(walls)
    leaps = [note.partition(";")[0] for note in notes if note.startswith("the wall clock")]
    assert leaps == [
        "the wall clock was set back by 1 h",
        "the wall clock was set forward by 2 h",
        "the wall clock was set back by 1 h",
        "the wall clock was set forward by 1 h",
    ]
