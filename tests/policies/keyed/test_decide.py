"""What happens to keyed state, epoch by epoch: rounds, moves within a budget, turns on disk, shared work."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.model import Collected, KeyedDecision, KeyedState, Move, Moving, Residence, Split, plain, restored
from headrace.policies import FluxSettings, KeyedEpoch, account, begin, decide_keyed

SETTINGS = FluxSettings(minis_per_bin=4, budget_bytes=100, buffer_rows=50, ahead=1)
LONG_AGO = Collected(10.0, (10.0, 2.0), (40, 10, 30, 5, 20, 3, 10, 2))


def state(**changes: object) -> KeyedState:
    """Two bins of four mini-partitions each, 10 bytes in each of them."""
    return replace(begin(2, 8), state_bytes=(10,) * 8, **changes)  # type: ignore[arg-type]


def measured(busy_s: tuple[float, ...] = (1.0, 1.0), rows: tuple[int, ...] = (1,) * 8, **changes: object) -> KeyedEpoch:
    values = KeyedEpoch(1.0, busy_s, (0.0,) * len(busy_s), (10**9,) * len(busy_s), rows, rows, (None,) * len(rows))
    return replace(values, **changes)  # type: ignore[arg-type]


def test_mini_partitions_are_spread_evenly_at_first():
    found = begin(3, 12)
    assert [found.owners.count(b) for b in range(3)] == [4, 4, 4]


def test_nothing_moves_while_a_round_collects():
    found = decide_keyed(state(collected=Collected(0.4, (0.4, 0.0), (9,) * 8)), 2, SETTINGS, merges=True)
    assert (found.moves, found.ends_round, found.reason) == ((), False, "collecting for 0.6 s more")


def test_a_round_ends_with_the_move_that_the_policy_wants():
    found = decide_keyed(state(collected=LONG_AGO), 2, SETTINGS, merges=True)
    assert [(m.mini, m.source, m.target) for m in found.moves] == [(0, 0, 1)]
    assert found.owners[0] == 1
    assert found.ends_round
    assert found.reason == found.moves[0].reason == "utilisation 1.00 in bin 0, 0.20 in bin 1"


def test_a_round_may_plan_several_moves_ahead():
    even = Collected(10.0, (10.0, 1.0), (10, 5) * 4)
    assert len(decide_keyed(state(collected=even), 2, SETTINGS, merges=True).moves) == 1
    assert len(decide_keyed(state(collected=even), 2, replace(SETTINGS, ahead=8), merges=True).moves) == 3


def test_moves_can_be_off():
    found = decide_keyed(state(collected=LONG_AGO), 2, replace(SETTINGS, moves=False), merges=True)
    assert (found.moves, found.splits, found.reason) == ((), (), "moves are off")


def test_a_move_larger_than_the_budget_takes_several_epochs_and_its_rows_wait():
    large = state(collected=LONG_AGO, owners=(0, 1) * 4)
    large = replace(large, state_bytes=(250, *large.state_bytes[1:]))
    waits, owners = [], []
    for epoch in range(4):
        decision = decide_keyed(large, 2, SETTINGS, merges=True)
        waits.append(decision.waits)
        owners.append(decision.owners[0])
        large = account(large, decision, measured(), epoch)
    assert waits == [(0,), (0,), (), ()]
    assert owners == [0, 0, 1, 1], "the map changes when all of it is there"
    assert [(epoch, move.mini) for epoch, move in large.history] == [(2, 0)]
    assert large.moved_bytes == 250


def test_a_full_buffer_ends_a_move_at_once():
    move = Move(0, 0, 1, 250, "")
    under_way = state(moving=(Moving(move, 200),), round_moves=(move,))
    full = replace(under_way, waiting=(51, *under_way.waiting[1:]))
    assert decide_keyed(under_way, 2, SETTINGS, merges=True).waits == (0,)
    found = decide_keyed(full, 2, SETTINGS, merges=True)
    assert (found.waits, found.owners[0], found.moving) == ((), 1, ())


def test_rows_that_come_for_one_that_waits_are_counted():
    waiting = account(state(), KeyedDecision(state().owners, 2, waits=(3,)), measured(rows=(7,) * 8), 0)
    waiting = account(waiting, KeyedDecision(state().owners, 2, waits=(3,)), measured(rows=(7,) * 8), 1)
    assert waiting.waiting == (0, 0, 0, 14, 0, 0, 0, 0)


def test_a_bin_beyond_its_memory_sends_the_coldest_to_disk():
    full = replace(state(memory_bytes=(40, 10**9)), warmth=(9.0, 1, 5.0, 1, 7.0, 1, 8.0, 1))
    found = decide_keyed(full, 2, SETTINGS, merges=True)
    assert found.residence[0] == Residence((2, 4), (2,)), "80 % of 40 bytes are for state"
    assert found.residence[1] == Residence()
    assert found.waits == (4,)


def test_while_anything_is_on_disk_memory_decides_who_moves():
    full = state(memory_bytes=(40, 10**9), collected=Collected(10.0, (1.0, 10.0), (10,) * 8))
    full = replace(full, residence=(Residence((2, 4), (2,)), Residence()))
    (move,) = decide_keyed(full, 2, SETTINGS, merges=True).moves
    assert (move.source, move.target) == (0, 1)
    assert "of room" in move.reason


def test_a_hot_mini_partition_is_shared_where_state_merges():
    hot = state(collected=Collected(10.0, (10.0, 1.0), (9000, 10, 10, 10, 10, 10, 10, 10)))
    found = decide_keyed(hot, 2, SETTINGS, merges=True)
    assert [(s.mini, s.bins) for s in found.splits] == [(0, (0, 1))]
    assert all(move.mini != 0 for move in found.moves)


def test_a_hot_mini_partition_gets_a_bin_to_itself_where_state_does_not_merge():
    hot = state(collected=Collected(10.0, (10.0, 1.0), (9000, 10, 10, 10, 10, 10, 10, 10)))
    found = decide_keyed(hot, 2, SETTINGS, merges=False)
    assert [(i.mini, i.bin) for i in found.isolated] == [(0, 0)]
    assert {(m.mini, m.target) for m in found.moves} == {(2, 1), (4, 1), (6, 1)}


def test_more_bins_start_empty_and_fewer_leave_nothing_behind():
    more = decide_keyed(state(collected=LONG_AGO), 3, SETTINGS, merges=True)
    assert (more.bins, max(more.owners), len(more.residence)) == (3, 1, 3)
    fewer = decide_keyed(state(collected=LONG_AGO), 1, SETTINGS, merges=True)
    assert (fewer.bins, set(fewer.owners)) == (1, {0})
    after = account(state(), more, measured((1.0, 1.0, 0.0)), 0)
    assert len(after.memory_bytes) == 3


def test_a_split_of_a_bin_that_is_gone_ends():
    split = state(splits=(Split(0, (0, 1), "hot"),))
    assert decide_keyed(split, 1, SETTINGS, merges=True).splits == ()


def test_state_and_decision_survive_json():
    before = state(collected=LONG_AGO, splits=(Split(1, (1, 0), "hot"),), log=((3, "a.chunk"),))
    decision = decide_keyed(before, 2, replace(SETTINGS, budget_bytes=5), merges=True)
    after = account(before, decision, measured(), 4)
    assert decision.moving
    assert restored(KeyedDecision, json.loads(json.dumps(plain(decision)))) == decision
    assert restored(KeyedState, json.loads(json.dumps(plain(after)))) == after


def test_what_is_measured_while_state_moves_does_not_count():
    move = Move(0, 0, 1, 250, "")
    under_way = state(collected=LONG_AGO, moving=(Moving(move, 200),), round_moves=(move,))
    decision = decide_keyed(under_way, 2, SETTINGS, merges=True)
    assert account(under_way, decision, measured(), 0).collected == Collected()


def play(epochs: int, settings: FluxSettings, loads: list[tuple[int, ...]], period: int) -> tuple[KeyedState, float]:
    """Epochs of a world in which a bin takes a second for 100 rows; the state afterwards, and rows per second."""
    now, rows_in, seconds = begin(2, 8), 0, 0.0
    for epoch in range(epochs):
        decision = decide_keyed(now, 2, settings, merges=False)
        rows = loads[epoch // period % len(loads)]
        busy = tuple(sum(rows[m] for m, o in enumerate(decision.owners) if o == b) / 100 for b in range(2))
        took = max(busy)
        seconds += took + sum(m.state_bytes for m in decision.moves) / 1000
        rows_in += sum(rows)
        sizes = tuple(20 for _ in rows)
        seen = KeyedEpoch(took, busy, (0.01, 0.01), (10**9,) * 2, rows, rows, sizes)
        now = account(now, decision, seen, epoch)
    return now, rows_in / seconds


SKEWED = (30, 5, 30, 5, 30, 5, 30, 5)


def test_a_lasting_skew_is_evened_out():
    settings = replace(SETTINGS, ahead=1)
    _, still = play(60, replace(settings, moves=False), [SKEWED], 1)
    moved, rate = play(60, settings, [SKEWED], 1)
    assert rate > 1.4 * still
    assert len(moved.history) <= 4, "and then it is quiet"


@pytest.mark.parametrize("period", [2, 3, 5])
def test_a_skew_that_alternates_does_not_thrash(period: int):
    """Load that changes sides every few epochs: moves become rare, and cost less than a tenth of the throughput."""
    other = SKEWED[1:] + SKEWED[:1]
    settings = replace(SETTINGS, ahead=4)
    _, still = play(400, replace(settings, moves=False), [SKEWED, other], period)
    moved, rate = play(400, settings, [SKEWED, other], period)
    assert rate > 0.9 * still
    assert moved.moved_bytes < 400 * settings.budget_bytes / 10
    late, _ = play(800, settings, [SKEWED, other], period)
    assert late.moved_bytes - moved.moved_bytes <= moved.moved_bytes


@pytest.mark.parametrize("name", ["budget_bytes", "buffer_rows", "ahead", "minis_per_bin"])
def test_settings_that_make_no_sense_are_refused(name: str):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        FluxSettings(**{name: 0})


def test_a_bin_is_left_to_a_hot_one_only_when_nothing_is_on_disk():
    hot = Collected(10.0, (10.0, 2.0), (40_000, 10, 30, 5, 20, 3, 10, 2))
    calm = decide_keyed(state(collected=hot), 2, SETTINGS, merges=False)
    assert [item.mini for item in calm.isolated] == [0]
    assert {(move.source, move.target) for move in calm.moves} == {(0, 1)}
    spilled = (Residence(), Residence((1, 3), (1,)))
    short = state(collected=hot, memory_bytes=(10**9, 30), residence=spilled)
    found = decide_keyed(short, 2, SETTINGS, merges=False)
    assert {(move.source, move.target) for move in found.moves} == {(1, 0)}, "memory first"


def test_shared_work_is_not_taken_for_that_of_others():
    """Bin 0 and 1 share the work of mini-partition 0; without it they are as busy as each other."""
    split = (Split(0, (0, 1), "hot"),)
    rows = (8000, 1000, 500, 0, 300, 0, 200, 0)
    found = decide_keyed(state(collected=Collected(10.0, (9.0, 9.0), rows), splits=split), 2, SETTINGS, merges=True)
    assert found.splits == split
    assert found.moves == ()


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param({"owners": (0, 1, 0)}, id="a bin that is not there owns a mini-partition"),
        pytest.param({"owners": (0, 0, 0), "splits": (Split(2, (0, 1), "hot"),)}, id="it shares in one"),
    ],
)
def test_a_decision_gives_no_rows_to_a_bin_that_is_not_there(decision: dict[str, Any]):
    with pytest.raises(ValueError, match=r"given to bins \[1\]; there are 1, from 0 on"):
        KeyedDecision(bins=1, **decision)
