"""Schemas, brackets and the function table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest
from sqlglot import exp

from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.language.sql.denied import DENIED
from headrace.language.sql.emit import emit
from headrace.language.sql.functions import FUNCTIONS
from headrace.language.sql.report import Fault
from headrace.model import Scan, Stream, WindowAggregate


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        pytest.param("", "the schema is empty", id="nothing"),
        pytest.param("a", "a has no type", id="a name without a type"),
        pytest.param("a INT b INT", "unexpected 'b'", id="a missing comma"),
        pytest.param("a INT,", "expected a column name", id="a comma too many"),
        pytest.param("a ARRAY<INT", "expected '>'", id="an open bracket"),
        pytest.param("a MAP<INT>", "expected ','", id="a map of one type"),
        pytest.param("a DECIMAL(50,2)", "not a decimal type", id="a decimal too long"),
        pytest.param("a DECIMAL(x)", "not a decimal type", id="a decimal of letters"),
        pytest.param("a INT, A STRING", "declared twice", id="two names that differ in case"),
        pytest.param("a INT; DROP TABLE b", "unexpected", id="a second statement"),
        pytest.param("a " + "ARRAY<" * 100 + "INT" + ">" * 100, "nested deeper", id="a hundred levels"),
        pytest.param("`a``b` INT", "backquote", id="a name that could break out of its quotes"),
    ],
)
def test_wrong_schemas(text: str, fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        parse_schema(text)


def test_a_schema_of_every_type() -> None:
    text = (
        "a BOOLEAN, b BYTE, c SHORT, d INT, e LONG, f REAL, g DOUBLE, h DECIMAL, i STRING, j BINARY, k DATE, "
        "l TIMESTAMP_LTZ, "
        "m TIMESTAMP_NTZ, n ARRAY<MAP<STRING, INT>>, `o p` STRUCT<q: VARCHAR(5), r INT NOT NULL> COMMENT 'x', "
        "s INTERVAL DAY TO SECOND, end INT"
    )
    assert [str(column.type) for column in parse_schema(text)] == [
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,0)", "STRING", "BINARY",
        "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<MAP<STRING,INT>>", "STRUCT<q: STRING,r: INT>", "INTERVAL", "INT",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "from_clause",
    [
        pytest.param("packets [WINDOW 10 min SLIDE 2 min]", id="after the stream"),
        pytest.param("packets [WINDOW 10 min SLIDE 2 min] AS p", id="before AS"),
        pytest.param("packets AS p [WINDOW 10 min SLIDE 2 min]", id="after the alias"),
        pytest.param("packets p[window 10min slide 120s]", id="without blanks"),
        pytest.param("packets [WINDOW '10 minutes' SLIDE '2 minutes']", id="quoted durations"),
        pytest.param("packets [WINDOW /* ten ] */ 10 min SLIDE 1 min 60 s]", id="with a comment and two units"),
        pytest.param("(SELECT * FROM packets) [WINDOW 10 min SLIDE 2 min]", id="after a nameless subquery"),
        pytest.param("(SELECT * FROM packets) [WINDOW 10 min SLIDE 2 min] AS p", id="between a subquery and its alias"),
        pytest.param("(SELECT * FROM packets) p [WINDOW 10 min SLIDE 2 min]", id="after a subquery's alias"),
    ],
)
def test_brackets_may_stand(from_clause: str, streams: Mapping[str, Stream]) -> None:
    root = bind_query("q", f"SELECT tags[0] AS t, COUNT(*) FROM {from_clause} GROUP BY tags[0]", streams).root
    assert isinstance(root, WindowAggregate)
    assert (root.window.size_us, root.window.slide_us) == (600_000_000, 120_000_000)
    assert isinstance(root.input, Scan)
    assert [column.sql for column in root.input.columns] == ["packets.tags[0]"]


def test_no_function_is_both_allowed_and_denied() -> None:
    assert FUNCTIONS.keys() & DENIED.keys() == set()
    assert len(FUNCTIONS) > 250


# Arguments that must not be any column.
ARGUMENTS = {
    **dict.fromkeys(("if", "nvl2"), "ok, src, src"),
    **dict.fromkeys(("aggregate", "reduce"), "tags, 0, (a, x) -> a + 1"),
    "array_insert": "tags, 3, src",
    **dict.fromkeys(("repeat", "array_repeat", "format_number", "lpad", "rpad"), "src, 3"),
    **dict.fromkeys(("format_string", "printf"), "'%s', src"),
    **dict.fromkeys(("from_json", "from_csv", "from_xml"), "src, 'a INT'"),
    **dict.fromkeys(
        ("like", "ilike", "rlike", "regexp", "regexp_like", "regexp_count", "regexp_instr", "regexp_extract", "split",
         "regexp_extract_all", "regexp_substr", "str_to_map",
         *(name for name in FUNCTIONS if name.startswith("xpath"))),
        "src, 'a'",
    ),
    "regexp_replace": "src, 'a', src",
    "sequence": "1, 3",
    "space": "least(port, 3)",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_reaches_spark_under_its_own_name(name: str, streams: Mapping[str, Stream]) -> None:
    function = FUNCTIONS[name]
    arguments = ", ".join(["src"] * max(function.least, 1 if function.most != 0 else 0))
    arguments = ARGUMENTS.get(name, arguments)
    sql = f"SELECT COUNT({name}({arguments})) FROM packets [WINDOW 1 min]"
    root = bind_query("q", sql, streams).root
    assert isinstance(root, WindowAggregate)
    assert isinstance(root.input, Scan)
    assert root.input.columns[0].sql.startswith(f"{name.upper()}(")


@pytest.mark.parametrize("name", sorted(DENIED))
def test_a_denied_function_is_refused_with_its_reason(name: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", f"SELECT COUNT(*) FROM packets [WINDOW 1 min] WHERE {name}(src) = 1", streams)
    assert f"{name} {DENIED[name][0]}" in str(caught.value)


def test_the_language_does_not_import_spark() -> None:
    code = "import headrace.language, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(exp.Anonymous(this="reflect", expressions=[]), id="a function that is not allowed"),
        pytest.param(exp.Select(expressions=[exp.Literal.number(1)]), id="a subquery"),
        pytest.param(exp.Paren(this=exp.CurrentTimestamp()), id="a class that is not known, below one that is"),
        pytest.param(exp.Var(this="DAY FROM reflect()"), id="a word that is more than a word"),
        pytest.param(exp.HexString(this="' || reflect() || '"), id="digits that are more than digits"),
        pytest.param(exp.Literal(this="1 + reflect()", is_string=False), id="a number that is more than a number"),
    ],
)
def test_the_last_gate_lets_nothing_unknown_through(node: exp.Expr) -> None:
    with pytest.raises(Fault, match="is not accepted in a query"):
        emit(node, {})
