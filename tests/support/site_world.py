"""A pipeline whose streams are born at three sites, its answers by DuckDB, and a process that runs it until killed.

`python site_world.py HOME STRATEGY KILL` runs all sites to the end, unless SITE:POINT@N comes first: the N-th time
that the site passes the point.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from world import SCHEMA, SECOND, admit, assert_same, expected, results, unique_times, write_epochs
from world import make_epochs as make_rows

from headrace.engine import Hooks, Manifest, build_session, start
from headrace.engine.state.storage import open_storage
from headrace.language import load_pipeline
from headrace.model import SitePlan
from headrace.planning import KnownRates, place, plan_pipeline
from headrace.sites import SitePart, Where, cut, cut_as_placed, parts_to_run
from headrace.sites.running import ends_of, run_to_the_end
from headrace.sites.where import plan_of

BIRTHS = {"r": ("paris", "rome", "hub"), "f": ("rome",)}
LATENESS_S = 20
RANGES_S = 10, 5
PIPELINE = """\
streams:
  r: {source: {format: parquet, path: 'in/{site}/r', options: {maxFilesPerTrigger: 1}}, schema: '%SCHEMA', time: ts,
      lateness: 20 seconds}
  f: {source: {format: parquet, path: in/rome/f, options: {maxFilesPerTrigger: 1}}, schema: '%SCHEMA', time: ts,
      lateness: 20 seconds}
