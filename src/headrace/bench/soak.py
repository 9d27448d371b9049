"""An engine that runs for an hour at one epoch a second while queries come and go: does anything grow?

    python -m headrace.bench.soak --minutes 60 --home build/soak --picture docs/soak.png

The engine is `headrace run` in a process of its own, on a pipeline file that is edited every few seconds: a query is
added, dropped or given another SQL. This process writes the input, takes away what has been read and results that are
old, looks at the engine from outside (`soak_look.py`), and judges what it saw (`soak_judge.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.bench.measure import machine
from headrace.bench.soak_judge import SERIES, Verdict, judge_all
from headrace.bench.soak_look import LiveHeap, Sample, last_epoch, look
from headrace.errors import EngineError

__all__ = ["Guest", "edits", "main", "pipeline_text", "read_samples", "write_samples"]

START_US = 1_704_067_200_000_000
ROWS = {"trades": 400, "quotes": 200}
KEYS = 40
# Input is written this many epochs ahead, so that the engine never waits for it and no backlog gathers.
AHEAD = 5
# Input is taken away when it is so many epochs old: an epoch takes one file, and some find none.
INPUT_KEPT = 200
# Results older than this are taken away, as whoever reads them would.
RESULTS_KEPT_S = 300
SAMPLE_EVERY_S = 10.0
EDIT_EVERY_S = 15.0
# A full collection every so often shows how much of the heap is in use.
COLLECT_EVERY_S = 120.0
# State follows the number of guests: it stays about the same, or the soak would judge its own edits.
GUESTS = range(4, 6)

RESIDENTS = {
    "by_key": "SELECT k, SUM(v) AS v, COUNT(*) AS n FROM trades GROUP BY window(ts, '30 seconds', '10 seconds'), k",
    "often": "SELECT k, MAX(v) AS v, COUNT(DISTINCT v) AS n FROM trades [WINDOW 60 s SLIDE 5 s] GROUP BY k",
    "near": "SELECT t.k, t.v, q.value AS price FROM trades AS t [RANGE 1 s] JOIN quotes AS q [RANGE 1 s] "
    "ON t.k = q.key AND t.v < q.amount",
    "last": "SELECT k, ts, SUM(v) AS v, COUNT(*) AS n FROM trades [PARTITION BY k ROWS 10]",
    "lake": "SELECT k, SUM(v) AS v, COUNT(*) AS n FROM trades GROUP BY window(ts, '20 seconds'), k",
}
HEAD = """name: soak
streams:
  trades:
    source: {format: parquet, path: in, options: {maxFilesPerTrigger: 1}}
    schema: ts TIMESTAMP, k STRING, g INT, v INT, x DOUBLE
    time: ts
    lateness: 2 seconds
  quotes:
    source: {format: synthetic, options: {rate: %(quotes)d, keys: %(keys)d}}
    lateness: 2 seconds
