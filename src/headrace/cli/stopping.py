"""SIGTERM and Ctrl-C: the first lets the epoch under way end, the second does not wait for it.

Exit codes: 0 when the run has stopped after its epoch (1 if a query had failed), 128 and the number of the signal when
it has stopped at once. Either way the checkpoint is as after a crash at most, and the next start goes on from there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Stopped", "Stopping"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal that did not wait; not an Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Stopping:
    """Handles signals while a pipeline runs; `asked` says that one has come."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        self._previous = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While nothing is under way that could end: the first signal is enough."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked or self._at_once:
            raise Stopped(number)
        self.asked = True
