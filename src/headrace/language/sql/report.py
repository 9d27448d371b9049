"""Collects every problem of one query and knows where in the text each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlglot import exp

from headrace.errors import Problem, SpecError

__all__ = ["Fault", "Place", "Report", "offset_of"]

# Line and column in a file of a character of a text, which may be folded, quoted or indented there.
Place = Callable[[int], tuple[int, int | None]]


class Fault(Exception):
    """One mistake found inside an expression; the report it reaches turns it into a Problem."""

    def __init__(self, message: str, at: exp.Expr | int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.hint = hint


def offset_of(at: exp.Expr | int | None) -> int | None:
    """Position in the text of a node: its own, or the least of the nodes below it."""
    if at is None or isinstance(at, int):
        return at
    starts = [node.meta["start"] for node in at.walk() if "start" in node.meta]
    return min(starts, default=None)


class Report:
    """Problems of one query; `line` is where its text starts in `file`, `place` where its characters are.

    `queries` are those that it could read by name. `read` are those that it does, whose definitions were put into its
    text, `length` characters, `at` a place.

    >>> report = Report("SELECT a\\nFROM s", "q", file="p.yml", line=10)
    >>> report.add("unknown stream 's'", 14)
    >>> print(report.problems[0])
    p.yml:11:6: query 'q': unknown stream 's'
    """

    def __init__(
        self,
        sql: str,
        query: str,
        *,
        file: str | None = None,
        line: int | None = None,
        place: Place | None = None,
        at: int = 0,
        length: int = 0,
        read: tuple[str, ...] = (),
        queries: tuple[str, ...] = (),
    ) -> None:
        self.sql = sql
        self.queries = queries
        self._at, self._length, self._read = at, length, read
        self.query = query
        self.file = file
        self.line = line
        self._place = place
        self.problems: list[Problem] = []

    def add(self, message: str, at: exp.Expr | int | None = None, hint: str | None = None) -> None:
        """Note one problem; the same one at the same place is noted once."""
        offset = offset_of(at)
        line, column = self.line, None
        if offset is not None and self._at <= offset < self._at + self._length:
            message, offset = f"{message}, in what it reads of {' and '.join(self._read)}", None
        if offset is not None:
            before = self.sql[:offset]
            if self._length and offset >= self._at:
                before = self.sql[: self._at] + self.sql[self._at + self._length : offset]
                offset -= self._length
            line = (self.line or 1) + before.count("\n")
            column = offset - (before.rfind("\n") + 1) + 1
            if self._place is not None:
                line, column = self._place(offset)
        problem = Problem(message, file=self.file, line=line, column=column, query=self.query, hint=hint)
        if problem not in self.problems:
            self.problems.append(problem)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Note a Fault raised in the block and go on after it."""
        try:
            yield
        except Fault as fault:
            self.add(fault.message, fault.at, fault.hint)

    def stop_if_wrong(self) -> None:
        """Raise SpecError when anything was noted."""
        if self.problems:
            raise SpecError(self.problems)
