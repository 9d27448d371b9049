"""How a join goes on from epoch to epoch: when a way is chosen anew, what is sampled, and which speeds are learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.model import JoinDecision, JoinMeasures, JoinState, Query
from headrace.planning import (
    JoinEpoch,
    JoinPlan,
    SideEpoch,
    advance_us,
    decide_join,
    expired_rows,
    host_rates,
    learn_join,
    plan_query,
)
from headrace.policies import StreamClock
from headrace.units import SECOND_US

SQL = "SELECT p.src, g.dst FROM packets p [RANGE 10 s] {how} flows g [RANGE 4 s] ON p.src = g.src"
NONE = {"left": -(2**62), "right": -(2**62)}


def planned(bind: Callable[..., Query], how: str = "JOIN") -> JoinPlan:
    plan = plan_query(bind(SQL.format(how=how)))
    assert isinstance(plan, JoinPlan)
    return plan


def epoch(rows: int = 100, heavy: dict[int, int] | None = None, **rest: object) -> JoinEpoch:
    side = SideEpoch(rows, 0, rows, heavy or {}, 5 * rows, 500 * rows)
    return replace(JoinEpoch(side, side, True, SECOND_US, NONE, NONE), **rest)  # type: ignore[arg-type]


def after(plan: JoinPlan, *epochs: JoinEpoch, hosts: int = 2) -> tuple[JoinState, JoinDecision]:
    state, decision = None, decide_join(plan, None, hosts, "auto", None)
    for each in epochs:
        state = learn_join(plan.forms, state, decision, each)
        decision = decide_join(plan, state, hosts, "auto", None)
    assert state is not None
    return state, decision


def test_the_first_way_is_a_guess_and_the_second_is_not(bind: Callable[..., Query]) -> None:
    plan = planned(bind)
    assert decide_join(plan, None, 2, "auto", None).guess
    assert not after(plan, epoch())[1].guess


@pytest.mark.parametrize(
    ("epochs", "sampled"),
    [
        pytest.param(1, True, id="what the first epoch brings decides the second"),
        pytest.param(3, False, id="in between the way stays"),
        pytest.param(6, True, id="after five more epochs a way is chosen anew"),
    ],
)
def test_a_way_is_chosen_anew_when_enough_was_sampled(epochs: int, sampled: bool, bind: Callable[..., Query]) -> None:
    assert after(planned(bind), *[epoch()] * epochs)[1].sampled is sampled


def test_a_hot_key_is_found_by_its_hash(bind: Callable[..., Query]) -> None:
    assert after(planned(bind), epoch(heavy={7: 90}))[1].way.hot == (7,)


def test_fewer_hosts_than_a_way_has_make_another_way(bind: Callable[..., Query]) -> None:
    plan = planned(bind)
    state, _ = after(plan, *[epoch()] * 3, hosts=4)
    decision = decide_join(plan, state, 2, "auto", None)
    assert decision.sampled
    assert max(decision.way.hosts) < 2


def test_keys_that_are_cut_otherwise_are_mixed_until_the_rows_before_have_expired(bind: Callable[..., Query]) -> None:
    plan = planned(bind)
    # The second decision cuts by another set of hot keys than the first.
    state, decision = after(plan, epoch(heavy={7: 90}))
    state = learn_join(plan.forms, state, decision, epoch(last_us={"left": 50, "right": 60}))
    assert decide_join(plan, state, 2, "auto", None).mixed
    state = learn_join(plan.forms, state, replace(decision, sampled=False), epoch(expired={"left": 51, "right": 61}))
    assert state.until is None


def test_hosts_with_little_to_do_say_nothing_of_their_speed() -> None:
    measures = JoinMeasures(((10, 10), (10, 10)), ((80, 0), (80, 0)), (0.5, 0.1), 4)
    assert host_rates(measures, (0, 1), known=2) == {0: 200.0}


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        pytest.param("JOIN", 90, 93, id="an inner join needs rows as long as they can meet others"),
        pytest.param("LEFT JOIN", 90, 86, id="who keeps the left side needs what its open rows may have met"),
    ],
)
def test_rows_expire_when_nothing_to_come_meets_them(
    how: str, left: int, right: int, bind: Callable[..., Query]
) -> None:
    clocks = {name: StreamClock(0, at, at) for name, at in (("packets", 97 * SECOND_US), ("flows", 100 * SECOND_US))}
    found = expired_rows(planned(bind, how), clocks)
    assert found == {"left": left * SECOND_US, "right": right * SECOND_US}


def test_time_goes_on_by_the_newer_side(bind: Callable[..., Query]) -> None:
    plan, nothing = planned(bind), StreamClock()
    one = {"packets": StreamClock(0, 10, 10), "flows": nothing}
    two = {"packets": StreamClock(0, 10, 10), "flows": StreamClock(0, 25, 25)}
    assert advance_us(plan, {"packets": nothing, "flows": nothing}, one) == 0
    assert advance_us(plan, one, two) == 15
