"""The account of every row that came in: used, late, shed or rejected."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Rows of one stream in one epoch, or in all of them; `rows_in` is always the sum of the others.

    >>> Entry(used=5, late=2) + Entry(used=1, rejected=1)
    Entry(used=6, late=2, shed=0, rejected=1)
    """

    used: int = 0
    late: int = 0
    shed: int = 0
    rejected: int = 0

    def __post_init__(self) -> None:
        if min(self.used, self.late, self.shed, self.rejected) < 0:
            raise ValueError(f"a ledger counts rows, it cannot hold {self}")

    @property
    def rows_in(self) -> int:
        return self.used + self.late + self.shed + self.rejected

    def __add__(self, other: Entry) -> Entry:
        return Entry(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Entry)))
