"""Whose fault a failure is: a query's, or nobody's who can be named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from sqlglot.errors import SqlglotError

from headrace.engine.operators.renaming import renamed
from headrace.errors import CorruptStateError, EngineError, HeadraceError, LockedError, QueryFailure, StateError

__all__ = ["blamed", "cause_of", "raise_if_not_a_querys", "translated"]

T = TypeVar("T")


def blamed(job: Callable[[], list[T]]) -> list[T]:
    """What the tasks of a job report; a failure says whose it is."""
    try:
        return job()
    except Exception as failure:
        raise_if_not_a_querys(failure)
        raise


def cause_of(failure: Exception, names: Mapping[str, str] | None = None) -> str:
    """What went wrong in one sentence, with the expression if Spark names it; `names` says what its columns stand for.

    >>> told = '[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL (line 1, position 1) ==\\na0 / a1\\n^^^^^^^'
    >>> cause_of(ValueError(told), {"a0": "SUM(r.i)", "a1": "COUNT(*)"})
    'in SUM(r.i) / COUNT(*): Division by zero (DIVIDE_BY_ZERO)'
    """
    text = str(failure)
    if isinstance(failure, QueryFailure):
        return text
    if _OWN in text:
        return text.rpartition(_OWN)[2].splitlines()[0].strip()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _SPARK.search(line)
        if found is not None:
            words = _ANSI.sub("", found["words"]).strip().rstrip(".")
            where = _fragment(lines[number + 1 :])
            place = "" if where is None else f"in {_spelled(where, names or {})}: "
            return f"{place}{words} ({found['name']})"
    if _TRACEBACK in text:
        # The last line of a traceback that begins at the margin says what was raised.
        raised = [line for line in text.rpartition(_TRACEBACK)[2].splitlines() if _RAISED.match(line)]
        if raised:
            return f"a task failed: {raised[-1].strip()}"
    return next((line.strip() for line in lines if line.strip()), type(failure).__name__)


def _fragment(lines: Sequence[str]) -> str | None:
    """The expression that Spark marks with carets below it."""
    for line, marks in pairwise(lines[1:4] if lines and lines[0].startswith("== SQL") else ()):
        if marks.strip() and not marks.strip().strip("^"):
            return line[marks.index("^") : marks.rindex("^") + 1] or None
    return None


def _spelled(sql: str, names: Mapping[str, str]) -> str:
    """An expression in the words of the query; as it is where it was cut short and cannot be read."""
    try:
        return renamed(sql, names)
    except SqlglotError:
        return sql


# A failure that a task raised as a sentence, in what Spark makes of it.
_OWN = f"{QueryFailure.__module__}.{QueryFailure.__qualname__}: "
_SPARK = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<words>.*?)\.? SQLSTATE: \w+")
# Sessions are ANSI sessions: this remedy is none.
_ANSI = re.compile(r"If necessary set \S*spark\.sql\.ansi\.enabled.*?(?:\.(?=\s|$)|$)")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: |$)")
# What Spark says when a job ends because the run does: nobody's fault.
_CANCELLED = (
    "cancelled",
    "Interrupted",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "Py4JNetworkError",
)


# Files and the network, as the JVM names what goes wrong with them.
_IN_OUT = re.compile(r"\b(?:java\.io|java\.net|org\.apache\.hadoop[\w.]*)\.\w+(?:Exception|Error)\b[^\n]*")


def raise_if_not_a_querys(failure: Exception) -> None:
    """Raises what no query is to blame for: damaged state, a failing disk, the end of the run."""
    text = str(failure)
    if "CorruptStateError: " in text:
        raise CorruptStateError(text.rpartition("CorruptStateError: ")[2].splitlines()[0]) from failure
    if isinstance(failure, EngineError | StateError | ConnectionError) or any(word in text for word in _CANCELLED):
        raise failure
    if isinstance(failure, OSError):
        raise EngineError(f"files could not be read or written: {text}") from failure
    found = _IN_OUT.search(text)
    if found is not None:
        raise EngineError(f"Spark could not read or write: {found.group().strip()}") from failure
    if "OSError: " in text:
        raise EngineError(
            f"a task could not read or write: {text.rpartition('OSError: ')[2].splitlines()[0]}"
        ) from failure


# How a traceback of Python's ends; lines of code that speak of errors are in the middle of it.
_ENDS = re.compile(r"(?:\w+\.)*\w*Error: \S")


def translated(failure: Exception) -> HeadraceError:
    """Spark's failure as ours: the cause inside it, when it is one of our own."""
    text = str(failure)
    if "CorruptStateError: " in text:
        return CorruptStateError(text.rpartition("CorruptStateError: ")[2].splitlines()[0])
    if "LockedError: " in text:
        return LockedError(text.rpartition("LockedError: ")[2].splitlines()[0])
    if "headrace.errors.StateError: " in text:
        return StateError(text.rpartition("headrace.errors.StateError: ")[2].splitlines()[0])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line.removeprefix("headrace.errors.EngineError: ") for line in lines if _ENDS.match(line)]
    errors = [line for line in lines if "Error" in line and not line.startswith("File")]
    telling = [*raised[-1:], *errors, *lines, type(failure).__name__][0]
    error = EngineError(f"the run stopped: {telling}")
    error.__cause__ = failure
    return error
