"""SIGTERM and Ctrl-C: the first lets the epoch under way end, the second does not wait for it.

Exit codes: 0 when the run has stopped after its epoch (1 if a query had failed), 128 and the number of the signal when
it has stopped at once, or before it has used all rows it was to use (`--once`). Either way the checkpoint is as after a
crash at most, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

__all__ = ["Stopped", "Stopping", "leave_at_once"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal has ended the work too soon; not an Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int, code: int | None = None) -> None:
        super().__init__(number)
        self.exit_code = 128 + number if code is None else code


class Stopping:
    """Handles signals while a pipeline runs; `asked` is the one that has come, of which `say` is told once."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.asked: int | None = None
        self._say, self._came = say, threading.Event()
        self._at_once = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        self._previous = self._install()
        # Told by a thread: a handler may have broken into a line that is being written.
        threading.Thread(target=self._tell, daemon=True, name="headrace-stopping").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._came.set()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _tell(self) -> None:
        self._came.wait()
        if self.asked is not None:
            self._say("stopping after the epoch under way; a second signal does not wait for it")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While Spark starts nothing is under way that could end: the first signal is enough."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False
            # Spark has put a handler of its own for Ctrl-C in place, which cancels all jobs.
            self._install()

    def _install(self) -> dict[int, Any]:
        return {number: signal.signal(number, self._handle) for number in _SIGNALS}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None or self._at_once:
            raise Stopped(number)
        self.asked = number
        self._came.set()


def leave_at_once(code: int) -> NoReturn:
    """Ends this process and those it has started; Java that is only beginning would wait for its driver for ever."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # where there is no /proc, Java ends when it finds that its driver is gone
        for task in Path("/proc/self/task").iterdir():
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
    os._exit(code)
