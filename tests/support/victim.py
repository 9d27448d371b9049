"""A driver that tests kill: runs one pipeline over files, and dies where it is told to.

    python victim.py HOME BINS POINT@EPOCH WITHOUT [IO]

It kills itself, with -9, at a named point of an epoch ("-": nowhere). WITHOUT names the safeguard it runs without
(decisions, sinks, manifests; "nothing": with all of them). IO is how tasks get at state. The point "mid-carry" lies
where Spark has written files for tasks and they do not have their names yet; it is counted by job.

The pipeline has rows dated around the wall clock of their epoch, so that a replay which asked the clock again would
admit other rows; two directly written queries and one that Spark SQL finishes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from world import SCHEMA, START

import headrace as hr
from headrace.engine import Hooks, build_session

QUERIES = {
    "direct": "SELECT k, SUM(i) AS v, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k",
    "by_sql": "SELECT g, SUM(i) + 1 AS v, COUNT(DISTINCT s) AS n FROM r GROUP BY window(ts, '50 s', '20 s'), g",
    "total": "SELECT COUNT(*) AS n FROM r [WINDOW 40 s SLIDE 20 s]",
}  # fmt: skip
# Row windows and a function, where tasks open files themselves: asked for by HEADRACE_KEYED_KILLS, it takes long.
KEYED: dict[str, str] = (
    {}
    if "HEADRACE_KEYED_KILLS" not in os.environ
    else {
        "rows": "SELECT k, ts, i, SUM(i) AS v, COUNT(*) AS n, MEDIAN(x) AS m FROM r [PARTITION BY k ROWS 4]",
        "rows_by_sql": "SELECT g, ts, l, MAX(l) - MIN(l) AS v FROM r [PARTITION BY g ROWS 7]",
        "counted": "SELECT k, i FROM r [PARTITION BY k]",
    }
)
LATENESS_S = 20
AHEAD_S = 10
# Without decision replay the clock would have moved on by this when an epoch is run again.
SKEW_US = 3_600_000_000


def clock(home: Path, without: str) -> Any:
    """Wall time by epoch; an epoch that was decided before and asks again gets another time."""

    def now(epoch: int) -> int:
        decided = (home / "asked" / str(epoch)).exists()
        if (home / "state" / "decisions" / f"{epoch}.json").exists() or decided:
            return START + epoch * 20_000_000 + SKEW_US
        if without == "decisions":
            (home / "asked").mkdir(exist_ok=True)
            (home / "asked" / str(epoch)).touch()
        return START + epoch * 20_000_000

    return now


def cripple(without: str) -> None:
    """Takes one of the engine's three safeguards away."""
    from headrace.engine.checkpoint import Checkpoint
    from headrace.engine.sinks import FileSink

    if without == "decisions":
        Checkpoint.decision = lambda self, epoch: None  # type: ignore[method-assign]
        Checkpoint.write_decision = lambda self, decision: None  # type: ignore[method-assign]
    elif without == "sinks":
        adopt = FileSink.adopt

        def append(self: FileSink, files: list[str], epoch: int, replay: bool) -> None:
            """Appends under a name of its own, as a plain `mode("append")` would."""
            adopt(self, files, epoch * 1000 + len(self.storage.names("")), False)

        FileSink.adopt = append  # type: ignore[method-assign]
    elif without == "manifests":
        Checkpoint.commit = lambda self, manifest: None  # type: ignore[method-assign]


def pipeline(spark: Any, home: Path) -> hr.Pipeline:
    pipe = hr.Pipeline("victim")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe.stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds", ahead=f"{AHEAD_S} seconds")
    for name, sql in QUERIES.items():
        pipe.query(name, sql, sink=hr.parquet(str(home / name)))
    for name, sql in KEYED.items() if spark.conf.get("spark.headrace.state.io", "auto") != "spark" else ():
        step = hr.step(counted, state="k STRING, n BIGINT", results="k STRING, n BIGINT") if name == "counted" else None
        pipe.query(name, sql, sink=hr.parquet(str(home / name)), step=step)
    return pipe


def counted(state: Any, rows: Any) -> tuple[Any, Any]:
    """Per key how many rows it has had, after each epoch that brought some."""
    import pyarrow as pa

    new = rows.group_by("k").aggregate([([], "count_all")]).rename_columns(["k", "n"])
    both = pa.concat_tables([state.cast(new.schema), new])
    sums = both.group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])
    touched = set(new["k"].to_pylist())
    return sums, sums.filter(pa.array([key in touched for key in sums["k"].to_pylist()]))


def finish(spark: Any, home: Path, bins: int, hooks: Hooks) -> None:
    """Runs the pipeline to its end and leaves its ledger."""
    run = pipeline(spark, home).start(spark, str(home / "state"), bins=bins, once=True, flush=True, hooks=hooks)
    run.await_termination()
    ledger = {name: [e.used, e.late, e.shed, e.rejected] for name, e in run.progress.ledger.items()}
    (home / "ledger.json").write_text(json.dumps(ledger))


def die_while_carrying(probe: Callable[[str], None]) -> None:
    from headrace.engine.spark_io import SparkIo

    adopt = SparkIo._adopt

    def probed(self: SparkIo, *arguments: Any) -> None:
        probe("mid-carry")
        adopt(self, *arguments)

    SparkIo._adopt = probed  # type: ignore[method-assign]


def main() -> None:
    home, bins, kill, without, *io = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], *sys.argv[5:]
    point, _, epoch = kill.partition("@")
    seen: dict[str, int] = {}

    def probe(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1
        if name == point and seen[name] == int(epoch) + 1:
            (home / "killed").write_text(kill)
            os.kill(os.getpid(), signal.SIGKILL)

    cripple(without)
    die_while_carrying(probe)
    conf = {"spark.driver.memory": "1g", "spark.headrace.state.io": io[0] if io else "auto"}
    spark = build_session("victim", "local[2]", conf)
    finish(spark, home, bins, Hooks(clock_us=clock(home, without), probe=probe))
    os._exit(0)


if __name__ == "__main__":
    main()
