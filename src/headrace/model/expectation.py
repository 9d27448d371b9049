"""What is expected of a stream's rows or a query's results in every epoch, and what follows where it is not so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ALL_ROWS",
    "OTHERWISE",
    "RESULTS",
    "STREAM_COUNTS",
    "CountTest",
    "Counts",
    "Expectation",
    "Expected",
    "Otherwise",
    "ResultTest",
]

Otherwise = Literal["warn", "fail", "stop"]
OTHERWISE: tuple[Otherwise, ...] = ("warn", "fail", "stop")
ALL_ROWS = "rows"
# What is counted of a stream's rows, as its ledger has it; `rows` are all that came in.
STREAM_COUNTS = (ALL_ROWS, "used", "late", "shed", "rejected")
# The name under which a condition knows the columns of results.
RESULTS = "results"


@dataclass(frozen=True, slots=True)
class CountTest:
    """A count of rows compared with a number, or as a part of all rows (`of_rows`) with a fraction."""

    count: str
    operator: str  # < <= > >= =
    limit: float
    of_rows: bool = False

    def __post_init__(self) -> None:
        if self.operator not in ("<", "<=", ">", ">=", "="):
            raise ValueError(f"a count is compared by <, <=, >, >= or =, not '{self.operator}'")


@dataclass(frozen=True, slots=True)
class ResultTest:
    """Spark SQL over one result, as the struct `results`; a result passes for which it is true."""

    sql: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected, as written and as tested.

    `warn` notes an epoch in which it is not met, `fail` fails the query (of a stream: all queries that read it), `stop`
    ends the run after that epoch.
    """

    text: str
    test: CountTest | ResultTest
    otherwise: Otherwise = "warn"


@dataclass(frozen=True, slots=True)
class Counts:
    """An epoch's rows of a stream or results of a query: all of them, and by name or condition how many are such.

    For a condition that is the number of results for which it is not true.
    """

    rows: int
    of: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expected:
    """How an expectation has fared: epochs in which it was judged and was not met, and since when it is not.

    `owner` is `stream NAME` or `query NAME`; `found` says what was there instead the last time it was not met.
    """

    owner: str
    text: str
    otherwise: str
    judged: int = 0
    unmet: int = 0
    since: int | None = None
    found: str | None = None
