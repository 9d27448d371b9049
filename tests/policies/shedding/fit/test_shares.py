"""A place with several parents: what each parent is granted, and the part of the table that it then sees."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.policies.shedding import (
    Branch,
    Fair,
    Input,
    Network,
    Place,
    Port,
    Throughput,
    expected,
    offered,
    outcome,
    plan_centrally,
)
from headrace.policies.shedding.fit import (
    TableSettings,
    Terms,
    agree_on_shares,
    bound_worth,
    build_table,
    build_tables,
    cap_table,
    plan_by_tables,
    share_of,
    share_prices,
)
from policies.shedding.worlds import random_graph

F = Fraction

SMALL = TableSettings(size=100, prices=8)


def parent(name: str, cost: F, own: F | None = None) -> Place:
    """A site that sends its rows to the hub, and perhaps answers a query of its own from them."""
    ways = [Branch("send", cost, child=Port("hub", name))]
    ways += [Branch("own", own, queries=(f"{name}.own",))] if own else []
    return Place(name, (Input("rows", tuple(ways)),))


# Paris and Rome send to one hub, which can take one row per second, of either.
HUB = Place("hub", tuple(Input(name, (Branch("b", F(1), queries=(name,)),)) for name in ("paris", "rome")))
TWO = Network((parent("paris", F(1, 10)), parent("rome", F(1, 10)), HUB))
RATES = {Port("paris", "rows"): F(1), Port("rome", "rows"): F(1)}


def test_each_parent_alone_would_send_all_its_rows():
    alone = Network((parent("paris", F(1, 10)), replace(HUB, inputs=HUB.inputs[:1])))
    plan = plan_by_tables(alone, build_tables(alone, Terms(settings=SMALL)), {Port("paris", "rows"): F(1)})
    assert plan.places["paris"].taken == (1,)


def test_shares_add_up_to_what_the_hub_can_take():
    agreed = agree_on_shares(TWO, RATES, Terms(settings=SMALL))
    assert sum(agreed.tables.shares.values()) == 1
    assert not agreed.plan.places["hub"].sheds
    assert outcome(TWO, RATES, agreed.plan, Throughput()).worth == 1


def test_what_one_parent_does_not_use_goes_to_the_other():
    """Rome has better things to do: its own query is worth more than the hub's."""
    rome = parent("rome", F(1), F(1))
    network = Network((parent("paris", F(1, 10)), rome, HUB))
    objective = Throughput({"rome.own": F(5)})
    agreed = agree_on_shares(network, RATES, Terms(objective=objective, settings=SMALL))
    assert agreed.plan.places["rome"].branches == (0, 1)
    assert agreed.plan.places["paris"].branches == (1,)


def test_the_share_of_a_fair_hub_is_half_each():
    fair = Fair(offered(TWO, RATES))
    agreed = agree_on_shares(TWO, RATES, Terms(objective=fair, settings=TableSettings(size=49, levels=4)))
    assert outcome(TWO, RATES, agreed.plan, fair).shares == {"paris": F(1, 2), "rome": F(1, 2)}


def test_without_reports_a_parent_of_a_shared_place_is_refused():
    with pytest.raises(ValueError, match=r"'hub' takes rows from '.*' and from others, so all of them must report"):
        build_tables(TWO)


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_whoever_keeps_to_a_share_keeps_the_place_feasible(seed: int):
    rng = random.Random(seed)
    inputs = tuple(
        Input(f"i{n}", (Branch("b", rng.uniform(0.1, 2), queries=(f"q{n}",)),), cost=rng.uniform(0, 1))
        for n in range(3)
    )
    whole = build_table(Place("hub", inputs, 1.0), {}, Throughput(), SMALL).table
    granted = {each.name: rng.uniform(0, 0.8) for each in inputs}
    part = share_of(whole, ["i0", "i2"], granted)
    assert part.inputs == ("i0", "i2")
    assert (part.needs <= np.array([granted["i0"], granted["i2"]]) + 1e-9).all()
    assert part.worth[0] == 0
    # The others' rows and all of the share are worth what the whole table says of both.
    given_rates, alone = [granted[name] for name in whole.inputs], [0.0, granted["i1"], 0.0]
    assert part.worth[-1] == pytest.approx(whole.worth_at(given_rates) - whole.worth_at(alone))
    # Where the parent's rows are said to fit whole, the whole table says so of all rows.
    for _ in range(20):
        mine = np.array([rng.uniform(0, 1), rng.uniform(0, 1)])
        if part.fits(mine):
            assert whole.fits(np.array([mine[0], granted["i1"], mine[1]]))
            assert (mine <= np.array([granted["i0"], granted["i2"]]) + 1e-6).all()


def test_a_share_of_nothing_takes_nothing():
    whole = build_table(HUB, {}, Throughput(), SMALL).table
    part = share_of(whole, ["paris"], {"paris": F(0), "rome": F(1)})
    assert not part.needs.any()
    assert not part.worth.any()


@pytest.mark.parametrize("seed", range(4))
def test_tables_on_shares_stay_feasible_when_rates_change_before_the_next_agreement(seed: int):
    network, rates = random_graph(random.Random(seed), 10)
    terms = Terms(settings=SMALL, most=expected(network, {port: 4 * rate for port, rate in rates.items()}))
    tables = agree_on_shares(network, rates, terms).tables
    for times in (0.5, 1.5, 4.0):
        burst = {port: rate * times for port, rate in rates.items()}
        found = outcome(network, burst, plan_by_tables(network, tables, burst), Throughput())
        assert found.problems == ()
        assert found.worth >= 0.5 * plan_centrally(network, burst, Throughput()).bound


@pytest.mark.parametrize("times", [0.0, 0.3, 1.0, 10.0])
def test_no_prices_make_the_bound_less_than_the_optimum(times: float):
    network, rates = random_graph(random.Random(4), 8)
    terms = Terms(settings=SMALL, most=expected(network, rates))
    prices = {
        port: price * times for port, price in share_prices(agree_on_shares(network, rates, terms).tables).items()
    }
    assert bound_worth(network, rates, terms, prices, rounds=2) >= plan_centrally(network, rates, Throughput()).bound


def test_prices_do_not_bound_the_least_share():
    with pytest.raises(ValueError, match="do not bound the least share"):
        bound_worth(TWO, RATES, Terms(objective=Fair({})), {})


def test_a_capped_table_takes_no_more_than_it_was_sent():
    whole = build_table(HUB, {}, Throughput(), SMALL).table
    capped = cap_table(whole, {"paris": F(1, 4)})
    assert capped.needs.max(axis=0).tolist() == [F(1, 4), 0]
    assert capped.worth.max() == F(1, 4)
