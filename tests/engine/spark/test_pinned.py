"""Where bins are at home."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.spark.pinned import PinnedJobs

A, B, C = ("1", "a"), ("2", "b"), ("3", "c")


def jobs(patch: pytest.MonkeyPatch) -> tuple[PinnedJobs, dict[Any, int]]:
    """Jobs on executors that a test lets come and go, each with so many tasks at a time."""
    alive: dict[Any, int] = {}
    patch.setattr(PinnedJobs, "_executors", lambda self: dict(alive))
    return PinnedJobs(None, "test"), alive  # type: ignore[arg-type]


def test_bins_are_spread_by_how_much_executors_do_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made, alive = jobs(monkeypatch)
    alive |= {A: 1, B: 3}
    first = made.homes(4)
    assert sorted(first) == [A, B, B, B]
    assert made.homes(4) == first, "and stay there"


def test_bins_of_a_lost_executor_go_elsewhere_and_spread_again_when_another_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, alive = jobs(monkeypatch)
    alive |= {A: 1, B: 1}
    assert made.homes(2) == [A, B]
    del alive[B]
    assert made.homes(2) == [A, A]
    alive[C] = 1
    assert made.homes(2) == [A, C], "none waits for another on one core while one is idle"
    made._rdds = {(0, A): "kept", (1, B): "gone"}  # type: ignore[dict-item]
    made.homes(2)
    assert made._rdds.keys() == {(0, A)}, "what was made for an executor goes with it"
