"""Heavy queries are kept apart from light ones that need more, if that pays, and from no others."""

from __future__ import annotations

import pytest

from headrace.policies.shedding import (
    Branch,
    Input,
    Network,
    Place,
    Port,
    Sharer,
    Throughput,
    part_sharers,
    plan_centrally,
)
from headrace.policies.shedding import outcome as outcome_of

SUMS, VALUES, OTHERS = {"sums": 1.0}, {"sums": 1.0, "values": 3.0}, {"sums": 1.0, "others": 3.0}


def sharer(query: str, weight: float, costs: dict[str, float]) -> Sharer:
    return Sharer(query, weight, costs)


@pytest.mark.parametrize(
    ("sharers", "fair", "apart"),
    [
        pytest.param([("a", 9, SUMS), ("b", 1, VALUES)], False, {"a"}, id="a heavy one that needs little"),
        pytest.param([("a", 9, SUMS), ("b", 1, VALUES)], True, {"a"}, id="by fairness, too"),
        pytest.param([("a", 9, SUMS), ("b", 1, SUMS)], False, set(), id="never where all need the same"),
        pytest.param([("a", 9, SUMS), ("b", 1, SUMS)], True, set(), id="not by fairness either"),
        pytest.param([("a", 9, VALUES), ("b", 1, SUMS)], False, set(), id="not from one that needs less"),
        pytest.param([("a", 2, SUMS), ("b", 1, VALUES)], False, set(), id="not where weights are much alike"),
        pytest.param([("a", 1, SUMS), ("b", 1, VALUES)], False, set(), id="not where they are alike"),
        pytest.param(
            [("a", 9, SUMS), ("b", 8, SUMS), ("c", 1, VALUES), ("d", 1, OTHERS)], False, {"a", "b"}, id="all heavy ones"
        ),
        pytest.param([("a", 9, SUMS)], False, set(), id="nobody from nobody"),
    ],
)
def test_who_is_kept_apart(sharers: list[tuple[str, float, dict[str, float]]], fair: bool, apart: set[str]):
    assert part_sharers([sharer(*each) for each in sharers], fair=fair) == apart


def test_parted_queries_get_what_was_promised():
    """The worth of an overload, by the linear program: one branch for both queries, and one for each."""
    together = Input("s", (Branch("both", 4.0, queries=("heavy", "light")),))
    parted = Input("s", (Branch("heavy", 1.0, queries=("heavy",)), Branch("light", 4.0, queries=("light",))))
    objective, worths = Throughput({"heavy": 9.0, "light": 1.0}), []
    for given in (together, parted):
        network, rates = Network((Place("engine", (given,), 1.0),)), {Port("engine", "s"): 5.0}
        worths.append(float(outcome_of(network, rates, plan_centrally(network, rates, objective), objective).worth))
    assert worths == pytest.approx([10 / 4, 9.0])
