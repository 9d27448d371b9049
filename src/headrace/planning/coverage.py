"""From when on a kept synopsis can answer: queries come and go, and with them measures and lengths of panes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.planning.sharing import Kept

__all__ = ["Coverage", "cover", "covers", "forget"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Event times from which on a synopsis is complete; None is from the beginning.

    `since_us` is where its oldest pane begins, `columns` when each measure was added, `panes` which lengths panes had
    and since when, the last of them now. `rows` is how many rows an epoch added of late.
    """

    since_us: int | None = None
    columns: Mapping[str, int | None] = field(default_factory=dict)
    panes: tuple[tuple[int, int | None], ...] = ()
    rows: float | None = None

    def complete_since(self, columns: Iterable[str], pane_us: int) -> int | None:
        """From when on windows on panes of `pane_us` can be answered from these measures.

        >>> Coverage(10, {"n": None, "max_x": 40}, ((60, None), (20, 70))).complete_since(["n"], 120)
        10
        >>> Coverage(10, {"n": None, "max_x": 40}, ((60, None), (20, 70))).complete_since(["n", "max_x"], 20)
        70
        """
        times = [self.since_us, *(self.columns[column] for column in columns)]
        for (length, _), (_, since) in zip(self.panes, self.panes[1:], strict=False):
            if pane_us % length:
                times.append(since)
        return max((time for time in times if time is not None), default=None)


def covers(ours: Coverage, theirs: Coverage) -> bool:
    """Whether one synopsis has all measures of another, from as early on.

    >>> covers(Coverage(5, {"n": None}, ((10, None),)), Coverage(7, {"n": None}, ((10, None),)))
    True
    >>> covers(Coverage(9, {"n": None}, ((10, None),)), Coverage(7, {"n": None}, ((10, None),)))
    False
    """
    if not ours.columns.keys() >= theirs.columns.keys():
        return False
    pane_us = theirs.panes[-1][0]
    if pane_us % ours.panes[-1][0]:
        return False
    since, needed = (c.complete_since(theirs.columns, pane_us) for c in (ours, theirs))
    return since is None or (needed is not None and since <= needed)


def cover(before: Coverage | None, kept: Kept, seen_us: int | None) -> Coverage:
    """The coverage of a synopsis from the next epoch on, when rows before `seen_us` have passed already."""
    names = [measure.column for measure in kept.measures]
    if before is None:
        return Coverage(seen_us, dict.fromkeys(names, seen_us), ((kept.pane_us, seen_us),))
    panes = before.panes if before.panes[-1][0] == kept.pane_us else (*before.panes, (kept.pane_us, seen_us))
    columns = {name: before.columns.get(name, seen_us) for name in names}
    return Coverage(before.since_us, columns, panes, before.rows)


def forget(coverage: Coverage, before_us: int, rows: float | None) -> Coverage:
    """The coverage once panes that begin before a time may be gone."""
    since = before_us if coverage.since_us is None else max(coverage.since_us, before_us)
    panes = coverage.panes
    while len(panes) > 1 and (panes[1][1] is None or panes[1][1] <= since):
        panes = panes[1:]
    return Coverage(since, coverage.columns, panes, rows)
