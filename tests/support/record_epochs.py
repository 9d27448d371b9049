"""Makes a record of a run on Spark for tests: `python record_epochs.py PIPELINE CHECKPOINT OUT.json`.

The pipeline's streams are those of `pipelines.py`; its queries and settings are kept with its last epochs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.engine.watch.recorded import read_recorded
from headrace.language import load_pipeline
from headrace.model import plain
from headrace.planning import Recorded

# Each with the one before it: two steps of every policy.
EPOCHS = 3


def main(spec: str, checkpoint: str, out: str) -> None:
    pipeline, found = load_pipeline(Path(spec)), read_recorded(checkpoint)
    engine = f"trigger: {pipeline.engine.trigger_us / 1e6:g} seconds, shedding: {pipeline.engine.shedding}"
    queries = {query.name: query.sql for query in pipeline.queries}
    recorded = plain(Recorded(found.epochs[-EPOCHS:], found.bins))
    value = {"queries": queries, "engine": engine, "recorded": recorded}
    Path(out).write_text(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
