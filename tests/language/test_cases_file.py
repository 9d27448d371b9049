"""Files of cases: values by the types of their columns, and every mistake with its line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, load_cases, parse_schema
from headrace.model import Case, Pipeline, Stream, Table

SCHEMA = (
    "ts TIMESTAMP, k STRING, i INT, t TINYINT, x DOUBLE, d DECIMAL(5,2), b BOOLEAN, day DATE, raw BINARY, "
    "n TIMESTAMP_NTZ, a ARRAY<INT>, s STRUCT<u: INT, v: STRING>, m MAP<STRING, INT>, o MAP<INT, INT>"
)
STREAM = Stream("r", parse_schema(SCHEMA), "ts")
SQL = "SELECT k, COUNT(*) AS n FROM r [WINDOW 1 min] GROUP BY k"
PIPELINE = Pipeline("p", (STREAM,), (bind_query("q", SQL, {"r": STREAM}),))


def read(folder: Path, text: str) -> tuple[Case, ...]:
    file = folder / "tests.yml"
    file.write_text(text)
    return load_cases(file, PIPELINE)


def row_of(folder: Path, text: str) -> dict[str, Any]:
    (case,) = read(folder, f"c:\n  rows: {{r: [{{{text}}}]}}\n  expect: {{q: []}}\n")
    ((row,),) = case.rows["r"]
    return dict(row)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("ts: 2026-01-05 12:00:00", datetime(2026, 1, 5, 12, tzinfo=UTC), id="times are UTC"),
        pytest.param("ts: '2026-01-05T13:00:00.5+01:00'", datetime(2026, 1, 5, 12, 0, 0, 500_000, UTC), id="or say so"),
        pytest.param("n: 2026-01-05 12:00:00", datetime(2026, 1, 5, 12), id="no zone where the type has none"),
        pytest.param("k: 10", "10", id="a text may look like a number"),
        pytest.param("k: null", None, id="null"),
        pytest.param("t: -128", -128, id="the least of a type"),
        pytest.param("x: .inf", float("inf"), id="infinity"),
        pytest.param("d: 1.1", Decimal("1.10"), id="decimals are as written, never floats"),
        pytest.param("b: true", True, id="truth"),
        pytest.param("day: 2026-01-05", date(2026, 1, 5), id="a date"),
        pytest.param("raw: aGk=", b"hi", id="bytes"),
        pytest.param("a: [1, null]", [1, None], id="a list"),
        pytest.param("s: {v: x}", {"u": None, "v": "x"}, id="fields that are left out are null"),
        pytest.param("m: {one: 1}", [("one", 1)], id="a map"),
    ],
)
def test_values_are_read_by_the_types_of_their_columns(written: str, value: object, tmp_path: Path) -> None:
    ((_, found),) = row_of(tmp_path, written).items()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        pytest.param("i: 1.5", "should be a whole number", id="no whole number"),
        pytest.param("t: 128", "a whole number from -128 to 127", id="beyond its type"),
        pytest.param("x: true", "should be a number, not true", id="no number"),
        pytest.param("d: 1.234", "a number that fits DECIMAL(5,2)", id="too many decimals"),
        pytest.param("d: 1000", "a number that fits DECIMAL(5,2)", id="too many digits"),
        pytest.param("d: .nan", "a number that fits DECIMAL(5,2)", id="no decimal"),
        pytest.param("b: 1", "should be true or false", id="no truth"),
        pytest.param("day: 2026-02-30", "a date such as 2026-01-05", id="no day"),
        pytest.param("ts: 1767614400", "a time such as 2026-01-05 12:00:00", id="a number of seconds"),
        pytest.param("n: '2026-01-05T12:00:00Z'", "without a zone", id="a zone where there is none"),
        pytest.param("raw: '%'", "bytes in base64", id="no bytes"),
        pytest.param("a: 1", "should be a list", id="no list"),
        pytest.param("s: {w: 1}", "unknown key 'w'", id="no field"),
        pytest.param("o: {1: 1}", "only maps with texts for keys", id="keys that are no texts"),
        pytest.param("kk: 1", "did you mean 'k'?", id="no column"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(written: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as told:
        row_of(tmp_path, written)
    (problem,) = told.value.problems
    assert said in str(problem)
    assert problem.line == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{}", "there are no cases", id="nothing"),
        pytest.param("c: {expect: {q: []}}", "case 'c' has no rows", id="no rows"),
        pytest.param("c: {rows: {}}", "case 'c' has no expect", id="nothing expected"),
        pytest.param("c: {rows: {}, expect: {}}", "case 'c' expects nothing", id="no query"),
        pytest.param("c: {rows: {s: []}, expect: {q: []}}", "unknown stream 's'", id="no such stream"),
        pytest.param("c: {rows: {}, expect: {p: []}}", "unknown query 'p'", id="no such query"),
        pytest.param("c: {rows: {}, expect: {q: [{i: 1}]}}", "unknown key 'i'", id="no such result"),
        pytest.param("c: {rows: {}, expect: {q: [{k: a}, {k: a, n: 1}]}}", "names other columns than the first row",
                     id="rows that name other columns"),
        pytest.param("c: {rows: {r: [[{k: a}], {k: b}]}, expect: {q: []}}", "c.rows.r[0] should be a mapping",
                     id="epochs beside rows"),
    ],
)  # fmt: skip
def test_a_wrong_case_is_told(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as told:
        read(tmp_path, text)
    assert said in str(told.value)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as told:
        read(tmp_path, "c:\n  rows: {r: [{i: a}]}\n  expect: {q: [{n: b}]}\n")
    assert [problem.line for problem in told.value.problems] == [2, 3]


def test_epochs_are_lists_of_rows(tmp_path: Path) -> None:
    (case,) = read(tmp_path, "c: {rows: {r: [[{i: 1}, {i: 2}], [], [{i: 3}]]}, expect: {q: []}}")
    assert case.rows == {"r": (({"i": 1}, {"i": 2}), (), ({"i": 3},))}


def test_a_case_says_what_a_table_holds(tmp_path: Path) -> None:
    file = tmp_path / "tests.yml"
    file.write_text("c:\n  rows: {hosts: [{host: a, zone: 1}, {host: b}]}\n  expect: {q: []}\n")
    pipeline = replace(PIPELINE, tables=(Table("hosts", parse_schema("host STRING, zone INT")),))
    (case,) = load_cases(file, pipeline)
    assert case.rows == {"hosts": (({"host": "a", "zone": 1}, {"host": "b"}),)}
    file.write_text("c:\n  rows: {hots: []}\n  expect: {q: []}\n")
    with pytest.raises(SpecError, match="unknown stream or table 'hots'; did you mean 'hosts'"):
        load_cases(file, pipeline)
