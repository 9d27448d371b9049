"""Which remedy acts against overload, and why: the cheapest for the user first, shedding last.

    intake           take as many rows as fill an epoch; a smaller intake hides overload from the clock
    refresh          answer no more often than asked
    answer late      answers wait, in the order of their deadlines
    spread joins     a join's work is spread evenly over its hosts
    move state       mini-partitions move from busy bins to idle ones
    move operators   nodes move to sites that have room
    shed             rows are left out, and counted

Every remedy says how many seconds of each epoch it can take away. Those that come first act, until together they take
away what is too much; what follows waits. A remedy that has acted for some epochs without the lag falling has done what
it could: it counts for nothing from then on, until the overload is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Lag", "Offer", "Remedies", "Remedy", "choose_remedies"]

# Epochs that a remedy has to show what it can do. Two, since lag has to be back within three epochs of a burst.
TURN = 2
# After overload, a remedy goes on until there has been none for so many epochs: bursts come in trains.
CALM = 3


class Remedy(StrEnum):
    """What can be done against overload, in the order in which it is done."""

    INTAKE = "intake"
    REFRESH = "refresh"
    ANSWER_LATE = "answer late"
    SPREAD_JOINS = "spread joins"
    MOVE_STATE = "move state"
    MOVE_OPERATORS = "move operators"
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class Offer:
    """Seconds of each epoch that a remedy can take away, and how."""

    gain_s: float
    how: str


@dataclass(frozen=True, slots=True)
class Lag:
    """Seconds of work that wait, how much more or less that is than an epoch before, the age of the oldest waiting row,
    what a coming epoch needs, and what it may take."""

    waiting_s: float
    trend_s: float
    age_s: float
    needs_s: float
    budget_s: float
    overloaded: bool


@dataclass(frozen=True, slots=True)
class Remedies:
    """What acts from now on, and why; and what is remembered: turns of each remedy, and epochs without overload."""

    acting: tuple[str, ...] = ()
    reason: str = "no overload"
    turns: Mapping[str, int] = field(default_factory=dict)
    calm: int = 0

    def acts(self, remedy: Remedy) -> bool:
        return remedy.value in self.acting


def choose_remedies(lag: Lag, offers: Mapping[Remedy, Offer], before: Remedies) -> Remedies:
    """The remedies that act in the coming epoch, given what each offers and what acted before.

    >>> late, shed = Offer(0.5, "answers take 0.7 s"), Offer(2.0, "rows")
    >>> lag = Lag(3.0, 1.0, 3.0, needs_s=1.4, budget_s=1.0, overloaded=True)
    >>> choose_remedies(lag, {Remedy.ANSWER_LATE: late, Remedy.SHED: shed}, Remedies()).acting
    ('answer late',)
    """
    if not lag.overloaded:
        calm = before.calm + 1
        if not before.acting or calm >= CALM:
            return Remedies(calm=calm)
        going_on = tuple(name for name in before.acting if Remedy(name) in offers)
        return Remedies(going_on, f"no overload for {calm} of {CALM} epochs", before.turns, calm)
    excess = max(0.0, lag.needs_s - lag.budget_s)
    falls = lag.trend_s < 0
    acting, reasons, turns = list[str](), list[str](), dict(before.turns)
    for remedy in Remedy:
        offer = offers.get(remedy)
        if offer is None or offer.gain_s <= 0:
            continue
        if remedy is Remedy.SHED and excess <= 0:
            continue
        had = turns.get(remedy.value, 0)
        acting.append(remedy.value)
        reasons.append(f"{remedy.value} ({offer.how})")
        if remedy is Remedy.SHED:
            break
        # A turn counts only while the lag does not fall: what helps goes on.
        turns[remedy.value] = had if falls else had + 1
        if had < TURN:
            excess -= offer.gain_s
        if excess <= 0:
            break
    why = f"epochs need {lag.needs_s:.2f} s and may take {lag.budget_s:.2f} s"
    return Remedies(tuple(acting), f"{why}: {', '.join(reasons) or 'no remedy offers anything'}", turns, 0)
