"""What `simulate` predicts from the checkpoint of one run, beside what a run at another rate is measured to do."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace.bench.feed import SCHEMA, Feed, Seen
from headrace.bench.measure import Say, result
from headrace.engine import build_session
from headrace.engine.watch.recorded import read_recorded
from headrace.simulation.whatif import Rate, Scenario, set_up, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_simulate"]

TRIGGER_S = 1.0
# Rates of runs that are learned from rise for so long, and begin anew: what rows take must be told from what epochs do.
RISE_S = 8.0
# A prediction is near if it is within this part of what was measured.
NEAR = 0.25


@dataclass(frozen=True)
class _Case:
    """A pipeline, the rate at which it is learned (rows/s of each stream), and how many times that is predicted."""

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


def _run(spark: SparkSession, home: Path, case: _Case, times: float, seconds: float) -> tuple[_Measured, hr.Pipeline]:
    """One run: over feeds that rise and fall where it is learned from, at a constant rate where it is measured."""

    def rate(at_s: float) -> float:
        return case.rate * (0.4 + 0.6 * (at_s % RISE_S) / RISE_S if times == 1 else times)

    seen, feeds = Seen(), [Feed(home / name, rate, seconds) for name in case.streams]
    pipe = hr.Pipeline(case.name)
    for name in case.streams:
        rows = spark.readStream.schema(SCHEMA).parquet(str(home / name))
        pipe.stream(name, rows, time="ts", lateness="1 second")
    for query, sql in case.queries.items():
        pipe.query(query, sql, sink=hr.parquet(str(home / "out" / query)))
    for feed in feeds:
        feed.__enter__()
    run = pipe.start(spark, str(home / "state"), trigger=f"{TRIGGER_S:g} seconds", hooks=seen.hooks(), **case.settings)
    for feed in feeds:
        feed.__exit__()
    run.stop()
    return _measured(seen, feeds[0].began_s + seconds / 2, feeds[0].began_s + seconds), pipe


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
    """A sharing, a join and an overload case, each run at one rate, and predicted and run at another.

    - `used_<case>`: rows per second that are predicted to be used, over those that were.
    - `lag_<case>`: seconds that the oldest row of an epoch is predicted to have waited at its end, over those it had.

    It is correct if every case was measured over several epochs; the ratios say how near predictions are.
    """
    seconds = 20.0 if quick else 30.0
    ratios, measures = dict[str, float](), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        spark = build_session("bench simulate", conf={"spark.driver.memory": "4g"})
        for case in CASES:
            _run(spark, Path(folder) / "warm" / case.name, case, 1.0, seconds / 2)
        for case in CASES:
            home = Path(folder) / case.name
            learned, pipe = _run(spark, home / "learned", case, 1.0, seconds)
            model = pipe.model
            model = replace(model, engine=replace(model.engine, trigger_us=int(TRIGGER_S * 1e6), **case.settings))
            setup = set_up(model, read_recorded(str(home / "learned" / "state")))
            rates = Rate(rows_per_s=case.rate * case.times * len(case.streams))
            predicted = simulate(setup, Scenario(rates, minutes=seconds / 60))
            there, _ = _run(spark, home / "there", case, case.times, seconds)
            say(
                f"{case.name}: predicted {predicted.used_per_s:,.0f} rows/s used and a lag of {predicted.lag_s:.2f} s, "
                f"measured {there.used_per_s:,.0f} rows/s and {there.lag_s:.2f} s in {there.epochs} epochs"
            )
            ratios[f"used_{case.name}"] = predicted.used_per_s / there.used_per_s if there.used_per_s else 0.0
            ratios[f"lag_{case.name}"] = predicted.lag_s / there.lag_s if there.lag_s else 0.0
            measures[case.name] = {
                "learned": _numbers(learned),
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
