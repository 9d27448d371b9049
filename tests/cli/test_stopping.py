"""Signals to a real process: the first ends a run after the epoch under way, the second at once; the next goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daemons import without_daemons

from headrace.cli import running
from headrace.cli.stopping import Stopped, Stopping
from headrace.engine import Manifest, describe_checkpoint
from headrace.errors import EngineError
from headrace.language import bind_query, parse_schema
from headrace.model import Pipeline, Stream

# Four processes with a Spark each, one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)

PIPELINE = """\
streams:
  r: {source: {format: parquet, path: in, options: {maxFilesPerTrigger: 1}}, schema: 'ts TIMESTAMP, k INT', time: ts}
queries:
  q: {sql: 'SELECT SUM(k) AS v FROM r [WINDOW 20 s SLIDE 20 s]',
      sink: {format: python, options: {function: 'held_up:take'}}}
"""
# Says where it is and waits there, both by opening pipes: no side has to guess how long the other takes.
SINK = """\
from pathlib import Path

HOME = Path(__file__).parent


def take(results, epoch):
    rows = sorted(tuple(row) for row in results.collect())
    if (HOME / "arrived").exists():
        (HOME / "arrived").write_text("")
        (HOME / "go").read_text()
    (HOME / f"epoch-{epoch}").write_text(repr([row[-1] for row in rows]))
