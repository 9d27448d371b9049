"""Every query of hostile_queries.yml is refused, for the reason given there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.model import Stream

CASES = yaml.safe_load((Path(__file__).parent / "hostile_queries.yml").read_text(encoding="utf-8"))


def test_there_are_enough_cases_and_no_two_alike() -> None:
    assert len({case["sql"] for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("case", [pytest.param(case, id=f"refuses {case['id']}") for case in CASES])
def test_refuses(case: dict[str, str], streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", case["sql"], streams)
    assert case["expect"] in str(caught.value)
    assert all(problem.query == "q" for problem in caught.value.problems)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("SELECT " + "(" * 5000 + "1" + ")" * 5000, id="thousands of parentheses"),
        pytest.param(f"SELECT COUNT(*) FROM packets [WINDOW 1 min] WHERE {'NOT ' * 5000}ok", id="thousands of NOTs"),
        pytest.param("SELECT " + "- " * 3000 + "1", id="thousands of minus signs"),
        pytest.param("SELECT " + "1+" * 40_000 + "1", id="a sum of forty thousand"),
        pytest.param("SELECT " + "CASE WHEN ok THEN " * 500 + "1" + " END" * 500, id="hundreds of CASEs"),
        pytest.param("SELECT " + "x" * 200_000, id="a name of two hundred thousand letters"),
        pytest.param(
            "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 90 + "packets" + ")" * 90 + " [WINDOW 1 min]",
            id="ninety subqueries",
        ),
        pytest.param(
            "WITH x0 AS (SELECT length AS a FROM packets)"
            + "".join(f", x{i} AS (SELECT a + a AS a FROM x{i - 1})" for i in range(1, 19))
            + " SELECT SUM(a) FROM x18 [WINDOW 1 min]",
            id="an expression that doubles eighteen times",
        ),
        pytest.param(
            "WITH x0 AS (SELECT length AS a FROM packets)"
            + "".join(f", x{i} AS (SELECT a FROM x{i - 1} UNION ALL SELECT a FROM x{i - 1})" for i in range(1, 19))
            + " SELECT SUM(a) FROM x18 [WINDOW 1 min]",
            id="a union that doubles eighteen times",
        ),
    ],
)  # fmt: skip
def test_bombs_are_refused_quickly(sql: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError):
        bind_query("q", sql, streams)


def test_all_problems_are_reported_with_their_places(streams: Mapping[str, Stream]) -> None:
    sql = "SELECT srcc,\n  SUM(lenght) AS n,\n  rand() AS r\nFROM packets [WINDOW 1 min]\nGROUP BY srcc"
    with pytest.raises(SpecError) as caught:
        bind_query("q", sql, streams, file="p.yml", line=10)
    places = {(problem.line, problem.column): problem.message for problem in caught.value.problems}
    assert places == {
        (10, 8): "unknown column 'srcc' in 'packets'",
        (11, 7): "unknown column 'lenght' in 'packets'",
        (12, 3): "rand gives another value when an epoch is replayed",
        (14, 10): "unknown column 'srcc' in 'packets'",
    }
