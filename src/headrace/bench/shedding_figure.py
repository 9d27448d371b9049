"""Two queries of which an engine has time for half the rows: what reaches their answers, beside the best there is.

What a row costs is set: an epoch is made to last as long as the rows that each query kept cost by these numbers, beside
what it takes by itself. So the best throughput for the time that is left is known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace.bench.burst import SCHEMA, TRIGGER_S, Feed, Seen
from headrace.bench.measure import Say
from headrace.language import bind_query, parse_schema
from headrace.model import Pipeline, Stream
from headrace.planning import Shedding, edges_of
from headrace.planning.explain import plan_pipeline
from headrace.planning.shedding import ANSWERS, HEADROOM
from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    Port,
    RowSample,
    Throughput,
    outcome,
    plan_centrally,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["two_queries"]

QUERIES = {
    "cheap": "SELECT k, SUM(v) AS v FROM r [WINDOW 4 s SLIDE 4 s] GROUP BY k",
    "dear": "SELECT g, SUM(v) AS v FROM r [WINDOW 4 s SLIDE 4 s] GROUP BY g",
}
# Seconds that a row of each query takes. Rows come at twice the rate that fits an epoch, if it takes so long by itself.
COSTS_S = {"cheap": 1e-4, "dear": 3e-4}
EPOCH_S, OWN_S = 2.0, 0.4
RATE = 2 * (EPOCH_S * (1 - max(HEADROOM)) - OWN_S) / EPOCH_S / sum(COSTS_S.values())
# At first rows come at rates that fit, one and the other, in which costs are learned.
CALM_S, CALM = 20.0, (0.25, 0.45)
# Epochs after that which are not counted: what came before a decision has been taken in.
FIRST = 2


@dataclass
class _Paced(Seen):
    """Makes epochs last as long as their rows cost; notes by epoch what queries got, and what else it took."""

    rows: list[Mapping[str, int]] = field(default_factory=list)
    came: list[int] = field(default_factory=list)
    other_s: list[float] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    edges: Mapping[str, str] = field(default_factory=lambda: _edges())  # by edge its query

    def measured(self, sample: RowSample) -> RowSample:
        cost_s = {edge: kept * COSTS_S[self.edges[edge]] for edge, kept in sample.kept.items()}
        self.rows.append({self.edges[edge]: kept for edge, kept in sample.kept.items()})
        self.came.append(sum(sample.rows.values()))
        self.other_s.append(sample.seconds)
        self.at_s.append(time.time())
        time.sleep(sum(cost_s.values()))
        spent_s = {edge: sample.edge_s.get(edge, 0.0) + seconds for edge, seconds in cost_s.items()}
        return replace(sample, edge_s=spent_s, seconds=sample.seconds + sum(cost_s.values()))


def two_queries(spark: SparkSession, home: Path, seconds: float, say: Say) -> dict[str, Any]:
    """The same stream with shedding and without: rows per second that each query got, and how late they were.

    `over_optimum` are the rows that queries got, over what a linear program makes of the same time and the same rows.
    """
    shed, off = (_play(spark, home, seconds, shedding) for shedding in ("fit", "off"))
    say(
        f"two queries: {shed['over_optimum']:.0%} of the optimum, at most {max(shed['lags_s']):.1f} s late; "
        f"without shedding {off['lags_s'][-1]:.1f} s in the end"
    )
    return {"rate_rows_per_s": round(RATE), "costs_s": COSTS_S, "epoch_s": EPOCH_S, "shedding": shed, "off": off}


def _play(spark: SparkSession, home: Path, seconds: float, shedding: str) -> dict[str, Any]:
    out, seen = home / f"figure-{shedding}", _Paced()
    feed = Feed(out / "in", _rate, CALM_S + seconds)
    rows = spark.readStream.schema(SCHEMA).parquet(str(out / "in"))
    pipe = hr.Pipeline("two queries").stream("r", rows, time="ts", lateness="1 second")
    for query, sql in QUERIES.items():
        pipe.query(query, sql, sink=hr.parquet(str(out / query)))
    hooks = replace(seen.hooks(), measured=seen.measured)
    with feed:
        run = pipe.start(spark, str(out / "state"), trigger=f"{EPOCH_S:g} seconds", hooks=hooks, shedding=shedding)
    run.stop()
    lags = seen.lags(feed.began_s, math.inf)
    states = (manifest.shedding for _, manifest in seen.manifests)
    best = [_best(*each) for each in zip(seen.came, seen.other_s, states, strict=False)]
    calm = sum(at < feed.began_s + CALM_S for at in seen.at_s)
    got = sum(sum(each.values()) for each in seen.rows[calm + FIRST :])
    return {
        "at_s": [round(lag.ended_s - feed.began_s, 2) for lag in lags],
        "lags_s": [round(lag.epochs * TRIGGER_S, 2) for lag in lags],
        "rows": [dict(each) for each in seen.rows],
        "came": seen.came,
        "best_rows": [round(rows) for rows in best],
        "calm_epochs": calm,
        "over_optimum": round(got / max(1.0, sum(best[calm + FIRST :])), 3),
    }


def _rate(at_s: float) -> float:
    return RATE if at_s >= CALM_S else RATE * CALM[int(at_s / EPOCH_S) % len(CALM)]


def _edges() -> dict[str, str]:
    """By edge into a synopsis its query."""
    stream = Stream("r", parse_schema(SCHEMA), time="ts")
    bound = tuple(bind_query(name, sql, {"r": stream}) for name, sql in QUERIES.items())
    workload, _ = plan_pipeline(Pipeline("two queries", (stream,), bound))
    return {edge: name for name in QUERIES for edge in edges_of(workload, name)}


def _best(came: int, other_s: float, state: Shedding) -> float:
    """The most rows that queries can get of an epoch's rows, in what its own work, answers and the headroom leave."""
    left_s = EPOCH_S * (1 - state.headroom) - min(state.answers_s, ANSWERS * EPOCH_S) - other_s
    branches = tuple(Branch(name, cost, queries=(name,)) for name, cost in COSTS_S.items())
    network = Network((Place("epoch", (Input("r", branches),), max(1e-9, left_s)),))
    rates = {Port("epoch", "r"): float(came)}
    return float(outcome(network, rates, plan_centrally(network, rates, Throughput()), Throughput()).worth)
