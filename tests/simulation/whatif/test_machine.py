"""What a record says of its machine: a world is played, and its record must give the world back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pipelines import EVERY_KIND, pipeline_of

from headrace.model import Pipeline
from headrace.planning import Recorded
from headrace.simulation.whatif import Scenario, Setup, rate_of, set_up, simulate
from headrace.simulation.whatif.executions import distinct

WITHOUT_SUBQUERY = {name: sql for name, sql in EVERY_KIND.items() if name != "met"}


def recorded(setup: Setup, scenario: Scenario, epochs: int = 16) -> Recorded:
    beats = simulate(setup, scenario).beats
    return Recorded(tuple(beat.record for beat in beats[-epochs:]), setup.machine.bins)


def setups(folder: Path, queries: dict[str, str]) -> tuple[Pipeline, Setup]:
    pipeline = pipeline_of(folder, queries)
    return pipeline, set_up(pipeline, hosts=4)


@pytest.mark.parametrize("name", sorted(WITHOUT_SUBQUERY))
def test_a_run_predicts_another_at_twice_its_rate(tmp_path: Path, name: str) -> None:
    pipeline, true = setups(tmp_path, {name: EVERY_KIND[name]})
    # Rows of epochs differ by half, so that what a row takes can be told from what an epoch does.
    slow, fast = (recorded(true, Scenario(rate_of(rate), minutes=0.5), 8) for rate in ("1x", "1.5x"))
    learned = set_up(pipeline, Recorded((*slow.epochs, *fast.epochs), true.machine.bins))
    learned = replace(learned, machine=replace(learned.machine, rates=true.machine.rates))
    scenario = Scenario(rate_of("2x"), minutes=0.5)
    expected, found = simulate(true, scenario), simulate(learned, scenario)
    assert found.used_per_s == pytest.approx(expected.used_per_s, rel=0.05)
    assert found.lag_s == pytest.approx(expected.lag_s, rel=0.1)


def test_a_record_knows_its_hosts_and_rates(tmp_path: Path) -> None:
    pipeline, true = setups(tmp_path, WITHOUT_SUBQUERY)
    learned = set_up(pipeline, recorded(true, Scenario(minutes=0.5)))
    assert learned.machine.hosts == 4
    assert learned.machine.rates == pytest.approx(true.machine.rates, rel=0.01)
    assert learned.machine.share == pytest.approx(true.machine.share, rel=0.01)


def test_epochs_that_are_all_alike_are_a_guess_that_is_said(tmp_path: Path) -> None:
    pipeline, true = setups(tmp_path, WITHOUT_SUBQUERY)
    guesses = set_up(pipeline, recorded(true, Scenario(minutes=0.5))).guesses
    assert any("all epochs had about as many rows" in guess for guess in guesses)
    assert any("epochs waited for their trigger" in guess for guess in guesses)


def test_a_query_that_was_never_run_is_a_guess_that_is_said(tmp_path: Path) -> None:
    _, true = setups(tmp_path, {"sliding": EVERY_KIND["sliding"]})
    more = pipeline_of(tmp_path, {name: EVERY_KIND[name] for name in ("sliding", "aligned")})
    guesses = set_up(more, recorded(true, Scenario(minutes=0.5))).guesses
    assert any("1 of 2 edges were never measured" in guess for guess in guesses)


@pytest.mark.parametrize(
    ("known", "rows", "times", "found"),
    [
        pytest.param(100.0, 100_000.0, 5.0, 100.0, id="all groups were seen: more rows bring no more of them"),
        pytest.param(1000.0, 1000.0, 5.0, 5000.0, id="every row is a group of its own"),
        pytest.param(632.1, 1000.0, 2.0, 864.7, id="a thousand groups, most of them seen by a thousand rows"),
        pytest.param(50.0, 0.0, 3.0, 150.0, id="nothing is known of the rows"),
    ],
)
def test_groups_among_more_rows(known: float, rows: float, times: float, found: float) -> None:
    assert distinct(known, rows, times) == pytest.approx(found, rel=0.001)
