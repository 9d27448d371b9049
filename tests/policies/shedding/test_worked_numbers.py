"""Every number that the paper's text works out, in exact arithmetic, from the code that plans."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    Port,
    Throughput,
    load_of,
    outcome,
    plan_centrally,
    take_in_turn,
)
from headrace.policies.shedding.fit import (
    TableSettings,
    Terms,
    best_entry,
    build_table,
    build_tables,
    index_entries,
    look_up,
    plan_by_tables,
    spread_by_error,
)

F = Fraction

# An error of 0.1 in each table; with selectivity 1 that makes spreads of 1/20.
TENTH = TableSettings(error=F(1, 10))


def node_b(selectivity: F) -> Place:
    """Node B of Figure 1: costs 3 and 1; the selectivity is that of its upper input, the other's is 1."""
    upper = Input("1", (Branch("upper", F(3), selectivity, queries=("p",)),))
    return Place("B", (upper, Input("2", (Branch("lower", F(1), queries=("q",)),))))


# Node A of Figure 1: costs 1 and 2, selectivity 1, into node B.
NODE_A = Place(
    "A",
    (
        Input("1", (Branch("upper", F(1), child=Port("B", "1")),)),
        Input("2", (Branch("lower", F(2), child=Port("B", "2")),)),
    ),
)
FIGURE_1 = Network((NODE_A, node_b(F(1))))
ONE_EACH = {Port("A", "1"): F(1), Port("A", "2"): F(1)}

# Node A as it sees itself when it knows of nobody below: its rows are answers.
ALONE = Place(
    "A", (Input("1", (Branch("upper", F(1), queries=("p",)),)), Input("2", (Branch("lower", F(2), queries=("q",)),)))
)


@pytest.mark.parametrize(
    ("rates", "a_load", "a_passes", "b_load", "b_passes"),
    [
        pytest.param(
            (1, 1), 3, (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4)), id="plan 0: both nodes are overloaded"
        ),
        pytest.param(
            (F(1, 3), F(1, 3)), 1, (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4)), id="plan 1: B is still overloaded"
        ),
        pytest.param((1, 0), 1, (1, 0), 3, (F(1, 3), 0), id="plan 2: the best for A makes it worse for B"),
        pytest.param((0, F(1, 2)), 1, (0, F(1, 2)), F(1, 2), (0, F(1, 2)), id="plan 3: both carry it, it is little"),
        pytest.param((F(1, 5), F(2, 5)), 1, (F(1, 5), F(2, 5)), 1, (F(1, 5), F(2, 5)), id="plan 4: optimal"),
    ],
)
def test_table_1(rates: tuple[F, F], a_load: F, a_passes: tuple[F, F], b_load: F, b_passes: tuple[F, F]):
    """Loads of both nodes and what they let through, under the scheduler that takes rows in turn."""
    rates = (F(rates[0]), F(rates[1]))
    node = FIGURE_1.by_name["B"]
    passed = take_in_turn(NODE_A, rates).taken
    assert load_of(NODE_A, rates, rates) == a_load
    assert passed == a_passes
    assert load_of(node, passed, passed) == b_load
    assert take_in_turn(node, passed).taken == b_passes


def test_plan_1_is_what_the_scheduler_of_a_makes_of_plan_0():
    assert take_in_turn(NODE_A, (F(1), F(1))).taken == (F(1, 3), F(1, 3))


def test_plan_2_is_what_the_table_of_a_alone_says():
    assert look_up(build_table(ALONE, {}, Throughput(), TENTH), (F(1), F(1))).taken == (1, 0)


def test_plan_4_is_what_the_tables_of_both_say():
    tables = build_tables(FIGURE_1, Terms(settings=TENTH))
    plan = plan_by_tables(FIGURE_1, tables, ONE_EACH)
    found = outcome(FIGURE_1, ONE_EACH, plan, Throughput())
    assert plan.places["A"].taken == (F(1, 5), F(2, 5))
    assert plan.places["B"].taken == (F(1, 5), F(2, 5))
    assert not plan.places["B"].sheds
    assert (found.worth, found.loads, found.problems) == (F(3, 5), {"A": 1, "B": 1}, ())
    assert best_entry(index_entries(tables.places["A"].table), (F(1), F(1))).rates == (F(1, 5), F(2, 5))


