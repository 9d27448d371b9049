"""Texts become times only with their date: the guard that Spark gets, and where none can be put."""

from __future__ import annotations

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.language.sql.kept_text import is_own_text
from headrace.model import Stream

STREAM = Stream("s", parse_schema("ts TIMESTAMP, k STRING, t STRING, a INT, b BIGINT, d DATE"), time="ts")
GUARD = r"'^[\\x00-\\x20\\x7F-\\x9F]*(?=[+-]?(T|[0-9]+:))', 'no date: ')"


def written(expression: str) -> str:
    """What Spark gets of an expression."""
    query = bind_query("q", f"SELECT {expression} AS z FROM s", {"s": STREAM})
    (output,) = query.finish.outputs
    root = query.root
    return str(next(column.sql for column in root.columns if column.name == output.sql))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        pytest.param("CAST(k AS TIMESTAMP)", f"CAST(REGEXP_REPLACE(s.k, {GUARD} AS TIMESTAMP)", id="a cast"),
        pytest.param("TRY_CAST(k AS TIMESTAMP)", f"TRY_CAST(REGEXP_REPLACE(s.k, {GUARD} AS TIMESTAMP)", id="TRY_CAST"),
        pytest.param("ts > k", f"s.ts > REGEXP_REPLACE(s.k, {GUARD}", id="a comparison"),
        pytest.param(
            "coalesce(ts, nullif('2026', k))", f"COALESCE(s.ts, REGEXP_REPLACE(NULLIF('2026', s.k), {GUARD})",
            id="a choice",
        ),
        pytest.param("hour(k)", f"HOUR(REGEXP_REPLACE(s.k, {GUARD})", id="a function of times"),
        pytest.param(
            "to_timestamp(date_format(ts, 'HH:mm'))",
            f"TO_TIMESTAMP(REGEXP_REPLACE(DATE_FORMAT(s.ts, 'HH:mm'), {GUARD})", id="a text made of a time",
        ),
        pytest.param("to_timestamp(k, 'HH:mm')", "TO_TIMESTAMP(s.k, 'HH:mm')", id="a format has the date of 1970"),
        pytest.param("ts > '2026-01-05'", "s.ts > '2026-01-05'", id="a text in the query is seen"),
        pytest.param("CAST(b AS TIMESTAMP)", "CAST(s.b AS TIMESTAMP)", id="a number"),
        pytest.param("CAST(k AS DATE)", "CAST(s.k AS DATE)", id="a date is one"),
        pytest.param("k > t", "s.k > s.t", id="texts stay texts"),
        pytest.param("ts > d + INTERVAL '5' HOURS", "s.ts > (s.d + INTERVAL '5' HOURS)", id="a sum is no text"),
    ],
)  # fmt: skip
def test_what_becomes_a_time_passes_the_guard_once(expression: str, text: str):
    assert written(expression) == text
    assert written(text.replace("s.", "")) == text, "what has the guard gets no other"
    assert is_own_text(text, [STREAM])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param("CAST(array(k) AS ARRAY<TIMESTAMP>)", "cannot be cast to times together", id="a list"),
        pytest.param("CAST(map(1, k) AS MAP<INT, TIMESTAMP>)", "cannot be cast to times together", id="a map"),
        pytest.param("transform(array(k), e -> CAST(e AS TIMESTAMP))", "only Spark knows", id="a lambda"),
        pytest.param("from_csv(k, 'a TIMESTAMP_LTZ')", "takes a time without a date", id="CSV"),
    ],
)
def test_where_no_guard_can_be_put_the_query_is_refused(expression: str, message: str):
    with pytest.raises(SpecError, match=message):
        written(expression)
    written("from_json(k, 'a TIMESTAMP', map('timestampFormat', 'yyyy-MM-dd')).a")
