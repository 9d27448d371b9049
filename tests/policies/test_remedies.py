"""Against overload the cheapest remedy for the user acts first, and shedding last."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.policies.remedies import CALM, TURN, Lag, Offer, Remedies, Remedy, choose_remedies

SHED = Offer(10.0, "rows")


def lag(needs_s: float = 1.5, trend_s: float = 0.5, overloaded: bool = True) -> Lag:
    return Lag(3.0, trend_s, 3.0, needs_s, 1.0, overloaded)


@pytest.mark.parametrize("remedy", [each for each in Remedy if each is not Remedy.SHED], ids=lambda each: each.value)
def test_each_remedy_that_takes_away_enough_acts_before_shedding(remedy: Remedy):
    chosen = choose_remedies(lag(), {remedy: Offer(0.6, "so"), Remedy.SHED: SHED}, Remedies())
    assert chosen.acting == (remedy.value,)
    assert "epochs need 1.50 s and may take 1.00 s" in chosen.reason
    assert remedy.value in chosen.reason


@pytest.mark.parametrize("remedy", [each for each in Remedy if each is not Remedy.SHED], ids=lambda each: each.value)
def test_rows_are_shed_at_once_if_a_remedy_takes_away_too_little_and_it_goes_on_acting(remedy: Remedy):
    chosen = choose_remedies(lag(), {remedy: Offer(0.1, "so"), Remedy.SHED: SHED}, Remedies())
    assert chosen.acting == (remedy.value, "shed")


def test_the_order_is_that_of_what_it_costs_users():
    offers = {remedy: Offer(0.1, "so") for remedy in reversed(Remedy)}
    acting = choose_remedies(lag(9.0), offers, Remedies()).acting
    assert acting == tuple(remedy.value for remedy in Remedy)
    assert acting[-1] == "shed"


def test_a_remedy_that_does_not_help_in_its_turn_makes_room_for_the_next():
    offers = {Remedy.SPREAD_JOINS: Offer(5.0, "one host does all"), Remedy.SHED: SHED}
    state, sheds = Remedies(), []
    for _ in range(TURN + 1):
        state = choose_remedies(lag(), offers, state)
        sheds.append(state.acts(Remedy.SHED))
    assert sheds == [False] * TURN + [True]


def test_a_remedy_that_helps_goes_on_alone():
    offers = {Remedy.SPREAD_JOINS: Offer(5.0, "one host does all"), Remedy.SHED: SHED}
    state = Remedies()
    for _ in range(10):
        state = choose_remedies(lag(trend_s=-0.5), offers, state)
        assert state.acting == ("spread joins",)


def test_remedies_go_on_for_some_epochs_after_the_overload():
    state, acting = choose_remedies(lag(), {Remedy.SHED: SHED}, Remedies()), []
    for _ in range(CALM + 1):
        state = choose_remedies(lag(overloaded=False), {Remedy.SHED: SHED}, state)
        acting.append(state.acting)
    assert acting == [("shed",)] * (CALM - 1) + [()] * 2


def test_nothing_acts_without_overload_and_nothing_is_shed_where_rows_take_no_time():
    assert choose_remedies(lag(9.0, overloaded=False), {Remedy.SHED: SHED}, Remedies()).acting == ()
    assert choose_remedies(lag(), {Remedy.SHED: Offer(0.0, "rows")}, Remedies()).acting == ()
    assert choose_remedies(lag(0.9), {Remedy.SHED: SHED}, Remedies()).acting == ()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(list(Remedy)), st.floats(0, 3).map(lambda gain: Offer(gain, "so"))),
    st.floats(0.5, 5),
    st.floats(-1, 1),
)
def test_shedding_is_always_last_and_acts_only_where_the_others_do_not_suffice(
    offers: dict[Remedy, Offer], needs_s: float, trend_s: float
):
    chosen = choose_remedies(lag(needs_s, trend_s), offers, Remedies())
    assert "shed" not in chosen.acting[:-1]
    others = sum(offer.gain_s for remedy, offer in offers.items() if remedy is not Remedy.SHED)
    if chosen.acts(Remedy.SHED):
        assert needs_s - 1.0 > others - 1e-9
