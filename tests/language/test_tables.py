"""Tables in pipeline files, and joins of streams with them in SQL: what is bound to what, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, load_pipeline, parse_schema
from headrace.model import CATALOG, Lookup, Operator, Results, Scan, Source, Stream, Table, WindowAggregate, tables_of
from headrace.units import SECOND_US

TABLES = {
    "hosts": Table("hosts", parse_schema("host STRING, zone INT, port INT")),
    "zones": Table("zones", parse_schema("zone INT, title STRING")),
}
FILE = """
name: p
streams:
  packets:
    source: {{format: parquet, path: in}}
    schema: ts TIMESTAMP, src STRING, length INT
    time: ts
tables:
{tables}
queries:
  q: {{sql: "SELECT p.src, h.host FROM packets AS p JOIN hosts AS h ON p.src = h.host"}}
"""


def lookup_of(operator: Operator) -> Lookup:
    while isinstance(operator, WindowAggregate):
        operator = operator.input
    assert isinstance(operator, Scan)
    assert isinstance(operator.of, Results)
    assert isinstance(operator.of.root, Lookup)
    return operator.of.root


def test_conditions_about_the_stream_are_judged_below_the_lookup(streams: Mapping[str, Stream]):
    sql = (
        "SELECT p.src, h.zone * 2 AS z FROM packets AS p JOIN hosts AS h ON p.src = h.host AND p.port = 80 "
        "LEFT JOIN zones AS z ON z.zone = h.zone AND p.length > 3 WHERE p.ok AND h.zone > p.length"
    )
    query = bind_query("q", sql, streams, tables=TABLES)
    lookup, scan = lookup_of(query.root), query.root
    assert isinstance(lookup.input, Scan)
    assert lookup.input.where is not None
    assert lookup.input.where.sql == "packets.ok AND packets.port = 80"
    assert [column.sql for column in lookup.input.columns] == ["packets.src", "packets.length", "packets.ts"]
    assert [(side.table, side.how, side.on.sql) for side in lookup.sides] == [
        ("hosts", "inner", "p.c0 = h.host"),
        ("zones", "left", "z.zone = h.zone AND p.c1 > 3"),
    ]
    assert [column.name for column in lookup.sides[0].columns] == ["host", "zone"], "no more is read than is used"
    assert isinstance(scan, Scan)
    assert scan.where is not None
    assert scan.where.sql == f"{scan.stream}.c2 > {scan.stream}.c1"
    assert tables_of(query.root) == ("hosts", "zones")


def test_a_projected_table_is_the_table_under_a_condition(streams: Mapping[str, Stream]):
    sql = (
        "SELECT p.src FROM packets AS p LEFT SEMI JOIN "
        "(SELECT host AS name, zone + 1 AS z FROM hosts WHERE zone > 1) AS d ON p.src = d.name AND d.z < p.length"
    )
    side = lookup_of(bind_query("q", sql, streams, tables=TABLES).root).sides[0]
    assert (side.how, side.on.sql) == ("semi", "p.c0 = d.host AND (d.zone + 1) < p.c1 AND d.zone > 1")


def test_queries_that_look_up_the_same_share_the_node(streams: Mapping[str, Stream]):
    join = "FROM packets AS p [WINDOW 1 min] JOIN hosts AS h ON p.src = h.host GROUP BY h.zone"
    roots = [
        bind_query("q", f"SELECT h.zone, {aggregate} AS a {join}", streams, tables=TABLES).root
        for aggregate in ("COUNT(*)", "MAX(h.zone)")
    ]
    assert lookup_of(roots[0]) == lookup_of(roots[1])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        pytest.param("SELECT * FROM hosts", "'hosts' is a table, and a query reads at least one stream", id="alone"),
        pytest.param("SELECT src FROM hosts JOIN packets ON src = host", "'hosts' stands before JOIN", id="first"),
        pytest.param("SELECT src FROM packets RIGHT JOIN hosts ON src = host", "rows come from streams alone",
                     id="rows of a table alone"),
        pytest.param("SELECT src FROM packets, hosts WHERE src = host", "pairs every row with a whole table",
                     id="a comma"),
        pytest.param("SELECT src FROM packets JOIN hosts", "without ON", id="no condition"),
        pytest.param("SELECT src FROM packets JOIN hosts [RANGE 3 s] ON src = host", "rows of a table have none",
                     id="a range beside a table"),
        pytest.param("SELECT src FROM packets [RANGE 3 s] JOIN hosts ON src = host", "there is no JOIN of streams",
                     id="a range without a join of streams"),
        pytest.param("SELECT COUNT(*) AS n FROM hosts [WINDOW 1 min] JOIN packets ON src = host",
                     "rows of table 'hosts' have none", id="a window beside a table"),
        pytest.param("SELECT src FROM packets JOIN (SELECT MAX(zone) AS z FROM hosts) AS h ON length = z",
                     "MAX cannot stand here", id="an aggregate over a table"),
        pytest.param("SELECT src FROM (SELECT src FROM packets UNION ALL SELECT host FROM hosts) AS u",
                     "UNION ALL of a table", id="a union with a table"),
        pytest.param("SELECT src FROM packets JOIN hots ON src = host", "did you mean 'hosts'", id="a wrong name"),
        pytest.param("SELECT p.src FROM packets AS p JOIN hosts AS h ON p.src = h.hst",
                     "unknown column 'hst' in 'h'; did you mean 'host'", id="a wrong column"),
        pytest.param("SELECT p.src, COUNT(*) AS n FROM packets AS p [RANGE 1 s] JOIN flows AS f [RANGE 1 s] "
                     "ON p.src = f.src JOIN hosts ON p.src = host GROUP BY window(p.ts, '1 minute'), p.src",
                     "takes the time of its rows", id="a time of one row of a pair"),
    ],
)  # fmt: skip
def test_what_a_table_cannot_do_is_refused_by_a_sentence(streams: Mapping[str, Stream], sql: str, why: str):
    with pytest.raises(SpecError, match=why):
        bind_query("q", sql, streams, tables=TABLES)


def load(home: Path, tables: str) -> tuple[Table, ...]:
    (home / "p.yml").write_text(FILE.format(tables=tables))
    return load_pipeline(home / "p.yml").tables


def test_a_file_declares_tables(tmp_path: Path):
    tables = load(tmp_path, """
  hosts:
    source: {format: CSV, path: hosts.csv, options: {header: true}}
    schema: host STRING, zone INT
    refresh: 1 hour
    limit: 10m
    on_error: keep
  prices: {source: {table: sales.prices}, schema: "item STRING, price DECIMAL(10,2)"}
