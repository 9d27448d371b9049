"""Rows that come and wait: none is lost, none twice, the oldest go first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import FILES, pipeline_of

from headrace.language import parse_schema
from headrace.model import Intake, Source, Stream
from headrace.simulation.whatif.arriving import Arrivals, arrivals_of, intake_of, rates_of

STREAM = Stream("s", parse_schema("ts TIMESTAMP, v INT"), "ts")
QUERY = {"q": "SELECT COUNT(*) AS n FROM r [WINDOW 1 min SLIDE 1 min]"}


@given(st.integers(0, 99), st.lists(st.tuples(st.floats(0.01, 5), st.none() | st.integers(1, 5000)), max_size=20))
def test_what_has_come_is_taken_or_waits(seed: int, steps: list[tuple[float, int | None]]) -> None:
    arrivals, chance, now, came, taken, last = Arrivals(STREAM, 1000.0), random.Random(seed), 0.0, 0, 0, 0.0
    for seconds, most in steps:
        now += seconds
        came += arrivals.come(now, chance)
        batch = arrivals.take(most)
        if batch is not None:
            taken += batch.rows
            assert most is None or batch.rows <= most
            assert last <= batch.oldest_s <= batch.newest_s <= now
            last = batch.newest_s - 1e-6
    assert abs(came - taken - arrivals.rows) <= 1
    # What chance adds is settled with the rows after it.
    assert abs(came - 1000 * now) <= 1 + 6 * 1000**0.5 * 5**0.5


def test_chance_does_not_change_the_rate() -> None:
    arrivals, chance = Arrivals(STREAM, 1000.0), random.Random(1)
    came = sum(arrivals.come(float(second), chance) for second in range(1, 1001))
    assert came == pytest.approx(1_000_000, rel=1e-3)


def test_the_oldest_row_of_what_waits_came_right_after_the_newest_that_was_taken() -> None:
    arrivals, chance = Arrivals(STREAM, 1000.0), random.Random(1)
    arrivals.come(10.0, chance)
    first, second = arrivals.take(2500), arrivals.take(2500)
    assert first is not None
    assert second is not None
    assert (first.oldest_s, round(first.newest_s, 1)) == (0.0, 2.5)
    assert second.oldest_s == first.newest_s


def test_rates_are_declared_made_or_guessed(tmp_path: Path) -> None:
    made = Stream("m", STREAM.columns, "ts", source=Source("synthetic", None, (("rate", "250"),)))
    rates, guesses = rates_of((*pipeline_of(tmp_path, QUERY).streams, made, STREAM), None)
    assert rates == {"r": 20_000.0, "t": 1000.0, "m": 250.0, "s": 1000.0}
    assert guesses == ["stream 's' declares no rate: it is taken to bring 1000 rows/s"]


def test_a_limit_of_the_source_holds() -> None:
    limited = Stream("s", STREAM.columns, "ts", source=Source("kafka", None, (("maxOffsetsPerTrigger", "700"),)))
    found, guesses = arrivals_of([limited], {"s": 1000.0}, None)
    found["s"].come(2.0, random.Random(1))
    batch = found["s"].take(None)
    assert batch is not None
    assert batch.rows == 700
    assert not guesses


def test_the_intake_is_planned_as_a_run_does(tmp_path: Path) -> None:
    stream = pipeline_of(tmp_path, QUERY, files=FILES).streams[0]
    intake = intake_of([stream], Intake(1000, "", 1_000_000), 1.0, {"r": 0.01})
    assert intake.most(stream) == 10_000
    assert [intake.committed({"r": 10_000}, 0.1) for _ in range(3)] == [False, False, True]
    # 100 bytes a row at ten times what an epoch took, less what is kept free.
    assert intake.most(stream) == 80_000
