"""A pipeline file that is edited between a crash and the start after it: the epoch that was begun must not notice.

The same files are read twice. One run ends after the epoch in which the other is struck down; then both go on under the
edited file. Whatever the sinks hold in the end must be the same.

    python edited.py PIPELINE POINT EPOCH JARS

runs a pipeline file and kills itself, with -9, at a point of an epoch.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from world import SCHEMA, START, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine import Hooks
from headrace.errors import HeadraceError
from headrace.model import EpochDecision

EPOCHS, STEP_US = 4, 20_000_000
# By name two queries with the same columns: one may become the other under its name.
POOL = {
    "keyed": (
        "SELECT k, SUM(i) AS v, COUNT(*) AS n FROM r GROUP BY window(ts, '60 s', '20 s'), k",
        "SELECT k, SUM(i) AS v, COUNT(*) AS n FROM r WHERE g > 0 GROUP BY window(ts, '60 s', '20 s'), k",
    ),
    "coarse": (
        "SELECT SUM(i) + 1 AS v, COUNT(*) AS n FROM r GROUP BY window(ts, '40 s', '20 s')",
        "SELECT SUM(l) AS v, COUNT(*) AS n FROM r GROUP BY window(ts, '40 s', '10 s')",
    ),
    "total": (
        "SELECT COUNT(*) AS n FROM r [WINDOW 40 s SLIDE 20 s]",
        "SELECT COUNT(g) AS n FROM r [WINDOW 60 s SLIDE 20 s]",
    ),
    "pairs": (
        "SELECT a.i, b.i AS j FROM r AS a [RANGE 9 s] JOIN r AS b [RANGE 4 s] ON a.k = b.k AND a.i < b.i",
        "SELECT a.i, b.i AS j FROM r AS a [RANGE 5 s] JOIN r AS b [RANGE 9 s] ON a.g = b.g AND a.i < b.i",
    ),
    "rows": (
        "SELECT k, ts, SUM(i) AS v FROM r [PARTITION BY k ROWS 4]",
        "SELECT k, ts, SUM(l) AS v FROM r [PARTITION BY k ROWS 2]",
    ),
    "joined": (
        "SELECT COUNT(*) AS n FROM (SELECT a.ts FROM r AS a [RANGE 5 s] JOIN r AS b [RANGE 5 s] ON a.k = b.k) AS j "
        "[WINDOW 40 s SLIDE 20 s]",
        "SELECT COUNT(*) AS n FROM (SELECT a.ts FROM r AS a [RANGE 3 s] JOIN r AS b [RANGE 3 s] ON a.s = b.s) AS j "
        "[WINDOW 40 s SLIDE 20 s]",
    ),
}  # fmt: skip
POINTS = ("after-decision", "after-state", "mid-sinks", "after-sinks", "before-manifest")


def take(results: Any, epoch: int) -> None:
    """A sink that asks for nothing."""


class StruckError(RuntimeError):
    """The end of a run, where a crash would be."""


@dataclass
class Written:
    """A pipeline file: queries by name, with SQL and sink, and settings of its stream and engine."""

    queries: dict[str, dict[str, Any]]
    lateness_s: int = 20
    ahead_s: int = 10
    engine: dict[str, Any] = field(default_factory=dict)

    def save(self, home: Path) -> Path:
        stream = {
            "source": {"format": "parquet", "path": str(home / "in"), "options": {"maxFilesPerTrigger": 1}},
            "schema": SCHEMA,
            "time": "ts",
            "lateness": f"{self.lateness_s} seconds",
            "ahead": f"{self.ahead_s} seconds",
        }
        engine = {"checkpoint": str(home / "state"), "bins": 2, "trigger": "10 milliseconds", **self.engine}
        path = home / "pipeline.yml"
        path.write_text(yaml.safe_dump({"streams": {"r": stream}, "queries": self.queries, "engine": engine}))
        return path


@dataclass
class Home:
    """One checkpoint with its files, and what was decided for each epoch, in the order of the decisions."""

    spark: Any
    path: Path
    tables: list[Any]
    decided: list[EpochDecision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ledger: Mapping[str, Any] = field(default_factory=dict)

    def give(self, first: int, last: int) -> None:
        write_epochs(self.path / "in", self.tables[first : last + 1], first)

    def hooks(self, strike: tuple[str, int] | None, struck: Callable[[], None]) -> Hooks:
        """Clocks that go by the epoch, and a blow at a point of one."""

        def probe(point: str) -> None:
            epoch = self.decided[-1].epoch if self.decided else -1
            if (point, epoch) == strike:
                struck()

        return Hooks(
            clock_us=lambda epoch: START + epoch * STEP_US, probe=probe, on_decision=self.decided.append,
            on_note=self.notes.append,
        )  # fmt: skip

    def kill(self, written: Written, strike: tuple[str, int], jars: str = "") -> None:
        """Has a driver of its own run until it kills itself."""
        support = Path(__file__).parent
        paths = [str(support), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, __file__, str(written.save(self.path)), strike[0], str(strike[1]), jars]
        with (self.path / "log.txt").open("wb") as log:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            code = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=300).returncode
        assert code == -signal.SIGKILL, (self.path / "log.txt").read_text()[-3000:]

    def run(self, written: Written, strike: tuple[str, int] | None = None, **end: bool) -> None:
        """Runs until all files are used; or until it is struck at a point of an epoch, which must happen."""
        fell: list[object] = []

        def struck() -> None:
            fell.append(strike)
            raise StruckError("as if the driver had been killed")

        hooks = self.hooks(strike, struck)
        run = hr.Pipeline.from_file(written.save(self.path)).start(self.spark, hooks=hooks, **end)
        if end:
            run.await_termination()
        elif strike is not None:
            with pytest.raises(HeadraceError, match="as if the driver had been killed"):
                run.await_termination()
            assert fell, f"{strike} has not been reached"
        else:
            run.process_all_available()
            run.stop()
        self.ledger = run.progress.ledger

    def outcome(self, written: tuple[Written, ...], others: Callable[[Path], Any] = lambda path: None) -> Any:
        """All that is in the sinks, the ledger, and the rejected rows."""
        folders = {q["sink"]["path"] for each in written for q in each.queries.values() if "path" in q["sink"]}
        found = {Path(folder).name: sorted(map(repr, results(Path(folder)))) for folder in sorted(folders)}
        rejected = [line for file in (self.path / "state" / "rejected").glob("epoch-*.json")
                    for line in file.read_text().splitlines()]  # fmt: skip
        return found, self.ledger, sorted(rejected), others(self.path)


def parquet(home: Path, folder: str) -> dict[str, str]:
    return {"format": "parquet", "path": str(home / "out" / folder)}


def twice(
    spark: Any,
    root: Path,
    before: Callable[[Path], Written],
    after: Callable[[Path], Written],
    strike: tuple[str, int],
    seed: int,
    others: Callable[[Path], Any] = lambda path: None,
    jars: str | None = None,
) -> tuple[Home, Home]:
    """Plays both runs and compares them; the one that was struck comes first: killed, if it has jars to start with."""
    homes = []
    for name in ("struck", "undisturbed"):
        (root / name).mkdir(parents=True)
        home = Home(spark, root / name, make_epochs(seed, EPOCHS, 100))
        home.give(0, strike[1])
        if name == "struck" and jars is not None:
            home.kill(before(home.path), strike, jars)
        else:
            home.run(before(home.path), strike if name == "struck" else None)
        home.give(strike[1] + 1, EPOCHS - 1)
        home.run(after(home.path), once=True, flush=True)
        homes.append(home)
    struck, undisturbed = homes
    found, wanted = (home.outcome((before(home.path), after(home.path)), others) for home in (struck, undisturbed))
    assert found == wanted
    assert any(note.startswith(f"epoch {strike[1]} was begun before") for note in struck.notes)
    assert len({repr(each) for each in struck.decided if each.epoch == strike[1]}) == 1, "a replay decides nothing"
    return struck, undisturbed


def by_chance(seed: int) -> tuple[Callable[[Path], Written], Callable[[Path], Written], tuple[str, int], str]:
    """A pipeline, an edit of it, and where it is struck; and all of that in words."""
    rng = random.Random(seed)
    names = sorted(rng.sample(sorted(POOL), 3))
    gone = set(rng.sample(names[:-1], 1))
    others = {name: rng.random() < 0.4 for name in POOL}
    moved = {name: rng.random() < 0.2 for name in POOL}
    new = sorted(set(POOL) - set(names))[:1]
    lateness, ahead, joins = rng.choice([0, 5, 60]), rng.choice([3, 3600]), rng.choice(["hash", "split", "auto"])
    strike = rng.choice(POINTS), rng.randint(0, EPOCHS - 2)

    def before(home: Path) -> Written:
        return Written({n: {"sql": POOL[n][0], "sink": parquet(home, n)} for n in names})

    def after(home: Path) -> Written:
        stay = [*(n for n in names if n not in gone), *new]
        # Another query in the folder of one before it is another table: only the same columns make that one.
        queries = {
            n: {"sql": POOL[n][others[n] and n in names], "sink": parquet(home, f"{n}-moved" if moved[n] else n)}
            for n in stay
        }
        return Written(queries, lateness, ahead, {"trigger": "3 seconds", "join": joins, "schedule": "none"})

    told = f"seed {seed}: {strike}, without {gone}, with {new}, others {[n for n in names if others[n]]}"
    return before, after, strike, told


def main() -> None:
    from headrace.engine import build_session

    file, point, epoch, jars = sys.argv[1:]
    spark = build_session("edited", "local[2]", {"spark.driver.memory": "1g", "spark.jars": jars})
    home = Home(spark, Path(file).parent, [])
    hooks = home.hooks((point, int(epoch)), lambda: os.kill(os.getpid(), signal.SIGKILL))
    hr.Pipeline.from_file(file).start(spark, hooks=hooks).await_termination()


if __name__ == "__main__":
    main()