def test_plan_4_is_the_optimum():
    plan = plan_centrally(FIGURE_1, ONE_EACH, Throughput())
    assert plan.places["A"].taken == pytest.approx((0.2, 0.4))
    assert plan.bound == pytest.approx(0.6)


def test_spreads_of_node_b():
    grid = spread_by_error((F(1, 3), F(1)), (F(1, 2), F(1)), F(1, 10))
    assert grid.spreads == (F(1, 10), F(1, 20))


class TestNodeB:
    """Node B with selectivities 1/2 and 1, and an error of 1/10."""

    built = build_table(node_b(F(1, 2)), {}, Throughput(), TENTH)

    def test_has_48_entries(self):
        assert self.built.table.entries == 48

    def test_states_the_error_that_was_asked_for(self):
        assert self.built.table.error == F(1, 10)

    def test_the_best_entry_of_all_is_worth_1(self):
        assert best_entry(index_entries(self.built.table), (F(9), F(9))).rates == (0, 1)
        assert self.built.table.worth.max() == 1

    def test_a_dominated_rate_is_kept_whole(self):
        plan = look_up(self.built, (F(1, 5), F(35, 100)))
        assert not plan.sheds
        assert plan.reason == "all rows fit: load 0.95 of 1"

    def test_the_best_entry_below_an_overload(self):
        found = best_entry(index_entries(self.built.table), (F(1, 2), F(1, 2)))
        assert (found.rates, found.worth, found.scores) == ((F(1, 10), F(1, 2)), F(11, 20), (F(1, 20), F(1, 2)))

    def test_blending_points_finds_the_true_optimum(self):
        plan = look_up(self.built, (F(1, 2), F(1, 2)))
        assert plan.taken == (F(1, 6), F(1, 2))
        assert plan.taken[0] / 2 + plan.taken[1] == F(7, 12)

    def test_its_optimum_by_linear_programming(self):
        network = Network((node_b(F(1, 2)),))
        plan = plan_centrally(network, {Port("B", "1"): F(1, 2), Port("B", "2"): F(1, 2)}, Throughput())
        assert plan.bound == pytest.approx(7 / 12)


class TestSplit:
    """Figure 3: cost 1 before the split, 2 on the upper branch and 5 on the lower, 8 in all."""

    branches = (Branch("upper", F(2), queries=("p",)), Branch("lower", F(5), queries=("q",)))
    built = build_table(
        Place("S", (Input("in", branches, cost=F(1)),)), {}, Throughput(), TableSettings(error=F(2, 10))
    )

    def test_rates_up_to_a_third_are_feasible_with_a_local_plan(self):
        entries = self.built.table.needs[self.built.table.is_entry][:, 0]
        assert max(entries) == F(3, 10)
        assert look_up(self.built, (F(1),)).taken == (F(1, 3),)

    def test_at_a_fifth_60_percent_of_the_lower_branch_is_dropped(self):
        plan = look_up(self.built, (F(1, 5),))
        assert plan.inputs[0].keep == 1
        assert plan.inputs[0].keep_branches == (1, 1 - F(60, 100))
        assert sum(plan.branches) == F(28, 100)

    def test_without_a_local_plan_an_eighth_is_worth_a_quarter(self):
        whole = Place("S", (Input("in", (Branch("both", F(8), F(2), queries=("p",)),)),))
        built = build_table(whole, {}, Throughput(), TableSettings(error=F(1, 4)))
        plan = look_up(built, (F(1, 5),))
        assert plan.taken == (F(125, 1000),)
        assert built.table.worth.max() == F(25, 100)
