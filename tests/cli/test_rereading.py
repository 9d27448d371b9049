"""A pipeline file that is edited while it runs: what is taken over, what is refused, what waits for a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from daemons import without_daemons
from world import admit, assert_same, expected, make_epochs, results, write_epochs

from headrace.cli.app import _run
from headrace.cli.rereading import FileLook, Rereading, Settled, compare
from headrace.engine import describe_checkpoint
from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.model import Query

PIPELINE = """\
name: edited
streams:
  r:
    source: {format: parquet, path: in, options: {maxFilesPerTrigger: 1}}
    schema: ts TIMESTAMP, k STRING, g INT, i INT, x DOUBLE
    time: ts
    lateness: 20 seconds
queries:
  keyed: {sql: "SELECT k, SUM(i) AS v FROM r GROUP BY window(ts, '60 s', '20 s'), k"}
include: queries/*.sql
output: out
engine: {checkpoint: state, trigger: 200 ms, schedule: none}
"""
TOTAL = "SELECT COUNT(*) AS n FROM r GROUP BY window(ts, '60 s', '20 s')"
ADDED = """  added: {sql: "SELECT g, MAX(x) AS v FROM r GROUP BY window(ts, '40 s', '20 s'), g"}\n"""


@dataclass
class FakeRun:
    """Takes changes over, or refuses them."""

    refuses: str | None = None
    is_active: bool = True
    changes: list[tuple[list[str], list[str]]] = field(default_factory=list)

    def change(self, add: tuple[Query, ...], drop: tuple[str, ...]) -> None:
        if self.refuses is not None:
            raise SpecError(self.refuses)
        self.changes.append(([query.name for query in add], list(drop)))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "total.sql").write_text(TOTAL)
    (tmp_path / "in").mkdir()
    path = tmp_path / "p.yml"
    path.write_text(PIPELINE)
    return path


@pytest.mark.parametrize(
    ("old", "new", "change", "lines"),
    [
        pytest.param("include", ADDED + "include", (["added"], []), [], id="a query is added"),
        pytest.param("  keyed", "  other", (["other"], ["keyed"]), [], id="a query has another name"),
        pytest.param("SUM(i)", "MAX(i)", (["keyed"], ["keyed"]), [], id="a changed query is dropped and added"),
        pytest.param(", k\"}", ", k\", priority: 2, lifetime: 2 h, sink: console}", (["keyed"], ["keyed"]),
                     ["query 'keyed' goes on with another sink, priority, lifetime"], id="all but its SQL has changed"),
        pytest.param("20 seconds", "30 seconds", None, ["stream 'r' has changed"], id="a stream has changed"),
        pytest.param("output: out", "output: there", None, ["output has changed"], id="default sinks stay in place"),
        pytest.param("200 ms", "1 s", None, ["engine has changed"], id="the engine has changed"),
        pytest.param("name: edited", "name: e", None, ["name has changed"], id="the name has changed"),
        pytest.param("k STRING", "k STRING, z INT", None, ["stream 'r' has changed"], id="a column is new"),
        pytest.param("output: out", "# a comment\noutput: out", None, ["says what it said before"], id="a comment"),
        pytest.param("SUM(i)", "SUM(j)", None, ["1 problem", "unknown column 'j'"], id="a problem"),
        pytest.param("lateness: 20 seconds", "latenes: x\n    ahead: soon", None,
                     ["2 problems", "unknown key 'latenes'", "'soon' is not a duration"], id="every problem is named"),
        pytest.param(PIPELINE, PIPELINE[:200], None, ["was not taken over"], id="half a file"),
        pytest.param("queries/*.sql", "missing/*.sql", None, ["matches no files"], id="an include without files"),
    ],
)  # fmt: skip
def test_an_edit(spec: Path, old: str, new: str, change: Any, lines: list[str]) -> None:
    said: list[str] = []
    run, rereading = FakeRun(), Rereading(spec, load_pipeline(spec), said.append)
    assert old in PIPELINE
    spec.write_text(PIPELINE.replace(old, new))
    rereading.reread(run)
    assert run.changes == ([] if change is None else [change])
    assert all(any(line in text for text in said) for line in lines), said
    run.changes.clear()
    rereading.reread(run)
    assert run.changes == [], "an edit is taken over once"


def test_an_edit_that_the_run_refuses_is_tried_again_with_the_next(spec: Path) -> None:
    said: list[str] = []
    run, rereading = FakeRun(refuses="Spark refuses it"), Rereading(spec, load_pipeline(spec), said.append)
    spec.write_text(PIPELINE.replace("include", ADDED + "include"))
    rereading.reread(run)
    assert said[-1] == "  Spark refuses it"
    run.refuses = None
    rereading.reread(run)
    assert run.changes == [(["added"], [])]


def test_queries_that_fit_the_running_streams_are_taken_over_and_others_wait(spec: Path) -> None:
    """The file has a new column and a new stream; one query needs the column, one neither."""
    running = load_pipeline(spec)
    needs_z = ADDED.replace("MAX(x)", "MAX(z)").replace("added", "needs_z")
    spec.write_text(PIPELINE.replace("k STRING", "z INT, k STRING").replace("include", ADDED + needs_z + "include"))
    edit = compare(running, load_pipeline(spec))
    assert [query.name for query in edit.add] == ["added"]
    assert [query.name for query in edit.pipeline.queries] == ["keyed", "added", "total"]
    assert edit.restart == ("stream 'r' has changed",)
    assert len(edit.waiting) == 1
    assert "unknown column 'z'" in edit.waiting[0]


def test_another_version_of_a_function_is_taken_over_and_one_that_stays_is_let_be(spec: Path) -> None:
    function = """  counts:
    sql: SELECT k, i FROM r [PARTITION BY k]
    function: m:f
    state: k STRING
    results: k STRING
"""
    spec.write_text(PIPELINE.replace("include", function + "include"))
    running = load_pipeline(spec)
    spec.write_text(spec.read_text().replace("function: m:f", "function: m:g"))
    edit = compare(running, load_pipeline(spec))
    assert ([query.name for query in edit.add], edit.drop) == (["counts"], ("counts",))
    assert edit.quiet == ("query 'counts' goes on with another function",)
    # A stream that changes waits for a restart, and a query over it is still the one it was.
    spec.write_text(PIPELINE.replace("include", function + "include").replace("k STRING", "k STRING, z INT", 1))
    edit = compare(running, load_pipeline(spec))
    assert (edit.add, edit.drop, edit.waiting) == ((), (), ())


def test_a_file_counts_as_changed_when_it_stays_as_it_is(spec: Path) -> None:
    settled = Settled(FileLook(spec))
    assert not settled.changed()
    spec.write_text("half")
    assert not settled.changed(), "it may be half written"
    spec.write_text(PIPELINE + "# more\n")
    assert not settled.changed()
    assert settled.changed()
    assert not settled.changed()
    (spec.parent / "queries" / "more.sql").write_text(TOTAL)
    assert [settled.changed(), settled.changed(), settled.changed()] == [False, True, False]
    (spec.parent / "queries" / "more.sql").unlink()
    assert [settled.changed(), settled.changed(), settled.changed()] == [False, True, False]


class Child:
    """`headrace run` in a process of its own."""

    def __init__(self, spec: Path) -> None:
        self.spec, self.log = spec, spec.parent / "stderr.txt"
        with self.log.open("wb") as err, (spec.parent / "stdout.txt").open("wb") as out:
            self.process = subprocess.Popen(
                [*HEADRACE, "run", str(spec), "--conf", "spark.driver.memory=1g"], stdout=out, stderr=err
            )

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, what: str, there: Callable[[], bool]) -> None:
        until = time.monotonic() + 150
        while not there():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, f"{what} did not come; it said:\n{self.said()}"
            time.sleep(0.1)

    def wait_to_say(self, *lines: str) -> None:
        self.wait_for(f"{lines}", lambda: all(line in self.said() for line in lines))

    def wait_for_rows(self, count: int) -> dict[str, Any]:
        state = str(self.spec.parent / "state")

        def all_there() -> bool:
            try:
                return bool(describe_checkpoint(state)["streams"].get("r", {}).get("rows_in") == count)
            except SpecError:
                return False

        self.wait_for(f"{count} rows", all_there)
        return describe_checkpoint(state)


HEADRACE = [sys.executable, "-c", "from headrace.cli import main; main()"]


@pytest.fixture
def child(spec: Path) -> Iterator[Child]:
    made = Child(spec)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.timeout(600)
def test_a_run_takes_edits_over(spark: Any, spec: Path, child: Child, capsys: pytest.CaptureFixture[str]) -> None:
    """
    epochs     0 1 2 | 3 4 | 5 6      then once more, with a flush, in this process
    total      -----------------
    keyed      -------------          removed
    added            -----------      reads a column that no query had read
    """
    del spark
    tables = make_epochs(seed=81, epochs=7, rows=120)
    narrow = [table.select(["ts", "k", "g", "i", "x"]) for table in tables]
    counts = [sum(table.num_rows for table in tables[:n]) for n in range(len(tables) + 1)]
    write_epochs(spec.parent / "in", narrow[:3])
    seen_us = child.wait_for_rows(counts[3])["streams"]["r"]["last_us"]
    spec.write_text(PIPELINE.replace("include", ADDED + "include"))
    child.wait_to_say(f"{spec} has changed", "query 'added' is new: its windows begin after what was seen so far")
    write_epochs(spec.parent / "in", narrow[3:5], 3)
    child.wait_for_rows(counts[5])
    spec.write_text(PIPELINE.replace("SUM(i)", "SUM(nope)").replace("20 seconds", "20 parsecs"))
    child.wait_to_say("2 problems", "unknown column 'nope'", "'20 parsecs' is not a duration")
    without = "\n".join(line for line in PIPELINE.splitlines() if "keyed" not in line).replace(
        "include", ADDED + "include"
    )
    spec.write_text(without.replace("lateness", "idle: 1 hour\n    lateness"))
    child.wait_to_say("query 'keyed' is gone", "stream 'r' has changed; the run goes on without that")
    write_epochs(spec.parent / "in", narrow[5:], 5)
    status = child.wait_for_rows(counts[7])
    assert set(status["queries"]) == {"total", "added"}
    question = "SELECT g, MAX(x) AS v FROM r [WINDOW 40 s] GROUP BY g"
    asked = subprocess.run([*HEADRACE, "ask", str(spec.parent / "state"), question, "--json"],
                           capture_output=True, text=True, timeout=200, check=True)  # fmt: skip
    answer = json.loads(asked.stdout)
    child.process.send_signal(signal.SIGTERM)
    assert child.process.wait(timeout=100) == 0
    assert "Traceback" not in without_daemons(child.said())
    spec.write_text(without)
    assert _run(["run", str(spec), "--once", "--flush"], False) == 0
    assert "is new" not in capsys.readouterr().err
    rows = admit(tables, 20).rows
    assert_same(results(spec.parent / "out" / "total"), expected(rows, "count(here)", "", 60, 20, True))
    added = expected(rows, "g, max(x)", "g", 40, 20, True)
    late = [row for row in added if row[0].timestamp() * 1e6 > seen_us]
    assert_same(results(spec.parent / "out" / "added"), late)
    told = results(spec.parent / "out" / "keyed")
    wanted = expected(rows, "k, sum(i)::bigint", "k", 60, 20, True)
    assert told
    assert_same(told, [row for row in wanted if row[1] <= max(end for _, end, *_ in told)])
    assert_same(
        [(row["g"], row["v"]) for row in answer],
        [row[2:] for row in added if row[1].strftime("%Y-%m-%dT%H:%M:%SZ") == answer[0]["window_end"]],
    )


def test_a_run_that_is_given_once_reads_its_file_once(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.cli import running

    given: dict[str, Any] = {}
    monkeypatch.setattr(running, "run_pipeline", lambda pipeline, **options: given.update(options))
    assert _run(["run", str(spec), "--once"], False) == 0
    assert given["spec"] is None
    assert _run(["run", str(spec)], False) == 0
    assert given["spec"] == Path(os.fspath(spec))
