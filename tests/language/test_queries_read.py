"""`FROM other_query`: what it means, where its mistakes are told, and which queries have nothing to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, load_pipeline, parse_schema
from headrace.model import Query, Scan, StepFunction, Stream, WindowAggregate

FILE = """
streams: {s: {source: {format: parquet, path: in}, schema: "ts TIMESTAMP, k STRING, n INT", time: ts}}
queries:
"""


@pytest.fixture
def queries(streams: Mapping[str, Stream]) -> dict[str, Query]:
    texts = {
        "top": "SELECT src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), 1 ORDER BY 2 LIMIT 3;",
        "ended": "SELECT window_end AS window_end, COUNT(*) AS n FROM packets GROUP BY window(ts, '1 minute')",
        "plain": "(SELECT ts, src FROM packets WHERE port > 80)",
        "last": "SELECT src, ts, AVG(length) AS a FROM packets [PARTITION BY src ROWS 9]",
        "sliding": "SELECT COUNT(*) AS n FROM packets [WINDOW 1 min]",
    }
    known = {name: bind_query(name, sql, streams) for name, sql in texts.items()}
    step = StepFunction("m:f", parse_schema("src STRING"), parse_schema("n INT"))
    return known | {"called": bind_query("called", "SELECT src FROM packets [PARTITION BY src]", streams, step=step)}


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param("SELECT * FROM top", ["src", "n", "window_start", "window_end"], id="all its columns"),
        pytest.param("SELECT * FROM ended", ["window_end", "n", "window_start"], id="an edge it selects is there once"),
        pytest.param("SELECT p.src FROM Plain AS p", ["src"], id="names ignore case"),
        pytest.param("WITH x AS (SELECT a FROM last) SELECT * FROM x", ["a"], id="below a WITH of its own"),
        pytest.param("WITH top AS (SELECT ts FROM packets) SELECT * FROM top", ["ts"], id="a WITH goes before"),
        pytest.param("(SELECT n FROM top)", ["n"], id="in parentheses"),
        pytest.param(
            "WITH packets AS (SELECT * FROM top) SELECT * FROM packets", ["src", "n", "window_start", "window_end"],
            id="what it reads sees no WITH of the reader",
        ),
    ],
)  # fmt: skip
def test_a_query_is_read_by_name(
    sql: str, columns: list[str], streams: Mapping[str, Stream], queries: dict[str, Query]
) -> None:
    query = bind_query("q", sql, streams, queries=queries)
    assert [output.name for output in query.finish.outputs] == columns
    again = bind_query("q", query.sql, streams)
    assert (again.root, again.finish) == (query.root, query.finish), "its own text says all of it"


def test_two_readers_have_one_node(streams: Mapping[str, Stream], queries: dict[str, Query]) -> None:
    sqls = ("SELECT MAX(n) AS n FROM top [WINDOW 1 hour]", "SELECT n FROM top WHERE n > 3")
    scans = []
    for sql in sqls:
        root = bind_query("q", sql, streams, queries=queries).root
        scans.append(root.input if isinstance(root, WindowAggregate) else root)
    assert all(isinstance(scan, Scan) and scan.of is not None for scan in scans)
    assert len({scan.stream for scan in scans if isinstance(scan, Scan)}) == 1


@pytest.mark.parametrize(
    ("sql", "place", "message"),
    [
        ("SELECT src,\n  nn FROM top", (4, 3), "unknown column 'nn' in 'top'; did you mean 'n'"),
        ("WITH a AS (SELECT n FROM top)\nSELECT b\nFROM a", (4, 8), "unknown column 'b'"),
        ("SELECT n\nFROM sliding", (4, 6), "when query 'sliding' answers depends on the schedule"),
        ("SELECT n\nFROM called", (4, 6), "query 'called' is a function's"),
        ("SELECT n\nFROM to", (4, 6), "unknown stream 'to'; did you mean 'top'"),
    ],
)
def test_mistakes_are_told_where_they_stand(
    sql: str, place: tuple[int, int], message: str, streams: Mapping[str, Stream], queries: dict[str, Query]
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        bind_query("q", sql, streams, queries=queries, file="p.yml", line=3)
    line = place[0]
    assert {(p.line, p.column) for p in caught.value.problems} == {(line, place[1])}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param(
            "  a: {sql: SELECT k FROM b}\n  b: {sql: SELECT k FROM c}\n  c: {sql: SELECT k FROM a}\n"
            "  d: {sql: SELECT k FROM a}\n",
            ["queries read each other in a circle: 'a' reads 'b' reads 'c' reads 'a'; one of them must read streams"],
            id="a circle is named once",
        ),
        pytest.param("  a: {sql: SELECT k FROM a}\n", ["in a circle: 'a' reads 'a'"], id="a query reads itself"),
        pytest.param(
            "  a: {sql: SELECT k FROM b}\n  b: {sql: SELECT x FROM s}\n", ["query 'b': unknown column 'x'"],
            id="one mistake is told once",
        ),
    ],
)  # fmt: skip
def test_queries_that_cannot_be_read(text: str, problems: list[str], tmp_path: Path) -> None:
    file = tmp_path / "p.yml"
    file.write_text(FILE + text)
    with pytest.raises(SpecError) as caught:
        load_pipeline(file)
    assert len(caught.value.problems) == len(problems)
    assert all(part in str(problem) for part, problem in zip(problems, caught.value.problems, strict=True))


def test_the_order_of_a_file_does_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "p.yml"
    file.write_text(FILE + "  b: {sql: SELECT k FROM a}\n  a: {sql: SELECT k FROM s WHERE n > 1}\n")
    assert [query.name for query in load_pipeline(file).queries] == ["b", "a"]
