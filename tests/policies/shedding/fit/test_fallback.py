"""What a parent plans with when the table of a child is stale or missing."""

from __future__ import annotations

import pytest

from headrace.policies.shedding import Branch, Input, Place, Port, Throughput
from headrace.policies.shedding.fit import Received, TableSettings, assume, build_table, look_up

LOW = Place("low", (Input("a", (Branch("b", 1.0, queries=("q",)),)), Input("b", (Branch("b", 2.0, queries=("r",)),))))
TOP = Place(
    "top",
    (
        Input("a", (Branch("b", 0.1, child=Port("low", "a")),)),
        Input("b", (Branch("b", 0.1, child=Port("low", "b")),)),
    ),
)
TABLE = build_table(LOW, {}, Throughput(), TableSettings(size=400)).table
SENT, MOST = {"a": 0.2, "b": 0.1}, {"a": 10.0, "b": 10.0}


def assumed(age_s: float | None, **more: bool):
    received = None if age_s is None else Received(TABLE, made_s=100.0 - age_s)
    return assume("low", received, now_s=100.0, max_age_s=10.0, sent=SENT, most=MOST, **more)


@pytest.mark.parametrize(
    ("age_s", "is_known", "taken", "reason"),
    [
        pytest.param(0.0, True, (1.0, 0.0), "the table of 'low' is 0 s old", id="a new table is used"),
        pytest.param(10.0, True, (1.0, 0.0), "the table of 'low' is 10 s old", id="a table just young enough is used"),
        pytest.param(
            11.0,
            False,
            (0.2, 0.1),
            "the table of 'low' is 11 s old, more than 10 s: no more than 0.2 rows/s of a, 0.1 rows/s of b, as before",
            id="a stale table is capped at what was sent",
        ),
        pytest.param(
            None,
            False,
            (3.0, 3.0),
            "no table of 'low' has come: it is sent all rows and sheds for itself",
            id="without a table all rows are sent",
        ),
    ],
)
def test_what_a_parent_plans_with(age_s: float | None, is_known: bool, taken: tuple[float, ...], reason: str):
    found = assumed(age_s)
    assert (found.is_known, found.reason) == (is_known, reason)
    top = build_table(TOP, {"low": found.table}, Throughput(), TableSettings(size=400))
    assert look_up(top, (3.0, 3.0)).taken == pytest.approx(taken, abs=1e-3)


def test_a_parent_without_the_table_of_its_child_still_sheds_for_itself():
    top = build_table(TOP, {"low": assumed(None).table}, Throughput(), TableSettings(size=400))
    plan = look_up(top, (50.0, 50.0))
    assert sum(plan.taken) == pytest.approx(10.0)
    assert top.table.error is None


def test_a_child_that_is_sent_too_much_sheds_for_itself():
    low = build_table(LOW, {}, Throughput(), TableSettings(size=400))
    assert look_up(low, (3.0, 3.0)).taken == pytest.approx((1.0, 0.0))


def test_for_fairness_rows_to_an_unknown_child_count_as_shares():
    table = assumed(None, fair=True).table
    assert table.worth.tolist() == [0, 0, 0, 1]
    assert table.gains == (0.1, 0.1)
