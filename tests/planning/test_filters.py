"""What filters say without being run, and which of them part the rows of another."""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest

from headrace.planning.filters import disjoint_union, value_filter

TEXTS = ["s.name", "S.City"]


@pytest.mark.parametrize(
    ("where", "readings"),
    [
        pytest.param("s.port = 80", [("s.port", {"80"}, set())], id="an equality"),
        pytest.param("80 = s.port", [("s.port", {"80"}, set())], id="the other way round"),
        pytest.param("s.port IN (80, 443)", [("s.port", {"80", "443"}, set())], id="a list"),
        pytest.param("s.port = 80 OR s.port = 443", [("s.port", {"80", "443"}, set())], id="alternatives"),
        pytest.param(
            "(s.port = 1 OR (s.port IN (2, 3) OR 4 = s.port))",
            [("s.port", {"1", "2", "3", "4"}, set())],
            id="alternatives in brackets",
        ),
        pytest.param("s.PORT = 80", [("s.port", {"80"}, set())], id="names ignore case"),
        pytest.param("s.name = 'Å'", [("s.name", {"Å"}, set())], id="a string"),
        pytest.param("s.port = 007", [("s.port", {"7"}, set())], id="leading zeros are the same number"),
        pytest.param(
            "s.port = 80 AND s.ok AND s.length > 5",
            [("s.port", {"80"}, {"s.ok", "s.length > 5"})],
            id="other conjuncts",
        ),
        pytest.param(
            "s.port = 80 AND s.name = 'a'",
            [("s.port", {"80"}, {"s.name = 'a'"}), ("s.name", {"a"}, {"s.port = 80"})],
            id="two columns can be read in two ways",
        ),
        pytest.param("s.length > 5", [], id="a comparison"),
        pytest.param("s.port <> 80", [], id="an inequality"),
        pytest.param("s.port NOT IN (80)", [], id="a list of others"),
        pytest.param("NOT s.port = 80", [], id="a negation"),
        pytest.param("s.port = s.other", [], id="two columns"),
        pytest.param("1 = 1", [], id="no column"),
        pytest.param("s.port + 1 = 80", [], id="an expression"),
        pytest.param("s.port = 80 OR s.other = 80", [], id="alternatives of two columns"),
        pytest.param("s.port = 80 OR s.length > 5", [], id="an alternative of another kind"),
        pytest.param("s.port IN (80, '443')", [], id="numbers and strings"),
        pytest.param("s.port = 80 OR s.port = '443'", [], id="also as alternatives"),
        pytest.param("s.x = 1.5", [], id="a fraction"),
        pytest.param("s.x IN (1, 2.0)", [], id="a fraction among integers"),
        pytest.param("s.port = NULL", [], id="NULL is no value"),
        pytest.param("s.port <=> 80", [], id="an equality that NULL takes part in"),
        pytest.param("s.ok", [], id="a boolean column"),
        pytest.param("s.port = = 80", [], id="what cannot be read"),
    ],
)
def test_readings(where: str, readings: list[tuple[str, set[str], set[str]]]):
    found = value_filter(where)
    assert [(f.column, set(f.values), set(f.rest)) for f in found] == readings


