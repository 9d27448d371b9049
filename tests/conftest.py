"""One Spark session for all tests, in a time zone that is not UTC, so that nothing can lean on the machine's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["TZ"] = "Asia/Kolkata"
time.tzset()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headrace.engine import build_session

    session = build_session("tests", "local[2,4]", {"spark.driver.memory": "2g"})
    yield session
    session.stop()