queries:
  by_key: {sql: "SELECT k, SUM(i) AS v, COUNT(DISTINCT s) AS n, percentile(x, 0.5) AS m FROM r WHERE i > -500
                 GROUP BY window(ts, '60 seconds', '20 seconds'), k"}
  top: {sql: "SELECT s, COUNT(*) AS n, MAX(l) AS m FROM r GROUP BY window(ts, '1 minute'), s
              ORDER BY MAX(l) DESC LIMIT 3"}
  stats: {sql: "SELECT g, COUNT(*) AS n, AVG(i) AS a, STDDEV(x) AS dev, SUM(l) AS v, SUM(d) AS w, MIN(s) AS lo,
                 MAX(y) AS hi, COUNT_IF(b) AS yes, BIT_XOR(i) AS bits, median(i) AS m
                 FROM (SELECT * FROM r UNION ALL SELECT * FROM f) AS u WHERE i IS NOT NULL
                 GROUP BY window(ts, '60 seconds', '30 seconds'), g"}
  total: {sql: "SELECT COUNT(*) AS n, SUM(l) AS v, approx_count_distinct(k) AS e FROM r
                GROUP BY window(ts, '1 minute')"}
  pairs: {sql: "SELECT r.l AS a, f.l AS b FROM r [RANGE 10 s] JOIN f [RANGE 5 s] ON r.k = f.k"}
sites: {paris: {streams: [r]}, rome: {streams: [r, f]}, hub: {streams: [r], proxy: true}}
network: {latency_ms: {paris-hub: 12, rome-hub: 25, paris-rome: 30}}
placement: {strategy: %STRATEGY}
engine: {bins: 2}
""".replace("%SCHEMA", SCHEMA)
BORN = frozenset(("r", site) for site in BIRTHS["r"])
AT_HUB = dict.fromkeys(("by_key", "stats", "total"), "hub")
WHERE = {
    # Everywhere something, so that all sites send to each other and to themselves: rows to a join, panes to the rest.
    "spread": Where(
        {"by_key": "paris", "top": "hub", "stats": "rome", "total": "paris", "pairs": "rome"},
        BORN - {("r", "hub")},
        BORN,
    ),
    # Panes of one stream, which is born elsewhere, meet with rows of another.
    "panes": Where(AT_HUB, BORN, BORN),
}


def make_epochs(epochs: int = 4, rows: int = 90, without: str | None = None) -> dict[tuple[str, str], list[pa.Table]]:
    """By stream and birthplace rows in disorder, some of them late; a site may be `without` births."""
    births = [(stream, site) for stream, sites in BIRTHS.items() for site in sites if site != without]
    return {birth: unique_times(make_rows(seed, epochs, rows)) for seed, birth in enumerate(births, 30)}


def write(home: Path, tables: dict[tuple[str, str], list[pa.Table]], first: int, end: int) -> None:
    for (stream, site), epochs in tables.items():
        write_epochs(home / "in" / site / stream, epochs[first:end], first)


def parts_of(home: Path, strategy: str, born_at_hub: bool = True) -> dict[str, SitePart]:
    """The pipeline cut by a strategy, or as WHERE has it; with "one" all is born at one site, and nothing is late."""
    text = PIPELINE.replace("%STRATEGY", "optimal" if strategy in (*WHERE, "one") else strategy)
    if strategy == "one":
        text = text.partition("sites:")[0] + "engine: {bins: 2}\n"
        text = text.replace("in/{site}/r", "in/one/r").replace("in/rome/f", "in/one/f")
    (home / "p.yml").write_text(text)
    pipeline = load_pipeline(home / "p.yml")
    if strategy == "one":
        return parts_to_run(pipeline)
    if strategy == "panes" or not born_at_hub:
        sites = tuple(replace(site, streams=()) if site.proxy else site for site in pipeline.sites)
        pipeline = replace(pipeline, sites=sites)
    if strategy == "panes":
        pipeline = replace(pipeline, queries=tuple(q for q in pipeline.queries if q.name in AT_HUB))
    return cut(pipeline, WHERE[strategy]) if strategy in WHERE else cut_as_placed(pipeline)


def placed_by(home: Path, known: KnownRates) -> SitePlan:
    """What the pipeline's strategy would have sites send by what was measured."""
    pipeline = load_pipeline(home / "p.yml")
    return plan_of(place(pipeline, plan_pipeline(pipeline)[0], known))


def play(
    spark: Any,
    home: Path,
    strategy: str,
    flush: bool,
    hooks: Callable[[str], Hooks] = lambda site: Hooks(),
    born_at_hub: bool = True,
) -> dict[str, Manifest]:
    """Runs all sites to the end; by site what its last epoch left."""
    left: dict[str, Manifest] = {}

    def begin(part: SitePart, closing: bool | tuple[str, ...]) -> Any:
        run = start(part.pipeline, spark, once=True, flush=closing, ends=ends_of(part), hooks=hooks(part.site))

        class _Watched:
            def await_termination(self) -> None:
                run.await_termination()
                assert not run.failed
                left[part.site] = run.progress

        return _Watched()

    run_to_the_end(parts_of(home, strategy, born_at_hub), begin, flush, open_storage)
    return left


def admitted(tables: dict[tuple[str, str], list[pa.Table]]) -> dict[str, pa.Table]:
    """By stream what its birthplaces admit, each by its own clock."""
    return {
        stream: pa.concat_tables(
            admit(tables[stream, site], LATENESS_S).rows for site in sites if (stream, site) in tables
        )
        for stream, sites in BIRTHS.items()
    }


def check(home: Path, tables: dict[tuple[str, str], list[pa.Table]]) -> None:
    """All answers are DuckDB's over the union of what was admitted."""
    rows = admitted(tables)
    by_key = "k, sum(i)::bigint, count(DISTINCT s), quantile_cont(x, 0.5)"
    assert_same(results(home / "out/by_key"), expected(rows["r"], by_key, "k", 60, 20, True, "i > -500"))
    if ("r", "hub") in tables:
        assert_same(results(home / "out/top"), top(expected(rows["r"], "s, count(*), max(l)", "s", 60, 60, True)))
        assert_same(results(home / "out/pairs"), pairs(rows))
    both = pa.concat_tables([rows["r"], rows["f"]])
    stats = (
        "g, count(*), avg(i), stddev_samp(x), sum(l)::bigint, sum(d), min(s), max(y), count(*) FILTER (b), "
        "bit_xor(i), quantile_cont(i, 0.5)"
    )
    assert_same(results(home / "out/stats"), expected(both, stats, "g", 60, 30, True, "i IS NOT NULL"))
    total = "count(*), sum(l)::bigint, count(DISTINCT k)"
    assert_same(results(home / "out/total"), expected(rows["r"], total, "", 60, 60, True))


def top(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The three greatest of each window, those without a value last."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in sorted(rows, key=lambda row: (row[4] is None, -(row[4] or 0))):
        found.setdefault(row[0], []).append(row)
    return [row for window in found.values() for row in window[:3]]


def pairs(rows: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in rows.items():
        connection.register(f"{name}_rows", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {name}_rows")
    mine, theirs = (seconds * SECOND for seconds in RANGES_S)
    within = f"((f.t BETWEEN r.t - {theirs} AND r.t) OR (r.t BETWEEN f.t - {mine} AND f.t))"
    return connection.execute(f"SELECT r.l, f.l FROM r JOIN f ON r.k = f.k AND {within}").fetchall()


def main() -> None:
    home, strategy, kill = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    victim, _, rest = kill.partition(":")
    point, _, count = rest.partition("@")
    seen: list[str] = []

    def hooks(site: str) -> Hooks:
        def probe(name: str) -> None:
            if (site, name) == (victim, point):
                seen.append(name)
                if len(seen) == int(count):
                    (home / "killed").write_text(kill)
                    os.kill(os.getpid(), signal.SIGKILL)

        return Hooks(probe=probe)

    spark = build_session("sites", "local[2]", {"spark.driver.memory": "1g"})
    play(spark, home, strategy, True, hooks)
    os._exit(0)


if __name__ == "__main__":
    main()
