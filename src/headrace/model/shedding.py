"""What a query allows to be shed, and what was decided about shedding for an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

__all__ = ["ERROR", "KEPT", "SHEDDING", "QueryShedding", "SheddingDecision"]

# The name under which shedding is decided and remembered; no query can have it.
SHEDDING = "*shedding"
# The result column of queries that may be shed: the part of a window's rows that was kept, 0 to 1.
KEPT = "kept"
# Ends the names of columns with the standard error of a scaled value.
ERROR = "_error"


@dataclass(frozen=True, slots=True)
class QueryShedding:
    """What a query's file says of shedding.

    It loses no row (`never`), or sums and counts are scaled to all rows (`scale`), and rare values of a GROUP BY column
    are kept before frequent ones (`protect`). The planner, and not the file, says whether its panes are kept `apart`
    from those of lighter queries.
    """

    never: bool = False
    scale: bool = False
    protect: str | None = None
    apart: bool = False

    def __post_init__(self) -> None:
        if self.never and (self.scale or self.protect):
            raise ValueError("a query that is never shed has nothing to scale or protect")


@dataclass(frozen=True, slots=True)
class SheddingDecision:
    """What is shed of an epoch's rows and why, or what would be shed if the pipeline allowed it.

    `keep` has the fraction by edge, of edges that shed; `kept` by query what is kept of the rows it reads. Both are
    what would be, and nothing is shed, where `strategy` is `off`. `needs_s` is the work of an epoch's rows and
    `capacity_s` what fits; `acting` are the remedies in force, in their order.
    """

    KIND: ClassVar[str] = "shedding"

    strategy: str
    acting: tuple[str, ...]
    keep: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, float] = field(default_factory=dict)
    waiting_s: float = 0.0
    needs_s: float = 0.0
    capacity_s: float = 0.0
    reason: str = ""
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by edge that protects rare keys

    def __post_init__(self) -> None:
        for name, part in (*self.keep.items(), *self.kept.items()):
            if not 0 <= part <= 1:
                raise ValueError(f"'{name}' keeps a fraction from 0 to 1, not {part}")

    @property
    def sheds(self) -> bool:
        return self.strategy != "off" and any(part < 1 for part in self.keep.values())
