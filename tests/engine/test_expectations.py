"""What is expected is judged by what sinks were given and ledgers say, and judged alike when an epoch is run again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from world import SCHEMA, START, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.errors import EngineError
from headrace.model import EpochDecision

KEYED = "SELECT k, COUNT(*) AS n, SUM(i) AS total FROM r GROUP BY window(ts, '20 s'), k"
PAIRS = "SELECT a.i, b.i AS j FROM r AS a [RANGE 5 s] JOIN r AS b [RANGE 5 s] ON a.k = b.k AND a.i < b.i"
LAST = "SELECT k, i, MAX(i) AS m FROM r [PARTITION BY k ROWS 3]"
# By query its SQL, what is expected of each result, and the same over the rows of a sink.
TESTED = {
    "keyed": (KEYED, "total >= 0", lambda row: row["total"] is not None and row["total"] >= 0),
    "computed": (KEYED.replace("COUNT(*)", "COUNT(*) + 1"), "n < 30", lambda row: row["n"] < 30),
    "distinct": (KEYED.replace("SELECT k", "SELECT DISTINCT g", 1).replace("), k", "), g"), "g IN (0, 1)",
                 lambda row: row["g"] in (0, 1)),
    "plain": ("SELECT k, i FROM r", "i > 0", lambda row: row["i"] is not None and row["i"] > 0),
    "pairs": (PAIRS, "j - i < 1500", lambda row: row["j"] - row["i"] < 1500),
    "last": (LAST, "i = m", lambda row: row["i"] is not None and row["i"] == row["m"]),
}  # fmt: skip


def by_epoch(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The results that a folder has of each epoch."""
    found: dict[int, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("epoch-*.parquet")):
        found.setdefault(int(file.name.split("-")[1]), []).extend(pq.read_table(file).to_pylist())
    return found


def stream_of(spark: Any, home: Path, lateness: str = "20 seconds", **expect: Any) -> hr.Pipeline:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    return hr.Pipeline("expecting").stream("r", rows, time="ts", lateness=lateness, ahead="10 s", **expect)


def clock(epoch: int) -> int:
    return START + epoch * 20_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("expecting")
    write_epochs(home / "in", make_epochs(seed=7, epochs=5))
    return home


def test_every_kind_of_query_is_judged_by_what_its_sink_was_given(spark: Any, home: Path) -> None:
    pipe = stream_of(spark, home, expect=["late < 5 %", "rejected = 0", "used > 0"])
    for name, (sql, text, _) in TESTED.items():
        pipe.query(f"{name}_free", sql, sink=hr.parquet(str(home / f"{name}_free")))
        pipe.query(name, sql, sink=hr.parquet(str(home / name)), expect=[text, "rows > 20"])
        pipe.query(f"{name}_few", sql, sink=hr.parquet(str(home / f"{name}_few")), expect=["rows > 20"])
    called: list[int] = []
    pipe.query("memory", KEYED, expect=["total >= 0"])
    pipe.query("called", KEYED, sink=hr.call(lambda rows, _: called.append(rows.count() + rows.count())),
               expect=["total >= 0"])  # fmt: skip
    entries: list[Any] = []
    notes: list[str] = []
    hooks = Hooks(clock_us=clock, on_note=notes.append, on_epoch=entries.append)
    run = pipe.start(spark, str(home / "state"), once=True, flush=True, hooks=hooks)
    run.await_termination()
    assert run.failed == {}
    found = {(each["owner"], each["text"]): each for each in run.status["expected"]}
    for name, (_, text, passes) in TESTED.items():
        assert sorted(map(repr, results(home / name))) == sorted(map(repr, results(home / f"{name}_free")))
        epochs = by_epoch(home / name)
        broken = [epoch for epoch, rows in epochs.items() if not all(passes(row) for row in rows)]
        assert broken, f"{name}: nothing is otherwise"
        assert found[f"query {name}", text]["unmet"] == len(broken)
        last = epochs[broken[-1]]
        count = sum(not passes(row) for row in last)
        assert found[f"query {name}", text]["found"] == f"{count:,} of {len(last):,} results are otherwise"
        assert found[f"query {name}", "rows > 20"]["unmet"] >= sum(len(rows) <= 20 for rows in epochs.values())
        assert found[f"query {name}", "rows > 20"]["judged"] == found[f"query {name}_few", "rows > 20"]["judged"]
        assert found[f"query {name}", "rows > 20"]["unmet"] == found[f"query {name}_few", "rows > 20"]["unmet"]
    same = ("judged", "unmet", "since", "found")
    for name in ("memory", "called"):
        mine = found[f"query {name}", "total >= 0"]
        assert [mine[key] for key in same] == [found["query keyed", "total >= 0"][key] for key in same]
    before = [None, *(each.ledger["r"] for each in entries)]
    brought = [(b.late - (a.late if a else 0), b.rows_in - (a.rows_in if a else 0))
               for a, b in pairwise(before)]  # fmt: skip
    late = [late for late, rows in brought if rows and late / rows >= 0.05]
    assert late
    assert found["stream r", "late < 5 %"]["unmet"] == len(late)
    assert found["stream r", "late < 5 %"]["judged"] == len([rows for _, rows in brought if rows])
    assert any(note.startswith("stream r is not as expected (late < 5 %): in epoch ") for note in notes)