engine: {trigger: 1 second, bins: 2, checkpoint: state}
queries:
"""


@dataclass(frozen=True)
class Guest:
    """A query that comes and goes; `rows`: over the last rows of each key, not over windows of time."""

    name: str
    sql: str
    rows: bool


def edits(seed: int) -> Iterator[tuple[str, tuple[Guest, ...]]]:
    """What each edit does, and the guests there are after it; without end, a function of the seed."""
    rng, guests, number = random.Random(seed), tuple[Guest, ...](), 0
    while True:
        wanted = ["add"] * (len(guests) < GUESTS.stop) + ["drop", "change"] * (len(guests) > GUESTS.start)
        kind = rng.choice(wanted)
        if kind == "add":
            rows = rng.random() < 1 / 3
            guests = (*guests, Guest(f"guest_{number}", _sql(rng, rows), rows))
            number += 1
            said = f"add {guests[-1].name}"
        else:
            at = rng.randrange(len(guests))
            said = f"{kind} {guests[at].name}"
            changed = (replace(guests[at], sql=_sql(rng, guests[at].rows)),) if kind == "change" else ()
            guests = (*guests[:at], *changed, *guests[at + 1 :])
        yield said, guests


def _sql(rng: random.Random, rows: bool) -> str:
    """Any query with the columns k, v and n: another one of its kind may write to the same folder."""
    what = f"CAST({rng.choice(['SUM', 'MIN', 'MAX'])}(v) AS BIGINT) AS v, COUNT(*) AS n"
    slide = rng.choice([5, 10, 15])
    size = slide * rng.randint(1, 4)
    where = f"WHERE g < {rng.randint(1, 4)} " if rng.random() < 0.5 else ""
    if rows:
        return f"SELECT k, {what} FROM trades [PARTITION BY k ROWS {size}]"
    return rng.choice(
        [
            f"SELECT k, {what} FROM trades {where}GROUP BY window(ts, '{size} seconds', '{slide} seconds'), k",
            f"SELECT k, {what} FROM trades [WINDOW {size} s SLIDE {slide} s] {where}GROUP BY k",
        ]
    )


def pipeline_text(guests: tuple[Guest, ...]) -> str:
    """The pipeline file with these guests."""
    lines = [HEAD % {"quotes": ROWS["quotes"], "keys": KEYS}]
    for name, sql in (*RESIDENTS.items(), *((guest.name, guest.sql) for guest in guests)):
        form = "delta" if name == "lake" else "parquet"
        lines.append(f"  {name}: {{sql: {json.dumps(sql)}, sink: {{format: {form}, path: out/{name}}}}}\n")
    return "".join(lines)


class Soak:
    """One soak: the engine, what it reads, and what was seen of it."""

    def __init__(self, home: Path, seed: int, say: Callable[[str], object]) -> None:
        self._home, self._edits, self._say = home, edits(seed), say
        self._written = self._removed = 0
        self._guests: tuple[Guest, ...] = ()
        self._gone: list[str] = []
        self.edited = 0
        self.samples: list[Sample] = []

    def run(self, seconds: float) -> None:
        """Runs the engine for so long; EngineError if it ends by itself."""
        (self._home / "in").mkdir(parents=True)
        for _ in range(GUESTS.start):
            self._edit()
        self._feed(-1)
        began = time.monotonic()
        with self._engine() as engine:
            log = self._home / "log.txt"
            heap, sampled, edited = LiveHeap(engine.pid, COLLECT_EVERY_S), began, began
            while (now := time.monotonic()) - began < seconds:
                if engine.poll() is not None:
                    said = log.read_text(errors="replace")
                    raise EngineError(f"the engine ended by itself, with {engine.returncode}: {said[-2000:]}")
                epoch = last_epoch(self._home / "state")
                self._feed(epoch)
                if epoch >= 0 and now - edited >= EDIT_EVERY_S:
                    edited = now
                    self._edit()
                if epoch >= 0 and now - sampled >= SAMPLE_EVERY_S:
                    sampled = now
                    self._tidy()
                    self.samples.append(look(engine.pid, self._home, now - began, len(self._guests), heap))
                    self._note(self.samples[-1])
                    write_samples(self.samples, self._home / "samples.csv")
                    # Edits that the engine refuses would test nothing.
                    if (at := (said := log.read_text(errors="replace")).find("was not taken over")) >= 0:
                        raise EngineError(f"the engine refused an edit: {said[at : at + 1000]}")
                time.sleep(0.2)

    @contextlib.contextmanager
    def _engine(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", "from headrace.cli import main; main()", "run", str(self._home / "soak.yml")]
        # The whole heap at once: a JVM that has not yet needed all it may have would look like one that leaks.
        heap = {"spark.driver.memory": "768m", "spark.driver.extraJavaOptions": "-Xms768m -XX:+AlwaysPreTouch"}
        conf = {**heap, "spark.headrace.flux.minis": "8"}
        command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        with (self._home / "log.txt").open("wb") as log:
            engine = subprocess.Popen([*command, "--master", "local[2,4]"], stdout=log, stderr=log)
        try:
            yield engine
            engine.send_signal(signal.SIGTERM)
            engine.wait(60)
        finally:
            engine.kill()
            engine.wait()

    def _edit(self) -> None:
        said, after = next(self._edits)
        self._gone += [guest.name for guest in self._guests if guest.name not in {each.name for each in after}]
        self._guests = after
        self.edited += 1
        temporary = self._home / ".soak.yml"
        temporary.write_text(pipeline_text(self._guests))
        temporary.replace(self._home / "soak.yml")
        self._say(f"edit {self.edited}: {said}")

    def _feed(self, epoch: int) -> None:
        """Writes input up to a few epochs from now and takes away what has been read."""
        while self._written <= epoch + AHEAD:
            number, rows = self._written, ROWS["trades"]
            rng = np.random.default_rng([7, number])
            ts = START_US + number * 1_000_000 + rng.integers(0, 1_000_000, rows)
            table = pa.table(
                {
                    "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                    "k": [f"key{key:04d}" for key in rng.integers(0, KEYS, rows)],
                    "g": pa.array(rng.integers(0, 5, rows), pa.int32()),
                    "v": pa.array(rng.integers(0, 1500, rows), pa.int32()),
                    "x": rng.random(rows),
                }
            )
            path = self._home / "in" / f"{number:07d}.parquet"
            temporary = path.with_name(f".{path.name}")
            pq.write_table(table, temporary)
            os.utime(temporary, (1_700_000_000 + number, 1_700_000_000 + number))
            temporary.rename(path)
            self._written += 1
        while self._removed < epoch - INPUT_KEPT:
            (self._home / "in" / f"{self._removed:07d}.parquet").unlink(missing_ok=True)
            self._removed += 1

    def _tidy(self) -> None:
        """Takes away old results, and all of queries that are gone for good."""
        for name in self._gone[:-3]:
            shutil.rmtree(self._home / "out" / name, ignore_errors=True)
        until = time.time() - RESULTS_KEPT_S
        for path in (self._home / "out").glob("*/epoch-*.parquet"):
            with contextlib.suppress(OSError):
                if path.parent.name != "lake" and path.stat().st_mtime < until:
                    path.unlink()

    def _note(self, sample: Sample) -> None:
        self._say(
            f"{sample.at_s:6.0f} s  epoch {sample.epoch}, {sample.epoch_s:.2f} s  driver {sample.driver_mb:.0f} MB, "
            f"JVM {sample.jvm_mb:.0f} MB (heap in use {sample.heap_mb:.0f}), workers {sample.workers_mb:.0f} MB  "
            f"state {sample.state_files} files, {sample.state_mb:.2f} MB"
        )


def write_samples(samples: list[Sample], file: Path) -> None:
    """What was seen so far, as a table."""
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(Sample.__slots__)
        writer.writerows([getattr(sample, name) for name in Sample.__slots__] for sample in samples)


def read_samples(file: Path) -> list[Sample]:
    """What another soak has seen, or this one before it was ended."""
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    whole = {field.name for field in fields(Sample) if field.type == "int"}
    values: list[dict[str, Any]] = [{k: int(v) if k in whole else float(v) for k, v in row.items()} for row in rows]
    return [Sample(**each) for each in values]


def report(soak: Soak, folder: Path, picture: Path | None, shared: bool) -> list[Verdict]:
    """Writes what was seen as a table and a picture, and says what is flat."""
    write_samples(soak.samples, folder / "samples.csv")
    verdicts = judge_all(soak.samples)
    facts = {
        "epochs": soak.samples[-1].epoch + 1,
        "edits": soak.edited,
        "shared_machine": shared,
        "machine": machine(),
        "flat": {verdict.series: verdict.flat for verdict in verdicts},
    }
    (folder / "verdict.json").write_text(json.dumps(facts, indent=1))
    if picture is not None:
        from headrace.bench.soak_draw import draw_soak

        draw_soak(soak.samples, verdicts, picture)
    return verdicts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Runs an engine for long and says whether it grows.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--home", type=Path, default=Path("build/soak"), help="what is there is removed")
    parser.add_argument("--picture", type=Path, help="where to draw what was seen, such as docs/soak.png")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="judge and draw the samples.csv of another soak, and run nothing")
    parser.add_argument("--shared", action="store_true", help="note that the machine had other work")
    given = parser.parse_args(arguments)
    if given.samples is not None:
        return _again(read_samples(given.samples), given.picture)
    home = given.home.absolute()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    soak = Soak(home, given.seed, lambda text: print(text, flush=True))
    try:
        soak.run(given.minutes * 60)
    finally:
        verdicts = report(soak, home, given.picture, given.shared) if len(soak.samples) > 3 else []
    print(f"{soak.samples[-1].epoch + 1} epochs, {soak.edited} edits, {len(SERIES)} series")
    return _tell(verdicts)


def _again(samples: list[Sample], picture: Path | None) -> int:
    verdicts = judge_all(samples)
    if picture is not None:
        from headrace.bench.soak_draw import draw_soak

        draw_soak(samples, verdicts, picture)
    return _tell(verdicts)


def _tell(verdicts: list[Verdict]) -> int:
    for verdict in verdicts:
        print(verdict)
    return 0 if verdicts and all(verdict.flat for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