"""
PACKETS = Stream("r", parse_schema("ts TIMESTAMP"), "ts")
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "p.yml").write_text(PIPELINE)
    (tmp_path / "held_up.py").write_text(SINK)
    (tmp_path / "in").mkdir()
    for i in range(2):
        times = [START + timedelta(seconds=60 * i + second) for second in range(60)]
        table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": pa.array(range(60), pa.int32())})
        pq.write_table(table, tmp_path / "in" / f"{i}.parquet")
        os.utime(tmp_path / "in" / f"{i}.parquet", (1_700_000_000 + i, 1_700_000_000 + i))
    return tmp_path


def _names_below(process: psutil.Process) -> set[str]:
    names = set()
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            names.add(child.name())
    return names


class Process:
    """`headrace run`, as a user starts it."""

    def __init__(self, home: Path) -> None:
        main = "from headrace.cli.app import main; main()"
        command = [sys.executable, "-c", main, "run", str(home / "p.yml"), "--json"]
        self.started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
        )

    def send(self, number: int) -> None:
        """To the whole group, as a terminal does with Ctrl-C; to the process alone otherwise."""
        if number == signal.SIGINT:
            os.killpg(self.started.pid, number)
        else:
            self.started.send_signal(number)

    def read_until(self, stream: Any, fits: Callable[[str], bool]) -> None:
        seen = []
        for line in stream:
            seen.append(line)
            if fits(line):
                return
        raise AssertionError("".join(seen))

    def starts_spark(self) -> None:
        """Waits until it has started Java."""
        mine, deadline = psutil.Process(self.started.pid), time.monotonic() + 300
        while "java" not in _names_below(mine):
            assert self.started.poll() is None
            assert time.monotonic() < deadline
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.started.wait(0.1)

    def said(self, event: str, words: str = "") -> None:
        def fits(line: str) -> bool:
            found = json.loads(line)
            return bool(found["event"] == event and words in line)

        self.read_until(self.started.stdout, fits)

    def end(self) -> tuple[int, str]:
        _, errors = self.started.communicate(timeout=300)
        return self.started.returncode, errors


@pytest.fixture
def launch(home: Path) -> Iterator[Callable[[], Process]]:
    """Starts `headrace run`; whatever a failed test leaves of it is ended."""
    processes: list[Process] = []

    def launched() -> Process:
        processes.append(Process(home))
        return processes[-1]

    yield launched
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.started.pid, signal.SIGKILL)
        process.started.communicate()


def test_signals_in_every_phase_of_a_run(home: Path, launch: Callable[[], Process]) -> None:
    # While Spark starts nothing is under way: the first signal is enough.
    process = launch()
    process.starts_spark()
    process.send(signal.SIGINT)
    code, errors = process.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in without_daemons(errors)
    assert not (home / "state").exists()

    # In an epoch the first signal waits for its end, the second does not.
    os.mkfifo(home / "arrived")
    os.mkfifo(home / "go")
    process = launch()
    (home / "arrived").read_text()
    process.send(signal.SIGTERM)
    process.said("note", "stopping after the epoch under way")
    process.send(signal.SIGTERM)
    code, errors = process.end()
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in without_daemons(errors)
    assert describe_checkpoint(str(home / "state"))["epoch"] == -1
    assert not (home / "epoch-0").exists()

    # The next run begins with that epoch; one signal lets it end.
    process = launch()
    (home / "arrived").read_text()
    process.send(signal.SIGINT)
    process.said("note", "stopping after the epoch under way")
    (home / "arrived").unlink()
    (home / "go").write_text("")
    code, errors = process.end()
    assert code == 0, errors
    assert "Traceback" not in without_daemons(errors)
    assert describe_checkpoint(str(home / "state"))["epoch"] == 0
    assert (home / "epoch-0").read_text() == repr([sum(range(20)), sum(range(20, 40))])

    # Between epochs there is nothing to wait for.
    process = launch()
    process.said("epoch")
    process.send(signal.SIGTERM)
    code, errors = process.end()
    assert code == 0, errors
    assert "Traceback" not in without_daemons(errors)
    status = describe_checkpoint(str(home / "state"))
    assert (status["epoch"], status["streams"]["r"]["used"]) == (1, 120)
    assert (home / "epoch-1").read_text() == repr([sum(range(40, 60)), sum(range(20)), sum(range(20, 40))])


def test_the_first_signal_is_noted_and_the_second_is_raised() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.asked == signal.SIGTERM
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGINT)
    assert caught.value.exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_spark_does_not_keep_the_handler_it_puts_in_place() -> None:
    with Stopping() as stopping:
        with stopping.at_once():
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)
        assert stopping.asked == signal.SIGINT


def test_the_first_signal_is_raised_while_nothing_is_under_way() -> None:
    with Stopping() as stopping, pytest.raises(Stopped), stopping.at_once():
        signal.raise_signal(signal.SIGTERM)
    assert stopping.asked is None


class FakeRun:
    """A run that is asked to stop while an epoch is under way."""

    def __init__(self, failed: dict[str, str]) -> None:
        self.failed, self.progress, self.stopped = failed, Manifest(0, 0), False

    def await_termination(self, timeout_s: int) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("once", "failed", "outcome"),
    [
        pytest.param(False, {}, None, id="a run that goes on until it is stopped has done its work"),
        pytest.param(True, {}, Stopped, id="a run over what is there has not"),
        pytest.param(False, {"q": "why"}, EngineError, id="a query that failed is said"),
        pytest.param(True, {"q": "why"}, EngineError, id="of either"),
    ],
)
def test_what_a_stopped_run_ends_with(
    once: bool, failed: dict[str, str], outcome: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(failed)
    monkeypatch.setattr(running, "build_session", lambda *arguments: None)
    monkeypatch.setattr(running, "start", lambda *arguments, **settings: run)
    pipeline = Pipeline("p", (PACKETS,), (bind_query("q", "SELECT COUNT(*) FROM r [WINDOW 1 s]", {"r": PACKETS}),))

    def ending() -> None:
        running.run_pipeline(pipeline, once=once, flush=False, master=None, conf={}, as_json=True)

    if outcome is None:
        ending()
    else:
        with pytest.raises(outcome) as caught:
            ending()
        assert getattr(caught.value, "exit_code") == (1 if failed else 143)  # noqa: B009 - of either type
        assert not failed or str(caught.value) == "query 'q' failed: why"
    assert run.stopped
