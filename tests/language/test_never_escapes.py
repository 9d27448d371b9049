"""Whatever the text, binding gives a query or a SpecError, and so does reading a file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.language import bind_query, load_pipeline
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
RELAXED = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


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


FILE = """\
name: x
streams:
  r: {source: {format: parquet, path: in, options: {maxFilesPerTrigger: 4}}, schema: 'ts TIMESTAMP, k INT', time: ts}
queries:
  q: {sql: 'SELECT k, COUNT(*) AS n FROM r [WINDOW 1 min] GROUP BY k', weight: 2.5, priority: 1, lifetime: 2 hours}
include: [queries/*.sql]
engine: {trigger: 2 seconds, bins: 8, conf: {spark.ui.enabled: false}, jars: [a.jar], metrics: 0}
sites: {a: {streams: [r], proxy: true}, b: }
network: {latency_ms: {a-b: 7.5}}
placement: {strategy: edge+, max_latency: 120 ms}
"""
TOKENS = (
    "{", "}", "[", "]", ":", ": ", "- ", "? ", "&a ", "*a", "<<: ", "!!int ", "!x ", "|", ">", "'", '"', "#", "%", "@",
    "`", "\t", "\n", "---\n", "~", "null", "true", "no", "1e999", ".inf", "-.nan", "9" * 50, "010", "1:30", "\\ud800",
    "\x85", "\u2028", "**", "..", "/", "${x}", "0 s", "-1", "2026-01-01", "''",
)  # fmt: skip


@RELAXED
@given(
    cuts=st.lists(
        st.tuples(st.integers(0, len(FILE)), st.integers(0, 12), st.sampled_from(["", *TOKENS])), min_size=1, max_size=4
    )
)
def test_mutated_files(cuts: list[tuple[int, int, str]], tmp_path: Path) -> None:
    text = FILE
    for place, length, piece in cuts:
        text = text[:place] + piece + text[place + length :]
    path = tmp_path / "p.yml"
    path.write_text(text, encoding="utf-8")
    with contextlib.suppress(SpecError):
        load_pipeline(path)
