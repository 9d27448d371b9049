"""Which mini-partitions move to which bin: the policies of Flux (Shah, Hellerstein, Chandrasekaran, Franklin 2003).

A round collects measurements for a while, then moves a little state. Bins are sorted, and paired from both ends
towards the middle:

    utilisation   0.97  0.81  0.66  0.20          bin 1 gives to bin 4, bin 2 to bin 3: of each giver the first
    bin             1     2     3     4           mini-partition, the busiest first, that lowers the imbalance
                    |     +-----+     |
                    +-----------------+

`load` evens out utilisation (section 5.3), `memory` what does not fit (6.1), `hybrid` one or the other (6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.model import Move, Stay
from headrace.units import format_bytes

__all__ = [
    "BinLoad",
    "FluxLimits",
    "MiniLoad",
    "after_moves",
    "has_room",
    "hybrid",
    "load",
    "memory",
    "planned_ahead",
    "within",
]


@dataclass(frozen=True, slots=True)
class FluxLimits:
    """Thresholds of the policies; the defaults are the paper's."""

    imbalance: float = 1.2  # least ratio of two bins' utilisations that is worth a move
    utilisation: float = 0.9  # a bin busier than this takes nothing
    # Moves for the sake of load fill a bin's memory up to this share: filled to the brim, it would spill at the next
    # row, and the memory policy would send back what the load policy has brought. Ours, not the paper's.
    fullness: float = 0.9

    def __post_init__(self) -> None:
        if self.imbalance < 1 or not 0 < self.utilisation <= 1 or not 0 < self.fullness <= 1:
            raise ValueError(f"limits {self} make no sense: imbalance >= 1, 0 < utilisation, fullness <= 1")


@dataclass(frozen=True, slots=True)
class MiniLoad:
    """What a mini-partition did since the last round: rows processed; and what it holds now, in bytes."""

    mini: int
    rows: int
    state_bytes: int
    spilled: bool = False


@dataclass(frozen=True, slots=True)
class BinLoad:
    """A bin since the last round: the share of the time in which it worked (0 to 1), and what it holds."""

    bin: int
    utilisation: float
    minis: tuple[MiniLoad, ...]
    memory_bytes: int = 2**63

    @property
    def rows(self) -> int:
        return sum(mini.rows for mini in self.minis)

    @property
    def state_bytes(self) -> int:
        return sum(mini.state_bytes for mini in self.minis)

    @property
    def excess_bytes(self) -> int:
        """State that does not fit into memory; negative: room that is left."""
        return self.state_bytes - self.memory_bytes

    @property
    def fullness(self) -> float:
        return self.state_bytes / max(1, self.memory_bytes)


def load(bins: Sequence[BinLoad], limits: FluxLimits | None = None) -> tuple[Move, ...] | Stay:
    """Moves at most one mini-partition per pair, from bins that work more than others to bins that work less."""
    return _load(bins, limits or FluxLimits(), lambda mini, receiver: True)


def _load(
    bins: Sequence[BinLoad], limits: FluxLimits, allowed: Callable[[MiniLoad, BinLoad], bool]
) -> tuple[Move, ...] | Stay:
    if len(bins) < 2:
        return Stay("one bin alone has nowhere to move to")
    mean = sum(bin_.utilisation for bin_ in bins) / len(bins)
    moves: list[Move] = []
    for donor, receiver in _pairs(sorted(bins, key=lambda b: (-b.utilisation, b.bin))):
        refusal = _refusal(donor, receiver, mean, limits)
        if refusal is not None:
            return tuple(moves) or Stay(refusal)
        order = sorted(donor.minis, key=lambda m: (-m.rows, m.mini))
        found = next((m for m in order if allowed(m, receiver) and _evens_out(m, donor, receiver)), None)
        if found is not None:
            reason = f"utilisation {_busy(donor)}, {_busy(receiver)}"
            moves.append(Move(found.mini, donor.bin, receiver.bin, found.state_bytes, reason))
    return tuple(moves) or Stay("no mini-partition would lower the imbalance")


def _busy(bin_: BinLoad) -> str:
    return f"{bin_.utilisation:.2f} in bin {bin_.bin}"


