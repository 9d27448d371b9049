"""The one place where the engine reads clocks that decisions depend on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace.model import EpochDecision
from headrace.policies import EpochTime, Reading, tell_time

__all__ = ["EpochClock", "read_clocks", "steady_s"]

# The listening clock looks around this often, and believes that it ran for so long at most since it last did.
_TICK_S = 1.0
_MOST_TICK_S = 3.0
# Linux's CLOCK_MONOTONIC stands while the machine is suspended, CLOCK_BOOTTIME goes on.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Seconds since some beginning, by a clock nobody sets and that goes on while the machine is suspended."""
    return time.clock_gettime(_STEADY)


class _Listening:
    """Counts the time in which this process ran: a stopped or suspended one does not tick."""

    def __init__(self) -> None:
        self._lock, self._count_s, self._last_s = threading.Lock(), 0.0, time.monotonic()
        threading.Thread(target=self._tick, daemon=True, name="headrace-listening").start()

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self.us()

    def us(self) -> int:
        with self._lock:
            now_s = time.monotonic()
            self._count_s += min(now_s - self._last_s, _MOST_TICK_S)
            self._last_s = now_s
            return int(self._count_s * 1e6)


_listening: list[_Listening] = []


def read_clocks() -> Reading:
    """What the clocks show now."""
    if not _listening:
        _listening.append(_Listening())
    return Reading(time.time_ns() // 1000, int(steady_s() * 1e6), _listening[0].us())


class EpochClock:
    """Tells the time of each epoch of a run, and remembers what it has told."""

    def __init__(self, read: Callable[[int], Reading], on_note: Callable[[str], None]) -> None:
        self._read, self._on_note = read, on_note
        self._told: EpochTime | None = None

    def tell(self, epoch: int, before: EpochDecision | None) -> EpochTime:
        """The time of an epoch that follows what was decided for the one before."""
        logged = None if before is None else (before.wall_us, before.listened_us)
        self._told = tell_time(logged, self._told, self._read(epoch))
        if self._told.note is not None:
            self._on_note(self._told.note)
        return self._told
