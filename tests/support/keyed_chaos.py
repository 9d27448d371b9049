"""Decisions on keyed state at random, within the rules: any move, any wait, any turn, any share."""

from __future__ import annotations

import random
from dataclasses import replace

from headrace.model import KeyedDecision, KeyedState, Move, Moving, Residence, Split
from headrace.policies import FluxSettings


class Chaos:
    """Decides at random, within the rules."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.moves, self.waits, self.splits = rng, 0, 0, 0

    def __call__(
        self, state: KeyedState, bins: int, settings: FluxSettings, merges: bool, *, urgent: bool = False
    ) -> KeyedDecision:
        rng = self.rng
        # A start with less parallelism leaves fewer bins: what others owned goes round, what was on its way stays.
        owners = [owner if owner < bins else mini % bins for mini, owner in enumerate(state.owners)]
        state = replace(state, moving=tuple(item for item in state.moving if item.move.target < bins))
        known = {item.move.mini for item in state.moving}
        moves = [
            Move(mini, owners[mini], target, 1, "chance")
            for mini in rng.sample(range(len(owners)), 2)
            if mini not in known and (target := rng.randrange(bins)) != owners[mini]
        ]
        moving = [item for item in (*state.moving, *(Moving(move, 1) for move in moves)) if rng.random() < 0.5]
        held = {item.move.mini for item in moving}
        for move in (*(item.move for item in state.moving), *moves):
            # One in five is given up, with what was shipped of it.
            if move.mini not in held and rng.random() < 0.8:
                owners[move.mini] = move.target
        spilled = tuple(m for m in range(len(owners)) if m not in held and rng.random() < 0.3)
        turn = tuple(m for m in spilled if rng.random() < 0.5)
        waits = held | (set(spilled) - set(turn))
        mini = rng.randrange(len(owners))
        helpers = (owners[mini], *(b for b in range(bins) if b != owners[mini]))
        splits = (Split(mini, helpers, "chance"),) if merges and len(helpers) > 1 and mini not in waits else ()
        self.moves, self.waits, self.splits = (
            self.moves + len(moves),
            self.waits + len(waits),
            self.splits + len(splits),
        )
        residence = (Residence(spilled, turn), *(Residence() for _ in range(bins - 1)))
        return KeyedDecision(
            tuple(owners), bins, tuple(moves), tuple(moving), tuple(sorted(waits)), residence, splits, reason="chance"
        )
