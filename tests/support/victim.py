"""A driver that tests kill: runs one pipeline over files, and dies where it is told to.

    python victim.py HOME BINS POINT@EPOCH WITHOUT [SEED [IO]]

It kills itself, with -9, at a named point of an epoch ("-": nowhere). WITHOUT names the safeguard it runs without
(decisions, sinks, manifests; "nothing": with all of them). With a SEED ("-": none) the ways of joins and the places of
keyed state are decided by chance, others in every epoch. IO is how tasks get at state. The point "mid-carry" lies
where Spark has written files for tasks and they do not have their names yet; it is counted by job.

The pipeline has rows dated around the wall clock of their epoch, so that a replay which asked the clock again would
admit other rows; two directly written queries and one that Spark SQL finishes; and flows: two joins, a row window, a
function, a SELECT without a window.
"""

from __future__ import annotations

import json
import os
import random
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
FLOWS = {
    "pairs": "SELECT a.i, b.i AS j FROM r AS a [RANGE 9 s] JOIN r AS b [RANGE 4 s] ON a.k = b.k AND a.i < b.i",
    "outer": "SELECT a.l, b.i FROM r AS a [RANGE 6 s] FULL JOIN r AS b [RANGE 2 s] ON a.s = b.s",
    "rows": "SELECT k, ts, i, SUM(i) AS v, COUNT(*) AS n, MEDIAN(x) AS m FROM r [PARTITION BY k ROWS 4]",
    "counted": "SELECT k, l FROM r [PARTITION BY k]",
    "plain": "SELECT k, upper(s) AS u, i * 2 AS d, ts FROM r WHERE g > 0",
}
COUNTED = "k STRING, l BIGINT, n BIGINT"
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
    from headrace.engine.sinks.choose import FileSink
    from headrace.engine.state.checkpoint import Checkpoint

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
    for name, sql in FLOWS.items():
        step = hr.step(counted, state="k STRING, n BIGINT", results=COUNTED) if name == "counted" else None
        pipe.query(name, sql, sink=hr.parquet(str(home / name)), step=step)
    return pipe


def counted(state: Any, rows: Any) -> tuple[Any, Any]:
    """For each row how many its key has had."""
    import polars as pl

    known = pl.from_arrow(state).rename({"n": "had"})
    new = pl.from_arrow(rows).with_columns(n=pl.int_range(1, pl.len() + 1).over("k"))
    told = new.join(known, on="k", how="left", nulls_equal=True, maintain_order="left")
    told = told.select("k", "l", n=pl.col("n") + pl.col("had").fill_null(0))
    kept = pl.concat([known.select("k", n="had"), told.select("k", "n")]).group_by("k").agg(pl.col("n").max())
    return kept.to_arrow(), told.to_arrow()


def decide_by_chance(seed: int) -> None:
    """Takes the decisions about flows away from the policies."""
    from joins import by_chance
    from keyed_chaos import Chaos

    from headrace.engine.operators import keyed
    from headrace.planning import joining

    joining.choose_way, joining.PERIOD = by_chance(random.Random(seed)), 1
    keyed.decide_keyed, keyed.SNAPSHOT_EPOCHS = Chaos(random.Random(seed)), 2


def finish(spark: Any, home: Path, bins: int, hooks: Hooks) -> None:
    """Runs the pipeline to its end and leaves its ledger."""
    run = pipeline(spark, home).start(spark, str(home / "state"), bins=bins, once=True, flush=True, hooks=hooks)
    run.await_termination()
    ledger = {name: [e.used, e.late, e.shed, e.rejected] for name, e in run.progress.ledger.items()}
    (home / "ledger.json").write_text(json.dumps(ledger))


def die_while_carrying(probe: Callable[[str], None]) -> None:
    from headrace.engine.state.spark_io import SparkIo

    adopt = SparkIo._name_files

    def probed(self: SparkIo, *arguments: Any) -> None:
        probe("mid-carry")
        adopt(self, *arguments)

    SparkIo._name_files = probed  # type: ignore[method-assign]


def main() -> None:
    home, bins, kill, without = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    seed, io = (*sys.argv[5:], *("-", "auto")[len(sys.argv) - 5 :])
    point, _, epoch = kill.partition("@")
    seen: dict[str, int] = {}

    def probe(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1
        if name == point and seen[name] == int(epoch) + 1:
            (home / "killed").write_text(kill)
            os.kill(os.getpid(), signal.SIGKILL)

    cripple(without)
    if seed != "-":
        decide_by_chance(int(seed))
    die_while_carrying(probe)
    conf = {"spark.driver.memory": "1g", "spark.headrace.state.io": io, "spark.headrace.flux.minis": "4"}
    spark = build_session("victim", "local[2]", conf)
    finish(spark, home, bins, Hooks(clock_us=clock(home, without), probe=probe))
    os._exit(0)


if __name__ == "__main__":
    main()
