"""Whose fault a failure is: a query's, or nobody's who can be named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import CorruptStateError, EngineError, StateError

__all__ = ["blamed", "cause_of", "raise_if_not_a_querys"]

T = TypeVar("T")


def blamed(job: Callable[[], list[T]]) -> list[T]:
    """What the tasks of a job report; a failure says whose it is."""
    try:
        return job()
    except Exception as failure:
        raise_if_not_a_querys(failure)
        raise


def cause_of(failure: Exception) -> str:
    """The first telling line of what Spark says about a failure."""
    text = str(failure)
    for line in text.splitlines():
        if "[" in line and "]" in line and "SQLSTATE" in line:
            return line[line.index("[") :].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(failure).__name__)


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
