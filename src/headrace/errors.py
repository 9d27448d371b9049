"""Every error Headrace raises on purpose.

HeadraceError
├── SpecError            the user's mistake: a pipeline file, a query, an option (exit code 2)
├── EnvironmentProblem   something this machine lacks: Java, a package, a jar (exit code 2)
├── StateError           a checkpoint that must not be touched (exit code 1)
│   ├── LockedError          another engine writes to it
│   ├── CorruptStateError    a file is missing, truncated or altered
│   └── VersionError         written by a version this one cannot read
├── EngineError          a failure while running (exit code 1)
└── QueryFailure         what one query cannot answer: it fails with this cause, the others go on
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.hiding import hide

__all__ = [
    "CorruptStateError",
    "EngineError",
    "EnvironmentProblem",
    "HeadraceError",
    "LockedError",
    "Problem",
    "QueryFailure",
    "SpecError",
    "StateError",
    "VersionError",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what it is, and what to do about it.

    >>> str(Problem("unknown column 'pirce' in stream 'trades'", file="p.yml", line=7, hint="did you mean 'price'?"))
    "p.yml:7: unknown column 'pirce' in stream 'trades'; did you mean 'price'?"
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    query: str | None = None
    hint: str | None = None

    @property
    def where(self) -> str:
        """Place of the mistake as `file:line:column` and query, as far as known."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, f"query '{self.query}'" if self.query else "") if part)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        text = f"{text}; {self.hint}" if self.hint else text
        # A file's text must not steer the terminal that its problems are shown on.
        return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class HeadraceError(Exception):
    """Root of all errors raised on purpose; none of them shows a secret."""

    exit_code = 1

    def __str__(self) -> str:
        return hide(super().__str__())


class SpecError(HeadraceError):
    """The user's mistake, with every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | str | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = (Problem(problems),)
        elif isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class EnvironmentProblem(HeadraceError):
    """Something the machine lacks, with the remedy in the message."""

    exit_code = 2


class StateError(HeadraceError):
    """A checkpoint that must not be touched."""


class LockedError(StateError):
    """Another engine writes to this checkpoint."""


class CorruptStateError(StateError):
    """A state file is missing, truncated or altered."""


class VersionError(StateError):
    """The checkpoint was written by a version this one cannot read."""


class EngineError(HeadraceError):
    """A failure while running."""


class QueryFailure(HeadraceError):
    """What one query cannot answer, and the remedy: the cause it is marked failed with."""
