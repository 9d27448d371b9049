"""What a run that stopped says about it: what was raised, not the line of code that raised it."""

from __future__ import annotations

import pytest

from headrace.engine.blame import translated
from headrace.errors import CorruptStateError, EngineError

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy
Traceback (most recent call last):
  File "epoch.py", line 3, in _commit
    raise OSError(number, os.strerror(number), path)
{end}

	at py4j.Protocol.getReturnValue(Protocol.java:476)"""


@pytest.mark.parametrize(
    ("end", "kind", "told"),
    [
        pytest.param(
            "OSError: [Errno 5] Input/output error: 'x'", EngineError,
            "the run stopped: OSError: [Errno 5] Input/output error: 'x'", id="the exception, not the code",
        ),
        pytest.param(
            "OSError: disk\n\nThe above exception was the direct cause of the following exception:\n\n"
            "headrace.errors.EngineError: files could not be read or written: disk",
            EngineError, "the run stopped: files could not be read or written: disk", id="the last of several",
        ),
        pytest.param(
            "headrace.errors.CorruptStateError: state file x is missing", CorruptStateError,
            "state file x is missing", id="an error of ours as it is",
        ),
    ],
)  # fmt: skip
def test_a_run_that_stopped_says_what_was_raised(end: str, kind: type[Exception], told: str):
    found = translated(RuntimeError(TRACEBACK.format(end=end)))
    assert type(found) is kind
    assert str(found) == told