@pytest.mark.parametrize(
    ("wanted", "offers", "parts"),
    [
        pytest.param("s.a IN (1, 2)", ["s.a = 1", "s.a = 2"], [0, 1], id="two halves"),
        pytest.param("s.a IN (1, 2, 3)", ["s.a = 3", "s.a IN (1, 2)"], [1, 0], id="the greater part first"),
        pytest.param("s.a IN (1, 2)", ["s.a = 1"], None, id="a part is missing"),
        pytest.param("s.a IN (1, 2)", ["s.a = 1", "s.a IN (2, 3)"], None, id="a part has more than is wanted"),
        pytest.param("s.a IN (1, 2, 3)", ["s.a IN (1, 2)", "s.a IN (2, 3)"], None, id="parts that overlap"),
        pytest.param(
            "s.a IN (1, 2, 3)", ["s.a IN (1, 2)", "s.a IN (2, 3)", "s.a = 3"], [0, 2], id="but not with all of them"
        ),
        pytest.param("s.a = 1", ["s.a = 1"], None, id="itself is no part"),
        pytest.param("s.a IN (1, 2)", ["s.a = 1", "s.b = 2"], None, id="another column"),
        pytest.param("s.a IN (1, 2)", ["s.a = 1", "t.a = 2"], None, id="another stream"),
        pytest.param(
            "s.a IN (1, 2) AND s.ok", ["s.a = 1 AND s.ok", "s.ok AND s.a = 2"], [0, 1], id="the same rest in any order"
        ),
        pytest.param(
            "s.a IN (1, 2) AND s.ok", ["s.a = 1 AND s.ok", "s.a = 2 AND NOT s.ok"], None, id="a rest that differs"
        ),
        pytest.param("s.a IN (1, 2)", ["s.a = 1 AND s.ok", "s.a = 2"], None, id="a part that has less"),
        pytest.param("s.a IN (1, 2) AND s.ok", ["s.a = 1", "s.a = 2"], None, id="parts that have more"),
        pytest.param(
            "s.name IN ('a', 'b') AND s.a IN (1, 2)",
            ["s.name IN ('a', 'b') AND s.a = 1", "s.name IN ('a', 'b') AND s.a = 2"],
            [0, 1],
            id="either of two columns can be parted",
        ),
        pytest.param("s.name IN ('a', 'b')", ["s.name = 'a'", "s.name = 'b'"], [0, 1], id="strings of a string column"),
        pytest.param("S.CITY IN ('a', 'A')", ["s.city = 'a'", "s.City = 'A'"], [0, 1], id="values do not ignore case"),
        pytest.param("s.a IN ('7', '07')", ["s.a = '7'", "s.a = '07'"], None, id="strings may be the same number"),
        pytest.param("s.name IN (1, 2)", ["s.name = 1", "s.name = 2"], [0, 1], id="numbers tell strings apart"),
        pytest.param("s.name IN ('1', '2')", ["s.name = 1", "s.name = 2"], None, id="numbers are no strings"),
        pytest.param(
            "s.x IN (9007199254740992, 9007199254740993)",
            ["s.x = 9007199254740992", "s.x = 9007199254740993"],
            None,
            id="integers that may be the same double",
        ),
        pytest.param("s.a > 1", ["s.a = 2"], None, id="no values at all"),
        pytest.param("s.a IN (1, 2)", [], None, id="nothing is offered"),
    ],
)  # fmt: skip
def test_unions(wanted: str, offers: list[str], parts: list[int] | None):
    found = disjoint_union(wanted, [(where, i) for i, where in enumerate(offers)], TEXTS)
    assert (None if found is None else list(found)) == parts


def test_rows_of_a_union_are_those_wanted_each_once():
    rng = random.Random(11)
    values = [("s.a", str(v)) for v in range(4)] + [("s.name", f"'{v}'") for v in "wxyz"]

    def drawn() -> str:
        column = rng.choice(["s.a", "s.name"])
        some = rng.sample([v for c, v in values if c == column], rng.randint(1, 3))
        listed, either = f"{column} IN ({', '.join(some)})", " OR ".join(f"{column} = {v}" for v in some)
        text = rng.choice([listed, either])
        return rng.choice([text, text, text, f"({text}) AND s.ok", f"({text}) AND s.a IS NOT NULL"])

    rows = list(itertools.product([*range(4), None], [*"wxyz", None], [True, False, None]))
    literals = ", ".join(str(tuple("NULL" if v is None else v for v in row)).replace("'NULL'", "NULL") for row in rows)
    table = f"(VALUES {literals}) AS s(a, name, ok)"

    def passed(where: str) -> list[tuple[object, ...]]:
        return duckdb.sql(f"SELECT * FROM {table} WHERE {where} ORDER BY ALL").fetchall()

    made = 0
    for _ in range(200):
        wanted, offers = drawn(), [drawn() for _ in range(30)]
        parts = disjoint_union(wanted, [(where, where) for where in offers], TEXTS)
        if parts is not None:
            made += 1
            together = sorted((row for where in parts for row in passed(where)), key=repr)
            assert together == sorted(passed(wanted), key=repr), (wanted, parts)
    assert made > 20, "the check must not be empty"
