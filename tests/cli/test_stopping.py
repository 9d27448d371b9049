"""Signals to a real process: the first ends a run after the epoch under way, the second at once; the next goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.stopping import Stopped, Stopping
from headrace.engine import describe_checkpoint

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
        with open(HOME / "arrived", "w"), open(HOME / "go"):
            pass
    (HOME / f"epoch-{epoch}").write_text(repr([row[-1] for row in rows]))
"""
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

    def said(self, event: str, words: str = "") -> None:
        def fits(line: str) -> bool:
            found = json.loads(line)
            return bool(found["event"] == event and words in line)

        self.read_until(self.started.stdout, fits)

    def end(self) -> tuple[int, str]:
        _, errors = self.started.communicate(timeout=300)
        return self.started.returncode, errors


def test_signals_in_every_phase_of_a_run(home: Path) -> None:
    # While Spark starts nothing is under way: the first signal is enough.
    process = Process(home)
    process.read_until(process.started.stderr, lambda line: "WARNING" in line)
    process.send(signal.SIGINT)
    code, errors = process.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in errors
    assert not (home / "state").exists()

    # In an epoch the first signal waits for its end, the second does not.
    os.mkfifo(home / "arrived")
    os.mkfifo(home / "go")
    process = Process(home)
    (home / "arrived").read_text()
    process.send(signal.SIGTERM)
    process.said("note", "stopping after the epoch under way")
    process.send(signal.SIGTERM)
    code, errors = process.end()
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    assert describe_checkpoint(str(home / "state"))["epoch"] == -1
    assert not (home / "epoch-0").exists()

    # The next run begins with that epoch; one signal lets it end.
    process = Process(home)
    (home / "arrived").read_text()
    process.send(signal.SIGINT)
    process.said("note", "stopping after the epoch under way")
    (home / "arrived").unlink()
    (home / "go").write_text("")
    code, errors = process.end()
    assert code == 0, errors
    assert "Traceback" not in errors
    assert describe_checkpoint(str(home / "state"))["epoch"] == 0
    assert (home / "epoch-0").read_text() == repr([sum(range(20)), sum(range(20, 40))])

    # Between epochs there is nothing to wait for.
    process = Process(home)
    process.said("epoch")
    process.send(signal.SIGTERM)
    code, errors = process.end()
    assert code == 0, errors
    assert "Traceback" not in errors
    status = describe_checkpoint(str(home / "state"))
    assert (status["epoch"], status["streams"]["r"]["used"]) == (1, 120)
    assert (home / "epoch-1").read_text() == repr([sum(range(40, 60)), sum(range(20)), sum(range(20, 40))])


def test_the_first_signal_is_noted_and_the_second_is_raised() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.asked
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGINT)
    assert caught.value.exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_first_signal_is_raised_while_nothing_is_under_way() -> None:
    with Stopping() as stopping, pytest.raises(Stopped), stopping.at_once():
        signal.raise_signal(signal.SIGTERM)
    assert not stopping.asked
