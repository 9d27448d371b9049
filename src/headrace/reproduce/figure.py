"""What a figure of a paper is, and what making it gives: rows, what they say about the paper's claims, a picture."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.errors import SpecError

__all__ = ["Claim", "Figure", "Made", "Paper", "Picture", "Settings", "Value", "times_of", "within"]

Value = str | int | float
T = TypeVar("T")


def _quiet(done: int, of: int) -> None:
    return


@dataclass(frozen=True)
class Settings:
    """How figures are made: quickly or in full, from which seed, and with which numbers other than the paper's.

    `progress` is told how many parts of a figure are done, and of how many. `clock` gives seconds for the time that
    decisions take; rows never hold such times, so that the same seed gives the same rows.
    """

    quick: bool = False
    seed: int = 1
    given: Mapping[str, float] = field(default_factory=dict)
    progress: Callable[[int, int], None] = _quiet
    clock: Callable[[], float] | None = None

    def number(self, name: str, paper: float, quick: float | None = None) -> float:
        """A number of the experiment: the one that was given, else the quick one where it is quick, else the paper's.

        >>> Settings(quick=True).number("nodes", 32, 8), Settings(given={"nodes": 64}).number("nodes", 32)
        (8, 64)
        """
        return self.given.get(name, quick if self.quick and quick is not None else paper)

    def chance(self, *names: Value) -> random.Random:
        """A seeded generator for one part of an experiment; parts do not disturb each other."""
        return random.Random(f"{self.seed}/{'/'.join(map(str, names))}")

    def timed(self, call: Callable[[], T]) -> tuple[T, float | None]:
        """What a call gives, and the seconds it took; None without a clock."""
        before = None if self.clock is None else self.clock()
        found = call()
        return found, None if self.clock is None or before is None else self.clock() - before


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what it says, what was found, and whether the two agree; `reason` says why they differ."""

    text: str
    paper: str
    ours: str
    holds: bool
    reason: str = ""


@dataclass(frozen=True)
class Picture:
    """How rows are drawn: a line per value of column `by`, with columns `x` and `y` as its points."""

    x: str
    y: str
    by: str | None = None
    log_y: bool = False
    bars: bool = False


@dataclass(frozen=True)
class Made:
    """A figure that was made: named columns, rows, claims, and how it is drawn."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    claims: tuple[Claim, ...]
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} values for the columns {', '.join(self.columns)}")
        for picture in self.pictures:
            for column in (picture.x, picture.y, picture.by):
                if column is not None and column not in self.columns:
                    raise ValueError(
                        f"a picture is of column '{column}', and the columns are {', '.join(self.columns)}"
                    )


@dataclass(frozen=True)
class Figure:
    """A table or figure of a paper, by its number there, and how it is made."""

    name: str
    title: str
    make: Callable[[Settings], Made]
    numbers: tuple[str, ...] = ()  # that `--set` may change


@dataclass(frozen=True)
class Paper:
    """A paper: its short name, its title, and what can be reproduced of it."""

    name: str
    title: str
    figures: tuple[Figure, ...]

    def only(self, names: tuple[str, ...]) -> tuple[Figure, ...]:
        """The figures of these names, or all; SpecError names those that exist."""
        known = {figure.name: figure for figure in self.figures}
        for name in names:
            if name not in known:
                raise SpecError(f"paper '{self.name}' has no figure '{name}'; it has: {', '.join(known) or 'none yet'}")
        return tuple(figure for figure in self.figures if not names or figure.name in names)


def times_of(what: str, seconds: Sequence[float]) -> tuple[str, ...]:
    """A note on how long decisions took, if they were timed."""
    if not seconds:
        return ()
    ordered = sorted(seconds)
    middle, most = 1000 * ordered[len(ordered) // 2], 1000 * ordered[-1]
    return (f"{what}: {len(ordered)} decisions, {middle:.1f} ms each in the middle, {most:.1f} ms at most.",)


def within(ours: float, paper: float, part: float = 0.1) -> bool:
    """Whether a number is within a part of the paper's.

    >>> within(95, 100), within(95, 100, 0.04)
    (True, False)
    """
    return abs(ours - paper) <= part * abs(paper) + 1e-12
