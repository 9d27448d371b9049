"""Starts Spark's query where a source of it is asked in a Python process, which Spark gives ten seconds to start.

On a machine that is busy a process may take longer, and all sites of a pipeline start theirs at once. The query has
then failed before it has read anything, and nothing keeps it from being started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.engine.spark.thrown import chain_of_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_reading"]

T = TypeVar("T")

# A machine that is too busy six times in a row, a minute, does not get any further with a seventh.
ATTEMPTS = 6
# What Spark says a query does before its sources have told what there is.
_BEFORE = ("Initializing", "Getting offsets")
_LOOK_S = 0.05
# Half a minute, in which Spark has given up three times; other sources may take longer, and are not waited for.
_MOST_LOOKS = 600
_LATE = "java.net.SocketTimeoutException"


def start_reading(
    start: Callable[[T], StreamingQuery],
    what: T,
    pause: Callable[[float], None] = time.sleep,
    attempts: int = ATTEMPTS,
) -> StreamingQuery:
    """The query that reads this, when its sources have been asked for the first time, or failed for another reason."""
    for attempt in range(attempts):
        query = start(what)
        looks = 0
        while looks < _MOST_LOOKS and query.isActive and str(query.status["message"]).startswith(_BEFORE):
            pause(_LOOK_S)
            looks += 1
        if attempt == attempts - 1 or not _was_late(query):
            break
    return query


def _was_late(query: StreamingQuery) -> bool:
    """Whether a query ended because a Python process did not start in time."""
    return not query.isActive and any(link.name == _LATE for link in chain_of_query(query))
