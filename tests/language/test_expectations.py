"""What may be expected of streams and queries, and what is said of what may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, load_pipeline, parse_schema, stream_expected, with_expectations
from headrace.model import CountTest, Expectation, ResultTest, Stream

S = Stream("s", parse_schema("ts TIMESTAMP, k STRING, `a b` INT, v DOUBLE"), "ts")
QUERY = bind_query("q", "SELECT k, SUM(v) AS total, COUNT(*) AS n FROM s GROUP BY window(ts, '1 minute'), k", {"s": S})


@pytest.mark.parametrize(
    ("text", "test"),
    [
        pytest.param("rejected < 1 %", CountTest("rejected", "<", 0.01, True), id="a part"),
        pytest.param(" Late<=2.5% ", CountTest("late", "<=", 0.025, True), id="without spaces, in capitals"),
        pytest.param("rows > 100", CountTest("rows", ">", 100), id="a number"),
        pytest.param("shed == 0", CountTest("shed", "=", 0), id="none, as programmers write it"),
    ],
)
def test_what_is_expected_of_a_stream(text: str, test: CountTest) -> None:
    assert stream_expected([(text, "fail")]) == (Expectation(text, test, "fail"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("regected < 1 %", "no rows are counted as 'regected'; did you mean 'rejected'", id="a near miss"),
        pytest.param("v > 0", "no rows are counted as 'v'", id="a column"),
        pytest.param("late under 5 %", "nothing that can be expected of a stream", id="no comparison"),
        pytest.param("late < 0", "can never be met; write late = 0", id="less than nothing"),
        pytest.param("late < 101 %", "at most 100 %", id="more than all"),
        pytest.param("rows > 5 %", "rows are compared with a number", id="a part of itself"),
    ],
)
def test_what_cannot_be_expected_of_a_stream(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stream_expected([(text, "warn")])


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        pytest.param("total >= 0", "results.total >= 0", id="a comparison"),
        pytest.param("n BETWEEN 1 AND 9 OR k IS NULL", "BETWEEN", id="any condition"),
        pytest.param("window_end > window_start", "results.window_end", id="over the window"),
    ],
)
def test_conditions_over_results(text: str, sql: str) -> None:
    (found,) = with_expectations(QUERY, [(text, "stop")]).expect
    assert isinstance(found.test, ResultTest)
    assert sql in found.test.sql.replace("`", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("totl > 0", "unknown column 'totl' in 'results'; did you mean 'total'", id="a near miss"),
        pytest.param("v > 0", "unknown column 'v'", id="a column of the stream that is no result"),
        pytest.param("n + 1", "a condition is true or false", id="a number"),
        pytest.param("SUM(n) > 5", "a condition is about one result", id="an aggregate"),
        pytest.param("late < 5 %", "'late' counts rows of a stream", id="what is counted of streams"),
        pytest.param("n > rand()", "rand", id="chance"),
        pytest.param("window_end < now()", "now", id="a clock"),
        pytest.param("n > 0) AS holds, (n > 1", "two result columns", id="two columns"),
        pytest.param("n > 0) AS holds FROM results WHERE (n > 1", "", id="a query that ends early"),
        pytest.param("_headrace_time IS NULL", "unknown column", id="the column that no condition knows"),
        pytest.param("n > (SELECT 1)", "", id="a subquery"),
    ],
)
def test_what_cannot_be_expected_of_results(text: str, said: str) -> None:
    with pytest.raises(SpecError, match="query 'q': expect: ") as caught:
        with_expectations(QUERY, [(text, "warn")])
    assert said in str(caught.value)
    assert "_headrace_time" not in str(caught.value) or "_headrace_time" in text


def test_a_column_called_rows_is_no_count() -> None:
    query = bind_query("q", "SELECT COUNT(*) AS rows FROM s GROUP BY window(ts, '1 minute')", {"s": S})
    with pytest.raises(SpecError, match="number of results or their column 'rows'"):
        with_expectations(query, [("rows > 0", "warn")])


FILE = """
streams:
  s:
    source: {format: parquet, path: in}
    schema: ts TIMESTAMP, k STRING, v DOUBLE
    time: ts
    expect: [rejected < 1 %, {that: late < 5 %, else: stop}]
queries:
  q:
    sql: SELECT k, SUM(v) AS total FROM s GROUP BY window(ts, '1 minute'), k
    expect:
      - rows > 0
      - {that: total >= 0, else: fail}
  one: {sql: SELECT v FROM s, expect: v > 0}
"""


def test_a_pipeline_file_says_what_it_expects(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(FILE)
    pipeline = load_pipeline(path)
    assert [(e.text, e.otherwise) for e in pipeline.streams[0].expect] == [
        ("rejected < 1 %", "warn"), ("late < 5 %", "stop"),
    ]  # fmt: skip
    assert [[(e.text, e.otherwise) for e in query.expect] for query in pipeline.queries] == [
        [("rows > 0", "warn"), ("total >= 0", "fail")], [("v > 0", "warn")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("else: fail", "else: die", "p.yml:13: queries.q.expect[1].else should be one of warn, fail, stop",
                     id="what follows"),
        pytest.param("{that: total >= 0, else: fail}", "{else: fail}", "says nothing that is expected", id="nothing"),
        pytest.param("total >= 0", "totals >= 0", "p.yml:12: query 'q': expect: 'totals >= 0': unknown",
                     id="where"),
        pytest.param("late < 5 %", "latr < 5 %", "p.yml:7: streams.s.expect: ", id="where in a stream"),
        pytest.param("- rows > 0", "- total >= 0", "is expected twice", id="twice"),
        pytest.param("expect: v > 0", "expect: {that: v > 0, otherwise: fail}", "unknown key 'otherwise'", id="a key"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_with_its_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_pipeline(path)
    assert said in str(caught.value)
