"""What a run that stopped says about it: errors about state as they are, anything else in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.engine.failures import cause_of, failure_of, stopped
from headrace.errors import CorruptStateError, EngineError, HeadraceError, LockedError, QueryFailure, StateError
from headrace.model import Fault


@dataclass
class Thrown:
    """An exception as py4j shows it."""

    name: str
    message: str
    cause: Any = None

    def getClass(self) -> Any:  # noqa: N802 - Java's names
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getSuperclass(self) -> None:  # noqa: N802
        return None

    def getMessage(self) -> str:  # noqa: N802
        return self.message

    def getCause(self) -> Any:  # noqa: N802
        return self.cause


class Captured(Exception):
    """An error of PySpark's with what Java threw."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__(thrown.message)
        self._origin = thrown


TRACEBACK = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "epoch.py", line 3, in _commit
    raise OSError(number, os.strerror(number), path)
{end}

\tat py4j.Protocol.getReturnValue(Protocol.java:476)"""


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        pytest.param(LockedError("it is another's"), LockedError, "it is another's", id="a lost lock, as it is"),
        pytest.param(CorruptStateError("x is missing"), CorruptStateError, "x is missing", id="damage, as it is"),
        pytest.param(StateError("set back"), StateError, "set back", id="any other error about state, as it is"),
        pytest.param(OSError(5, "no disk"), EngineError,
                     "the run stopped: files could not be read or written: [Errno 5] no disk", id="files"),
        pytest.param(EngineError("no broker"), EngineError, "the run stopped: no broker", id="the engine's own"),
        pytest.param(QueryFailure("too long"), EngineError, "the run stopped: too long", id="no state at all"),
        pytest.param(
            Captured(Thrown("org.apache.spark.sql.streaming.StreamingQueryException", "STREAM_FAILED",
                            Thrown("py4j.Py4JException", TRACEBACK.format(end="TypeError: 'x'")))),
            EngineError, "the run stopped: a task failed: TypeError: 'x'", id="the exception, not the code",
        ),
        pytest.param(
            Captured(Thrown("py4j.Py4JException", TRACEBACK.format(end="headrace.errors.CorruptStateError: y"))),
            EngineError, "the run stopped: a task failed: headrace.errors.CorruptStateError: y",
            id="a text about state is no error about state",
        ),
    ],
)  # fmt: skip
def test_a_run_that_stopped_says_what_was_raised(error: Exception, kind: type[HeadraceError], told: str):
    found = stopped(error)
    assert type(found) is kind
    assert str(found) == told


def test_what_a_run_says_is_cut():
    assert len(str(stopped(ValueError("x" * 10_000)))) < 600


def test_a_failure_that_is_no_querys_is_raised_as_it_is():
    error = LockedError("it is another's")
    with pytest.raises(LockedError) as raised:
        cause_of(error)
    assert raised.value is error


def test_spark_that_cannot_be_asked_is_gone():
    from py4j.protocol import Py4JNetworkError

    class Dead(Thrown):
        def getClass(self) -> Any:  # noqa: N802
            raise Py4JNetworkError("Answer from Java side is empty")

    assert failure_of(Captured(Dead("", "cancelled"))).fault is Fault.MACHINE
    assert failure_of(Py4JNetworkError("Answer from Java side is empty")).fault is Fault.MACHINE
