"""Whatever the text, binding gives a query or a SpecError."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Stream

GOOD = (
    "SELECT src, SUM(length) AS n FROM packets [WINDOW 10 min SLIDE 2 min] WHERE port IN (1, 2) GROUP BY src",
    "SELECT window.start, COUNT(*) FROM packets GROUP BY window(ts, '10 minutes'), tags[0] ORDER BY 2 LIMIT 3",
    "SELECT a.src FROM packets a [RANGE 10 s] LEFT JOIN flows AS b [RANGE 5 s] ON a.src = b.src AND a.length < b.bytes",
    "SELECT AVG(length), port FROM packets [PARTITION BY src, dst ROWS 10] WHERE NOT ok",
    "SELECT k, percentile(v, 0.5) FROM (SELECT src k, length v FROM packets UNION ALL SELECT src, bytes FROM flows) "
    "[WINDOW 1 h] GROUP BY k",
    "WITH x AS (SELECT *, CASE WHEN ok THEN 1 ELSE 2 END c FROM packets) SELECT SUM(c::int) FROM x [WINDOW 1 min] "
    "HAVING COUNT(*) > 1",
)  # fmt: skip
PIECES = (
    "(", ")", "[", "]", ",", ".", "'", '"', "`", ";", "--", "/*", "*/", "*", "SELECT", "FROM", "WINDOW", "JOIN",
    "ON", "AS", "GROUP BY", "NULL", "INTERVAL", "CASE", "END", "DISTINCT", "OVER", "->", "::", "?", ":x",
    "{", "}", "\x00", "é",
    "1e999",
    "99999999999999999999999999999999999999999", "UNION ALL", "WITH", "NOT", "CAST(", "0x1", "LATERAL VIEW", "EXTRACT(",
)  # fmt: skip
RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def bind(sql: str, streams: Mapping[str, Stream]) -> None:
    with contextlib.suppress(SpecError):
        bind_query("q", sql, streams)


@RELAXED
@given(text=st.text(max_size=200))
@example(text="SELECT \ud800")
def test_arbitrary_text(text: str, streams: Mapping[str, Stream]) -> None:
    bind(text, streams)


@RELAXED
@given(words=st.lists(st.sampled_from([*PIECES, *(word for sql in GOOD for word in sql.split())]), max_size=40))
def test_shuffled_words(words: list[str], streams: Mapping[str, Stream]) -> None:
    bind("SELECT " + " ".join(words), streams)


@RELAXED
@given(
    sql=st.sampled_from(GOOD),
    cuts=st.lists(
        st.tuples(st.integers(0, 150), st.integers(0, 12), st.sampled_from(["", *PIECES])), min_size=1, max_size=3
    ),
)
def test_mutated_queries(sql: str, cuts: list[tuple[int, int, str]], streams: Mapping[str, Stream]) -> None:
    for place, length, piece in cuts:
        sql = sql[:place] + piece + sql[place + length :]
    bind(sql, streams)


def test_the_queries_that_are_mutated_are_good(streams: Mapping[str, Stream]) -> None:
    for sql in GOOD:
        assert bind_query("q", sql, streams).sql == sql
