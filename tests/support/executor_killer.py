"""The driver of the test of a lost executor: python executor_killer.py MASTER HOME SCHEMA SQL

A task that absorbs kills its executor, once, and Spark may not repeat tasks. Prints, as one line of JSON, the error
that the run ended with, the queries that had failed then, and those that have failed after a second run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.engine import absorbing, build_session
from headrace.kernels.absorb import Absorbed, AbsorbTask


@dataclass(frozen=True)
class Killer(AbsorbTask):
    """Kills the executor it is in, in the third epoch, if no other has."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Absorbed]:
        assert self.folder is not None, "no query is tried"
        sign = f"{self.folder.removeprefix('file:')}/../killed"
        if self.epoch == 2 and not os.path.exists(sign):
            with open(sign, "w") as file:
                file.write("once")
            pid = os.getpid()
            for _ in range(2):  # the worker's parent's parent
                with open(f"/proc/{pid}/stat") as stat:
                    pid = int(stat.read().rpartition(")")[2].split()[1])
            os.kill(pid, signal.SIGKILL)
        yield from AbsorbTask.__call__(self, batches)


def main(master: str, home: Path, schema: str, sql: str) -> None:
    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.task.maxFailures": "1"}  # fmt: skip
    spark = build_session("killer", master, conf)
    absorbing.AbsorbTask = Killer  # type: ignore[misc]

    def start() -> Any:
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
        pipe = hr.Pipeline("killer").stream("r", rows, time="ts", lateness="20 seconds")
        pipe.query("q", sql, sink=hr.parquet(str(home / "out")))
        return pipe.start(spark, str(home / "state"), once=True, flush=True)

    told: dict[str, Any] = {}
    run = start()
    try:
        run.await_termination()
    except hr.EngineError as error:
        told["error"] = str(error)
    told["failed"], told["epoch"] = run.failed, run.progress.epoch
    run = start()
    run.await_termination()
    told["failed_later"] = run.failed
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5])
