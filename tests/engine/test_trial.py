"""Who is blamed for an epoch that fails or takes far too long: played in time that the test makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.engine.spark.deadline import Deadline, TookTooLong
from headrace.engine.trial import Trial
from headrace.errors import EngineError, QueryFailure
from headrace.kernels.absorb import Absorbed, StreamCount
from headrace.policies import Patience


class Played(Deadline):
    """Time goes by as passes say; work that would take longer than its limit is stopped then."""

    def __init__(self) -> None:
        self.now, self.until = 0.0, float("inf")

    def work(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.until:
            raise RuntimeError("the job was cancelled")

    def timed(self, job: Callable[[], Any]) -> tuple[Any, float]:
        began = self.now
        return job(), self.now - began

    def within(self, limit_s: float, job: Callable[[], Any]) -> Any:
        self.until = self.now + limit_s
        try:
            return job()
        except RuntimeError:
            self.now = self.until
            raise TookTooLong(limit_s) from None
        finally:
            self.until = float("inf")

    @contextmanager
    def in_small_batches(self) -> Iterator[None]:
        yield


@dataclass
class World:
    """Rows that take `base` seconds, and each query so many more, or a failure; `slower` from some pass on."""

    base: float
    costs: dict[str, float | Exception]
    slower: tuple[int, float] = (10**9, 1.0)
    deadline: Played = field(default_factory=Played)
    passes: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: bool = False

    def over_rows(self, names: tuple[str, ...], trial: bool) -> Absorbed:
        self.passes.append((names, trial))
        factor = self.slower[1] if len(self.passes) > self.slower[0] else 1.0
        costs = [self.costs[name] for name in names]
        self.deadline.work(factor * (self.base + sum(c for c in costs if isinstance(c, float))))
        for cost in costs:
            if isinstance(cost, Exception):
                raise cost
        if self.unreadable:
            raise ValueError("torn")
        return Absorbed(counts={"r": StreamCount(used=1000)})

    def absorb(self, trial: Trial | None = None) -> tuple[dict[str, str], tuple[str, ...], Trial]:
        """The causes, the queries of the last pass, which counts, and the trial for the next epoch."""
        trial = trial or Trial(self.deadline, Patience(10, 3.0), self.notes.append)
        made, failed = trial.absorb(self.over_rows, list(self.costs))
        assert made.counts["r"].used == 1000
        names, was_trial = self.passes[-1]
        assert not was_trial
        return failed, names, trial


BAD = ValueError("no such word")


def test_a_query_that_takes_too_long_alone_fails_with_the_numbers():
    world = World(0.5, {"a": 1.0, "slow": 1000.0, "b": 2.0})
    failed, rest, _ = world.absorb()
    assert failed == {
        "slow": "took over 30 s for 1,000 rows, which take 0.5 s without it; the limit is 10 times the trigger of 3 s"
        " (spark.headrace.patience); make its expressions cheaper, or raise the limit"
    }
    assert rest == ("a", "b")
    assert world.notes[0] == (
        "1,000 rows took over 30 s, and 0.5 s without any query: each query is tried alone, for up to 30 s"
    )
    assert world.notes[1].startswith("query 'slow' took over 30 s for 1,000 rows")


@pytest.mark.parametrize(
    ("world", "failed", "passes"),
    [
        pytest.param(World(1.0, {"a": 2.0, "b": 3.0}), set(), 1, id="in time, nothing is tried"),
        pytest.param(World(20.0, {"a": 5.0, "b": 8.0}), set(), 3, id="many rows: all get more time, nobody is tried"),
        pytest.param(World(1.0, {f"q{i}": 10.0 for i in range(4)}), set(), 7, id="slow together only: waited for"),
        pytest.param(World(1.0, {"a": 50.0, "b": 60.0}), {"a", "b"}, 7, id="both of two may be to blame"),
        pytest.param(World(1.0, {"a": 50.0}), {"a"}, 5, id="the only one, too"),
        pytest.param(World(1.0, {"a": 50.0, "bad": BAD, "b": 1.0}), {"a", "bad"}, 7, id="one fails, one is slow"),
        pytest.param(World(1.0, {"a": 1.0, "bad": BAD}), {"bad"}, 4, id="one fails"),
        pytest.param(
            World(1.0, {"a": 14.0, "b": 18.0}, slower=(2, 10.0)), set(), 9, id="a machine that becomes slow: nobody"
        ),
    ],
)  # fmt: skip
def test_who_is_blamed(world: World, failed: set[str], passes: int):
    found, rest, _ = world.absorb()
    assert found.keys() == failed
    assert rest == tuple(name for name in world.costs if name not in failed)
    assert len(world.passes) == passes


def test_what_was_waited_for_once_is_not_looked_into_again():
    world = World(1.0, {f"q{i}": 10.0 for i in range(4)})
    _, _, trial = world.absorb()
    seen = len(world.passes)
    world.absorb(trial)
    assert len(world.passes) == seen + 1


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["the only query", "all of several"])
def test_queries_fail_though_none_is_left(names: tuple[str, ...]):
    failed, rest, _ = World(1.0, dict.fromkeys(names, BAD)).absorb()
    assert failed == dict.fromkeys(names, "ValueError: no such word")
    assert rest == ()


def test_rows_that_nobody_can_read_are_no_querys_failure():
    world = World(1.0, {"a": BAD, "b": BAD}, unreadable=True)
    with pytest.raises(EngineError, match="rows cannot be read, without any query: ValueError: torn"):
        world.absorb()


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["the only query", "one of several"])
def test_a_fault_of_machines_fails_no_query(names: tuple[str, ...]):
    world = World(1.0, {**dict.fromkeys(names, 1.0), names[0]: OSError("the disk is full")})
    with pytest.raises(EngineError, match="the disk is full"):
        world.absorb()
    assert len(world.passes) == 1, "nobody is tried"


def test_who_holds_all_cores_is_named():
    world = World(1.0, {"a": 1.0, "endless": 1e9})

    class Stuck(Played):
        def within(self, limit_s: float, job: Callable[[], Any]) -> Any:
            try:
                return super().within(limit_s, job)
            except TookTooLong:
                if world.passes[-1][0] == ("endless",):
                    raise EngineError("tasks hold all cores") from None
                raise

    world.deadline = Stuck()
    with pytest.raises(EngineError, match=r"query 'endless' took over 30 s for 1,000 rows; tasks hold all cores"):
        world.absorb()


def test_a_query_that_spark_finishes_is_judged_by_its_answers_without_it():
    deadline = Played()
    trial = Trial(deadline, Patience(10, 1.0), print)
    with pytest.raises(QueryFailure, match=r"took over 10 s for 3 windows, which take 0\.2 s without it"):
        trial.judged(lambda: deadline.work(99.0), lambda: deadline.work(0.2), "3 windows")
    # Answers that are slow by themselves give it more time.
    assert trial.judged(lambda: deadline.work(99.0), lambda: deadline.work(12.0), "3 windows") is None
