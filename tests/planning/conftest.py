"""Streams that the planning tests ask about, and queries bound to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.language import bind_query, parse_schema
from headrace.model import Query, Stream
from headrace.units import SECOND_US

SCHEMAS = {
    "packets": "ts TIMESTAMP, src STRING, dst STRING, port INT, length INT, x DOUBLE, f FLOAT, d DECIMAL(10,2), "
    "ok BOOLEAN",
    "flows": "ts TIMESTAMP, src STRING, dst STRING, port INT, length INT, x DOUBLE",
}
STREAMS = {name: Stream(name, parse_schema(ddl), "ts", lateness_us=5 * SECOND_US) for name, ddl in SCHEMAS.items()}


@pytest.fixture(scope="session")
def bind() -> Callable[..., Query]:
    def bound(sql: str, name: str = "q") -> Query:
        return bind_query(name, sql, STREAMS)

    return bound


@pytest.fixture(scope="session")
def streams() -> dict[str, Stream]:
    return STREAMS