""")  # fmt: skip
    source = Source("csv", str(tmp_path / "hosts.csv"), (("header", "true"),))
    columns = parse_schema("host STRING, zone INT")
    assert tables[0] == Table("hosts", columns, source, 3600 * SECOND_US, 10 << 20, "keep")
    assert tables[1].source == Source(CATALOG, "sales.prices")


@pytest.mark.parametrize("file", ["hosts.csv", "hosts/part-0.csv"])
def test_the_header_of_csv_files_names_columns_of_texts(tmp_path: Path, file: str):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text('host;"zone";"a;b"\nx;1;2\n')
    path = file.partition("/")[0]
    tables = load(tmp_path, f"  hosts: {{source: {{format: csv, path: {path}, options: {{header: true, sep: ';'}}}}}}")
    assert tables[0].columns == parse_schema("host STRING, zone STRING, `a;b` STRING")


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        pytest.param("  hosts: {schema: host STRING}", "table 'hosts' has no source", id="no source"),
        pytest.param("  hosts: {source: {path: x}, schema: host STRING}", "has no format", id="no format"),
        pytest.param("  hosts: {source: {format: csv}, schema: host STRING}", "its source has no path", id="no path"),
        pytest.param("  hosts: {source: {format: parquet, path: x}}", "has no schema", id="no schema"),
        pytest.param("  hosts: {source: {format: csv, path: x, options: {header: true}}}", "x, which is not there",
                     id="no file to read a header of"),
        pytest.param("  hosts: {source: {table: t, format: csv}, schema: host STRING}", "stands beside table:",
                     id="a table and a format"),
        pytest.param("  hosts: {source: {table: 'parquet.`x`'}, schema: host STRING}", "a name such as sales.hosts",
                     id="a path as a name"),
        pytest.param("  hosts: {source: {table: t}, schema: host STRING, refresh: 0 s}", "longer than nothing",
                     id="a refresh of nothing"),
        pytest.param("  hosts: {source: {table: t}, schema: host STRING, limit: much}", "is not a size", id="a limit"),
        pytest.param("  hosts: {source: {table: t}, schema: host STRING, on_error: ignore}", "stop or keep",
                     id="an unknown word"),
        pytest.param("  hosts: {source: {table: t}, schema: host STRING, refrehs: 1 s}", "did you mean 'refresh'",
                     id="an unknown key"),
        pytest.param("  Packets: {source: {table: t}, schema: host STRING}", "has the name of stream 'packets'",
                     id="the name of a stream"),
        pytest.param("  hosts: {source: {format: csv, path: out}, schema: 'host STRING, zone INT'}",
                     "writes where table 'hosts' is read", id="a place that a query writes to"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, tables: str, why: str):
    (tmp_path / "out").mkdir()
    with pytest.raises(SpecError, match=why):
        load(tmp_path, tables)


def test_a_table_that_is_wrong_is_one_problem(tmp_path: Path):
    with pytest.raises(SpecError) as caught:
        load(tmp_path, "  hosts: {source: {format: parquet, path: x}}")
    assert len(caught.value.problems) == 1
