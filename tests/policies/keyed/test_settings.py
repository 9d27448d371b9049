"""Thresholds of the rounds can be set, and short epochs do not make mini-partitions look cold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model import KeyedState, Move, Residence, Rounds
from headrace.policies import FluxSettings, KeyedEpoch, MiniLoad, account, begin, decide_keyed, next_round, reside

BACK_AND_FORTH = Rounds(5, 0.01, 0.01, flows=((4, 1, 0),))
MOVE = Move(7, 0, 1, 100, "")


def test_the_least_collection_can_be_set_and_tunes_itself_only_if_it_may() -> None:
    assert begin(2, 4, FluxSettings(least_s=0.01)).rounds.collect_s == 0.01
    assert next_round(BACK_AND_FORTH, [MOVE], 0.001, 0.01, tunes=False).collect_s == 0.01
    assert next_round(BACK_AND_FORTH, [MOVE], 0.001, 0.01).collect_s == 0.02
    with pytest.raises(ValueError, match="least_s"):
        FluxSettings(least_s=0)


def test_hot_mini_partitions_are_left_alone_if_asked() -> None:
    state = replace(_measured(begin(2, 4), 2.0, rows=(5000, 10, 10, 10)), state_bytes=(10,) * 4)
    assert decide_keyed(state, 2, FluxSettings(), merges=True).splits
    assert not decide_keyed(state, 2, FluxSettings(hot=False), merges=True).splits
    assert decide_keyed(state, 2, FluxSettings(), merges=False).isolated
    assert not decide_keyed(state, 2, FluxSettings(hot=False), merges=False).isolated


def test_warmth_fades_with_time_and_not_with_the_number_of_epochs() -> None:
    once = _measured(_measured(begin(2, 4), 1.0, rows=(100,) * 4), 1.0)
    often = _measured(begin(2, 4), 1.0, rows=(100,) * 4)
    for _ in range(10):
        often = _measured(often, 0.1)
    assert often.warmth == pytest.approx(once.warmth)


def test_what_is_on_disk_stays_there_while_nothing_comes() -> None:
    minis = [MiniLoad(mini, 0, 40) for mini in range(4)]
    found = reside(minis, 120, Residence((2, 3), (2,)))
    assert set(found.spilled) == {2, 3}


def _measured(state: KeyedState, seconds: float, rows: tuple[int, ...] = (0,) * 4) -> KeyedState:
    settings = FluxSettings(moves=False)
    measured = KeyedEpoch(seconds, (seconds, 0.0), (0.0,) * 2, (2**40,) * 2, rows, rows, (10,) * 4)
    return account(state, decide_keyed(state, 2, settings, merges=True), measured, 1, settings)
