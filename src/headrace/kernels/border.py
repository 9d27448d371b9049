"""The border of tasks: what goes wrong inside one leaves it as a `Failure` that says whose it is.

A query's own failure is reported among the task's results where the task knows the query. Anything else ends the task,
with the failure as a value in the one text that Spark carries to the driver, behind a seal that rows cannot know.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import polars as pl

from headrace.errors import (
    CorruptStateError,
    EngineError,
    EnvironmentProblem,
    HeadraceError,
    LockedError,
    QueryFailure,
    StateError,
)
from headrace.model import Failure, Fault

__all__ = ["Bordered", "TaskFailed", "failure_of", "kernels", "own", "reported", "told"]

# Drawn anew by every driver, and sent along with its tasks.
_SEAL = uuid4().hex
# Characters of a text that a task sends: the driver, which knows all secrets, hides them before it cuts further.
_SENT = 10_000
# What Python raises -> whose failure that is, the first that fits; everything else is a query's.
_FAULTS: tuple[tuple[type[Exception], Fault], ...] = (
    (CorruptStateError, Fault.CORRUPT),
    (LockedError, Fault.LOCKED),
    (StateError, Fault.STATE),
    (EngineError, Fault.MACHINE),
    (EnvironmentProblem, Fault.MACHINE),
    (MemoryError, Fault.MACHINE),
    (OSError, Fault.MACHINE),
    # Spark's end of a pipe is closed.
    (EOFError, Fault.MACHINE),
)


@contextmanager
def kernels() -> Iterator[None]:
    """Around a call of kernels: a panic of Polars, which no `except Exception` sees, becomes a failure."""
    try:
        yield
    except pl.exceptions.PanicException as panic:
        raise QueryFailure(f"the kernel gave up: {_first_line(panic)}; please report it with the query") from panic


def failure_of(error: Exception) -> Failure:
    """Whose failure an error is, by its class.

    >>> failure_of(QueryFailure("SUM(x) exceeds BIGINT")).text, failure_of(ValueError("no such kind")).text
    ('SUM(x) exceeds BIGINT', 'ValueError: no such kind')
    >>> failure_of(TimeoutError("no answer")).fault.value
    'machine'
    """
    fault = next((fault for kind, fault in _FAULTS if isinstance(error, kind)), Fault.QUERY)
    if isinstance(error, HeadraceError):
        return Failure(fault, str(error)[:_SENT])
    text = f"{type(error).__name__}: {_first_line(error)}"
    if isinstance(error, OSError):
        text = f"files could not be read or written: {_first_line(error)}"
    elif isinstance(error, MemoryError):
        text = f"there is no memory left: {text}"
    return Failure(fault, text[:_SENT])


def own(error: Exception) -> Failure:
    """A query's own failure; an error that is no query's is raised again."""
    failure = failure_of(error)
    if not failure.is_a_querys:
        raise error
    return failure


def told(error: Exception) -> str:
    """The cause with which a query fails; an error that is no query's is raised again.

    >>> told(QueryFailure("SUM(x) exceeds BIGINT"))
    'SUM(x) exceeds BIGINT'
    """
    return own(error).text


class TaskFailed(Exception):
    """A failure on its way from a task to the driver."""


@dataclass(frozen=True)
class Bordered:
    """Calls a task; an error that it raises becomes one from which the driver reads a `Failure`."""

    task: Callable[[Any], Iterable[Any]]
    seal: str = _SEAL

    def __call__(self, given: Any) -> Iterator[Any]:
        try:
            with kernels():
                yield from self.task(given)
        except Exception as error:
            failure = failure_of(error)
            data = json.dumps([failure.fault, failure.text]).encode()
            raise TaskFailed(f"{self.seal}:{base64.b64encode(data).decode()}") from error


def reported(text: str) -> Failure | None:
    """The failure that a task of this process has put into the text of an error.

    >>> try:
    ...     list(Bordered(lambda _: [1 // 0])(None))
    ... except TaskFailed as error:
    ...     reported(f"Traceback ... {error}")
    Failure(fault=<Fault.QUERY: 'query'>, text='ZeroDivisionError: integer division or modulo by zero')
    """
    found = re.search(rf"{_SEAL}:([A-Za-z0-9+/]+=*)", text)
    if found is None:
        return None
    fault, text = json.loads(base64.b64decode(found.group(1)))
    return Failure(Fault(fault), text)


def _first_line(failure: BaseException) -> str:
    return next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
