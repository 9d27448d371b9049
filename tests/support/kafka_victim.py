"""A driver that tests kill: runs a pipeline file, and dies where it is told to.

    python kafka_victim.py PIPELINE POINT@EPOCH

It kills itself, with -9, at a named point of an epoch. With "once" in the place of POINT@EPOCH it uses all there is,
answers what is open, and leaves its ledger beside the file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import headrace as hr
from headrace.engine import Hooks, build_session, session_settings


def main() -> None:
    file, until = Path(sys.argv[1]), sys.argv[2]
    point, _, epoch = until.partition("@")
    pipe = hr.Pipeline.from_file(file)
    # Little of what this driver compiles is used often.
    conf = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = build_session("victim", "local[2]", session_settings(pipe.model, conf))
    at = -1

    def probe(name: str) -> None:
        nonlocal at
        if name == "after-decision":
            decisions = (file.parent / "state" / "decisions").glob("*.json")
            at = max(int(path.stem) for path in decisions)
        if name == point and at >= int(epoch):
            (file.parent / f"killed-{point}").write_text(str(at))
            os.kill(os.getpid(), signal.SIGKILL)

    once = until == "once"
    run = pipe.start(spark, once=once, flush=once, hooks=Hooks(probe=probe, on_note=lambda note: print("note:", note)))
    run.await_termination()
    ledger = {name: [e.used, e.late, e.shed, e.rejected] for name, e in run.progress.ledger.items()}
    states = {name: [query.failed, query.rows] for name, query in run.progress.queries.items()}
    (file.parent / "ledger.json").write_text(json.dumps({"ledger": ledger, "queries": states}))
    os._exit(0)


if __name__ == "__main__":
    main()
