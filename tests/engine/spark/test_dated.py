"""The guard of texts that become times, on Spark: one without a date is malformed, others are what they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.language import bind_query, parse_schema
from headrace.model import Stream

STREAM = Stream("s", parse_schema("ts TIMESTAMP, k STRING"), time="ts")
DATELESS = ["12:05", "T10:15", " 9:00", "\t7:3", "23:59:59.5Z"]
DATED = ["2026-01-05 12:05", "2026", "+12026-01-05", " 2026-01-05T10:00:00+02:00", "nonsense", "", None]


def test_a_text_without_a_date_is_no_time(spark: Any):
    query = bind_query("q", "SELECT TRY_CAST(k AS TIMESTAMP) AS z, CAST(k AS TIMESTAMP) AS c FROM s", {"s": STREAM})
    tried, cast = (str(column.sql) for column in query.root.columns)  # type: ignore[union-attr]
    rows = spark.createDataFrame(
        [(datetime(2026, 1, 5, tzinfo=UTC), k) for k in (*DATELESS, *DATED)], "ts timestamp, k string"
    )
    found = rows.alias("s").selectExpr(f"unix_micros({tried})", "unix_micros(TRY_CAST(k AS TIMESTAMP))").collect()
    guarded, bare = [row[0] for row in found], [row[1] for row in found]
    assert guarded[: len(DATELESS)] == [None] * len(DATELESS)
    assert None not in bare[: len(DATELESS)], "Spark by itself adds the day of the run"
    assert guarded[len(DATELESS) :] == bare[len(DATELESS) :]
    with pytest.raises(Exception, match="no date: 12:05"):
        rows.alias("s").filter("k = '12:05'").selectExpr(cast).collect()
