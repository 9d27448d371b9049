"""Absorbs an epoch for all queries; those that fail at it, or take far too long, are found by trying each alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.engine.failures import cause_of, raise_if_not_a_querys
from headrace.engine.spark.deadline import Deadline, TookTooLong
from headrace.errors import EngineError, QueryFailure
from headrace.kernels.absorb import Absorbed
from headrace.model import shown
from headrace.policies import Patience

__all__ = ["Trial"]

T = TypeVar("T")
# Makes one pass over an epoch's rows for some queries; as a trial it leaves nothing behind.
Pass = Callable[[tuple[str, ...], bool], Absorbed]


class Trial:
    """Remembers, from one epoch to the next, how long a pass takes that is nobody's fault."""

    def __init__(self, deadline: Deadline, patience: Patience, note: Callable[[str], None]) -> None:
        self._deadline, self._note = deadline, note
        self.patience = patience

    def absorb(self, over_rows: Pass, live: Sequence[str]) -> tuple[Absorbed, dict[str, str]]:
        """What the rows made, and the causes of the queries for which they could not be absorbed."""
        failed: dict[str, str] = {}
        limit_s: float | None = self.patience.limit_s
        while True:
            rest = tuple(name for name in live if name not in failed)
            try:
                made, taken_s = self._deadline.timed(lambda: self._pass(over_rows, rest, limit_s))  # noqa: B023
            except TookTooLong as late:
                found, limit_s = self._slow(over_rows, rest, late)
            except Exception as failure:
                raise_if_not_a_querys(failure)
                found = self._failing(over_rows, rest, failure)
            else:
                self.patience = self.patience.after(taken_s)
                return made, failed
            failed |= found

    def feed(self, over_rows: Pass, live: Sequence[str]) -> tuple[Absorbed, dict[str, str]]:
        """What rows of a derived stream made, and the causes of the queries for which they could not be absorbed.

        What fails for all of them is the fault of the node that makes the rows.
        """
        failed: dict[str, str] = {}
        while True:
            rest = tuple(name for name in live if name not in failed)
            try:
                return over_rows(rest, False), failed
            except Exception as failure:
                raise_if_not_a_querys(failure)
                failed |= self._failing(over_rows, rest, failure)

    def within(self, job: Callable[[], T]) -> T:
        """What a job for several queries gives; TookTooLong if it takes more than an epoch may."""
        return self._deadline.within(self.patience.limit_s, job)

    def judged(
        self, job: Callable[[], T], without: Callable[[], object], what: str, before_s: float | None = None
    ) -> T:
        """What a job for one query gives; QueryFailure if it takes too long for what it takes `without` the query.

        That is measured after the job was stopped: if it took `before_s` before, and takes longer now, the machine has
        become slower, and the job gets more time in proportion.
        """
        limit_s = self.patience.limit_s if before_s is None else self.patience.allowed_s(before_s)
        granted_s = limit_s
        while True:
            try:
                return self._deadline.within(granted_s, job)
            except TookTooLong as late:
                _, without_s = self._deadline.timed(without)
                slower = 1.0 if before_s is None else without_s / before_s
                allowed_s = max(self.patience.allowed_s(without_s), limit_s * slower)
                if allowed_s <= granted_s:
                    raise QueryFailure(self.patience.cause(granted_s, without_s, what)) from late
                granted_s = allowed_s

    def _pass(self, over_rows: Pass, names: tuple[str, ...], limit_s: float | None) -> Absorbed:
        if limit_s is None or not names:
            return over_rows(names, False)
        return self._deadline.within(limit_s, lambda: over_rows(names, False))

    def _failing(self, over_rows: Pass, names: tuple[str, ...], failure: Exception) -> dict[str, str]:
        """Which queries made the pass over the rows fail: those that fail alone."""
        found: dict[str, str] = {}
        for name in names:
            try:
                self._deadline.within(self.patience.limit_s, lambda name=name: over_rows((name,), True))  # type: ignore[misc]
            except TookTooLong:
                continue  # whether it is to blame for that, the next pass tells
            except Exception as error:
                found[name] = cause_of(error)
        if not found:
            raise failure
        if len(found) == len(names):
            self._check_rows(over_rows)
        return found

    def _check_rows(self, over_rows: Pass) -> None:
        """EngineError if the rows cannot be read at all: then no query is to blame."""
        try:
            self._deadline.within(self.patience.limit_s, lambda: over_rows((), True))
        except TookTooLong:
            return
        except Exception as error:
            raise EngineError(f"rows cannot be read, without any query: {shown(cause_of(error))}") from error

    def _slow(self, over_rows: Pass, names: tuple[str, ...], late: TookTooLong) -> tuple[dict[str, str], float | None]:
        """Which queries take too long alone, and how long the others may take then; no limit if nobody is to blame."""

        def without() -> Absorbed:
            return over_rows((), True)

        nobody, without_s = self._deadline.timed(without)
        rows = f"{sum(count.entry.rows_in for count in nobody.counts.values()):,} rows"
        allowed_s = self.patience.allowed_s(without_s)
        told = f"{rows} took over {late.seconds:.0f} s, and {without_s:.1f} s without any query"
        if allowed_s > late.seconds:
            self._note(f"{told}: all queries get {allowed_s:.0f} s")
            return {}, allowed_s
        self._note(f"{told}: each query is tried alone, for up to {allowed_s:.0f} s")
        found: dict[str, str] = {}
        for name in names:

            def alone(name: str = name) -> Absorbed:
                with self._deadline.in_small_batches():
                    return over_rows((name,), True)

            try:
                self.judged(alone, without, rows, without_s)
            except QueryFailure as failure:
                found[name] = str(failure)
                self._note(f"query '{name}' {failure}")
            except EngineError as stuck:
                raise EngineError(f"query '{name}' took over {allowed_s:.0f} s for {rows}; {stuck}") from stuck
            except Exception as error:
                found[name] = cause_of(error)
        return found, None
