"""What Spark's JVM and the processes it starts print, without secrets: their complaints quote options they got."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from headrace.hiding import hide

__all__ = ["hidden_output"]


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
    with open(reading, "rb", buffering=0) as pipe:
        rest = b""
        while data := pipe.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            _write(ours, lines)
        _write(ours, [rest] if rest else [])
    os.close(ours)


def _write(ours: int, lines: list[bytes]) -> None:
    if lines:
        text = "".join(hide(line.decode(errors="replace")) + "\n" for line in lines)
        with contextlib.suppress(OSError):
            os.write(ours, text.encode())
