"""The driver of the test of keyed state on a cluster: one move and the death of an executor, each at its epoch.

Prints, as one line of JSON, what each epoch observed and the bytes Spark has shuffled since the start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.bench.cluster import executor_of
from headrace.engine import Hooks, Manifest, build_session
from headrace.engine.operators import keyed
from headrace.model import KeyedDecision, KeyedState, Move, Residence, plain

MOVE_AT, DEATH_AT = 4, 7


def main(master: str, home: Path, schema: str, sql: str, lateness: str) -> None:
    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.headrace.flux.minis": "8"}  # fmt: skip
    spark = build_session("keyed", master, conf)
    epochs: list[dict[str, Any]] = []

    def decide(state: KeyedState, bins: int, *_: object, **__: object) -> KeyedDecision:
        owners, moves = list(state.owners), list[Move]()
        if len(epochs) == MOVE_AT:
            mini = max(range(len(owners)), key=lambda m: state.state_bytes[m])
            moves.append(Move(mini, owners[mini], (owners[mini] + 1) % bins, state.state_bytes[mini], "the test"))
            owners[mini] = moves[0].target
        return KeyedDecision(tuple(owners), bins, tuple(moves), residence=(Residence(),) * bins, reason="the test")

    def note(manifest: Manifest) -> None:
        listed = spark.sparkContext._jsc.sc().statusStore().executorList(False)
        listed = spark.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(listed)
        shuffled = sum(int(each.totalShuffleWrite()) + int(each.totalShuffleRead()) for each in listed)
        state = manifest.flows["q"]
        moved = [plain(move) for epoch, move in state.history if epoch == manifest.epoch]
        seen = plain(manifest.observed.flows["q"])
        epochs.append({**seen, "shuffled": shuffled, "moved": moved, "owners": state.owners,
                       "sizes": state.state_bytes})  # fmt: skip
        if len(epochs) == DEATH_AT:
            victim = executor_of(int(seen["places"][0].rpartition(":")[2]))
            epochs[-1]["victim"] = victim
            os.kill(victim, signal.SIGKILL)

    keyed.decide_keyed = decide  # type: ignore[assignment]
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("keyed").stream("r", rows, time="ts", lateness=lateness)
    pipe.query("q", sql, sink=hr.parquet(str(home / "out")))
    pipe.start(spark, str(home / "state"), once=True, flush=True, hooks=Hooks(on_epoch=note)).await_termination()
    print(json.dumps(epochs))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:6])
