"""What is executed, and what that took."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar

from headrace.model.remembered import Remembered

__all__ = ["AnswersState", "Due", "Spent"]


@dataclass(frozen=True, slots=True)
class Due:
    """Window ends of one query to answer, in order, in event-time microseconds; there is at least one."""

    ends: range | tuple[int, ...]

    @property
    def first_us(self) -> int:
        return self.ends[0]

    @property
    def last_us(self) -> int:
        return self.ends[-1]

    @property
    def count(self) -> int:
        return len(self.ends)

    def until(self, last_us: int) -> Due | None:
        """The ends up to a time, if there are any.

        >>> Due(range(10, 50, 10)).until(35)
        Due(ends=range(10, 40, 10))
        """
        kept = self.ends[: bisect_right(self.ends, last_us)]
        return Due(kept) if kept else None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a task spent on one group of queries in one bin: seconds, panes and their rows read, groups answered."""

    group: str
    seconds: float
    panes: int
    scanned: int
    answered: int


@dataclass(frozen=True, slots=True)
class AnswersState(Remembered):
    """How far the answers of aligned windows have come that other operators read.

    `since_us` is the first time that the windows may begin at; None is from the first row on.
    """

    KIND: ClassVar[str] = "answers"

    answered_us: int | None = None
    since_us: int | None = None
    forms: tuple[str, ...] = ()
