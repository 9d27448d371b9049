"""Which mini-partitions are on disk where memory is short, and whose turn it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import Residence
from headrace.policies import MiniLoad, reside


def minis(*rows_and_sizes: tuple[int, int]) -> list[MiniLoad]:
    return [MiniLoad(i, rows, size) for i, (rows, size) in enumerate(rows_and_sizes)]


NONE = Residence()


@pytest.mark.parametrize(
    ("held", "memory", "before", "wanted"),
    [
        pytest.param(minis((1, 50), (2, 50)), 100, NONE, NONE, id="what fits stays in memory"),
        pytest.param(
            minis((9, 30), (1, 30), (5, 30), (7, 30)), 100, NONE, Residence((1, 2), (1,)),
            id="the coldest go, until the rest and one of them fit together",
        ),
        pytest.param(
            minis((9, 30), (1, 30), (5, 30), (7, 30)), 100, Residence((1, 2), (1,)), Residence((2, 1), (2,)),
            id="who had a turn goes to the end of the queue",
        ),
        pytest.param(
            minis((9, 30), (1, 10), (2, 10), (3, 10)), 40, NONE, Residence((1, 2, 3), (1,)),
            id="small ones on disk need little room to take turns in",
        ),
        pytest.param(
            minis((1, 5), (1, 5), (9, 95)), 100, NONE, Residence((0, 1), (0,)),
            id="no more go to disk than must",
        ),
        pytest.param(
            minis((9, 30), (1, 30)), 100, Residence((1,), ()), NONE, id="with room again, all come back",
        ),
        pytest.param(
            minis((1, 200), (5, 10)), 100, NONE, Residence((0, 1), (0,)),
            id="one that never fits has its turn all the same",
        ),
        pytest.param(
            minis((0, 0), (5, 60), (9, 60)), 100, NONE, Residence((1, 2), (1,)), id="what is empty need not go",
        ),
        pytest.param(
            minis((9, 30), (6, 30), (5, 30), (7, 30)), 100, Residence((1, 2), (1,)), Residence((2, 1), (2,)),
            id="who is on disk stays there for a little more warmth",
        ),
        pytest.param(
            minis((9, 30), (9, 30), (1, 30), (5, 30)), 100, Residence((1, 2), (1,)), Residence((2, 3), (2,)),
            id="and comes back when another is clearly colder",
        ),
        pytest.param([], 0, NONE, NONE, id="nothing"),
    ],
)  # fmt: skip
def test_residence(held: list[MiniLoad], memory: int, before: Residence, wanted: Residence):
    assert reside(held, memory, before) == wanted


def test_those_whose_turn_it_is_not_wait():
    assert Residence((3, 4, 5), (3,)).waiting == {4, 5}


@settings(max_examples=200)
@given(
    held=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=12),
    memory=st.integers(0, 300),
)
def test_everyone_on_disk_gets_a_turn_within_as_many_epochs_as_there_are(held: list[tuple[int, int]], memory: int):
    found, seen = Residence(), set[int]()
    for _ in range(len(held) + 1):
        found = reside(minis(*held), memory, found)
        seen |= set(found.turn)
        resident = sum(size for i, (_, size) in enumerate(held) if i not in found.spilled)
        turns = sum(held[i][1] for i in found.turn)
        assert resident + turns <= memory or len(found.turn) <= 1, "memory holds, but for one that never fits"
        assert not found.spilled or found.turn
    assert set(found.spilled) <= seen