def _pairs(ordered: Sequence[BinLoad]) -> Iterator[tuple[BinLoad, BinLoad]]:
    """First with last, second with last but one, towards the middle."""
    return ((ordered[i], ordered[-1 - i]) for i in range(len(ordered) // 2))


def _refusal(donor: BinLoad, receiver: BinLoad, mean: float, limits: FluxLimits) -> str | None:
    """Why nothing moves between two bins, nor between any pair further in."""
    if donor.utilisation <= mean:
        return f"bin {donor.bin} works no more than the average, {mean:.2f}"
    if donor.utilisation < limits.imbalance * receiver.utilisation:
        ratio = donor.utilisation / receiver.utilisation
        return f"imbalance {ratio:.2f} of bins {donor.bin} and {receiver.bin} is below {limits.imbalance}"
    if receiver.utilisation > limits.utilisation:
        return f"bin {receiver.bin}, the least busy, works {receiver.utilisation:.2f} of the time"
    return None


def _after(mini: MiniLoad, donor: BinLoad, receiver: BinLoad) -> tuple[float, float]:
    """Utilisation of both bins after a move, were rows and speeds to stay as they are."""
    given = donor.utilisation * mini.rows / donor.rows if donor.rows else 0.0
    # A bin without rows has shown no speed of its own: the giver's stands in for it.
    speed = receiver.utilisation / receiver.rows if receiver.rows else donor.utilisation / max(1, donor.rows)
    return donor.utilisation - given, receiver.utilisation + mini.rows * speed


def _evens_out(mini: MiniLoad, donor: BinLoad, receiver: BinLoad) -> bool:
    if not mini.rows:
        return False
    less, more = _after(mini, donor, receiver)
    if more > 1:
        return False
    # Imbalance is the ratio of the greater to the lesser; written without division, as a bin may be idle.
    return max(less, more) * receiver.utilisation < donor.utilisation * min(less, more) or (
        receiver.utilisation == 0 and more < donor.utilisation
    )


def memory(bins: Sequence[BinLoad], limits: FluxLimits | None = None) -> tuple[Move, ...] | Stay:
    """Moves at most one mini-partition per pair, from bins whose state does not fit to bins with more room.

    How busy the receiver is does not matter: where all memory is used up, moves even out what is on disk.
    """
    limits = limits or FluxLimits()
    if len(bins) < 2:
        return Stay("one bin alone has nowhere to move to")
    mean = sum(bin_.excess_bytes for bin_ in bins) / len(bins)
    moves: list[Move] = []
    for donor, receiver in _pairs(sorted(bins, key=lambda b: (-b.excess_bytes, b.bin))):
        if donor.excess_bytes <= mean:
            return tuple(moves) or Stay(f"bin {donor.bin} is no fuller than the average")
        if donor.excess_bytes <= 0 and donor.fullness < limits.imbalance * receiver.fullness:
            ratio = donor.fullness / receiver.fullness
            return tuple(moves) or Stay(
                f"all state fits, and imbalance {ratio:.2f} of bins {donor.bin} and {receiver.bin} "
                f"is below {limits.imbalance}"
            )
        apart = donor.excess_bytes - receiver.excess_bytes
        # What is on disk must be read, and its rows processed, before it can go.
        order = sorted(donor.minis, key=lambda m: (m.spilled, -m.state_bytes, m.mini))
        found = next((m for m in order if m.state_bytes and abs(apart - 2 * m.state_bytes) < apart), None)
        if found is not None:
            reason = f"{_beyond(donor)}, {_beyond(receiver)}"
            moves.append(Move(found.mini, donor.bin, receiver.bin, found.state_bytes, reason))
    return tuple(moves) or Stay("no mini-partition would lower the imbalance")


def _beyond(bin_: BinLoad) -> str:
    what = "beyond memory" if bin_.excess_bytes > 0 else "of room"
    return f"{format_bytes(abs(bin_.excess_bytes))} {what} in bin {bin_.bin}"


def hybrid(bins: Sequence[BinLoad], limits: FluxLimits | None = None) -> tuple[Move, ...] | Stay:
    """The memory policy while anything is on disk, else the load policy, moving only to where there is room."""
    if any(mini.spilled for bin_ in bins for mini in bin_.minis):
        return memory(bins, limits)
    limits = limits or FluxLimits()
    return _load(bins, limits, lambda mini, receiver: has_room(mini, receiver, limits))


def has_room(mini: MiniLoad, receiver: BinLoad, limits: FluxLimits) -> bool:
    """Whether a mini-partition that need not move for the sake of memory may move to a bin."""
    return receiver.state_bytes + mini.state_bytes <= limits.fullness * receiver.memory_bytes


def after_moves(bins: Sequence[BinLoad], moves: Iterable[Move]) -> tuple[BinLoad, ...]:
    """The bins as the policies expect them to be after these moves; what then fits is not on disk any more."""
    by_bin = {bin_.bin: bin_ for bin_ in bins}
    for move in moves:
        donor, receiver = by_bin[move.source], by_bin[move.target]
        mini = next(m for m in donor.minis if m.mini == move.mini)
        less, more = _after(mini, donor, receiver)
        rest = tuple(m for m in donor.minis if m.mini != move.mini)
        left = replace(donor, utilisation=max(0.0, less), minis=rest)
        if left.excess_bytes <= 0:
            left = replace(left, minis=tuple(replace(m, spilled=False) for m in rest))
        by_bin[donor.bin] = left
        installed = (*receiver.minis, replace(mini, spilled=False))
        by_bin[receiver.bin] = replace(receiver, utilisation=min(1.0, more), minis=installed)
    return tuple(by_bin[bin_.bin] for bin_ in bins)


def planned_ahead(
    policy: Callable[[Sequence[BinLoad]], tuple[Move, ...] | Stay], bins: Sequence[BinLoad], rounds: int
) -> tuple[Move, ...] | Stay:
    """What a policy would do in so many rounds if each did what it expects: more per round where rounds are rare.

    A mini-partition that has moved stays where it went.
    """
    found: list[Move] = []
    first: tuple[Move, ...] | Stay | None = None
    for _ in range(rounds):
        moves = policy(bins)
        first = moves if first is None else first
        if isinstance(moves, Stay) or any(move.mini in {m.mini for m in found} for move in moves):
            break
        found += moves
        bins = after_moves(bins, moves)
    assert first is not None
    return tuple(found) or first


def within(moves: Sequence[Move], budget_bytes: int) -> tuple[Move, ...]:
    """The first of the moves that fit a budget; the very first always goes, if need be over several epochs."""
    left, taken = budget_bytes, list[Move]()
    for move in moves:
        if taken and move.state_bytes > left:
            break
        taken.append(move)
        left -= move.state_bytes
    return tuple(taken)
