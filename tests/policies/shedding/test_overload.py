"""Overload is noticed from the rows that wait; bursts that fit the buffer and backlogs are caught up."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headrace.policies.shedding.overload import BUFFER, OverloadState, Waiting, detect_overload

CAPACITY_S, EPOCH_S = 0.8, 1.0


@dataclass
class Line:
    """A queue of work in front of an engine that does `CAPACITY_S` in an epoch; everything that waits is taken at once,
    or as much as `intake_s` allows."""

    intake_s: float = float("inf")
    shed_backlog: bool = False
    waiting_s: float = 0.0
    since_s: float = EPOCH_S
    started: bool = True
    state: OverloadState = field(default_factory=OverloadState)
    kept: float = 1.0

    def epoch(self, arrives_per_s: float) -> float:
        """Runs an epoch; seconds of work that wait after it."""
        self.waiting_s += arrives_per_s * self.since_s
        coming = min(self.waiting_s, self.intake_s)
        given = Waiting(coming, self.waiting_s - coming, self.since_s, self.started)
        found = detect_overload(given, CAPACITY_S, EPOCH_S, self.state, shed_backlog=self.shed_backlog)
        self.state, self.started = found.state, False
        self.kept = min(1.0, CAPACITY_S / found.demand_s) if found.overloaded else 1.0
        self.waiting_s -= coming
        self.since_s = max(EPOCH_S, 0.2 + coming * self.kept)
        return self.waiting_s + arrives_per_s * self.since_s


def test_rows_that_fit_are_never_shed():
    line = Line()
    for _ in range(20):
        line.epoch(0.7)
        assert line.kept == 1.0


@pytest.mark.parametrize("burst", [1.0, 1.5, BUFFER * CAPACITY_S])
def test_a_burst_that_fits_the_buffer_sheds_nothing(burst: float):
    line = Line()
    for rate in (0.3, 0.3, burst, 0.3, 0.3, 0.3):
        line.epoch(rate)
        assert line.kept == 1.0
    assert line.waiting_s == 0


def test_a_long_burst_is_shed_in_the_epoch_that_takes_it_and_lag_stays_bounded():
    line = Line()
    for _ in range(5):
        line.epoch(0.5)
    after = [line.epoch(5 * CAPACITY_S) for _ in range(20)]
    assert all(work <= 2 * 5 * CAPACITY_S for work in after[2:]), "what waits is what one epoch brings"
    assert 0.15 <= line.kept <= 0.25
    for _ in range(3):
        line.epoch(0.5)
    assert line.kept == 1.0
    assert not line.state.overloaded


def test_an_intake_that_shrinks_epochs_does_not_hide_overload():
    line = Line(intake_s=CAPACITY_S)
    found = [line.epoch(2 * CAPACITY_S) and line.kept for _ in range(8)]
    assert found[0] == 1.0
    assert found[-1] < 0.6


def test_a_backlog_after_downtime_is_caught_up():
    line = Line(intake_s=CAPACITY_S, waiting_s=20.0)
    for _ in range(60):
        line.epoch(0.3)
        assert line.kept == 1.0
    assert line.waiting_s < CAPACITY_S


def test_a_backlog_is_shed_if_the_pipeline_says_so():
    line = Line(waiting_s=20.0, shed_backlog=True)
    line.epoch(0.3)
    assert line.kept < 0.1


def test_a_burst_during_the_catching_up_is_shed_and_the_backlog_is_not():
    line = Line(waiting_s=20.0)
    line.epoch(0.3)
    assert line.kept == 1.0
    kept = []
    for _ in range(6):
        line.epoch(5 * CAPACITY_S)
        kept.append(line.kept)
    assert min(kept) < 0.5


def test_what_waited_before_a_restart_is_no_backlog():
    state = OverloadState(behind_s=10.0, arriving_s=3.0, overloaded=True)
    found = detect_overload(Waiting(10.5, 0.0, 0.0, started=True), CAPACITY_S, EPOCH_S, state)
    assert found.overloaded
    assert found.state.backlog_s == pytest.approx(0.5)


def test_once_shedding_it_goes_on_until_what_waits_fits_one_epoch():
    overloaded = OverloadState(overloaded=True)
    assert detect_overload(Waiting(1.0, since_s=1.0), CAPACITY_S, EPOCH_S, overloaded).overloaded
    assert not detect_overload(Waiting(1.0, since_s=1.0), CAPACITY_S, EPOCH_S, OverloadState()).overloaded
    assert not detect_overload(Waiting(0.7, since_s=1.0), CAPACITY_S, EPOCH_S, overloaded).overloaded


def test_reasons_say_what_waits_and_what_becomes_of_it():
    found = detect_overload(Waiting(9.0, since_s=1.0), CAPACITY_S, EPOCH_S, OverloadState())
    assert "9.00 s of work wait, 9.00 s arrive and 0.80 s fit an epoch" in found.reason
    started = detect_overload(Waiting(9.0, started=True), CAPACITY_S, EPOCH_S, OverloadState())
    assert "gathered while the engine did not run" in started.reason
