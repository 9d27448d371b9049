"""The `select` of a stream: its columns, its layers, and what is refused, each with its place and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import bind_selection, load_pipeline, parse_schema
from headrace.model import Selection

SOURCE = parse_schema(
    "at BIGINT, v STRING, user STRUCT<id: INT, name: STRING>, items ARRAY<STRUCT<sku: STRING, n: INT>>, "
    "m MAP<STRING, INT>, nested ARRAY<ARRAY<INT>>"
)


def selection(text: str) -> Selection:
    return bind_selection(text, SOURCE, "events")


def columns(text: str) -> str:
    return ", ".join(f"{column.name} {column.type}" for column, _ in selection(text).columns)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("timestamp_seconds(at) AS ts, v", "ts TIMESTAMP, v STRING", id="one column computed"),
        pytest.param("user.id AS user, user.name", "user INT, name STRING", id="fields of a struct"),
        pytest.param("user.*, at", "id INT, name STRING, at BIGINT", id="all fields of a struct"),
        pytest.param("* EXCEPT (user, items, m, nested)", "at BIGINT, v STRING", id="all columns but some"),
        pytest.param("CAST(v AS INT) AS n, n * 2 AS twice", "n INT, twice INT", id="a column reads an earlier one"),
        pytest.param("v AS at, at + 1 AS n", "at STRING, n BIGINT", id="a name is the source's column first"),
        pytest.param("from_json(v, 'a INT, b ARRAY<STRING>') AS j, j.a, j.b[0] AS b",
                     "j STRUCT<a: INT,b: ARRAY<STRING>>, a INT, b STRING", id="parts of a text that is parsed once"),
        pytest.param("from_json(v, 'a INT, b STRING') AS j, j.*",
                     "j STRUCT<a: INT,b: STRING>, a INT, b STRING", id="all parts of a text"),
        pytest.param("explode(items) AS item, item.n * 2 AS n, item.sku",
                     "item STRUCT<sku: STRING,n: INT>, n INT, sku STRING", id="a row for each element, and its fields"),
        pytest.param("explode_outer(flatten(nested)) AS x", "x INT", id="an array of arrays made flat"),
        pytest.param("explode(map_entries(m)) AS e, e.key AS k, e.value AS n",
                     "e STRUCT<key: STRING,value: INT>, k STRING, n INT", id="a row for each entry of a map"),
    ],
)  # fmt: skip
def test_what_queries_see(text: str, wanted: str) -> None:
    assert columns(text) == wanted


def test_terms_stand_in_layers_and_those_that_read_elements_come_last() -> None:
    made = selection("upper(v) AS u, explode(items) AS item, item.n AS n, length(u) AS l WHERE at > 0")
    assert [(term.sql, term.layer) for term in made.terms] == [
        ("UPPER(events.v)", 1), ("events.items", 1), ("c2.n", 4), ("LENGTH(c0)", 2)]  # fmt: skip
    assert made.where is not None
    assert made.where.sql == "events.at > 0"
    assert made.unfolding is not None
    assert (made.unfolding.term.sql, made.unfolding.name, made.unfolding.outer) == ("events.items", "c2", False)
    assert made.unfolding.layer == 2
    assert made.terms[2].reads == (("item", "c2"),), "a reason names what users call it"


def test_a_column_is_the_same_wherever_it_stands_and_whatever_stands_before_it() -> None:
    one = selection("CAST(v AS INT) AS n, n + 1 AS m WHERE at > 0")
    other = selection("at, 'c0' AS c0, CAST(v AS INT) AS n, n + 1 AS m WHERE at > 0")
    assert other.definitions.items() >= one.definitions.items()
    assert other.rows == one.rows
    changed = selection("CAST(v AS BIGINT) AS n, n + 1 AS m")
    assert {name for name in ("n", "m") if changed.definitions[name] != one.definitions[name]} == {"n", "m"}
    assert changed.rows != one.rows
    assert selection("explode(items) AS i").rows != selection("explode_outer(items) AS i").rows


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT at", "1:1: select of stream 'events': a select is what follows the word SELECT"),
        ("at FROM s", "a select has no FROM"),
        ("COUNT(*) AS n", "an aggregate is about many rows; write it in a query"),
        ("row_number() OVER (ORDER BY at) AS n", "OVER is not accepted here"),
        ("at GROUP BY at", "GROUP BY cannot stand here; a row of a stream is made of one row of its source"),
        ("DISTINCT at", "DISTINCT cannot stand here"),
        ("current_timestamp() AS t", "reads the wall clock, which a replay cannot repeat"),
        ("CAST('now' AS TIMESTAMP) AS t", "'now'"),
        ("rand() AS t", "gives another value when an epoch is replayed"),
        ("reflect('a', 'b') AS t", "calls Java code by name"),
        ("'${env:HOME}' AS t", "${ in a query could read settings and the environment"),
        ("repeat(v, at) AS t", "nothing bounds its cost"),
        ("v RLIKE '(a+)+b' AS t", "exponentially many ways"),
        ("att", "1:1: select of stream 'events': unknown column 'att' in 'events'; did you mean 'at'?"),
        ("at,\n  upper(w) AS u", "2:9: select of stream 'events': unknown column 'w'"),
        ("user.nam", "unknown field 'nam'; did you mean 'name'?"),
        ("v.*", "'v' is STRING, and .* names the fields of a STRUCT"),
        ("NULL AS x", "this is always NULL and has no type of its own"),
        ("transform(items, i -> i.n) AS x", "only Spark knows the type of column 'x'; say it: CAST(..."),
        ("at AS a, v AS a", "two result columns are called 'a'"),
        ("upper(explode(items)) AS x", "explode makes several rows out of one"),
        ("explode(items)", "explode takes an array and has a name; write explode(items) AS item"),
        ("explode(m) AS x", "explode takes an array, not MAP<STRING,INT>; write explode(map_entries(m)) AS e"),
        ("explode(v) AS x", "explode takes an array of a known type, not STRING"),
        ("explode(items) AS a, explode(nested) AS b", "a select unfolds one array"),
        ("explode(items) AS a WHERE a.n > 1", "unknown table or column 'a'"),
        ("at AS kafka_offset", "'kafka_offset' says where a message was found; give the column another name"),
        ("at; v", "more than one statement"),
        ("", "the select is empty"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(SpecError) as refused:
        selection(text)
    assert wanted in str(refused.value)


FILE = """
streams:
  s:
    source: {{format: parquet, path: in}}
    schema: at BIGINT, v STRING
    select: {select}
    time: {time}
queries:
  q: {{sql: "SELECT n FROM s"}}
"""


def load(folder: Path, select: str, time: str = "ts") -> str:
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "pipeline.yml"
    file.write_text(FILE.format(select=select, time=time))
    try:
        load_pipeline(file)
    except SpecError as error:
        return str(error)
    return "ok"


def test_in_a_pipeline_file(tmp_path: Path) -> None:
    assert load(tmp_path, "timestamp_seconds(at) AS ts, length(v) AS n") == "ok"
    told = load(tmp_path, "timestamp_seconds(ta) AS ts, w AS n")
    assert told.count("select of stream 's': unknown column") == 2, "all problems at once"
    assert "pipeline.yml:6:31: select of stream 's': unknown column 'ta'" in told
    assert "pipeline.yml:6:42: select of stream 's': unknown column 'w'" in told
    assert "stream 's' has no column 'at' to take time from" in load(tmp_path, "length(v) AS n", "at")
    assert "is BIGINT, it must be TIMESTAMP" in load(tmp_path, "at AS n", "n")
    assert "unknown column 'n' in 's'" in load(tmp_path, "timestamp_seconds(at) AS ts, 1 AS m")
