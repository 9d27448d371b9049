"""What the last gate before Spark lets through, and what it stops; hostile_queries.yml has the queries it refuses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.language.sql.clock_texts import is_clock_text
from headrace.language.sql.patterns import like_trouble, regex_trouble
from headrace.model import Stream

ACCEPTED = (
    "CASE WHEN ok THEN 'today' ELSE 'before' END",
    "src = 'now'",
    "src IN ('now', 'today')",
    "src LIKE 'now%'",
    "coalesce(src, 'epoch')",
    "nullif(src, 'now')",
    "if(ok, 'today', 'yesterday')",
    "ts > 'nowhere'",
    "ts > DATE '2020-01-01' + INTERVAL '1' DAY",
    "ts > make_timestamp(2020, 1, 1, 0, 0, 0)",
    "ts > to_timestamp('2020-01-01')",
    "ts > timestampadd(DAY, 1, TIMESTAMP '2020-01-01')",
    "port * 60 * 1000",
    "round(2.5, 1) * port",
    "map('a', 1, 'b', 2)[src]",
    "array_contains(array('a', 'b'), src)",
    "element_at(array('a', 'b'), port)",
    "from_json(src, 'a INT', map('mode', 'FAILFAST')).a",
    "aggregate(transform(tags, t -> length(t)), 0, (a, x) -> a + x)",
    "aggregate(tags, named_struct('n', 0, 's', 0.5D), (a, x) -> named_struct('n', a.n + 1, 's', a.s), a -> a.s / a.n)",
    "exists(tags, t -> contains(src, t))",
    "regexp_extract(src, '^(\\\\d{1,3}\\\\.){3}(\\\\d{1,3})$', 2)",
    "filter(tags, t -> t RLIKE '^a.*b$')",
    "lpad(src, 20, '0')",
    "repeat('*', least(port, 10))",
    "replace(replace(replace(src, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')",
    "transform(tags, t -> concat(src, t))",
    "format_string('%05d-%s', port, src)",
    "round(amount, 2)",
    "split(src, ',')[0]",
    "parse_url(src, 'QUERY', 'id')",
    "date_format(ts, 'yyyy-MM-dd')",
    "concat_ws('|', src, dst)",
    "CAST(NULL AS STRING)",
    "to_json(s)",
    "sequence(1, 24)",
)


@pytest.mark.parametrize("expression", ACCEPTED)
def test_accepts(expression: str, streams: Mapping[str, Stream]) -> None:
    bind_query("q", f"SELECT COUNT({expression}) FROM packets [WINDOW 1 min]", streams)


@pytest.mark.parametrize(
    ("text", "special"),
    [
        pytest.param("now", True, id="the word"),
        pytest.param("\t NOW\n", True, id="blanks and other letters"),
        pytest.param("tomorrow UTC", True, id="a zone"),
        pytest.param("yesterday+01:00", True, id="a zone without a blank"),
        pytest.param("\x00today", True, id="what Java trims"),
        pytest.param("nowhere", False, id="a longer word"),
        pytest.param("known", False, id="a word that ends so"),
        pytest.param("2020-01-01", False, id="a date"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_words_for_the_clock(text: str, special: bool) -> None:
    assert is_clock_text(text) is special


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(\d+)\.(\d+)\.(\d+)\.(\d+)$", r"(?:\d{1,3}\.){3}\d{1,3}", ".*a.*b", r"^[\w.]+@[\w.]+\.\w+$",
        "https?://[^/]+/.*", "(?i)error|warn", "(?:ab)+c", r"-?\d+\.?\d*", "(a|b)?", r"\d{3}-\d{4}", "a++b", "", "[",
        "(", "\\", "{", "*a", "[]a]+", "[^]]*", "(?<name>a)",
    ],
)  # fmt: skip
def test_a_usual_pattern(pattern: str) -> None:
    assert regex_trouble(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b", "(a|aa)+$", "(a*)*", "([a-z]+)*x", "(.*)(.*)(.*)(.*)x", "a{1,5000}", "(a{1,10}){1,10}", r"(a)\1+",
        "(x+x+)+y", r"\s+\s+\s+\s+x", "(?=a+)+", "((a|b)*c)*", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?<n>a+)+", "((a)?)*",
        "(a?){50}a{50}", "a?a?a?a?aaaa", "(?x)(a+) +", "(?ix:(a+) +)", "(.*a){12}", "(?:(?:a+))+", "x" * 1001,
    ],
)  # fmt: skip
def test_a_pattern_that_takes_for_ever(pattern: str) -> None:
    assert regex_trouble(pattern) is not None


def test_wildcards_are_counted_between_letters() -> None:
    assert like_trouble("%%a%%b%%") is None
    assert like_trouble("%a%b%c%d%e%f%") is not None


def test_a_constant_that_subqueries_repeat_is_refused_quickly(streams: Mapping[str, Stream]) -> None:
    sql = f"WITH x0 AS (SELECT '{'y' * 50_000}' AS a FROM packets)" + "".join(
        f", x{i} AS (SELECT concat(a, a) AS a FROM x{i - 1})" for i in range(1, 14)
    )
    with pytest.raises(SpecError, match="once subqueries are unfolded"):
        bind_query("q", f"{sql} SELECT MAX(a) FROM x13 [WINDOW 1 min]", streams)
