"""Whether an epoch's rows and results are what a pipeline expects of them, and what follows where they are not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.model import ALL_ROWS, Counts, CountTest, Expectation, Expected

__all__ = ["Verdict", "found_otherwise", "judge_epoch"]

_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How all expectations stand after an epoch, what to tell, which owners fail and why, and why the run stops."""

    expected: tuple[Expected, ...] = ()
    notes: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    stop: str | None = None

    def __add__(self, other: Verdict) -> Verdict:
        stops = [each for each in (self.stop, other.stop) if each is not None]
        return Verdict(
            self.expected + other.expected,
            self.notes + other.notes,
            {**self.failed, **other.failed},
            "; ".join(stops) or None,
        )


def found_otherwise(expectation: Expectation, counts: Counts) -> str | None:
    """What an epoch has instead of what is expected; None if it is as expected.

    A part of no rows is whatever is expected, and so is a condition over no results.

    >>> late = Expectation("late < 5 %", CountTest("late", "<", 0.05, of_rows=True))
    >>> found_otherwise(late, Counts(200, {"late": 30}))
    '30 of 200 rows are late (15 %)'
    >>> found_otherwise(late, Counts(0))
    """
    test = expectation.test
    if not isinstance(test, CountTest):
        broken = counts.of.get(expectation.text, 0)
        return f"{broken:,} of {counts.rows:,} results are otherwise" if broken else None
    count = counts.rows if test.count == ALL_ROWS else counts.of.get(test.count, 0)
    if test.of_rows and not counts.rows:
        return None
    if _COMPARED[test.operator](count / counts.rows if test.of_rows else count, test.limit):
        return None
    if test.count == ALL_ROWS:
        return f"there are {count:,}"
    part = f" ({100 * count / counts.rows:.3g} %)" if counts.rows else ""
    return f"{count:,} of {counts.rows:,} rows are {test.count}{part}"


def judge_epoch(
    epoch: int,
    owners: Mapping[str, Sequence[Expectation]],
    counts: Mapping[str, Counts],
    before: Iterable[Expected],
) -> Verdict:
    """Judges what is expected of owners that have counts in this epoch; that of others stands as it did.

    Of epochs in a row that are not as expected, the first is told, and the first that is again as expected.
    """
    known = {(each.owner, each.text): each for each in before}
    expected, notes, failed, stops = list[Expected](), list[str](), dict[str, str](), list[str]()
    for owner, expectations in owners.items():
        for each in expectations:
            state = known.get((owner, each.text), Expected(owner, each.text, each.otherwise))
            state = replace(state, otherwise=each.otherwise)
            if owner not in counts:
                expected.append(state)
                continue
            found = found_otherwise(each, counts[owner])
            expected.append(_after(state, epoch, found))
            if found is None:
                if state.since is not None:
                    notes.append(f"{owner} is as expected again ({each.text}) from epoch {epoch} on")
                continue
            told = f"{owner} is not as expected ({each.text}): in epoch {epoch} {found}"
            if each.otherwise == "fail":
                failed.setdefault(owner, f"expected {each.text}: in epoch {epoch} {found}")
            elif each.otherwise == "stop":
                stops.append(told)
            elif state.since is None:
                notes.append(told)
    return Verdict(tuple(expected), tuple(notes), failed, "; ".join(stops) or None)


def _after(state: Expected, epoch: int, found: str | None) -> Expected:
    judged = state.judged + 1
    if found is None:
        return replace(state, judged=judged, since=None)
    since = epoch if state.since is None else state.since
    return replace(state, judged=judged, unmet=state.unmet + 1, since=since, found=found)
