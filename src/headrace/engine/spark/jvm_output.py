"""What Spark's JVM and the processes it starts print: without secrets, which their complaints quote, and without noise.

Noise is what they print on a healthy run: Spark's advice on its log, the modules it asks Java for, and the traceback of
a Python worker whose task Spark has ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from headrace.hiding import hide

__all__ = ["Noise", "hidden_output"]

_TRACEBACK = b"Traceback (most recent call last):"
# Where a worker is when Spark has ended its task, and how its traceback ends.
_FRAME = b"/pyspark/daemon.py"
_GONE = (b"BrokenPipeError:", b"ConnectionResetError:")
_STARTING = (
    b"WARNING: Using incubator modules:",
    b"Setting default log level to",
    b"To adjust logging level use sc.setLogLevel",
)


class Noise:
    """Takes lines as they come and gives back those that are worth reading; lines of several workers may alternate.

    >>> noise = Noise()
    >>> noise.without([b"WARNING: Using incubator modules: jdk.incubator.vector", b"hello"])
    [b'hello']
    >>> traceback = [b"Traceback (most recent call last):", b'  File "x/pyspark/daemon.py", line 9, in manager']
    >>> noise.without([*traceback, *traceback, b"BrokenPipeError: [Errno 32]", b"BrokenPipeError: [Errno 32]", b"next"])
    [b'next']
    """

    def __init__(self) -> None:
        self._titles = 0  # tracebacks of which only the first line has come
        self._ends = 0  # tracebacks of workers of which the last line is yet to come

    def without(self, lines: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        for line in lines:
            if line == _TRACEBACK:
                self._titles += 1
            elif line.startswith(b"  File ") and _FRAME in line:
                self._ends += min(self._titles, 1)
                self._titles = max(0, self._titles - 1)
            elif self._ends and line.startswith(_GONE):
                self._ends -= 1
            elif not line.startswith(_STARTING):
                kept += [*self.end(), line]
        return kept

    def end(self) -> list[bytes]:
        """First lines of tracebacks that are somebody else's."""
        titles, self._titles = self._titles, 0
        return [_TRACEBACK] * titles


@contextlib.contextmanager
def hidden_output() -> Iterator[None]:
    """Whatever is started meanwhile prints to our own standard error by way of `hide`, line by line."""
    reading, writing = os.pipe()
    ours = os.dup(2)
    os.dup2(writing, 2)
    threading.Thread(target=_pass_on, args=(reading, ours), daemon=True, name="headrace-jvm-output").start()
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(writing)


def _pass_on(reading: int, ours: int) -> None:
    """Ends when all who could write have ended; what cannot be written is read all the same, so that nobody waits."""
    noise = Noise()
    with open(reading, "rb", buffering=0) as pipe:
        rest = b""
        while data := pipe.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            _write(ours, noise.without(lines))
        _write(ours, [*noise.without([rest] if rest else []), *noise.end()])
    os.close(ours)


def _write(ours: int, lines: list[bytes]) -> None:
    if lines:
        text = "".join(hide(line.decode(errors="replace")) + "\n" for line in lines)
        with contextlib.suppress(OSError):
            os.write(ours, text.encode())
