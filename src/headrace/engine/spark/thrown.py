"""What Spark has thrown: a chain of Java's exceptions, and whose failure it is by their classes and conditions.

The messages of exceptions hold values of rows. They are shown, and decide nothing; but one of Spark's scheduler, which
has no other sign of its own, is known by how it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot.errors import SqlglotError

from headrace.engine.operators.renaming import renamed
from headrace.kernels.border import reported
from headrace.model import Failure, Fault

__all__ = ["Link", "chain_of", "chain_of_query", "judged"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# A chain of causes that is longer than this runs in a circle.
_LONGEST = 20
_SPARK = "org.apache.spark.SparkException"
_PYTHON = "org.apache.spark.api.python.PythonException"

# Classes of SQLSTATE, and single states, of what values or a query's text are to blame for.
_QUERYS_STATES = ("0A", "21", "22", "23", "38", "39", "42", "46", "54", "KD", "P0")
# The same of connections, conflicts, resources, files and cancelled jobs; a longer one goes before a shorter one above.
_MACHINES_STATES = ("08", "40", "42K03", "53", "55", "57", "82", "HY008", "KD001", "KD003", "KD006", "XXKDA")
_MACHINES_CONDITIONS = frozenset(
    {
        "FAILED_RENAME_PATH",
        "INTERNAL_ERROR_BROADCAST",
        "INTERNAL_ERROR_EXECUTOR",
        "INTERNAL_ERROR_MEMORY",
        "INTERNAL_ERROR_NETWORK",
        "INTERNAL_ERROR_SHUFFLE",
        "INTERNAL_ERROR_STORAGE",
    }
)
# A file of a source that has another type for a column than was declared: those who read the column fail.
_QUERYS_CONDITIONS = frozenset({"FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH"})
# Results that a sink of the driver's collects are larger than `spark.driver.maxResultSize`.
_TOO_LARGE = "Job aborted due to stage failure: Total size of serialized results of "
# Spark says so of a task that could not write its rows, whether they could not be made or not be put down.
_EITHERS_STATES = ("58",)
_MACHINES_CLASSES = frozenset(
    {
        "java.io.IOException",
        "java.io.UncheckedIOException",
        "java.lang.InterruptedException",
        "java.lang.OutOfMemoryError",
        "java.lang.SecurityException",
        "java.sql.SQLRecoverableException",
        "java.sql.SQLTransientException",
        "java.util.concurrent.CancellationException",
        "java.util.concurrent.RejectedExecutionException",
        "java.util.concurrent.TimeoutException",
        "org.apache.spark.TaskKilledException",
        "org.apache.spark.shuffle.FetchFailedException",
    }
)
_MACHINES_PACKAGES = ("org.apache.hadoop.",)
# Kinds of IOException that are about texts: parsers of JSON and decoders of characters throw them.
_ABOUT_TEXTS = ("com.fasterxml.jackson.", "java.nio.charset.")


@dataclass(frozen=True, slots=True)
class Link:
    """One exception: its class and those that it extends, its message, and Spark's condition and SQLSTATE, if any."""

    classes: tuple[str, ...]
    message: str = ""
    condition: str | None = None
    state: str | None = None

    @property
    def name(self) -> str:
        return self.classes[0]


def chain_of(error: BaseException) -> tuple[Link, ...]:
    """The Java exceptions behind an error of PySpark's, the outermost first; none if there are none."""
    return tuple(_links(getattr(error, "java_exception", None) or getattr(error, "_origin", None)))


def chain_of_query(query: StreamingQuery) -> tuple[Link, ...]:
    """The Java exceptions that a streaming query has ended with, the outermost first; none if it has not failed."""
    found = query._jsq.exception()
    return tuple(_links(found.get())) if found.isDefined() else ()


def _links(thrown: Any) -> Iterator[Link]:
    for _ in range(_LONGEST):
        if thrown is None:
            return
        classes, each = [], thrown.getClass()
        while each is not None:
            classes.append(str(each.getName()))
            each = each.getSuperclass()
        condition, state = _asked(thrown, "getCondition"), _asked(thrown, "getSqlState")
        yield Link(tuple(classes), str(thrown.getMessage() or ""), condition, state)
        thrown = thrown.getCause()


