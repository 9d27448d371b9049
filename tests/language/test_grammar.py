"""Every argument that sqlglot can put on an accepted node is read by somebody, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from sqlglot import exp

from headrace.errors import SpecError
from headrace.language import bind_query
from headrace.language.sql.grammar import ACCEPTED, DIALECT, check_tree
from headrace.language.sql.reading import read_query
from headrace.language.sql.report import Fault, Report
from headrace.model import Stream

W = "FROM packets [WINDOW 1 min]"
PAIR = "FROM packets p [RANGE 1 s] JOIN flows f [RANGE 1 s] ON p.src = f.src"


def _sum(expression: str) -> str:
    return f"SELECT MAX({expression}) AS x {W}"


def _where(condition: str) -> str:
    return f"SELECT COUNT(*) AS n {W} WHERE {condition}"


def _group(keys: str) -> str:
    return f"SELECT COUNT(*) FROM packets GROUP BY window(ts, '1 min'), {keys}"


def _over(clause: str, call: str = "rank()") -> str:
    return f"SELECT src, {call} OVER ({clause}) AS x {W} GROUP BY src"


def _frame(start: str, end: str) -> str:
    return _over(f"ORDER BY src ROWS BETWEEN {start} AND {end}", "count(1)")


# (kind, argument) -> two queries that differ in it, and must not mean the same.
READ: dict[str, tuple[str, str]] = {
    "Select.expressions": (_sum("port"), _sum("length")),
    "Select.from_": (f"SELECT COUNT(*) {W}", "SELECT COUNT(*) FROM flows [WINDOW 1 min]"),
    "Select.joins": (f"SELECT p.src {PAIR}", "SELECT src FROM packets"),
    "Select.where": (_where("ok"), f"SELECT COUNT(*) AS n {W}"),
    "Select.group": (f"SELECT COUNT(*) {W} GROUP BY src", f"SELECT COUNT(*) {W}"),
    "Select.having": (f"SELECT COUNT(*) {W} HAVING COUNT(*) > 1", f"SELECT COUNT(*) {W}"),
    "Select.order": (f"SELECT COUNT(*) {W} ORDER BY 1", f"SELECT COUNT(*) {W}"),
    "Select.limit": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1", f"SELECT COUNT(*) {W} ORDER BY 1"),
    "Select.distinct": (f"SELECT DISTINCT COUNT(*) {W}", f"SELECT COUNT(*) {W}"),
    "Select.with_": ("WITH flows AS (SELECT * FROM packets) SELECT COUNT(*) FROM flows [WINDOW 1 min]",
                     "SELECT COUNT(*) FROM flows [WINDOW 1 min]"),
    "From.this": (f"SELECT COUNT(*) {W}", "SELECT COUNT(*) FROM flows [WINDOW 1 min]"),
    "Where.this": (_where("ok"), _where("NOT ok")),
    "Having.this": (f"SELECT COUNT(*) {W} HAVING COUNT(*) > 1", f"SELECT COUNT(*) {W} HAVING COUNT(*) > 2"),
    "Group.expressions": (f"SELECT COUNT(*) {W} GROUP BY src", f"SELECT COUNT(*) {W} GROUP BY dst"),
    "Group.all": (f"SELECT src, COUNT(*) {W} GROUP BY ALL", f"SELECT src, COUNT(*) {W} GROUP BY dst"),
    "Group.rollup": (_group("src WITH ROLLUP"), _group("src")),
    "Group.cube": (_group("src WITH CUBE"), _group("src")),
    "Group.grouping_sets": (_group("src GROUPING SETS ((src, window(ts, '1 min')))"), _group("src")),
    "GroupingSets.expressions": (_group("GROUPING SETS ((src), ())"), _group("GROUPING SETS (())")),
    "Order.expressions": (f"SELECT MAX(port) a, MIN(port) b {W} ORDER BY a",
                          f"SELECT MAX(port) a, MIN(port) b {W} ORDER BY b"),
    "Ordered.this": (f"SELECT MAX(port) a, MIN(port) b {W} ORDER BY a",
                     f"SELECT MAX(port) a, MIN(port) b {W} ORDER BY b"),
    "Ordered.desc": (f"SELECT MAX(port) a {W} ORDER BY a NULLS LAST", f"SELECT MAX(port) a {W} ORDER BY a DESC"),
    "Ordered.nulls_first": (f"SELECT MAX(port) a {W} ORDER BY a", f"SELECT MAX(port) a {W} ORDER BY a NULLS LAST"),
    "Limit.expression": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1", f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 2"),
    "Select.offset": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 OFFSET 1", f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1"),
    "Offset.expression": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 OFFSET 1",
                          f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 OFFSET 2"),
    "Limit.limit_options": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 PERCENT",
                            f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1"),
    "LimitOptions.with_ties": (f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1",
                               f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 WITH TIES"),
    "Distinct.expressions": (_sum("DISTINCT port"), _sum("DISTINCT length")),
    "With.expressions": ("WITH x AS (SELECT port FROM packets) SELECT COUNT(*) FROM x [WINDOW 1 min]",
                         "WITH x AS (SELECT d FROM flows) SELECT COUNT(*) FROM x [WINDOW 1 min]"),
    "CTE.this": ("WITH x AS (SELECT port FROM packets) SELECT COUNT(*) FROM x [WINDOW 1 min]",
                 "WITH x AS (SELECT d FROM flows) SELECT COUNT(*) FROM x [WINDOW 1 min]"),
    "CTE.alias": ("WITH x AS (SELECT port FROM packets) SELECT COUNT(*) FROM x [WINDOW 1 min]",
                  "WITH y AS (SELECT port FROM packets) SELECT COUNT(*) FROM x [WINDOW 1 min]"),
    "TableAlias.this": ("SELECT MAX(p.port) FROM packets p [WINDOW 1 min]",
                        "SELECT MAX(p.port) FROM packets q [WINDOW 1 min]"),
    "Table.this": (f"SELECT COUNT(*) {W}", "SELECT COUNT(*) FROM flows [WINDOW 1 min]"),
    "Table.alias": ("SELECT MAX(p.port) FROM packets p [WINDOW 1 min]",
                    "SELECT MAX(p.port) FROM packets [WINDOW 1 min]"),
    "Table.db": (f"SELECT COUNT(*) {W}", "SELECT COUNT(*) FROM a.packets [WINDOW 1 min]"),
    "Table.catalog": (f"SELECT COUNT(*) {W}", "SELECT COUNT(*) FROM a.b.packets [WINDOW 1 min]"),
    "Subquery.this": ("SELECT COUNT(*) FROM (SELECT port FROM packets) x [WINDOW 1 min]",
                      "SELECT COUNT(*) FROM (SELECT d FROM flows) x [WINDOW 1 min]"),
    "Subquery.alias": ("SELECT MAX(x.port) FROM (SELECT port FROM packets) x [WINDOW 1 min]",
                       "SELECT MAX(x.port) FROM (SELECT port FROM packets) y [WINDOW 1 min]"),
    "Join.this": (f"SELECT p.src {PAIR}", f"SELECT p.src {PAIR.replace('flows', 'packets')}"),
    "Join.using": ("SELECT d FROM packets p [RANGE 1 s] JOIN flows f [RANGE 1 s] USING (src)",
                   "SELECT d FROM packets p [RANGE 1 s] JOIN flows f [RANGE 1 s] USING (ts)"),
    "Join.on": (f"SELECT p.src {PAIR}", f"SELECT p.src {PAIR} AND p.ok"),
    "Join.side": (f"SELECT p.src {PAIR}", f"SELECT p.src {PAIR.replace('JOIN', 'LEFT JOIN')}"),
    "Join.kind": (f"SELECT p.src {PAIR}", f"SELECT p.src {PAIR.replace('JOIN', 'LEFT SEMI JOIN')}"),
    **{f"{kind}.{argument}": (
        f"SELECT COUNT(*) FROM ({one}) x [WINDOW 1 min]", f"SELECT COUNT(*) FROM ({other}) x [WINDOW 1 min]")
       for kind, word in (("Union", "UNION ALL"), ("Except", "EXCEPT ALL"), ("Intersect", "INTERSECT ALL"))
       for argument, one, other in (
           ("this", f"SELECT src FROM packets {word} SELECT src FROM flows", "SELECT src FROM packets"),
           ("expression", f"SELECT src FROM packets {word} SELECT src FROM flows", "SELECT src FROM packets"),
           ("distinct", f"SELECT src FROM packets {word} SELECT src FROM flows",
            f"SELECT src FROM packets {word.removesuffix(' ALL')} SELECT src FROM flows"
            if kind == "Union" else "SELECT src FROM packets"),
           ("with_", f"WITH flows AS (SELECT * FROM packets) SELECT src FROM packets {word} SELECT src FROM flows",
            f"SELECT src FROM packets {word} SELECT src FROM flows"
            if kind == "Union" else "SELECT src FROM packets"),
       )},
    "Window.this": (_over("ORDER BY MAX(port)"), _over("ORDER BY MAX(port)", "dense_rank()")),
    "Window.partition_by": (_over("PARTITION BY src ORDER BY MAX(port)"), _over("ORDER BY MAX(port)")),
    "Window.order": (_over("ORDER BY MAX(port)"), _over("ORDER BY MIN(port)")),
    "Window.spec": (_over("ORDER BY src", "count(1)"), _over("ORDER BY src ROWS 1 PRECEDING", "count(1)")),
    "Window.alias": (f"SELECT src, rank() OVER w {W} GROUP BY src", f"SELECT src, rank() OVER v {W} GROUP BY src"),
    "WindowSpec.kind": (_over("ORDER BY src ROWS UNBOUNDED PRECEDING", "count(1)"),
                        _over("ORDER BY src RANGE UNBOUNDED PRECEDING", "count(1)")),
    "WindowSpec.start": (_frame("1 PRECEDING", "CURRENT ROW"), _frame("2 PRECEDING", "CURRENT ROW")),
    "WindowSpec.start_side": (_frame("1 PRECEDING", "2 FOLLOWING"), _frame("1 FOLLOWING", "2 FOLLOWING")),
    "WindowSpec.end": (_frame("3 PRECEDING", "1 PRECEDING"), _frame("3 PRECEDING", "2 PRECEDING")),
    "WindowSpec.end_side": (_frame("3 PRECEDING", "1 PRECEDING"), _frame("3 PRECEDING", "1 FOLLOWING")),
    "Filter.this": (_sum("port"), f"SELECT MAX(port) FILTER (WHERE ok) AS x {W}"),
    "Filter.expression": (f"SELECT MAX(port) FILTER (WHERE ok) AS x {W}",
                          f"SELECT MAX(port) FILTER (WHERE NOT ok) AS x {W}"),
    "WithinGroup.this": (f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY port) AS x {W}",
                         f"SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY port) AS x {W}"),
    "WithinGroup.expression": (f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY port) AS x {W}",
                               f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY length) AS x {W}"),
    **{f"{kind}.{argument}": (_sum(f"port {sign} length"), _sum(f"{other}"))
       for kind, sign in {
           "Add": "+", "Sub": "-", "Mul": "*", "Mod": "%", "IntDiv": "DIV", "Div": "/", "DPipe": "||",
           "BitwiseAnd": "&",
           "BitwiseOr": "|", "BitwiseXor": "^", "BitwiseLeftShift": "<<", "BitwiseRightShift": ">>", "EQ": "=",
           "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NullSafeEQ": "<=>"}.items()
       for argument, other in (("this", f"length {sign} length"), ("expression", f"port {sign} port"))},
    **{f"{kind}.{argument}": (_where(f"ok {kind.upper()} port > 1"), _where(other))
       for kind in ("And", "Or")
       for argument, other in (("this", f"NOT ok {kind.upper()} port > 1"),
                               ("expression", f"ok {kind.upper()} port > 2"))},
    "Dot.this": (_sum("map('a', s)['a'].a"), _sum("map('b', s)['a'].a")),
    "Dot.expression": (_sum("map('a', s)['a'].a"), _sum("map('a', s)['a'].b.c")),
    "Escape.this": (_where("src LIKE 'a/_' ESCAPE '/'"), _where("src LIKE 'b/_' ESCAPE '/'")),
    "Escape.expression": (_where("src LIKE 'a/_' ESCAPE '/'"), _where("src LIKE 'a/_' ESCAPE '#'")),
    **{f"{kind}.{argument}": (_where(f"src {word} 'a'"), _where(other))
       for kind, word in (("Like", "LIKE"), ("ILike", "ILIKE"), ("RegexpLike", "RLIKE"))
       for argument, other in (("this", f"dst {word} 'a'"), ("expression", f"src {word} 'b'"),
                               ("negate", f"src NOT {word} 'a'"))
       if (kind, argument) != ("RegexpLike", "negate")},
    "Is.this": (_where("src IS NULL"), _where("dst IS NULL")),
    "Is.expression": (_where("ok IS TRUE"), _where("ok IS FALSE")),
    "Not.this": (_where("NOT ok"), _where("NOT port > 1")),
    "Neg.this": (_sum("-port"), _sum("-length")),
    "BitwiseNot.this": (_sum("~port"), _sum("~length")),
    "Paren.this": (_sum("(port)"), _sum("(length)")),
    "Between.this": (_where("port BETWEEN 1 AND 2"), _where("length BETWEEN 1 AND 2")),
    "Between.low": (_where("port BETWEEN 1 AND 2"), _where("port BETWEEN 0 AND 2")),
    "Between.high": (_where("port BETWEEN 1 AND 2"), _where("port BETWEEN 1 AND 3")),
    "In.this": (_where("port IN (1)"), _where("length IN (1)")),
    "In.expressions": (_where("port IN (1)"), _where("port IN (2)")),
    "In.query": (_where("port IN (1)"), _where("port IN (SELECT 1)")),
    "Case.this": (_sum("CASE port WHEN 1 THEN 2 END"), _sum("CASE length WHEN 1 THEN 2 END")),
    "Case.ifs": (_sum("CASE port WHEN 1 THEN 2 END"), _sum("CASE port WHEN 1 THEN 3 END")),
    "Case.default": (_sum("CASE port WHEN 1 THEN 2 END"), _sum("CASE port WHEN 1 THEN 2 ELSE 3 END")),
    "If.this": (_sum("CASE port WHEN 1 THEN 2 END"), _sum("CASE port WHEN 3 THEN 2 END")),
    "If.true": (_sum("CASE port WHEN 1 THEN 2 END"), _sum("CASE port WHEN 1 THEN 3 END")),
    "Cast.this": (_where("ts > TIMESTAMP '2020-01-01'"), _where("ts > TIMESTAMP '2020-01-02'")),
    "Cast.to": (_where("ts > TIMESTAMP '2020-01-01'"), _where("ts > DATE '2020-01-01'")),
    "TryCast.this": (_sum("CAST(port AS DOUBLE)"), _sum("CAST(length AS DOUBLE)")),
    "TryCast.to": (_sum("CAST(port AS DOUBLE)"), _sum("CAST(port AS BIGINT)")),
    "TryCast.safe": (_sum("CAST(src AS INT)"), _sum("TRY_CAST(src AS INT)")),
    "DataType.this": (_sum("CAST(port AS DOUBLE)"), _sum("CAST(port AS BIGINT)")),
    "DataType.expressions": (_sum("CAST(port AS DECIMAL(10,2))"), _sum("CAST(port AS DECIMAL(10,1))")),
    "DataTypeParam.this": (_sum("CAST(port AS DECIMAL(10,2))"), _sum("CAST(port AS DECIMAL(10,1))")),
    "ColumnDef.this": (_sum("CAST(s AS STRUCT<a: INT, b: STRING>).a"), _sum("CAST(s AS STRUCT<x: INT, b: STRING>).a")),
    "ColumnDef.kind": (_sum("CAST(s AS STRUCT<a: INT, b: STRING>).a"),
                       _sum("CAST(s AS STRUCT<a: BIGINT, b: STRING>).a")),
    "Interval.this": (_sum("ts + INTERVAL '1' DAY"), _sum("ts + INTERVAL '2' DAY")),
    "Interval.unit": (_sum("ts + INTERVAL '1' DAY"), _sum("ts + INTERVAL '1' HOUR")),
    "IntervalSpan.this": (_sum("ts + INTERVAL '1:1' HOUR TO MINUTE"), _sum("ts + INTERVAL '1:1' MINUTE TO SECOND")),
    "IntervalSpan.expression": (_sum("ts + INTERVAL '1:1' HOUR TO MINUTE"), _sum("ts + INTERVAL '1:1' HOUR TO SECOND")),
    "Bracket.this": (_sum("tags[0]"), _sum("split(src, ',')[0]")),
    "Bracket.expressions": (_sum("tags[0]"), _sum("tags[1]")),
    "Anonymous.this": (_sum("upper(src)"), _sum("lower(src)")),
    "Anonymous.expressions": (_sum("upper(src)"), _sum("upper(dst)")),
    "Lambda.this": (_sum("size(filter(tags, t -> t > 'a'))"), _sum("size(filter(tags, t -> t > 'b'))")),
    "Lambda.expressions": (_sum("size(filter(tags, t -> t > 'a'))"), _sum("size(filter(tags, (t, i) -> t > 'a'))")),
    "Extract.this": (_sum("EXTRACT(HOUR FROM ts)"), _sum("EXTRACT(DAY FROM ts)")),
    "Extract.expression": (_sum("EXTRACT(HOUR FROM ts)"), _sum("EXTRACT(HOUR FROM ts + INTERVAL '1' DAY)")),
    "Trim.this": (_sum("TRIM(BOTH 'x' FROM src)"), _sum("TRIM(BOTH 'x' FROM dst)")),
    "Trim.expression": (_sum("TRIM(BOTH 'x' FROM src)"), _sum("TRIM(BOTH 'y' FROM src)")),
    "Trim.position": (_sum("TRIM(BOTH 'x' FROM src)"), _sum("TRIM(LEADING 'x' FROM src)")),
    "Alias.this": (f"SELECT MAX(port) AS a {W}", f"SELECT MIN(port) AS a {W}"),
    "Alias.alias": (f"SELECT MAX(port) AS a {W}", f"SELECT MAX(port) AS b {W}"),
    "Column.this": (_sum("port"), _sum("length")),
    "Column.table": (_sum("packets.port"), _sum("flows.port")),
    "Column.db": (_sum("s.b.c"), _sum("s.a")),
    "Column.catalog": (_sum("packets.s.b.c"), _sum("s.b.c.d")),
    "Identifier.this": (_sum("port"), _sum("length")),
    "Identifier.quoted": ("SELECT MAX(`order`) AS x FROM orders [WINDOW 1 min]",
                          "SELECT MAX(id) AS x FROM orders [WINDOW 1 min]"),
    "Literal.this": (_where("port > 1"), _where("port > 2")),
    "Literal.is_string": (_where("src > 1"), _where("src > '1'")),
    "HexString.this": (_where("unhex(src) = X'00'"), _where("unhex(src) = X'01'")),
    "Boolean.this": (_where("ok = TRUE"), _where("ok = FALSE")),
    "Var.this": (_sum("ts + INTERVAL '1' DAY"), _sum("ts + INTERVAL '1' HOUR")),
    "Star.except_": ("SELECT * EXCEPT (port) FROM packets", "SELECT * EXCEPT (src) FROM packets"),
    "Tuple.expressions": (_where("(port, length) = (1, 2)"), _where("port = 1")),
    "Aliases.this": (f"SELECT MAX(port) AS (a, b) {W}", _sum("port")),
    "Aliases.expressions": (f"SELECT MAX(port) AS (a, b) {W}", _sum("port")),
    "Exists.this": (_where("EXISTS (SELECT 1)"), _where("ok")),
}  # fmt: skip
# sqlglot has the kind for other dialects; Spark's syntax makes none.
UNMADE = {"NullSafeNEQ.this", "NullSafeNEQ.expression", "Tuple.this"}


def _values(sql: str, kind: type[exp.Expr], argument: str) -> list[str]:
    try:
        tree = read_query(Report(sql, "q")).tree
    except Fault:
        return ["refused while it is read"]
    return sorted(repr(node.args.get(argument)) for node in tree.walk() if type(node) is kind)


def _meaning(sql: str, streams: Mapping[str, Stream]) -> object:
    try:
        query = bind_query("q", sql, streams)
    except SpecError:
        return None
    return query.root, query.finish


def _pairs() -> Iterator[tuple[type[exp.Expr], str]]:
    for kind, arguments in ACCEPTED.items():
        for argument in sorted(arguments):
            yield kind, argument


def test_every_argument_that_is_read_has_its_example() -> None:
    assert {f"{kind.__name__}.{argument}" for kind, argument in _pairs()} == {*READ, *UNMADE}


@pytest.mark.parametrize(
    ("kind", "argument"),
    [pytest.param(*pair, id=f"{pair[0].__name__} reads {pair[1]}") for pair in _pairs()
     if f"{pair[0].__name__}.{pair[1]}" not in UNMADE],
)  # fmt: skip
def test_another_value_is_another_query(kind: type[exp.Expr], argument: str, streams: Mapping[str, Stream]) -> None:
    one, other = READ[f"{kind.__name__}.{argument}"]
    assert _values(one, kind, argument) != _values(other, kind, argument)
    assert (
        _meaning(one, streams) != _meaning(other, streams) or _meaning(one, streams) is _meaning(other, streams) is None
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"the rest of {kind.__name__} is refused") for kind in ACCEPTED]
)
def test_every_other_argument_is_refused(kind: type[exp.Expr]) -> None:
    for argument in kind.arg_types.keys() - ACCEPTED[kind]:
        for value in (True, exp.Identifier(this="x"), [exp.Identifier(this="x")], "x"):
            node = kind(**{argument: value})
            if value in DIALECT.get((kind.__name__, argument), ()):
                continue
            with pytest.raises(Fault):
                check_tree(node)


def test_every_other_kind_of_node_is_refused() -> None:
    kinds = [kind for name in dir(exp) if isinstance(kind := getattr(exp, name), type) and issubclass(kind, exp.Expr)]
    made = [kind for kind in kinds if issubclass(kind, exp.Expression)]
    assert len(made) > 900
    for kind in made:
        if kind not in ACCEPTED:
            with pytest.raises(Fault):
                check_tree(kind())


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        pytest.param(f"(SELECT COUNT(*) {W} ORDER BY 1) LIMIT 1", "LIMIT", id="LIMIT after parentheses"),
        pytest.param(f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 1 BY src", "LIMIT ... BY is not accepted", id="LIMIT BY"),
        pytest.param(f"SELECT COUNT(*) {W} ORDER BY 1 LIMIT 50 PERCENT", "PERCENT is not accepted", id="LIMIT PERCENT"),
        pytest.param(f"SELECT COUNT(*) {W} ORDER BY 1 WITH FILL", "WITH FILL makes rows up", id="WITH FILL"),
        pytest.param(f"SELECT COUNT(*) {W} ORDER BY ALL", "ORDER BY ALL is not accepted", id="ORDER BY ALL"),
        pytest.param(f"SELECT COUNT(*) {W} GROUP BY DISTINCT src", "GROUP BY DISTINCT", id="GROUP BY DISTINCT"),
        pytest.param(_sum("CAST(src AS TIME)"), "the type TIME is not accepted", id="a type written as another"),
    ],
)
def test_modifiers_are_not_dropped(sql: str, sentence: str, streams: Mapping[str, Stream]) -> None:
    with pytest.raises(SpecError) as caught:
        bind_query("q", sql, streams)
    assert sentence in str(caught.value)
