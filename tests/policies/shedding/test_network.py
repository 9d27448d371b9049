"""Networks: links between places, and what is refused."""

from __future__ import annotations

from typing import ClassVar

import pytest

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    Port,
    Throughput,
    expected,
    link,
    offered,
    outcome,
    plan_centrally,
)
from headrace.policies.shedding.fit import Terms, build_tables, plan_by_tables
from policies.shedding.worlds import one_place


class TestLink:
    """Bandwidth is one more operator, of selectivity 1, with a capacity of its own."""

    hub = Place("hub", (Input("a", (Branch("b", 0.001, queries=("q",)),)),))
    wire = link("wire", {Port("hub", "a"): 200.0}, 100_000.0)
    edge = Place("edge", (Input("a", (Branch("b", 0.0001, child=Port("wire", "hub.a")),)),))
    network = Network((edge, wire, hub))
    rates: ClassVar = {Port("edge", "a"): 2000.0}

    def plan(self):
        tables = build_tables(self.network, Terms(most=expected(self.network, self.rates)))
        return plan_by_tables(self.network, tables, self.rates)

    def test_rows_that_the_link_cannot_carry_are_shed_before_it(self):
        plan = self.plan()
        assert plan.places["edge"].taken == pytest.approx((500.0,))
        assert not plan.places["wire"].sheds
        assert not plan.places["hub"].sheds

    def test_its_capacity_is_not_that_of_the_sites(self):
        loads = outcome(self.network, self.rates, self.plan(), Throughput()).loads
        assert loads == pytest.approx({"edge": 0.05, "wire": 100_000.0, "hub": 0.5})

    def test_the_linear_program_agrees(self):
        assert plan_centrally(self.network, self.rates, Throughput()).bound == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Branch("b", -1), "cost of branch 'b' is 0 or more, not -1", id="a negative cost"),
        pytest.param(
            lambda: Branch("b", float("nan"), queries=("q",)), "finite number, not nan", id="a cost not known"
        ),
        pytest.param(lambda: Branch("b", 1), "leads either to a child or to queries", id="a branch to nowhere"),
        pytest.param(
            lambda: Branch("b", 1, child=Port("x", "y"), queries=("q",)),
            "give it one of the two",
            id="a branch to both",
        ),
        pytest.param(lambda: Input("i", ()), "leads nowhere; give it a branch", id="an input without a branch"),
        pytest.param(
            lambda: Input("i", (Branch("b", 0, queries=("q",)),)), "costs nothing", id="answers that cost nothing"
        ),
        pytest.param(lambda: one_place(1, capacity=0), "capacity of 'hub' is more than 0", id="no capacity"),
        pytest.param(lambda: Network((one_place(1), one_place(1))), "two places have one name", id="two of one name"),
        pytest.param(
            lambda: Network((Place("a", (Input("i", (Branch("b", 1, child=Port("x", "y")),)),)),)),
            "input 'y' of place 'x', which does not exist",
            id="a branch to a place that does not exist",
        ),
        pytest.param(
            lambda: Network((Place("a", (Input("i", (Branch("b", 1, child=Port("a", "i")),)),)),)),
            "in a circle",
            id="a place that feeds itself",
        ),
        pytest.param(lambda: offered(Network((one_place(1),)), {}), "no rate for input 'i0'", id="a rate is missing"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()
