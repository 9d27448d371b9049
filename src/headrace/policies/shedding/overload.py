"""Whether rows come faster than they can be used, seen from the rows that wait before the lag grows.

Work is counted in seconds that rows would take if all were kept. What waits is the work of the rows that the coming
epoch takes and of those that stay at their sources.

    waiting ≤ BUFFER epochs of capacity                       a burst: it is caught up, nothing is shed
    what had gathered while the engine did not run            a backlog: caught up, unless the pipeline sheds it
    more, and more arrives in an epoch than an epoch can do   overload, until what waits fits one epoch again
    more, and less arrives                                    it is caught up
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Overload", "OverloadState", "Waiting", "detect_overload"]

# Epochs of capacity that may wait without anything being shed.
BUFFER = 2.0
# Rows beyond the buffer are worked off within so many epochs.
DRAIN_EPOCHS = 2.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits when an epoch is admitted: seconds of work of its rows, and of the rows that stay at their sources.

    `since_s` is the time since the epoch before was admitted; `started` says that this is the first epoch of a run.
    """

    coming_s: float
    behind_s: float = 0.0
    since_s: float = 0.0
    started: bool = False

    def __post_init__(self) -> None:
        if min(self.coming_s, self.behind_s, self.since_s) < 0:
            raise ValueError(f"work and time are 0 or more, not {self}")

    @property
    def total_s(self) -> float:
        return self.coming_s + self.behind_s


@dataclass(frozen=True, slots=True)
class OverloadState:
    """What is remembered from epoch to epoch: work behind, work of a backlog that is being caught up, work that arrives
    in the time of an epoch, how long the oldest row waits, and whether there is overload."""

    behind_s: float = 0.0
    backlog_s: float = 0.0
    arriving_s: float = 0.0
    age_s: float = 0.0
    overloaded: bool = False


@dataclass(frozen=True, slots=True)
class Overload:
    """The judgement for an epoch, and why. `demand_s` is the work that its plan has to bring down to the capacity."""

    overloaded: bool
    demand_s: float
    waiting_s: float
    trend_s: float
    reason: str
    state: OverloadState


def detect_overload(
    waiting: Waiting, capacity_s: float, epoch_s: float, state: OverloadState, *, shed_backlog: bool = False
) -> Overload:
    """Judges what waits by what an epoch of `epoch_s` seconds can do (`capacity_s` of work)."""
    total = waiting.total_s
    if waiting.started:
        backlog = 0.0 if shed_backlog else max(0.0, total - state.behind_s)
        arriving, age = state.arriving_s, state.age_s
    else:
        backlog = min(state.backlog_s, total)
        arrived = max(0.0, total - state.behind_s)
        arriving = arrived * epoch_s / max(waiting.since_s, epoch_s)
        # Little's law: what waits, over the rate at which it comes.
        age = total / arrived * waiting.since_s if arrived > 0 else state.age_s + waiting.since_s
    excess = max(0.0, total - backlog)
    grows = arriving > capacity_s or (waiting.started and shed_backlog)
    most = capacity_s if state.overloaded else BUFFER * capacity_s
    overloaded = excess > most and (grows or state.overloaded)
    demand = max(waiting.coming_s, arriving)
    demand += max(0.0, excess - waiting.coming_s - capacity_s) / DRAIN_EPOCHS
    trend = total - state.behind_s - capacity_s
    after = OverloadState(waiting.behind_s, backlog, arriving, 0.0 if not total else age, overloaded)
    reason = _reason(waiting, after, capacity_s, excess, most)
    return Overload(overloaded, demand if overloaded else 0.0, total, trend, reason, after)


def _reason(waiting: Waiting, state: OverloadState, capacity_s: float, excess: float, most: float) -> str:
    waits = f"{waiting.total_s:.2f} s of work wait, {state.arriving_s:.2f} s arrive and {capacity_s:.2f} s fit an epoch"
    if state.overloaded:
        return f"{waits}; the oldest rows wait for {state.age_s:.1f} s"
    if excess > most:
        return f"{waits}: it is caught up"
    if state.backlog_s > 0 and waiting.total_s > most:
        return f"{waits}: {state.backlog_s:.2f} s of them gathered while the engine did not run, and are caught up"
    return waits
