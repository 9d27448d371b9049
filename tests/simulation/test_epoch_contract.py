"""One suite for both adapters of the policies: epochs that Spark ran, as they were recorded, and simulated ones.

`recorded/NAME.json` has the queries, the settings and the last epochs of a run on Spark (`support/record_epochs.py`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from epoch_contract import CHECKS, Pair
from pipelines import EVERY_KIND, pipeline_of

from headrace.model import Entry, restored
from headrace.planning import Recorded
from headrace.simulation.whatif import Scenario, rate_of, set_up, simulate

HEAVY = {"median": "SELECT g, MEDIAN(v) AS m FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g"}
RECORDED = Path(__file__).parent / "recorded"
ON_SPARK = sorted(path.stem for path in RECORDED.glob("*.json"))
# Pipeline, engine settings, rate and epochs.
SIMULATED: dict[str, tuple[dict[str, str], str, str]] = {
    "every kind": (EVERY_KIND, "trigger: 1 second", "1x"),
    "hurried": (EVERY_KIND, "trigger: 500 ms, shedding: fit", "4x"),
    "overload": (HEAVY, "trigger: 1 second, shedding: fit", "25x"),
}


@cache
def pairs_of(adapter: str, name: str) -> tuple[Pair, ...]:
    with TemporaryDirectory() as folder:
        if adapter == "spark":
            value = json.loads((RECORDED / f"{name}.json").read_text())
            pipeline = pipeline_of(Path(folder), value["queries"], value["engine"])
            epochs = restored(Recorded, value["recorded"]).epochs
            setup = set_up(pipeline)
        else:
            queries, engine, rate = SIMULATED[name]
            pipeline = pipeline_of(Path(folder), queries, engine)
            if name == "overload":
                pipeline = replace(pipeline, streams=(replace(pipeline.streams[0], source=None),))
            setup = set_up(pipeline, hosts=1 if name == "overload" else 4)
            epochs = tuple(b.record for b in simulate(setup, Scenario(rate_of(rate), minutes=0.5)).beats)
    following = [
        Pair(setup.pipeline, setup.workload, before, after)
        for before, after in pairwise(epochs)
        if after.decision.epoch == before.decision.epoch + 1 and after.decision.flush is None
    ]
    return tuple(following)


CASES = [("spark", name) for name in ON_SPARK] + [("simulated", name) for name in SIMULATED]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("adapter", "name"), CASES)
def test_every_epoch_keeps_the_contract(adapter: str, name: str, check: Any) -> None:
    pairs = pairs_of(adapter, name)
    assert pairs
    for pair in pairs:
        check(pair)


def test_the_overload_that_is_simulated_sheds() -> None:
    assert any(pair.epoch.observed.edges for pair in pairs_of("simulated", "overload"))


def test_the_suite_sees_a_row_that_is_lost() -> None:
    pair = pairs_of("simulated", "every kind")[0]
    ledger = {**pair.epoch.ledger, "r": pair.epoch.ledger["r"] + Entry(used=1)}
    broken = Pair(pair.pipeline, pair.workload, pair.before, replace(pair.epoch, ledger=ledger))
    with pytest.raises(AssertionError):
        next(check for check in CHECKS if check.__name__ == "balances_the_ledger")(broken)
