"""Streams that the language tests ask about."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.language import parse_schema
from headrace.model import Stream

SCHEMAS = {
    "packets": "ts TIMESTAMP, src STRING, dst STRING, port INT, length INT, tags ARRAY<STRING>, "
    "s STRUCT<a: INT, b: STRUCT<c: STRING>>, amount DECIMAL(10,2), ok BOOLEAN",
    "flows": "ts TIMESTAMP, src STRING, bytes BIGINT, d DOUBLE, ts2 TIMESTAMP",
    "orders": "ts TIMESTAMP, id BIGINT, `id.orig_h` STRING, `order` INT",
}


@pytest.fixture(scope="session")
def streams() -> Mapping[str, Stream]:
    return {name: Stream(name, parse_schema(ddl), time="ts") for name, ddl in SCHEMAS.items()}
