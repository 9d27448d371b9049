"""Queries that share panes: groups, their sub-groups, and what executing them costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Costs", "Group", "SchedulePolicy", "SubGroup"]


class SchedulePolicy(StrEnum):
    """Which sub-groups of a group are executed together, in the spellings of the pipeline file."""

    NONE = "none"
    AGGRESSIVE = "aggressive"
    CONSERVATIVE = "conservative"
    HYBRID = "hybrid"
    HYBRID_LATE = "hybrid-late"
    HYBRID_LATE_PENDING = "hybrid-late-pending"


@dataclass(frozen=True, slots=True)
class Costs:
    """An execution costs `fixed + per_pane * panes + per_answer * answers`: seconds here, comparisons in the paper.

    `panes` are those of the longest window, because shorter windows are answered along the way. Combining `b` panes
    takes `b - 1` comparisons, so the paper's costs are:

    >>> Costs(-1, 1, 0).of(panes=10, answers=3)
    9
    """

    fixed: float
    per_pane: float
    per_answer: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.fixed, self.per_pane, self.per_answer))):
            raise ValueError(f"costs must be finite, not {self}")
        if self.per_pane < 0 or self.per_answer < 0 or self.fixed + self.per_pane < 0:
            raise ValueError(f"an execution cannot cost less than nothing: {self}")

    def of(self, panes: int, answers: int) -> float:
        """Cost of one execution."""
        return self.fixed + self.per_pane * panes + self.per_answer * answers


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Queries of one group with the same period, always executed together.

    `period` and `panes` (the longest window) are in panes, `answers` counts the queries, and of two sub-groups with one
    deadline the higher `priority` goes first. The paper's queries are answered at least once per period. With `every`
    they are answered exactly at the ends `phase + n * period`, each once: Spark's aligned windows, and those that would
    cut a pane at other ends.
    """

    name: str
    period: int
    panes: int
    answers: int = 1
    priority: int = 0
    every: bool = False
    phase: int = 0

    def __post_init__(self) -> None:
        if self.period < 1 or self.panes < 1 or self.answers < 1:
            raise ValueError(f"period, panes and answers must be positive: {self}")
        if not self.every and self.phase:
            raise ValueError(f"only aligned windows have a phase: {self}")


@dataclass(frozen=True, slots=True)
class Group:
    """Sub-groups over the same panes, each `pane_us` of event time long.

    With `one_scan` all executions of an epoch are answered from one scan, as the engine does: those after the first
    cost their answers, and the panes that the ones before them did not reach. The paper's each scan for themselves.
    """

    name: str
    pane_us: int
    costs: Costs
    subgroups: tuple[SubGroup, ...]
    one_scan: bool = False

    def __post_init__(self) -> None:
        if self.pane_us < 1:
            raise ValueError(f"panes of group '{self.name}' must have a positive length, not {self.pane_us} us")
        names = [subgroup.name for subgroup in self.subgroups]
        if len(set(names)) < len(names):
            raise ValueError(f"sub-groups of group '{self.name}' need different names: {', '.join(names)}")
