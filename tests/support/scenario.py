"""One pipeline over random rows, stopped and started again half way, wherever its checkpoint and results are.

Two files per epoch, so that chunks gather fast enough to be merged; a row without a time in each, so that some rows are
rejected; queries that tasks finish, one that Spark SQL finishes, one without keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from world import SCHEMA, admit, assert_same, expected, make_epochs

import headrace as hr
from headrace.engine import Hooks, Manifest

LATENESS_S = 20
EPOCHS = 9
# name: (select list, group by, the rest, window in s, slide in s, hopping), and what DuckDB selects
QUERIES: dict[str, tuple[tuple[str, str, str, int, int, bool], str]] = {
    "keyed": (("k, SUM(i) AS v, COUNT(DISTINCT s) AS n", "k", "", 900, 60, False),
              "k, sum(i)::bigint, count(DISTINCT s)"),
    "by_sql": (("g, SUM(i) + 1 AS v", "g", "HAVING COUNT(*) > 0", 60, 20, True), "g, (sum(i) + 1)::bigint"),
    "total": (("COUNT(*) AS n, MAX(x) AS m", "", "", 40, 20, False), "count(here), max(x)"),
}  # fmt: skip


@dataclass
class Seen:
    """What happened: the last manifest, and the highest level of any chunk."""

    manifest: Manifest | None = None
    level: int = 0
    jobs: list[int] = field(default_factory=list)

    def watch(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.level = max([self.level, *(chunk.level for chunk in manifest.chunks)])
        self.jobs.append(manifest.observed.jobs)


def sql(select: str, group_by: str, rest: str, size: int, slide: int, hopping: bool) -> str:
    keys = ([f"window(ts, '{size} seconds', '{slide} seconds')"] if hopping else []) + ([group_by] if group_by else [])
    window = "" if hopping else f"[WINDOW {size} s SLIDE {slide} s]"
    return f"SELECT {select} FROM r {window} {'GROUP BY ' + ', '.join(keys) if keys else ''} {rest}"


def write_halves(folder: Path, tables: list[pa.Table], first: int) -> None:
    """Two files per epoch, each with a row that has no time."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables, first):
        half = table.num_rows // 2
        untimed = pa.table({name: pa.nulls(1, table.schema.field(name).type) for name in table.column_names})
        for side, rows in enumerate((table.slice(0, half), table.slice(half))):
            path = folder / f"{number:05d}-{side}.parquet"
            pq.write_table(pa.concat_tables([rows, untimed]), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def pipeline(spark: Any, source: Path, root: str) -> hr.Pipeline:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).parquet(f"file://{source}")
    pipe = hr.Pipeline("scenario").stream("r", rows, time="ts", lateness=f"{LATENESS_S} seconds")
    for name, (parts, _) in QUERIES.items():
        pipe.query(name, sql(*parts), sink=hr.parquet(f"{root}/{name}"))
    return pipe


def play(spark: Any, source: Path, root: str, bins: int, seed: int) -> Seen:
    """Runs the scenario with checkpoint and results under `root`, and compares with DuckDB."""
    tables = make_epochs(seed, epochs=EPOCHS, rows=120)
    seen = Seen()
    for first, part in ((0, tables[:5]), (5, tables[5:])):
        write_halves(source, part, first)
        hooks = Hooks(on_epoch=seen.watch)
        run = pipeline(spark, source, root).start(
            spark, f"{root}/state", bins=bins, once=True, flush=first > 0, hooks=hooks
        )
        run.await_termination()
    check(spark, root, tables, seen)
    return seen


def check(spark: Any, root: str, tables: list[pa.Table], seen: Seen) -> None:
    admission = admit(tables, LATENESS_S)
    for name, ((_, group_by, _, size, slide, hopping), duck) in QUERIES.items():
        found = spark.read.parquet(f"{root}/{name}").toArrow().to_pylist()
        assert_same(
            [tuple(row.values()) for row in found], expected(admission.rows, duck, group_by, size, slide, hopping)
        )
    assert seen.manifest is not None
    entry = seen.manifest.ledger["r"]
    assert (entry.used, entry.late, entry.rejected) == (admission.rows.num_rows, admission.late, 2 * len(tables))
    assert spark.read.schema("reason STRING").json(f"{root}/state/rejected").count() == entry.rejected
    assert seen.level > 0, "chunks were merged"
