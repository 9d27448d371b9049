"""What can be asked of a simulation, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import SpecError
from headrace.simulation.whatif import Rate, Scenario, rate_of, slow_hosts


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        pytest.param(None, {"a": 10.0, "b": 30.0}, id="as it is"),
        pytest.param("5x", {"a": 50.0, "b": 150.0}, id="five times as much"),
        pytest.param("0.5X", {"a": 5.0, "b": 15.0}, id="half as much"),
        pytest.param("80,000", {"a": 20_000.0, "b": 60_000.0}, id="all streams together, in proportion"),
    ],
)
def test_a_rate_is_a_factor_or_rows_of_all_streams(text: str | None, rates: dict[str, float]) -> None:
    assert rate_of(text).of({"a": 10.0, "b": 30.0}) == rates


def test_streams_that_bring_nothing_bring_nothing_more() -> None:
    assert Rate(rows_per_s=5.0).of({"a": 0.0}) == {"a": 0.0}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda: rate_of("fast"), "--rate fast: write so many times", id="a rate in words"),
        pytest.param(lambda: rate_of("-3x"), "--rate -3x", id="a negative rate"),
        pytest.param(lambda: rate_of("nan"), "--rate nan", id="no number at all"),
        pytest.param(lambda: slow_hosts(["3=0.4"]), "--slow 3=0.4: write a host and its speed", id="a host by number"),
        pytest.param(lambda: slow_hosts(["host3=0"]), "--slow host3=0", id="a host that stands still"),
        pytest.param(lambda: Scenario(hosts=0), "--hosts 0: a pipeline has 1 to 4096", id="no hosts"),
        pytest.param(lambda: Scenario(minutes=0), "--minutes 0", id="no time"),
        pytest.param(lambda: Scenario(minutes=float("inf")), "--minutes inf", id="all time"),
        pytest.param(
            lambda: Scenario(slow={4: 0.5}).speeds(4), "--slow host4: there are 4 hosts", id="a host too many"
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(make: Callable[[], object], says: str) -> None:
    with pytest.raises(SpecError, match=says.replace("+", r"\+")) as found:
        make()
    assert len(found.value.problems) == 1


def test_slow_hosts_are_among_the_others() -> None:
    assert Scenario(slow=slow_hosts(["host1=0.4"])).speeds(3) == (1.0, 0.4, 1.0)
