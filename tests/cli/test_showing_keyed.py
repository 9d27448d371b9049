"""What `status` says about keyed state."""

from __future__ import annotations

from dataclasses import replace

from headrace.cli.showing_keyed import keyed_lines
from headrace.model import Isolate, KeyedState, Move, Moving, Residence, Split, plain
from headrace.policies import begin

MOVE = Move(3, 1, 0, 2_000_000, "utilisation 0.97 in bin 1, 0.41 in bin 0")


def lines(state: KeyedState) -> list[str]:
    observed = {"q": {"places": ["a:1", "b:2"], "busy_s": [0.5, 0.25]}}
    return keyed_lines(
        {"flows": {"q": plain(state), "j": {"kind": "join", "way": {}}}, "last_epoch": {"flows": observed}}
    )


def test_the_map_the_last_moves_and_their_reasons_are_shown():
    state = replace(begin(2, 8), state_bytes=(1000,) * 8, owners=(0, 1, 0, 0, 0, 1, 0, 1), history=((12, MOVE),),
                    moves=1, moved_bytes=2_000_000, reason="collecting for 0.5 s more")  # fmt: skip
    assert lines(state) == [
        "state of q: 8 kB in 8 mini-partitions, 1 moves so far (2 MB); collecting for 0.5 s more",
        "  bin 0 at a:1, busy 0.50 s of the last epoch: 5 kB; mini-partitions 0 2-4 6",
        "  bin 1 at b:2, busy 0.25 s of the last epoch: 3 kB; mini-partitions 1 5 7",
        "  moved in epoch 12: mini-partition 3 (2 MB) from bin 1 to bin 0: utilisation 0.97 in bin 1, 0.41 in bin 0",
    ]


def test_what_waits_is_shared_or_stands_alone_is_said_with_the_reason():
    state = replace(
        begin(2, 4),
        memory_bytes=(5000, 2**62),
        residence=(Residence((0, 2), (0,)), Residence()),
        moving=(Moving(MOVE, 500_000),),
        splits=(Split(2, (0, 1), "it has 60% of all rows"),),
        isolated=(Isolate(1, 1, "it has 80% of all rows"),),
    )
    text = "\n".join(lines(state))
    for part in (
        "0 B of 5 kB; mini-partitions 0 2",
        "    on disk, taking turns: 0 2",
        "  on its way: mini-partition 3 (2 MB) from bin 1 to bin 0: utilisation",
        "500 kB to go, its rows wait",
        "  shared by bins 0-1: mini-partition 2; it has 60% of all rows",
        "  alone in bin 1: mini-partition 1; it has 80% of all rows",
    ):
        assert part in text
