"""A named streaming source with an event-time column and an allowed lateness."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headrace.model.expectation import Expectation
from headrace.model.message import MESSAGE_COLUMNS, Decoding
from headrace.model.selection import Selection
from headrace.model.types import Column, Kind
from headrace.units import SECOND_US

__all__ = ["DEFAULT_AHEAD_US", "DEFAULT_IDLE_US", "PANES", "Rate", "Source", "Stream"]

# Begins the names of columns that hold panes.
PANES = "_panes_"
# Clocks of producers drift by seconds and batch jobs by minutes; a row an hour in the future is a mistake.
DEFAULT_AHEAD_US = 3600 * SECOND_US
# Long enough that a slow source is not taken for a silent one.
DEFAULT_IDLE_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Source:
    """How Spark reads a stream: a format, a path if it has one, and options; `value` if its rows are messages."""

    format: str
    path: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    value: Decoding | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """What a stream brings per second at each site where it is born, as its file declares it; None is unknown."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.rows_per_s, self.bytes_per_s) if value is not None]
        if not given:
            raise ValueError("a rate has rows or bytes per second, or both")
        wrong = next((value for value in given if not (math.isfinite(value) and value > 0)), None)
        if wrong is not None:
            raise ValueError(f"a rate is more than 0, not {wrong:g}")


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its time; `source` is None when the caller brings a DataFrame, `rate` when none is declared.

    With a `select` its columns are those that the selection makes of its source's.

    Rows that are wanted `as_panes` stay where they are born. What comes in their place are panes, each in one of the
    columns whose names begin with `PANES`, dated by the last instant of the pane; all other columns are null.
    """

    name: str
    columns: tuple[Column, ...]
    time: str
    lateness_us: int = 0
    ahead_us: int = DEFAULT_AHEAD_US
    idle_us: int = DEFAULT_IDLE_US
    source: Source | None = field(default=None)
    rate: Rate | None = None
    expect: tuple[Expectation, ...] = ()
    as_panes: bool = False
    select: Selection | None = None

    def __post_init__(self) -> None:
        if self.lateness_us < 0 or self.ahead_us < 0 or self.idle_us <= 0:
            raise ValueError(f"stream '{self.name}': lateness and ahead cannot be negative, idle must be positive")
        kinds = {column.name: column.type.kind for column in self.columns}
        if self.time not in kinds:
            raise ValueError(
                f"stream '{self.name}' has no column '{self.time}' to take time from; it has {', '.join(kinds)}"
            )
        if kinds[self.time] is not Kind.TIMESTAMP:
            raise ValueError(
                f"stream '{self.name}': time column '{self.time}' is {kinds[self.time].value}, it must be TIMESTAMP"
            )

    def column(self, name: str) -> Column | None:
        """The column of that name, found as Spark finds it: ignoring case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    @property
    def pane_columns(self) -> tuple[Column, ...]:
        """The columns that hold panes."""
        return tuple(column for column in self.columns if column.name.startswith(PANES)) if self.as_panes else ()

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of its rows, which are those that queries know."""
        panes = self.pane_columns
        return tuple(column for column in self.columns if column not in panes)

    @property
    def source_columns(self) -> tuple[Column, ...]:
        """The columns that its source has."""
        return self.columns if self.select is None else self.select.reads

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns of its source that come from a message's value, if rows are messages; else all of them."""
        if self.source is None or self.source.value is None:
            return self.source_columns
        return tuple(column for column in self.source_columns if column not in MESSAGE_COLUMNS)
