"""Where the state of a keyed operator is, and what happens to it next: one decision per epoch, one account after it.

Keys are hashed into mini-partitions, mini-partitions are owned by bins. Between two epochs nothing is under way: there
a mini-partition can leave one bin and be installed in another. Rows of one whose state is still on its way, or on disk,
wait; those of all others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.model import (
    LEAST_S,
    Collected,
    Isolate,
    KeyedDecision,
    KeyedState,
    Move,
    Moving,
    Residence,
    Rounds,
    Split,
    Stay,
)
from headrace.policies.keyed.flux import BinLoad, FluxLimits, MiniLoad, hybrid, planned_ahead, within
from headrace.policies.keyed.hot import isolate, split
from headrace.policies.keyed.rounds import bins_of, next_round
from headrace.policies.keyed.spill import reside

__all__ = ["FluxSettings", "KeyedEpoch", "account", "begin", "decide_keyed"]

# Moves of late that `status` shows.
SHOWN = 20
# A share of memory that state may take: the rest is for rows on their way and for results.
MEMORY_SHARE = 0.8
# What rows of a second before count for, when the coldest mini-partitions go to disk. Counted by epochs instead, short
# ones would make some look cold by chance alone, and each of those is written and another read.
COOLS = 0.8


@dataclass(frozen=True, slots=True)
class FluxSettings:
    """How state moves: off or on, how much in one epoch, how many rows may wait, and the policies' thresholds."""

    moves: bool = True
    # What a 250 Mb/s link carries in two seconds: an epoch is seldom longer.
    budget_bytes: int = 64 << 20
    # Rows of one mini-partition that may wait while it moves; beyond that the move ends at once.
    buffer_rows: int = 1_000_000
    # Epochs are longer than the paper's rounds of 10 ms: each plans several of them ahead.
    ahead: int = 16
    minis_per_bin: int = 64
    # The shortest collection of a round; it grows by itself while moves go to and fro, unless `tunes` is off.
    least_s: float = LEAST_S
    tunes: bool = True
    # Whether hot mini-partitions are shared or get a bin of their own.
    hot: bool = True
    limits: FluxLimits = field(default_factory=FluxLimits)

    def __post_init__(self) -> None:
        for name in ("budget_bytes", "buffer_rows", "ahead", "minis_per_bin"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.least_s <= 0:
            raise ValueError(f"least_s must be more than 0, not {self.least_s}")


@dataclass(frozen=True)
class KeyedEpoch:
    """What an epoch measured: seconds of the whole step, per bin at work, loading and memory; per mini-partition rows
    processed, rows that came, and bytes of state (None: not looked at)."""

    seconds: float
    busy_s: tuple[float, ...]
    load_s: tuple[float, ...]
    memory_bytes: tuple[int, ...]
    rows: tuple[int, ...]
    arrived: tuple[int, ...]
    state_bytes: tuple[int | None, ...]


def begin(bins: int, minis: int, settings: FluxSettings | None = None) -> KeyedState:
    """A keyed operator that has seen nothing: as many mini-partitions for each bin."""
    least = (settings or FluxSettings()).least_s
    return KeyedState(
        owners=tuple(mini % bins for mini in range(minis)),
        done_us=(None,) * minis,
        bases=(-1,) * minis,
        snapshots=(None,) * minis,
        state_bytes=(0,) * minis,
        warmth=(0.0,) * minis,
        waiting=(0,) * minis,
        memory_bytes=(2**62,) * bins,
        residence=(Residence(),) * bins,
        rounds=Rounds(collect_s=least, least_s=least),
    )


def decide_keyed(
    state: KeyedState, bins: int, settings: FluxSettings, merges: bool, *, urgent: bool = False
) -> KeyedDecision:
    """What happens to the state in the coming epoch, in which there are so many bins.

    `merges` says that several bins can share the work of one mini-partition; with `urgent` a round ends with what
    it has collected so far, however short that was.
    """
    state = _fitted(state, bins)
    moves, ends_round = tuple[Move, ...](), False
    splits, isolated = state.splits, state.isolated
    if state.moving:
        reason = "moves are under way"
    elif not settings.moves:
        reason = "moves are off"
    elif state.collected.seconds < state.rounds.collect_s and not (urgent and state.collected.seconds > 0):
        reason = f"collecting for {state.rounds.collect_s - state.collected.seconds:.1f} s more"
    else:
        ends_round = True
        splits, isolated, moves, reason = _round(_loads(state), state, settings, merges)
    moving = _shipped(state.moving, moves, state.waiting, settings)
    owners = list(state.owners)
    under_way = {item.move.mini for item in moving}
    for move in (*(item.move for item in state.moving), *moves):
        if move.mini not in under_way:
            owners[move.mini] = move.target
    splits = tuple(s for s in splits if s.bins[0] == owners[s.mini] and max(s.bins) < bins)
    room = _room(state)
    installed: list[list[int]] = [[] for _ in range(bins)]
    for mini, owner in enumerate(owners):
        if mini not in under_way:
            installed[owner].append(mini)
    residence = tuple(_reside(state, installed[bin_], room[bin_], state.residence[bin_]) for bin_ in range(bins))
    waits = under_way.union(*(each.waiting for each in residence))
    return KeyedDecision(
        tuple(owners), bins, moves, moving, tuple(sorted(waits)), residence, splits, isolated, ends_round, reason
    )


def _reside(state: KeyedState, minis: Sequence[int], room: int, before: Residence) -> Residence:
    if sum(state.state_bytes[mini] for mini in minis) <= room:
        return Residence()
    return reside([MiniLoad(m, round(state.warmth[m]), state.state_bytes[m]) for m in minis], room, before)


def _round(
    loads: Sequence[BinLoad], state: KeyedState, settings: FluxSettings, merges: bool
) -> tuple[tuple[Split, ...], tuple[Isolate, ...], tuple[Move, ...], str]:
    """The end of a round: what to do about hot mini-partitions, then what the hybrid policy wants."""
    splits = split(loads, state.splits) if merges and settings.hot else ()
    isolated, away = isolate(loads, settings.limits) if settings.hot and not merges else ((), ())
    # While anything is on disk, memory comes first: a bin that is left to one may have the room that another needs.
    if away and not any(mini.spilled for bin_ in loads for mini in bin_.minis):
        return splits, isolated, within(away, settings.budget_bytes), away[0].reason
    movable = [_without(bin_, splits, loads) for bin_ in loads]
    found = planned_ahead(lambda bins: hybrid(bins, settings.limits), movable, settings.ahead)
    if isinstance(found, Stay):
        return splits, isolated, (), found.reason
    return splits, isolated, within(found, settings.budget_bytes), found[0].reason


def _without(bin_: BinLoad, splits: Sequence[Split], bins: Sequence[BinLoad]) -> BinLoad:
    """A bin as if it had no mini-partitions whose work is shared: these stay where they are, each with its helpers."""
    if not splits:
        return bin_
    rows = {mini.mini: mini.rows for each in bins for mini in each.minis}
    helped = sum(rows[item.mini] / len(item.bins) for item in splits if bin_.bin in item.bins)
    rest = tuple(mini for mini in bin_.minis if mini.mini not in {item.mini for item in splits})
    own = sum(mini.rows for mini in rest)
    taken = bin_.state_bytes - sum(mini.state_bytes for mini in rest)
    return replace(
        bin_,
        utilisation=bin_.utilisation * (own / (own + helped) if own + helped else 1.0),
        minis=rest,
        memory_bytes=max(0, bin_.memory_bytes - taken),
    )


def _shipped(
    moving: Sequence[Moving], moves: Sequence[Move], waiting: Sequence[int], settings: FluxSettings
) -> tuple[Moving, ...]:
    """The moves that do not end in this epoch: what is shipped in it is taken off, first come first served."""
    left, still = settings.budget_bytes, list[Moving]()
    for item in (*moving, *(Moving(move, move.state_bytes) for move in moves)):
        shipped = min(left, item.left_bytes)
        left -= shipped
        if item.left_bytes > shipped and waiting[item.move.mini] <= settings.buffer_rows:
            still.append(Moving(item.move, item.left_bytes - shipped))
    return tuple(still)


def _loads(state: KeyedState) -> tuple[BinLoad, ...]:
    spilled = frozenset(mini for each in state.residence for mini in each.spilled)
    return bins_of(state.collected, state.owners, state.state_bytes, spilled, _room(state))


def _room(state: KeyedState) -> tuple[int, ...]:
    """Bytes of state that each bin may hold: the same for who decides what goes to disk, and what moves."""
    return tuple(round(memory * MEMORY_SHARE) for memory in state.memory_bytes)


def _fitted(state: KeyedState, bins: int) -> KeyedState:
    """The state for another number of bins: what a bin that is gone owned goes round the others."""
    if len(state.memory_bytes) == bins:
        return state
    memory = (*state.memory_bytes[:bins], *(2**62 for _ in range(bins - len(state.memory_bytes))))
    return replace(
        state,
        owners=tuple(owner if owner < bins else mini % bins for mini, owner in enumerate(state.owners)),
        memory_bytes=memory,
        residence=(*state.residence[:bins], *(Residence() for _ in range(bins - len(state.residence)))),
        collected=Collected(),
        moving=(),
        round_moves=(),
        splits=(),
        isolated=(),
    )


def account(
    state: KeyedState, decision: KeyedDecision, measured: KeyedEpoch, epoch: int, settings: FluxSettings | None = None
) -> KeyedState:
    """The state after an epoch in which this was decided and that was measured."""
    settings = settings or FluxSettings()
    least_s, tunes = settings.least_s, settings.tunes
    cools = COOLS**measured.seconds
    state = _fitted(state, decision.bins)
    known = zip(state.state_bytes, measured.state_bytes, strict=True)
    under_way = {item.move.mini for item in decision.moving}
    ended = [move for move in (*(item.move for item in state.moving), *decision.moves) if move.mini not in under_way]
    round_moves = (*state.round_moves, *decision.moves)
    moves_s = state.moves_s + max(measured.load_s, default=0.0)
    rounds = state.rounds
    # What is measured while state is on its way says little about the map that comes of it.
    collected = Collected() if decision.ends_round or round_moves else state.collected
    if not round_moves:
        collected = collected.plus(measured.seconds, measured.busy_s, measured.rows)
        rounds = next_round(rounds, (), 0.0, least_s, tunes) if decision.ends_round else rounds
    elif not decision.moving:
        rounds = next_round(rounds, round_moves, moves_s, least_s, tunes)
    done, waits = not decision.moving, frozenset(decision.waits)
    return replace(
        state,
        owners=decision.owners,
        state_bytes=tuple(before if now is None else now for before, now in known),
        warmth=tuple(cools * old + new for old, new in zip(state.warmth, measured.arrived, strict=True)),
        waiting=tuple(
            old + new if mini in waits else 0
            for mini, (old, new) in enumerate(zip(state.waiting, measured.arrived, strict=True))
        ),
        memory_bytes=measured.memory_bytes,
        residence=decision.residence,
        rounds=rounds,
        collected=collected,
        splits=decision.splits,
        isolated=decision.isolated,
        moving=decision.moving,
        round_moves=() if done else round_moves,
        moves_s=0.0 if done or not round_moves else moves_s,
        history=(*state.history, *((epoch, move) for move in ended))[-SHOWN:],
        moves=state.moves + len(ended),
        moved_bytes=state.moved_bytes + sum(move.state_bytes for move in ended),
        reason=decision.reason,
    )
