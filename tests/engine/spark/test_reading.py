"""A query whose Python process is late to start is started again, and no other is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.engine.spark.reading import start_reading

LATE, OTHER = "java.net.SocketTimeoutException", "java.io.IOException"


class _Thrown:
    """A Java exception, as py4j shows it, below one of Spark's."""

    def __init__(self, name: str | None, cause: _Thrown | None = None) -> None:
        self.name, self.cause = name, cause

    def getClass(self) -> _Thrown:  # noqa: N802
        return self

    def getName(self) -> str | None:  # noqa: N802
        return self.name

    def getSuperclass(self) -> None:  # noqa: N802
        return None

    def getMessage(self) -> str:  # noqa: N802
        return "why"

    def getCause(self) -> _Thrown | None:  # noqa: N802
        return self.cause

    def isDefined(self) -> bool:  # noqa: N802
        return self.name is not None

    def get(self) -> _Thrown:
        return _Thrown("org.apache.spark.SparkException", self)


class _Query:
    """Looks for its offsets twice, then reads, or has failed."""

    def __init__(self, failed: str | None) -> None:
        self.looks, self.failed, self._jsq = 2, failed, self

    @property
    def status(self) -> dict[str, Any]:
        self.looks -= 1
        return {"message": "Getting offsets from links" if self.looks >= 0 else "Waiting for data to arrive"}

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self.failed is None or self.looks > 0

    def exception(self) -> _Thrown:
        return _Thrown(self.failed)


@pytest.mark.parametrize(
    ("ends", "starts"),
    [
        pytest.param([None], 1, id="it reads"),
        pytest.param([LATE, LATE, None], 3, id="a process that is late"),
        pytest.param([OTHER], 1, id="another failure"),
        pytest.param([LATE, OTHER], 2, id="first one, then the other"),
        pytest.param([LATE] * 9, 4, id="always late"),
    ],
)
def test_a_query_is_started_again_while_its_process_is_late(ends: list[str | None], starts: int) -> None:
    left: Iterator[str | None] = iter(ends)
    begun: list[_Query] = []

    def start(what: str) -> Any:
        assert what == "rows"
        begun.append(_Query(next(left)))
        return begun[-1]

    found: Any = start_reading(start, "rows", pause=lambda seconds: None, attempts=4)
    assert (len(begun), found) == (starts, begun[-1])


def test_a_source_that_takes_its_time_is_not_waited_for() -> None:
    slow: Any = _Query(None)
    slow.looks = 10**9
    assert start_reading(lambda rows: slow, "rows", pause=lambda seconds: None) is slow
