"""What `simulate` predicts from a run's checkpoint when its rate is about to change, beside what the run then does."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace.bench.burst import SCHEMA, TRIGGER_S, Feed, Seen
from headrace.bench.measure import Say, result
from headrace.engine import build_session
from headrace.engine.watch.recorded import read_recorded
from headrace.simulation.whatif import Prediction, Rate, Scenario, set_up, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_simulate"]

# While a run is learned from, its rate rises for so long and begins anew: it tells what rows take from what epochs do.
RISE_S = 8.0
# A prediction is near if it is within this part of what was measured.
NEAR = 0.25


@dataclass(frozen=True)
class _Case:
    """A pipeline, the rate it is learned at (rows/s of each stream, at most), and how many times that is predicted."""

    name: str
    queries: dict[str, str]
    rate: float
    times: float
    streams: tuple[str, ...] = ("r",)
    settings: dict[str, Any] = field(default_factory=dict)


CASES = (
    _Case(
        "sharing",
        {
            f"q{size}": f"SELECT k, SUM(v) AS bytes, COUNT(*) AS n FROM r [WINDOW {size} s SLIDE 2 s] GROUP BY k"
            for size in (4, 6, 8, 10, 12, 14, 16, 18)
        },
        20_000,
        3.0,
    ),
    _Case(
        "join",
        {"pairs": "SELECT r.k, r.v, t.v AS w FROM r [RANGE 4 s] JOIN t [RANGE 4 s] ON r.k = t.k AND r.g = t.g"},
        1_000,
        2.0,
        ("r", "t"),
    ),
    _Case(
        "overload",
        {
            "sums": "SELECT k, SUM(v) AS bytes FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY k",
            "median": "SELECT g, MEDIAN(v) AS m FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
            "distinct": "SELECT g, COUNT(DISTINCT seq) AS n FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g",
        },
        20_000,
        8.0,
        settings={"shedding": "fit"},
    ),
)


@dataclass(frozen=True)
class _Measured:
    """The second half of a run: rows used per second, mean seconds that rows had waited, and epochs."""

    used_per_s: float
    lag_s: float
    epochs: int


def _run(spark: SparkSession, home: Path, case: _Case, learn_s: float, then_s: float) -> tuple[_Measured, Prediction]:
    """One run: its rate rises and falls at first; then what its checkpoint predicts is measured, at a constant rate."""

    def rate(at_s: float) -> float:
        return case.rate * (0.4 + 0.6 * (at_s % RISE_S) / RISE_S if at_s < learn_s else case.times)

    seen, feeds = Seen(), [Feed(home / name, rate, learn_s + then_s) for name in case.streams]
    pipe = hr.Pipeline(case.name)
    for name in case.streams:
        rows = spark.readStream.schema(SCHEMA).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness="1 second")
    for query, sql in case.queries.items():
        pipe.query(query, sql, sink=hr.parquet(str(home / "out" / query)))
    began_s = time.time()
    with ExitStack() as feeding:
        for feed in feeds:
            feeding.enter_context(feed)
        run = pipe.start(
            spark, str(home / "state"), trigger=f"{TRIGGER_S:g} seconds", hooks=seen.hooks(), **case.settings
        )
        time.sleep(max(0.0, began_s + learn_s - time.time()))
        recorded = read_recorded(str(home / "state"))
    run.stop()
    engine = replace(pipe.model.engine, trigger_us=round(TRIGGER_S * 1e6), **case.settings)
    setup = set_up(replace(pipe.model, engine=engine), recorded)
    rates = Rate(rows_per_s=case.rate * case.times * len(case.streams))
    predicted = simulate(setup, Scenario(rates, minutes=then_s / 60))
    return _measured(seen, began_s + learn_s + then_s / 2, began_s + learn_s + then_s), predicted


def _measured(seen: Seen, begin_s: float, end_s: float) -> _Measured:
    inside = [i for i, (at, _) in enumerate(seen.manifests) if begin_s <= at < end_s and i]
    lags = []
    for number in inside:
        at, before = seen.manifests[number][0], seen.manifests[number - 1][1]
        newest = [clock.last_us for clock in before.clocks.values() if clock.last_us is not None]
        if newest:
            # The oldest row of an epoch came right after the newest of the epoch before.
            lags.append(at - min(newest) / 1e6)
    if len(inside) < 2:
        return _Measured(0.0, 0.0, len(inside))
    first, last = seen.manifests[inside[0] - 1], seen.manifests[inside[-1]]
    used = sum(e.used for e in last[1].ledger.values()) - sum(e.used for e in first[1].ledger.values())
    return _Measured(used / (last[0] - first[0]), fmean(lags), len(inside))


def bench_simulate(quick: bool, say: Say) -> dict[str, Any]:
    """A sharing, a join and an overload case: what is predicted of the rate that comes next, and what then happens.

    - `used_<case>`: rows per second that are predicted to be used, over those that were.
    - `lag_<case>`: seconds that the oldest row of an epoch is predicted to have waited at its end, over those it had.

    It is correct if every case was measured over several epochs; the ratios say how near predictions are.
    """
    learn_s, then_s = (16.0, 12.0) if quick else (32.0, 24.0)
    ratios, measures = dict[str, float](), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        spark = build_session("bench simulate", conf={"spark.driver.memory": "4g"})
        for case in CASES:
            there, predicted = _run(spark, Path(folder) / case.name, case, learn_s, then_s)
            say(
                f"{case.name}: predicted {predicted.used_per_s:,.0f} rows/s used and a lag of {predicted.lag_s:.2f} s, "
                f"measured {there.used_per_s:,.0f} rows/s and {there.lag_s:.2f} s in {there.epochs} epochs"
            )
            ratios[f"used_{case.name}"] = predicted.used_per_s / there.used_per_s if there.used_per_s else 0.0
            ratios[f"lag_{case.name}"] = predicted.lag_s / there.lag_s if there.lag_s else 0.0
            measures[case.name] = {
                "measured": _numbers(there),
                "predicted": {"used_per_s": round(predicted.used_per_s), "lag_s": round(predicted.lag_s, 2)},
                "steps_s": {step: round(value, 3) for step, value in predicted.steps_s.items()},
                "guesses": list(predicted.guesses),
            }
    measures["near"] = sum(abs(ratio - 1) <= NEAR for ratio in ratios.values())
    correct = all(measures[case.name]["measured"]["epochs"] >= 2 for case in CASES)
    return result("simulate", correct, ratios, measures)


def _numbers(measured: _Measured) -> dict[str, float]:
    """Its numbers, rounded."""
    return {"used_per_s": round(measured.used_per_s), "lag_s": round(measured.lag_s, 2), "epochs": measured.epochs}
