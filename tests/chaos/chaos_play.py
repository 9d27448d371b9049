"""Chaos on real Spark, from seeds: `./run chaos --seeds 10`, `./run chaos --seed 17` to see one of them again.

For each seed: the plan is made (`chaos_plan.py`), its lives are played one after the other in processes of their own
(`chaos_driver.py`), and what came of it is judged (`chaos_judge.py`). What was found is a line of JSON in
`build/chaos/report.jsonl`; the folder of a seed that failed stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_judge import COLUMNS, Judge, Wrong
from chaos_plan import Plan, make_plan
from chaos_world import Journal, place_of

FOLDER = Path(__file__).parent
# A life starts Spark and plays a few acts; a machine with other work takes its time.
PATIENCE_S = 600
# Enough for the state and results of any plan, little enough to be filled at once.
DISK = "96m"


@dataclass
class Outcome:
    """What came of one seed."""

    seed: int
    verdict: str  # "right", "wrong", "skipped"
    why: str = ""
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        fired = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"seed {self.seed}: {self.verdict} in {self.seconds:.0f} s; {fired}; {facts} {self.why}".rstrip()


@contextlib.contextmanager
def services(home: Path, plan: Plan) -> Iterator[dict[str, Any]]:
    """What a plan needs besides files: a broker, a database, a cluster; what cannot be had raises pytest's Skipped."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Any] = {}
        needed: list[Path] = []
        if plan.kafka:
            import jars
            from chaos_world import PARTITIONS
            from trades import PARTITIONS as THEIRS
            from trades import make_topic

            from headrace.bench.broker import Broker

            assert PARTITIONS == THEIRS
            needed += jars.need_kafka()
            broker = stack.enter_context(Broker(home / "broker"))
            make_topic(broker.servers, "r")
            found["servers"] = broker.servers
        if plan.postgres:
            import jars
            from postgres import Postgres

            needed += jars.need(jars.POSTGRES)
            found["database"] = database = stack.enter_context(Postgres(home / "postgres"))
            found["url"] = database.url
        if plan.cluster:
            from cluster import Cluster

            cluster = Cluster(home / "cluster", 2)
            stack.callback(cluster.stop)
            found["master"] = cluster.url
        found["jars"] = [str(jar) for jar in needed]
        yield found


@contextlib.contextmanager
def small_disk(folder: Path, wanted: bool) -> Iterator[None]:
    """A file system of its own that can be filled, where this user may mount one; a folder otherwise."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = wanted and os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def play(seed: int, home: Path, without: str = "nothing", plain: bool = False, brief: bool = False) -> Outcome:
    """Plays and judges one seed in a folder of its own."""
    began = time.monotonic()
    there = {**dict.fromkeys(("kafka", "postgres", "cluster"), not plain), "brief": brief}
    plan = make_plan(seed, **there)
    full = any(fault.kind == "full disk" for fault in plan.faults)
    home.mkdir(parents=True)
    (home / "plan.txt").write_text(f"{plan}\n")
    outcome = Outcome(seed, "right")
    try:
        with services(home, plan) as found, small_disk(home / "disk", full):
            database = found.pop("database", None)
            (home / "services.json").write_text(json.dumps({**found, "there": there}))
            try:
                for life in range(len(plan.lives)):
                    live(home, plan, life, without)
                tables = {}
                if database is not None:
                    for place, kind in tables_of(home):
                        tables[place] = database.query(f"SELECT {COLUMNS[kind]} FROM {place}", user="ann")
                outcome.facts = dict(Judge(home, plan, tables).judge())
            finally:
                if full:
                    # What is on the small disk goes with it; whoever looks for a cause wants it.
                    shutil.copytree(home / "disk", home / "kept", dirs_exist_ok=True)
    except Wrong as wrong:
        outcome.verdict, outcome.why = "wrong", str(wrong)
    except Exception as failure:
        # What nobody thought of is wrong too, and the other seeds have their turn.
        outcome.verdict, outcome.why = "wrong", f"{type(failure).__name__}: {failure}"
        (home / "failure.txt").write_text(traceback.format_exc())
    except BaseException as failure:
        if type(failure).__name__ != "Skipped":
            raise
        outcome.verdict, outcome.why = "skipped", str(failure)
    for line in Journal(home).read("fired"):
        outcome.faults[line["kind"]] = outcome.faults.get(line["kind"], 0) + 1
    outcome.seconds = time.monotonic() - began
    return outcome


def tables_of(home: Path) -> list[tuple[str, str]]:
    """Tables of the database that queries of the plan were to write to."""
    from chaos_plan import Ask

    asks = {Ask(**ask) for line in Journal(home).read("edit") for ask in line["asks"]}
    return sorted({(place_of(ask), ask.kind) for ask in asks if ask.sink == "jdbc"})


def live(home: Path, plan: Plan, number: int, without: str) -> None:
    """Plays one life; Wrong if it does not end as it must: killed, or, the last, by itself."""
    from postgres import PASSWORD

    path = [str(FOLDER), str(FOLDER.parent / "support"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HEADRACE_TEST_PASSWORD": PASSWORD}
    # Short lives: compiling as well as it can be done takes longer than running.
    environment.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    command = [sys.executable, str(FOLDER / "chaos_driver.py"), str(home), str(plan.seed), str(number), without]
    log = home / f"life{number}.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True, cwd=home)
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Wrong(f"life {number} did not end within {PATIENCE_S} s") from None
    finally:
        # Spark's JVM may outlive its driver by a little, as it would anywhere; it is let go on.
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    wanted = 0 if number == len(plan.lives) - 1 else -signal.SIGKILL
    if code != wanted:
        lines = [line for line in log.read_text(errors="replace").splitlines() if "Error" in line or "Wrong" in line]
        raise Wrong(f"life {number} ended with {code}, not {wanted}: {(lines or ['nothing said'])[-1][:600]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="Random workloads and faults on real Spark, from seeds.")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from the first on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--home", type=Path, default=Path("build/chaos"))
    parser.add_argument("--without", default="nothing", help="take a safeguard away: the seed must then fail")
    parser.add_argument("--plain", action="store_true", help="files in, Parquet and Delta out, local Spark only")
    parser.add_argument("--brief", action="store_true", help="a life less, for the tests")
    parser.add_argument("--show", action="store_true", help="print the plan and do nothing")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else list(range(given.first, given.first + given.seeds))
    if given.show:
        for seed in seeds:
            print(make_plan(seed, *([not given.plain] * 3), given.brief))
        return 0
    root = given.home.absolute()
    root.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for seed in seeds:
        home = root / f"seed{seed}{'' if given.without == 'nothing' else '-' + given.without}"
        shutil.rmtree(home, ignore_errors=True)
        outcome = play(seed, home, given.without, given.plain, given.brief)
        print(outcome, flush=True)
        with (root / "report.jsonl").open("a") as report:
            report.write(json.dumps({**vars(outcome), "without": given.without}) + "\n")
        wrong += outcome.verdict == "wrong"
        if outcome.verdict != "wrong":
            shutil.rmtree(home, ignore_errors=True)
    print(f"{len(seeds)} seeds, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