def _asked(thrown: Any, method: str) -> str | None:
    """What an exception answers, if it is of those that have the method."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        found = getattr(thrown, method)()
    except Py4JNetworkError:
        raise
    except (AttributeError, Py4JError):
        return None
    return None if found is None else str(found)


def judged(chain: Sequence[Link], names: Mapping[str, str] | None = None) -> Failure:
    """Whose failure a chain is: the outermost link that tells decides.

    `names` says what columns in Spark's expressions stand for.
    """
    perhaps = False
    for number, link in enumerate(chain):
        if link.name == _PYTHON and (failure := reported(link.message)) is not None:
            return failure
        fault = _fault(link)
        if fault is Fault.QUERY:
            return Failure(fault, _sentence(link, names or {}))
        if fault is Fault.MACHINE:
            # An exception without words is explained by what it was wrapped in.
            told = next((each for each in (link, *reversed(chain[:number])) if each.message), link)
            return Failure(fault, f"Spark could not go on: {_plainly(told)}")
        perhaps = perhaps or (link.state or "").startswith(_EITHERS_STATES)
    last = chain[-1]
    # Jobs that end without an exception of a task: an executor was lost, the job cancelled, the context shut down.
    alone = last.name == _SPARK and last.condition is None and not last.message.startswith(_TOO_LARGE)
    if perhaps or alone:
        return Failure(Fault.MACHINE, f"Spark could not go on: {_plainly(last)}")
    return Failure(Fault.QUERY, _sentence(last, names or {}))


def _fault(link: Link) -> Fault | None:
    """Whose failure a link says that its chain is, if it does."""
    state = link.state or ""
    if link.condition in _QUERYS_CONDITIONS:
        return Fault.QUERY
    if link.condition in _MACHINES_CONDITIONS or state.startswith(_MACHINES_STATES):
        return Fault.MACHINE
    if state.startswith(_QUERYS_STATES):
        return Fault.QUERY
    if link.name.startswith(_ABOUT_TEXTS):
        return None
    if link.name.startswith(_MACHINES_PACKAGES) or not _MACHINES_CLASSES.isdisjoint(link.classes):
        return Fault.MACHINE
    return None


# In words ------------------------------------------------------------------------------------------------------------

_CONDITION = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] (?P<words>.*?)\.? SQLSTATE: \w+")
# Sessions are ANSI sessions: this remedy is none.
_ANSI = re.compile(r"If necessary set \S*spark\.sql\.ansi\.enabled.*?(?:\.(?=\s|$)|$)")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: |$)")


def _sentence(link: Link, names: Mapping[str, str]) -> str:
    """What went wrong in one sentence, with the expression if Spark names it.

    >>> told = '[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL (line 1, position 1) ==\\na0 / a1\\n^^^^^^^'
    >>> _sentence(Link(("x",), told), {"a0": "SUM(r.i)", "a1": "COUNT(*)"})
    'in SUM(r.i) / COUNT(*): Division by zero (DIVIDE_BY_ZERO)'
    """
    lines = link.message.splitlines()
    for number, line in enumerate(lines):
        found = _CONDITION.search(line)
        if found is not None:
            words = _ANSI.sub("", found["words"]).strip().rstrip(".")
            where = _fragment(lines[number + 1 :])
            place = "" if where is None else f"in {_spelled(where, names)}: "
            return f"{place}{words} ({found['name']})"
    return _plainly(link)


def _plainly(link: Link) -> str:
    """The class of an exception and the first line of its message; of one of Python's, what was raised."""
    if _TRACEBACK in link.message:
        # The last line of a traceback that begins at the margin says what was raised.
        raised = [line for line in link.message.rpartition(_TRACEBACK)[2].splitlines() if _RAISED.match(line)]
        if raised:
            return f"a task failed: {raised[-1].strip()}"
    first = next((line.strip() for line in link.message.splitlines() if line.strip()), "")
    simple = link.name.rpartition(".")[2]
    return f"{simple}: {first}" if first else simple


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
