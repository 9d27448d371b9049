"""Good queries and the whole model each of them becomes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.language import bind_query
from headrace.model import (
    Aggregate,
    DataType,
    Finish,
    HoppingWindow,
    Join,
    JoinSide,
    Kind,
    NamedExpression,
    Operator,
    OrderKey,
    Output,
    RangeWindow,
    RowsAggregate,
    RowsWindow,
    Scan,
    SlidingWindow,
    Stream,
    Union,
    WindowAggregate,
)

MIN = 60_000_000
INT, BIGINT, DOUBLE, STRING, BOOLEAN, TIMESTAMP = (
    DataType(kind) for kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.STRING, Kind.BOOLEAN, Kind.TIMESTAMP)
)
EDGES = (Output("window_start", "window_start", TIMESTAMP), Output("window_end", "window_end", TIMESTAMP))


def column(name: str, sql: str, type_: DataType, *reads: str) -> NamedExpression:
    return NamedExpression(name, sql, type_, reads or (sql.replace("`", ""),))


def where(sql: str, *reads: str) -> NamedExpression:
    return NamedExpression("where", sql, BOOLEAN, reads)


SRC = column("c0", "packets.src", STRING)
LENGTH = column("c1", "packets.length", INT)

CASES = [
    pytest.param(
        "SELECT src, SUM(length) AS bytes FROM packets [WINDOW 10 min SLIDE 2 min] GROUP BY src",
        WindowAggregate(
            Scan("packets", (SRC, LENGTH)),
            SlidingWindow(10 * MIN, 2 * MIN),
            ("c0",),
            (Aggregate("a0", "sum", "c1", BIGINT),),
        ),
        Finish((*EDGES, Output("src", "c0", STRING), Output("bytes", "a0", BIGINT))),
        id="the papers' form is a sliding window",
    ),
    pytest.param(
        "SELECT window.start AS begin, src, COUNT(*) AS n FROM packets "
        "GROUP BY window(ts, '10 minutes', '2 minutes', '1 minute'), src",
        WindowAggregate(
            Scan("packets", (SRC,)),
            HoppingWindow(10 * MIN, 2 * MIN, MIN),
            ("c0",),
            (Aggregate("a0", "count", None, BIGINT),),
        ),
        Finish(
            (*EDGES, Output("begin", "window_start", TIMESTAMP), Output("src", "c0", STRING), Output("n", "a0", BIGINT))
        ),
        id="Spark's form is a hopping window",
    ),
    pytest.param(
        "SELECT SRC, SUM(length) / COUNT(1) AS mean FROM packets AS p [WINDOW 1 min] WHERE p.port = 80 AND length > 10 "
        "GROUP BY 1 HAVING COUNT(*) > 5 AND mean < 9 ORDER BY mean DESC, src LIMIT 3",
        WindowAggregate(
            Scan(
                "packets",
                (SRC, LENGTH),
                where("packets.port = 80 AND packets.length > 10", "packets.port", "packets.length"),
            ),
            SlidingWindow(MIN, MIN),
            ("c0",),
            (Aggregate("a0", "sum", "c1", BIGINT), Aggregate("a1", "count", None, BIGINT)),
        ),
        Finish(
            (*EDGES, Output("SRC", "c0", STRING), Output("mean", "a0 / a1", DOUBLE)),
            having="a1 > 5 AND (a0 / a1) < 9",
            order_by=(OrderKey("a0 / a1", True, False), OrderKey("c0", False, True)),
            limit=3,
        ),
        id="filter, having, order and limit; ordinals, aliases and case as in Spark",
    ),
    pytest.param(
        "SELECT COUNT(length) FILTER (WHERE ok) AS a, count_if(ok) AS b, MEDIAN(length) AS c, "
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY length) AS d, bool_or(ok) AS e FROM packets [WINDOW 1 min]",
        WindowAggregate(
            Scan("packets", (column("c0", "packets.length", INT), column("c1", "packets.ok", BOOLEAN))),
            SlidingWindow(MIN, MIN),
            (),
            (
                Aggregate("a0", "count", "c0", BIGINT, filter="c1"),
                Aggregate("a1", "count", None, BIGINT, filter="c1"),
                Aggregate("a2", "percentile", "c0", DOUBLE, parameters=(0.5,)),
                Aggregate("a3", "max", "c1", BOOLEAN),
            ),
        ),
        Finish(
            (
                *EDGES,
                Output("a", "a0", BIGINT),
                Output("b", "a1", BIGINT),
                Output("c", "a2", DOUBLE),
                Output("d", "a2", DOUBLE),
                Output("e", "a3", BOOLEAN),
            )
        ),
        id="aggregates by other names become the model's, and equal ones are one",
    ),
    pytest.param(
        "SELECT x.k, MAX(c) AS m FROM (SELECT src AS k, length + 1 AS c FROM packets WHERE port > 1 OR port < -1) AS x "
        "[WINDOW 1 min] WHERE c * 2 > 5 GROUP BY k",
        WindowAggregate(
            Scan(
                "packets",
                (SRC, column("c1", "packets.length + 1", INT, "packets.length")),
                where(
                    "(packets.port > 1 OR packets.port < -1) AND (packets.length + 1) * 2 > 5",
                    "packets.port",
                    "packets.length",
                ),
            ),
            SlidingWindow(MIN, MIN),
            ("c0",),
            (Aggregate("a0", "max", "c1", INT),),
        ),
        Finish((*EDGES, Output("k", "c0", STRING), Output("m", "a0", INT))),
        id="a subquery is unfolded into the scan",
    ),
    pytest.param(
        "WITH web AS (SELECT src, length FROM packets WHERE port = 80), big AS (SELECT * FROM web WHERE length > 9) "
        "SELECT src, COUNT(*) AS n FROM big [WINDOW 1 min] GROUP BY ALL",
        WindowAggregate(
            Scan(
                "packets", (SRC,), where("packets.port = 80 AND packets.length > 9", "packets.port", "packets.length")
            ),
            SlidingWindow(MIN, MIN),
            ("c0",),
            (Aggregate("a0", "count", None, BIGINT),),
        ),
        Finish((*EDGES, Output("src", "c0", STRING), Output("n", "a0", BIGINT))),
        id="WITH is unfolded too, and GROUP BY ALL groups by what is not aggregated",
    ),
    pytest.param(
        "SELECT k, SUM(v) AS v FROM (SELECT src AS k, length AS v FROM packets UNION ALL "
        "SELECT src, bytes FROM flows WHERE d > 1) [WINDOW 1 min] GROUP BY k",
        WindowAggregate(
            Union(
                (
                    Scan("packets", (SRC, column("c1", "CAST(packets.length AS BIGINT)", BIGINT, "packets.length"))),
                    Scan(
                        "flows",
                        (column("c0", "flows.src", STRING), column("c1", "flows.bytes", BIGINT)),
                        where("flows.d > 1", "flows.d"),
                    ),
                )
            ),
            SlidingWindow(MIN, MIN),
            ("c0",),
            (Aggregate("a0", "sum", "c1", BIGINT),),
        ),
        Finish((*EDGES, Output("k", "c0", STRING), Output("v", "a0", BIGINT))),
        id="UNION ALL goes by position and meets in a common type",
    ),
    pytest.param(
        "SELECT port, AVG(length) AS m, length - AVG(length) AS off FROM packets [PARTITION BY src ROWS 100] "
        "WHERE length > 0",
        RowsAggregate(
            Scan(
                "packets",
                (SRC, column("c1", "packets.port", INT), column("c2", "packets.length", INT)),
                where("packets.length > 0", "packets.length"),
            ),
            RowsWindow(("c0",), 100),
            (Aggregate("a0", "avg", "c2", DOUBLE),),
        ),
        Finish((Output("port", "c1", INT), Output("m", "a0", DOUBLE), Output("off", "c2 - a0", DOUBLE))),
        id="a row window sees the current row beside its aggregates",
    ),
    pytest.param(
        "SELECT a.src, a.length + b.bytes AS t FROM packets AS a [RANGE 10 s] JOIN flows [RANGE 5 s] AS b "
        "ON b.src = a.src AND a.length < b.bytes AND a.port = 80 WHERE b.d > 1.5",
        Join(
            JoinSide(
                "a",
                Scan(
                    "packets",
                    (column("src", "packets.src", STRING), column("length", "packets.length", INT)),
                    where("packets.port = 80", "packets.port"),
                ),
                RangeWindow(10_000_000),
            ),
            JoinSide(
                "b",
                Scan(
                    "flows",
                    (column("bytes", "flows.bytes", BIGINT), column("src", "flows.src", STRING)),
                    where("flows.d > 1.5", "flows.d"),
                ),
                RangeWindow(5_000_000),
            ),
            "inner",
            NamedExpression(
                "on", "b.src = a.src AND a.length < b.bytes", BOOLEAN, ("b.src", "a.src", "a.length", "b.bytes")
            ),
            (("a.src", "b.src"),),
            (column("c0", "a.src", STRING), column("c1", "a.length + b.bytes", BIGINT, "a.length", "b.bytes")),
        ),
        Finish((Output("src", "c0", STRING), Output("t", "c1", BIGINT))),
        id="an inner join filters each side before the window",
    ),
    pytest.param(
        "SELECT a.src, b.port FROM packets a [RANGE 1 s] LEFT JOIN packets b [RANGE 1 s] ON a.src = b.dst AND b.ok "
        "WHERE b.port IS NULL",
        Join(
            JoinSide("a", Scan("packets", (column("src", "packets.src", STRING),)), RangeWindow(1_000_000)),
            JoinSide(
                "b",
                Scan(
                    "packets",
                    (
                        column("port", "packets.port", INT),
                        column("dst", "packets.dst", STRING),
                        column("ok", "packets.ok", BOOLEAN),
                    ),
                ),
                RangeWindow(1_000_000),
            ),
            "left",
            NamedExpression("on", "a.src = b.dst AND b.ok", BOOLEAN, ("a.src", "b.dst", "b.ok")),
            (("a.src", "b.dst"),),
            (column("c0", "a.src", STRING), column("c1", "b.port", INT)),
            where("b.port IS NULL", "b.port"),
        ),
        Finish((Output("src", "c0", STRING), Output("port", "c1", INT))),
        id="an outer self join filters after the join",
    ),
    pytest.param(
        "SELECT a.src, COUNT(*) AS n FROM packets a [RANGE 1 s] JOIN flows b [RANGE 1 s] ON a.src = b.src "
        "GROUP BY window(b.ts, '1 minute'), a.src",
        WindowAggregate(
            Join(
                JoinSide("a", Scan("packets", (column("src", "packets.src", STRING),)), RangeWindow(1_000_000)),
                JoinSide(
                    "b",
                    Scan("flows", (column("ts", "flows.ts", TIMESTAMP), column("src", "flows.src", STRING))),
                    RangeWindow(1_000_000),
                ),
                "inner",
                NamedExpression("on", "a.src = b.src", BOOLEAN, ("a.src", "b.src")),
                (("a.src", "b.src"),),
                (column("c0", "b.ts", TIMESTAMP), column("c1", "a.src", STRING)),
            ),
            HoppingWindow(MIN, MIN),
            ("c1",),
            (Aggregate("a0", "count", None, BIGINT),),
            time="c0",
        ),
        Finish((*EDGES, Output("src", "c1", STRING), Output("n", "a0", BIGINT))),
        id="an aggregate over a join is dated by the column that window() names",
    ),
    pytest.param(
        "SELECT `id.orig_h`, orders.`order` AS o, COUNT(DISTINCT id) AS n, window_end AS window_end FROM orders "
        "[WINDOW 1 min] WHERE ts - INTERVAL 1 HOUR 2 MINUTES > '2020-01-01' "
        "AND `id.orig_h` <> 'it''s [WINDOW 1 min]' -- [x]\n"
        "GROUP BY `id.orig_h`, o",
        WindowAggregate(
            Scan(
                "orders",
                (
                    column("c0", "orders.`id.orig_h`", STRING),
                    column("c1", "orders.`order`", INT),
                    column("c2", "orders.id", BIGINT),
                ),
                where(
                    "orders.ts - (INTERVAL '1' HOUR + INTERVAL '2' MINUTES) > '2020-01-01' "
                    "AND orders.`id.orig_h` <> 'it\\'s [WINDOW 1 min]'",
                    "orders.ts",
                    "orders.id.orig_h",
                ),
            ),
            SlidingWindow(MIN, MIN),
            ("c0", "c1"),
            (Aggregate("a0", "count", "c2", BIGINT, distinct=True),),
        ),
        Finish(
            (
                Output("window_start", "window_start", TIMESTAMP),
                Output("id.orig_h", "c0", STRING),
                Output("o", "c1", INT),
                Output("n", "a0", BIGINT),
                Output("window_end", "window_end", TIMESTAMP),
            )
        ),
        id="odd names are quoted, brackets in strings and comments survive",
    ),
]


@pytest.mark.parametrize(("sql", "root", "finish"), CASES)
def test_becomes(sql: str, root: Operator, finish: Finish, streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", sql, streams)
    assert query.root == root
    assert query.finish == finish


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("length / 2", "DOUBLE", id="division of whole numbers is DOUBLE"),
        pytest.param("length div 2", "BIGINT", id="div is BIGINT"),
        pytest.param("amount * length", "DECIMAL(21,2)", id="decimals multiply as in Spark"),
        pytest.param("amount / length", "DECIMAL(21,13)", id="decimals divide as in Spark"),
        pytest.param("amount / 3", "DECIMAL(14,6)", id="a literal beside a decimal has only its digits"),
        pytest.param("length + bytes_", "UNKNOWN", id="unknown spreads"),
        pytest.param("CASE WHEN ok THEN 1 ELSE 2.5 END", "DECIMAL(11,1)", id="CASE takes the common type"),
        pytest.param("coalesce(length, 3000000000)", "BIGINT", id="COALESCE takes the common type"),
        pytest.param("src || port", "STRING", id="text is joined"),
        pytest.param("s.b.c", "STRING", id="a field of a field"),
        pytest.param("tags[0]", "STRING", id="an element"),
        pytest.param("length::double", "DOUBLE", id="a cast"),
        pytest.param("TRY_CAST(src AS DECIMAL(5,1))", "DECIMAL(5,1)", id="a cast that may fail"),
        pytest.param("ts + INTERVAL '1' DAY", "TIMESTAMP", id="time plus an interval"),
        pytest.param("extract(HOUR FROM ts)", "INT", id="a part of a time"),
        pytest.param("timestampdiff(MINUTE, ts, ts)", "BIGINT", id="a unit is not a column"),
        pytest.param("1e3", "DOUBLE", id="an exponent makes a DOUBLE"),
        pytest.param("length BETWEEN 1 AND 5 AND src LIKE 'a%' AND NOT ok", "BOOLEAN", id="conditions"),
        pytest.param("exists(tags, t -> t = 'x')", "BOOLEAN", id="a function of a function"),
    ],
)
def test_types(expression: str, expected: str, streams: Mapping[str, Stream]) -> None:
    sql = (
        f"SELECT {expression.replace('bytes_', 'round(amount)')} AS k, COUNT(*) FROM packets [WINDOW 1 min] GROUP BY 1"
    )
    scan = bind_query("q", sql, streams).root
    assert isinstance(scan, WindowAggregate)
    assert isinstance(scan.input, Scan)
    assert str(scan.input.columns[0].type) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        pytest.param("SUM(length)", "BIGINT", id="SUM of INT"),
        pytest.param("SUM(d)", "DOUBLE", id="SUM of DOUBLE"),
        pytest.param("SUM(amount)", "DECIMAL(20,2)", id="SUM of DECIMAL"),
        pytest.param("AVG(amount)", "DECIMAL(14,6)", id="AVG of DECIMAL"),
        pytest.param("MAX(ts)", "TIMESTAMP", id="MAX keeps the type"),
        pytest.param("approx_percentile(length, 0.5)", "INT", id="approx_percentile keeps the type"),
        pytest.param("percentile_disc(0.5) WITHIN GROUP (ORDER BY length)", "DOUBLE", id="percentile_disc"),
        pytest.param("max_by(src, length)", "STRING", id="max_by has the type of its value"),
        pytest.param("first(amount)", "DECIMAL(10,2)", id="first keeps the type"),
        pytest.param("collect_set(port)", "ARRAY<INT>", id="collect_set"),
        pytest.param("listagg(port, ',')", "STRING", id="listagg"),
        pytest.param("corr(length, port)", "DOUBLE", id="corr"),
        pytest.param("bit_or(port)", "INT", id="bits keep the type"),
        pytest.param("try_sum(length)", "BIGINT", id="try_sum is as wide as SUM"),
        pytest.param("percentile(length, array(0.1, 0.9))", "ARRAY<DOUBLE>", id="an array of percentiles"),
        pytest.param("approx_top_k(src, 3)", "ARRAY<STRUCT<item: STRING,count: BIGINT>>", id="approx_top_k"),
    ],
)
def test_aggregate_types(argument: str, expected: str, streams: Mapping[str, Stream]) -> None:
    table = "flows" if "(d)" in argument else "packets"
    query = bind_query("q", f"SELECT {argument} AS x FROM {table} [WINDOW 1 min]", streams)
    assert str(query.finish.outputs[-1].type) == expected


def test_fields_are_the_same_however_they_are_spelt(streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", "SELECT S.B.C, COUNT(*) AS n FROM packets p [WINDOW 1 min] GROUP BY P.s.b.c", streams)
    assert isinstance(query.root, WindowAggregate)
    assert isinstance(query.root.input, Scan)
    assert [column.sql for column in query.root.input.columns] == ["packets.s.b.c"]


def test_three_streams_meet_within_every_range(streams: Mapping[str, Stream]) -> None:
    query = bind_query(
        "q",
        "SELECT a.src, c.id FROM packets a [RANGE 10 s] JOIN flows b [RANGE 5 s] ON a.src = b.src "
        "JOIN orders c [RANGE 3 s] ON c.id = a.port",
        streams,
    )
    outer = query.root
    assert isinstance(outer, Join)
    assert isinstance(outer.left.input, Join)
    assert outer.left.window == RangeWindow(5_000_000)
    assert outer.equalities == (("joined.c1", "c.id"),)
    assert "UNIX_MICROS(c.row_time__) - UNIX_MICROS(joined.c2) <= 10000000" in outer.on.sql


@pytest.mark.parametrize("how", ["", "LEFT", "LEFT ANTI", "LEFT SEMI"])
def test_using_is_an_equality_of_which_one_column_remains(how: str, streams: Mapping[str, Stream]) -> None:
    head, tables = "SELECT p.port, {} AS s FROM packets p [RANGE 1 s]", f"{how} JOIN flows f [RANGE 2 s]"
    using = bind_query("q", f"{head.format('src')} {tables} USING (SRC) WHERE src > 'a'", streams)
    on = bind_query("q", f"{head.format('p.src')} {tables} ON p.src = f.src WHERE p.src > 'a'", streams)
    assert (using.root, using.finish) == (on.root, on.finish)


def test_rows_of_values_in_a_list_are_structs(streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", "SELECT src FROM packets WHERE (port, src) IN ((1, 'a'), (2, 'b'))", streams)
    assert isinstance(query.root, Scan)
    assert query.root.where is not None
    assert query.root.where.sql == (
        "NAMED_STRUCT('col1', packets.port, 'col2', packets.src) "
        "IN (NAMED_STRUCT('col1', 1, 'col2', 'a'), NAMED_STRUCT('col1', 2, 'col2', 'b'))"
    )


def test_star_after_using_begins_with_what_both_sides_share(streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", "SELECT * FROM flows a [RANGE 1 s] JOIN flows b [RANGE 1 s] USING (src, d)", streams)
    assert [output.name for output in query.finish.outputs] == [
        "src", "d", "a_ts", "a_bytes", "a_ts2", "b_ts", "b_bytes", "b_ts2",
    ]  # fmt: skip


def test_star_in_a_join_names_shared_columns_after_their_table(streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", "SELECT * FROM flows a [RANGE 1 s] JOIN orders b [RANGE 1 s] ON a.bytes = b.id", streams)
    assert [output.name for output in query.finish.outputs] == [
        "a_ts", "src", "bytes", "d", "ts2", "b_ts", "id", "id.orig_h", "order",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "having"),
    [
        pytest.param("SELECT upper(src) AS src, COUNT(*) {} GROUP BY src HAVING src = 'k'", "c0 = 'k'",
                     id="a grouped column comes before an alias"),
        pytest.param("SELECT -port AS port, COUNT(*) {} GROUP BY packets.port HAVING port > 2", "c0 > 2",
                     id="however the column is grouped"),
        pytest.param("SELECT upper(src) AS src, COUNT(*) {} GROUP BY upper(src) HAVING src = 'K'", "c0 = 'K'",
                     id="an alias comes before a column that is not grouped"),
        pytest.param("SELECT -port AS port, COUNT(*) {} GROUP BY -port HAVING -port + port < 4", "c0 + (c0) < 4",
                     id="a grouped expression is taken whole"),
        pytest.param("SELECT -port AS port, COUNT(*) {} GROUP BY -port, port HAVING port < 4", "c1 < 4",
                     id="a grouped column that is part of another key"),
        pytest.param("SELECT src AS dst, MAX(port) AS n {} GROUP BY src HAVING MAX(dst) = 'C'", "a1 = 'C'",
                     id="an aggregate is over columns, not over aliases"),
        pytest.param("SELECT src, COUNT(*) AS n {} GROUP BY src HAVING n > 2", "a0 > 2", id="an alias of an aggregate"),
        pytest.param("SELECT src, COUNT(*) AS n {} GROUP BY src HAVING NULL", "CAST(NULL AS BOOLEAN)",
                     id="NULL keeps nothing, and has a type"),
    ],
)  # fmt: skip
def test_names_in_having(sql: str, having: str, streams: Mapping[str, Stream]) -> None:
    query = bind_query("q", sql.format("FROM packets [WINDOW 1 min]"), streams)
    keys = [output.sql for output in query.finish.outputs]
    assert query.finish.having == having, keys


def test_order_by_takes_aliases_first(streams: Mapping[str, Stream]) -> None:
    window = "FROM packets [WINDOW 1 min] GROUP BY port"
    for term, wanted in (("port", "-c0"), ("packets.port", "c0"), ("abs(port)", "ABS((-c0))")):
        query = bind_query("q", f"SELECT -port AS port, COUNT(*) {window} ORDER BY {term} LIMIT 1", streams)
        assert [key.sql for key in query.finish.order_by] == [wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("round(AVG(length), -2)", "ROUND(a0, -2)", id="a negative number of digits"),
        pytest.param("MAX(ts) + INTERVAL '1' HOUR", "a0 + INTERVAL '1' HOUR", id="a span of time"),
        pytest.param(
            "CASE WHEN MAX(port) > 1 THEN NULL ELSE port END", "CASE WHEN a0 > 1 THEN NULL ELSE c1 END", id="NULL"
        ),
    ],
)
def test_constants_of_a_row_window_are_no_columns_to_keep(
    streams: Mapping[str, Stream], text: str, wanted: str
) -> None:
    found = bind_query("q", f"SELECT {text} AS a FROM packets [PARTITION BY src ROWS 3]", streams)
    assert found.finish.outputs[0].sql == wanted


def test_aggregates_of_null_have_the_type_that_spark_gives_them(streams: Mapping[str, Stream]) -> None:
    sql = "SELECT SUM(NULL) AS a, COUNT(NULL) AS b, bool_or(NULL) AS c FROM packets [WINDOW 1 min]"
    query = bind_query("q", sql, streams)
    assert [str(output.type) for output in query.finish.outputs[2:]] == ["DOUBLE", "BIGINT", "BOOLEAN"]
