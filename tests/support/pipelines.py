"""A pipeline of every kind of node, for simulations: aggregates of both forms, a join, a row window, a subquery."""

from __future__ import annotations

from pathlib import Path

from headrace.language import load_pipeline
from headrace.model import Pipeline

__all__ = ["EVERY_KIND", "FILES", "pipeline_of"]

FILES = """
streams:
  r:
    source: {format: parquet, path: r}
    schema: ts TIMESTAMP, k INT, g INT, v INT, seq BIGINT
    time: ts
    lateness: 1 second
    rate: 20000 rows/s
  t:
    source: {format: parquet, path: t}
    schema: ts TIMESTAMP, k INT, g INT, v INT, seq BIGINT
    time: ts
    lateness: 1 second
    rate: 1000 rows/s
output: out
"""
EVERY_KIND = {
    "sliding": "SELECT k, SUM(v) AS v FROM r [WINDOW 10 s SLIDE 2 s] GROUP BY k",
    "aligned": "SELECT g, COUNT(*) AS n FROM r WHERE v > 10 GROUP BY window(ts, '5 seconds'), g",
    "pairs": "SELECT r.k, r.v, t.v AS w FROM r [RANGE 5 s] JOIN t [RANGE 5 s] ON r.k = t.k",
    "last": "SELECT k, AVG(v) AS m FROM r [PARTITION BY k ROWS 10]",
    "met": "SELECT p.k, COUNT(*) AS n FROM (SELECT r.k AS k, t.v AS v FROM r [RANGE 2 s] JOIN t [RANGE 2 s] "
    "ON r.k = t.k) AS p [WINDOW 4 s SLIDE 4 s] GROUP BY p.k",
    "passing": "SELECT k, v FROM t WHERE v > 5",
}


def pipeline_of(
    folder: Path, queries: dict[str, str], engine: str = "trigger: 1 second", files: str = FILES
) -> Pipeline:
    """The pipeline of these queries over files, as its file in this folder says it."""
    lines = ["name: world", files, f"engine: {{{engine}, checkpoint: state}}", "queries:"]
    for name, sql in queries.items():
        lines += [f"  {name}:", f"    sql: {sql}"]
    path = folder / "pipeline.yml"
    path.write_text("\n".join(lines))
    return load_pipeline(path)