def test_failing_stopping_and_an_epoch_that_is_run_again(spark: Any, home: Path, tmp_path: Path) -> None:
    """A crash after the sinks, and an edit: the epoch is judged as it was when it was decided."""
    decided: list[EpochDecision] = []

    def strike(point: str) -> None:
        if point == "before-manifest" and decided[-1].epoch == 1:
            raise OSError("struck")

    def pipe(**expect: Any) -> hr.Pipeline:
        made = stream_of(spark, home, lateness="0 seconds")
        made.query("fails", "SELECT i FROM r", sink=hr.parquet(str(tmp_path / "fails")), **expect)
        return made.query("other", KEYED, sink=hr.parquet(str(tmp_path / "other")))

    hooks = Hooks(clock_us=clock, probe=strike, on_decision=decided.append)
    first = [hr.expect("rows < 1000000"), hr.expect("i > -2000 OR i IS NULL", "fail")]
    with pytest.raises(EngineError, match="struck"):
        pipe(expect=first).start(spark, str(tmp_path / "state"), once=True, hooks=hooks).await_termination()
    assert 1 in by_epoch(tmp_path / "fails")
    # Of the pipeline as it is edited now, every epoch stops the run; the epoch that was begun is judged by what was.
    with pytest.raises(EngineError, match=r"query fails is not as expected \(i > 5000\): in epoch 2") as stopped:
        pipe(expect=[hr.expect("i > 5000", "stop")]).start(
            spark, str(tmp_path / "state"), once=True, hooks=Hooks(clock_us=clock)
        ).await_termination()
    assert "results are otherwise" in str(stopped.value)
    last = pipe(expect=[hr.expect("i > 5000", "fail")]).start(
        spark, str(tmp_path / "state"), once=True, hooks=Hooks(clock_us=clock)
    )
    last.await_termination()
    rows = len(by_epoch(tmp_path / "fails")[3])
    assert last.failed == {"fails": f"expected i > 5000: in epoch 3 {rows:,} of {rows:,} results are otherwise"}
    assert sorted(by_epoch(tmp_path / "fails")) == [0, 1, 2, 3], "the epoch that ended the run was whole"
    assert last.status["queries"]["other"]["state"] == "running"
    assert last.progress.epoch == 4


def test_a_stream_fails_the_queries_that_read_it_before_they_answer(spark: Any, home: Path, tmp_path: Path) -> None:
    pipe = stream_of(spark, home, lateness="0 seconds", expect=[hr.expect("late < 1 %", "fail")])
    pipe.query("reads", "SELECT i FROM r", sink=hr.parquet(str(tmp_path / "reads")))
    run = pipe.start(spark, str(tmp_path / "state"), once=True, hooks=Hooks(clock_us=clock))
    run.await_termination()
    assert run.failed["reads"].startswith("stream 'r' is not as expected late < 1 %: in epoch ")
    epoch = int(run.failed["reads"].split("in epoch ")[1].split(" ")[0])
    assert sorted(by_epoch(tmp_path / "reads")) == list(range(epoch))


def test_a_stream_fails_every_query_that_reads_it_however_deep(spark: Any, home: Path, tmp_path: Path) -> None:
    answers = "(SELECT window, k, COUNT(*) AS n FROM r GROUP BY window(ts, '20 s'), k) AS m"
    ranked = "ROW_NUMBER() OVER (PARTITION BY window(ts, '20 s') ORDER BY COUNT(*) DESC, k) AS place"
    deep = {
        "plain": "SELECT k, i FROM r",
        "nested": f"SELECT MAX(n) AS n FROM {answers} GROUP BY window(m.window, '40 s')",
        "top": f"SELECT * FROM (SELECT k, {ranked} FROM r GROUP BY window(ts, '20 s'), k) AS t WHERE place <= 3",
        "levels": "SELECT k, g, COUNT(*) AS n FROM r GROUP BY window(ts, '20 s'), ROLLUP(k, g)",
        "over_pairs": f"SELECT COUNT(*) AS n FROM ({PAIRS.replace('b.i AS j', 'b.i AS j, a.ts')}) AS p [WINDOW 40 s]",
        "named": "SELECT COUNT(*) AS n FROM nested [WINDOW 80 s]",
    }
    pipe = stream_of(spark, home, expect=[hr.expect("used = 0", "fail")])
    for name, sql in deep.items():
        pipe.query(name, sql, sink=hr.parquet(str(tmp_path / name)))
    run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True, hooks=Hooks(clock_us=clock))
    run.await_termination()
    assert run.failed.keys() == deep.keys()
    assert not [file for name in deep for file in (tmp_path / name).glob("epoch-*")]
