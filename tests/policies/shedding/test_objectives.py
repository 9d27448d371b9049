"""Throughput, weights, priorities, fairness and exemptions, on three queries that cannot all have their rows.

rows of a, b, c: 1 per second each        cost of a row: 1, 2 and 4        capacity: 2
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from headrace.policies.shedding import (
    Branch,
    Fair,
    Input,
    Network,
    Objective,
    Place,
    Port,
    Throughput,
    by_priority,
    offered,
    outcome,
    plan_centrally,
)
from headrace.policies.shedding.fit import TableSettings, Terms, build_tables, plan_by_tables

F = Fraction

TWO = F(2)
COSTS = {"a": F(1), "b": F(2), "c": F(4)}


def direct(never: str = "", capacity: F = TWO) -> Network:
    """One place that answers all three."""
    inputs = (Input(q, (Branch("b", cost, queries=(q,), never=q == never),)) for q, cost in COSTS.items())
    return Network((Place("top", tuple(inputs), capacity),))


def indirect(never: str = "", capacity: F = TWO) -> Network:
    """A place that only passes rows on, to a place that has the costs and the capacity; in floats."""
    passing = (Input(q, (Branch("b", 0.01, child=Port("low", q)),)) for q in COSTS)
    low = Place("low", direct(never, capacity).places[0].inputs, capacity)
    return Network((Place("top", tuple(passing)), low))


RATES = {Port("top", query): F(1) for query in COSTS}
FAIR = Fair({Port(place, query): F(1) for place in ("top", "low") for query in COSTS})
UNEVEN = Fair(FAIR.offered, {"a": F(2)})
WAYS = [pytest.param(direct, id="where queries are answered"), pytest.param(indirect, id="upstream of it")]


def shares_by_tables(network: Network, objective: Objective) -> dict[str, F]:
    terms = Terms(objective=objective, settings=TableSettings(size=343, levels=7))
    found = outcome(network, RATES, plan_by_tables(network, build_tables(network, terms), RATES), objective)
    assert found.problems == ()
    return dict(found.shares)


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize(
    ("objective", "shares"),
    [
        pytest.param(Throughput(), (1, F(1, 2), 0), id="throughput serves the cheap first"),
        pytest.param(Throughput({"c": F(10)}), (0, 0, F(1, 2)), id="a weight of ten makes the dear one the cheapest"),
        pytest.param(Throughput({"c": F(3)}), (1, 0, F(1, 4)), id="a weight of three puts it second"),
        pytest.param(by_priority({"b": 1}), (0, 1, 0), id="a query of higher priority goes first"),
        pytest.param(by_priority({"b": 1, "c": 2}), (0, 0, F(1, 2)), id="the highest priority before that"),
        pytest.param(by_priority({}, {"c": 1}), (0, 0, F(1, 2)), id="a stream of higher priority goes first"),
        pytest.param(FAIR, (F(2, 7), F(2, 7), F(2, 7)), id="fairness gives all the same share"),
        pytest.param(UNEVEN, (F(1, 2), F(1, 4), F(1, 4)), id="a weight of two gives twice the share"),
    ],
)
def test_who_gets_what(make, objective: Objective, shares: tuple[F, ...]):
    network = make()
    optimum = outcome(network, RATES, plan_centrally(network, RATES, objective), objective)
    assert tuple(optimum.shares[query] for query in COSTS) == pytest.approx(tuple(map(float, shares)), abs=1e-5)
    found = shares_by_tables(network, objective)
    if make is direct:
        assert tuple(found[query] for query in COSTS) == shares
    else:
        # Seven points along each input leave small errors.
        assert tuple(float(found[query]) for query in COSTS) == pytest.approx(tuple(map(float, shares)), abs=0.05)


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize("objective", [Throughput(), FAIR], ids=["throughput", "fairness"])
def test_a_query_that_is_never_shed_loses_nothing_while_the_others_do(make, objective: Objective):
    network = make("c", F(11, 2))
    found = shares_by_tables(network, objective)
    assert found["c"] == 1
    assert found["a"] < 1 or found["b"] < 1
    optimum = outcome(network, RATES, plan_centrally(network, RATES, objective), objective)
    assert optimum.shares["c"] == pytest.approx(1)
    assert optimum.worth == pytest.approx(float(outcome_worth(network, objective)), rel=0.05)


def outcome_worth(network: Network, objective: Objective) -> F:
    terms = Terms(objective=objective, settings=TableSettings(size=343, levels=7))
    plan = plan_by_tables(network, build_tables(network, terms), RATES)
    return outcome(network, RATES, plan, objective).worth


@pytest.mark.parametrize("make", WAYS)
def test_rows_that_must_not_be_shed_and_do_not_fit_leave_nothing_for_others_and_are_named(make):
    network = make("c", F(3))
    plan = plan_by_tables(network, build_tables(network, Terms(settings=TableSettings(size=343, levels=7))), RATES)
    found = outcome(network, RATES, plan, Throughput())
    assert found.shares == {"a": 0, "b": 0, "c": 1}
    assert any("rows that must not be shed take 4 of 3 by themselves" in each.reason for each in plan.places.values())
    central = plan_centrally(network, RATES, Throughput())
    assert central.reason.startswith("rows that must not be shed exceed a capacity")
    assert outcome(network, RATES, central, Throughput()).shares == {"a": 0, "b": 0, "c": 1}


def test_a_stream_weighs_wherever_its_rows_end():
    """Two streams share a query; the weight of one of them decides whose rows reach it."""
    branch = Branch("b", F(1), queries=("q",))
    network = Network((Place("top", (Input("i", (branch,), stream="s"), Input("j", (branch,), stream="t"))),))
    rates = {Port("top", "i"): F(1), Port("top", "j"): F(1)}
    for heavy, taken in (("s", (1, 0)), ("t", (0, 1))):
        terms = Terms(objective=Throughput(streams={heavy: F(2)}), settings=TableSettings(size=100))
        assert plan_by_tables(network, build_tables(network, terms), rates).places["top"].taken == taken


def test_queries_that_share_a_branch_share_its_fraction():
    both = Branch("b", F(2), queries=("p", "q"))
    network = Network((Place("top", (Input("i", (both, Branch("c", F(1), queries=("r",)))),)),))
    rates = {Port("top", "i"): F(1)}
    terms = Terms(objective=Throughput({"r": F(5, 6)}), settings=TableSettings(size=100))
    plan = plan_by_tables(network, build_tables(network, terms), rates)
    # Together the two are worth 1 per load; the other is worth 5/6.
    assert plan.places["top"].branches == (F(1, 2), 0)
    found = outcome(network, rates, plan, terms.objective)
    assert found.scores == {"p": F(1, 2), "q": F(1, 2), "r": 0}


def test_after_the_least_share_what_is_left_is_used():
    """A bottleneck holds one query back; the other does not suffer for it."""
    low = Place("low", (Input("i", (Branch("b", F(10), queries=("p",)),)),))
    ways = (Branch("b", F(1, 10), child=Port("low", "i")), Branch("c", F(1, 10), queries=("q",)))
    network = Network((Place("top", (Input("i", ways),)), low))
    rates = {Port("top", "i"): F(1)}
    fair = Fair(offered(network, rates))
    terms = Terms(objective=fair, settings=TableSettings(size=40, levels=10))
    plan = plan_by_tables(network, build_tables(network, terms), rates)
    found = outcome(network, rates, plan, fair)
    assert (found.shares, found.problems) == ({"p": F(1, 10), "q": 1}, ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Throughput({"q": -1.0}), "the weight of 'q' is 0 or more", id="a negative weight"),
        pytest.param(lambda: Fair({}, {"q": 0.0}), "the weight of 'q' is more than 0", id="no share at all"),
        pytest.param(
            lambda: build_tables(direct(), Terms(objective=Fair({}))), "fairness needs the rate offered", id="no offer"
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()
