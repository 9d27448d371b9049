"""A stream with a burst that no engine of a set speed can take, and the pipeline over it; also a driver to be killed.

    python overload.py HOME POINT EPOCH WEIGHTS

runs the pipeline, sheds, and kills itself with -9 at a named point of an epoch; WEIGHTS are those of queries, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from world import SECOND, START

import headrace as hr
from headrace.engine import Hooks, Manifest, build_session
from headrace.model import EpochDecision, threshold
from headrace.policies.shedding import RowSample

SCHEMA = "ts TIMESTAMP, k STRING, g INT, x DOUBLE, seq BIGINT"
QUERIES = {
    "total": "SELECT COUNT(*) AS n, SUM(x + 0) AS v FROM s [WINDOW 4 s SLIDE 2 s]",
    "by_key": "SELECT k, COUNT(*) AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY k",
    "finished": "SELECT g, COUNT(*) + 1 AS n FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY g HAVING COUNT(*) > 0",
}
# Seconds of an epoch that a row on an edge takes, and those of an epoch without rows: 0.8 s fit an epoch of a second.
ROW_S, FIXED_S = 1e-4, 0.1
# Rows of each epoch, of a second each: what all three synopses can take is 2700.
CALM, BURST = 1000, 12_000
EPOCHS = (CALM, CALM + 200, CALM - 200, CALM, BURST, BURST, CALM, CALM)


def tables(sizes: tuple[int, ...] = EPOCHS) -> list[pa.Table]:
    rng, made, first = np.random.default_rng(5), [], 0
    for epoch, rows in enumerate(sizes):
        times = np.sort(START + epoch * SECOND + rng.integers(0, SECOND, rows))
        made.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "k": [f"k{v}" for v in rng.integers(0, 9, rows)],
                    "g": pa.array(rng.integers(0, 4, rows), pa.int32()),
                    "x": rng.normal(100, 10, rows),
                    "seq": pa.array(range(first, first + rows), pa.int64()),
                }
            )
        )
        first += rows
    return made


def measured(sample: RowSample) -> RowSample:
    """What the epoch would have measured on a machine on which a row costs what it costs here."""
    edge_s = {edge: rows * ROW_S for edge, rows in sample.kept.items()}
    seconds = FIXED_S + sum(edge_s.values())
    return replace(sample, read_s=dict.fromkeys(sample.read_s, 0.0), edge_s=edge_s, seconds=seconds)


class Seen:
    """What a run decided and left."""

    def __init__(self) -> None:
        self.decisions: dict[int, EpochDecision] = {}
        self.manifests: dict[int, Manifest] = {}
        self.notes: list[str] = []

    def hooks(self, probe: Callable[[str], None] = lambda _: None) -> Hooks:
        return Hooks(
            clock_us=lambda epoch: START + (epoch + 100) * SECOND,
            probe=probe,
            on_decision=lambda decision: self.decisions.__setitem__(decision.epoch, decision),
            on_epoch=lambda manifest: self.manifests.__setitem__(manifest.epoch, manifest),
            on_note=self.notes.append,
            measured=measured,
            asked=lambda asked: replace(asked, between_s=0.0, answer_s=0.0),
        )

    @property
    def shed_epochs(self) -> list[int]:
        return [e for e, d in self.decisions.items() if d.shedding is not None and d.shedding.sheds]


# Pairs of rows of two streams with one of so many keys, and the rows of an epoch of the other stream.
KEYS, OTHERS = 4000, 600
PAIRS = f"SELECT s.seq, r.seq AS other FROM s [RANGE 1 s] JOIN r [RANGE 1 s] ON s.seq % {KEYS} = r.seq % {KEYS}"
SCALED = "SELECT k, SUM(x) AS v, COUNT(*) AS n, AVG(x) AS m, SUM(x) / 2 AS h FROM s [WINDOW 4 s SLIDE 2 s] GROUP BY k"


def pipeline(
    spark: Any,
    root: Path,
    never: tuple[str, ...] = (),
    weights: dict[str, float] | None = None,
    scaled: bool = False,
    protect: str | None = None,
    joined: bool = False,
    queries: Mapping[str, str] = QUERIES,
) -> Any:
    pipe = hr.Pipeline("shedding")
    for name, folder in (("s", "in"), ("r", "others"))[: 1 + joined]:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"file://{root}/{folder}")
        pipe.stream(name, rows, time="ts", lateness="0 seconds")
    if joined:
        pipe.query("pairs", PAIRS, sink=hr.parquet(f"{root}/pairs"), weight=3.0)
    for name, sql in queries.items():
        pipe.query(
            name,
            sql,
            sink=hr.parquet(f"{root}/{name}"),
            weight=(weights or {}).get(name, 1.0),
            shedding="never" if name in never else {"protect": protect} if protect and name == "by_key" else None,
        )
    if scaled:
        pipe.query("scaled", SCALED, sink=hr.parquet(f"{root}/scaled"), shedding={"scale": True})
    return pipe


def run(spark: Any, root: Path, seen: Seen, **given: Any) -> None:
    """Runs the pipeline over all its files and answers every window, unless it is said not to `flush`."""
    of_queries = ("never", "weights", "scaled", "protect", "joined", "queries")
    queries, flush = {key: given.pop(key) for key in of_queries if key in given}, given.pop("flush", True)
    probe = given.pop("probe", lambda _: None)
    started = pipeline(spark, root, **queries).start(
        spark, f"{root}/state", trigger="0 seconds", bins=2, hooks=seen.hooks(probe), **given
    )
    started.process_all_available()
    if flush:
        started.flush()
    started.stop()


def kept_rows(spark: Any, epochs: list[pa.Table], decisions: dict[int, EpochDecision], edge: str) -> pa.Table:
    """The rows of its stream that an edge keeps, as Spark tells from the logged decisions alone."""
    kept, stream = [], edge.partition(">")[0]
    for epoch, table in enumerate(epochs):
        admission = decisions[epoch].admissions.get(stream)
        if admission is None or edge not in {**admission.keep, **admission.keyed}:
            kept.append(table)
            continue
        if edge in admission.keyed:
            passes = f"xxhash64(seq % {KEYS}L) < {threshold(admission.keyed[edge])}L"
        else:
            hashed = ", ".join(f"`{name}`" for name in admission.hashed)
            passes = f"xxhash64({hashed}, {admission.seed}L) < {threshold(admission.keep[edge])}L"
        kept.append(spark.createDataFrame(table).filter(passes).toArrow().cast(table.schema))
    return pa.concat_tables(kept)


# Of the run that is killed.
SETTINGS = {"shedding": "fit", "backlog": "shed", "objective": "fair"}


def main() -> None:
    home, point, epoch, weights = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    met: dict[str, int] = {}

    def probe(name: str) -> None:
        met[name] = met.get(name, 0) + 1
        if name == point and met[name] == epoch + 1:
            (home / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    spark = build_session("victim", "local[2]", {"spark.driver.memory": "1g"})
    run(spark, home, Seen(), weights=weights, joined=True, probe=probe, **SETTINGS)
    os._exit(0)


if __name__ == "__main__":
    main()
