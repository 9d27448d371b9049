"""Which nodes of sqlglot's trees a query may hold, and which of their arguments the binder reads.

sqlglot reads the SQL of thirty dialects and keeps every modifier it has read as an argument of a node. A modifier that
nobody reads would be dropped in silence and the answer would be wrong. So the whole tree is walked once after parsing:
a kind of node or an argument that is not in this table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headrace.language.sql.refusals import refusal
from headrace.language.sql.report import Fault
from headrace.language.words import words

__all__ = ["ACCEPTED", "DIALECT", "check_tree"]


def _table(rows: Mapping[str, str]) -> dict[type[exp.Expr], frozenset[str]]:
    return {getattr(exp, name): frozenset(rows[names].split()) for names in rows for name in names.split()}


# Kinds of nodes -> the arguments somebody reads.
ACCEPTED: dict[type[exp.Expr], frozenset[str]] = _table({
    "Select": "expressions from_ joins where group having order limit offset distinct with_",
    "From Where Having": "this",
    "Group": "expressions all rollup cube grouping_sets",
    "Rollup Cube": "",
    "GroupingSets": "expressions",
    "Order": "expressions",
    "Ordered": "this desc nulls_first",
    "Limit": "expression limit_options",
    "Offset": "expression",
    "LimitOptions": "with_ties",
    "Distinct": "expressions",
    "With": "expressions",
    "CTE": "this alias",
    "TableAlias": "this",
    "Table": "this alias db catalog",
    "Subquery": "this alias",
    "Join": "this on using side kind",
    "Union": "this expression distinct with_",
    # In sqlglot's words these are other kinds of UNION; they are refused where UNION ALL is read.
    "Except Intersect": "this expression distinct with_",
    "Star": "except_",
    "Filter WithinGroup": "this expression",
    "Window": "this partition_by order spec alias",
    "WindowSpec": "kind start start_side end end_side",
    "Add Sub Mul Mod IntDiv EQ NEQ LT LTE GT GTE NullSafeEQ NullSafeNEQ And Or Dot Escape": "this expression",
    "Div DPipe": "this expression",
    "BitwiseAnd BitwiseOr BitwiseXor BitwiseLeftShift BitwiseRightShift": "this expression",
    "Like ILike": "this expression negate",
    "RegexpLike Is": "this expression",
    "Not Neg BitwiseNot Paren": "this",
    "Between": "this low high",
    "In": "this expressions query",
    "Case": "this ifs default",
    "If": "this true",
    "Cast": "this to",
    "TryCast": "this to safe",
    "DataType": "this expressions",
    "DataTypeParam": "this",
    "ColumnDef": "this kind",
    "Interval": "this unit",
    "IntervalSpan": "this expression",
    "Bracket": "this expressions",
    "Anonymous": "this expressions",
    "Lambda": "this expressions",
    "Extract": "this expression",
    "Trim": "this expression position",
    "Alias": "this alias",
    "Column": "this table db catalog",
    "Identifier": "this quoted",
    "Literal": "this is_string",
    "HexString": "this",
    "Boolean Var": "this",
    "Null": "",
    # Refused by the binder, which knows a better sentence for each.
    "Tuple Aliases": "expressions this",
    "Exists": "this",
})  # fmt: skip

# Arguments that sqlglot's Spark dialect itself sets on every such node, whatever the text says.
DIALECT: dict[tuple[str, str], tuple[object, ...]] = {
    ("Div", "safe"): (True,),
    ("DPipe", "safe"): (True,),
    # KEEP (DENSE_RANK ...) is another dialect's.
    ("Window", "over"): ("OVER",),
    # Follows from the type's own name.
    ("DataType", "nested"): (True,),
}
_REMOVE = "remove it"
# (kind of node, argument) -> what is refused in SQL's words, and what to write instead.
_SENTENCES: dict[tuple[str, str], tuple[str, str]] = {
    ("*", "laterals"): (
        "LATERAL VIEW makes several rows out of one",
        "unfold the stream's rows where it is declared: select: *, explode(items) AS item",
    ),
    ("*", "hint"): ("hints are not accepted", "the engine chooses how a query runs"),
    ("*", "into"): ("SELECT INTO is not accepted", "name a sink in the pipeline file"),
    ("*", "qualify"): ("QUALIFY is not accepted", "filter with WHERE in a SELECT around this one"),
    ("*", "windows"): (
        "a WINDOW clause is not accepted",
        "write PARTITION BY and ORDER BY inside OVER (...); a window of time is FROM s [WINDOW 10 min]",
    ),
    ("*", "sort"): ("SORT BY is not accepted", "use ORDER BY"),
    ("*", "cluster"): ("CLUSTER BY is not accepted", "use GROUP BY"),
    ("*", "distribute"): ("DISTRIBUTE BY is not accepted", "the engine chooses how rows are spread"),
    ("*", "pivots"): ("PIVOT is not supported", "write one SUM(...) FILTER (WHERE ...) per column"),
    ("*", "sample"): ("TABLESAMPLE picks rows at random", "filter on a hash of the row"),
    ("*", "match"): ("MATCH_RECOGNIZE is not supported", "a join with [RANGE ..] finds pairs of events"),
    ("*", "locks"): ("FOR UPDATE is not accepted", "a query only reads"),
    ("*", "connect"): ("CONNECT BY is not accepted", "join the stream with itself"),
    ("Select", "kind"): ("SELECT AS STRUCT and the like are not accepted", "use struct(a, b)"),
    ("Select", "exclude"): ("EXCLUDE after the SELECT list is not accepted", "name the columns"),
    ("Group", "totals"): ("WITH TOTALS is not accepted", "write GROUP BY window(ts, '1 minute'), ROLLUP (a, b)"),
    ("Order", "this"): ("ORDER BY inside a call is not accepted", "order the results of the outermost SELECT"),
    ("Order", "siblings"): ("ORDER SIBLINGS BY is not accepted", "write ORDER BY"),
    ("Ordered", "with_fill"): ("WITH FILL makes rows up", "fill gaps where the results are read"),
    ("Limit", "expressions"): (
        "LIMIT ... BY is not accepted",
        "a LIMIT counts the rows of a window; write one query per key, or filter with HAVING",
    ),
    ("LimitOptions", "percent"): ("LIMIT ... PERCENT is not accepted", "LIMIT takes a number of rows"),
    ("LimitOptions", "rows"): ("ROWS after LIMIT is not accepted", "write LIMIT 10"),
    ("Distinct", "on"): ("DISTINCT ON is not accepted", "use GROUP BY"),
    ("With", "recursive"): ("WITH RECURSIVE is not accepted", "join the stream with itself"),
    ("CTE", "materialized"): ("MATERIALIZED is not accepted", "the engine chooses what is shared"),
    ("TableAlias", "columns"): (
        "a column list after an alias is not accepted",
        "name the columns inside the subquery, or in the SELECT of WITH",
    ),
    ("Table", "joins"): ("parentheses around a join are not accepted", "write the joins one after the other"),
    ("Union", "by_name"): ("UNION ALL BY NAME is not accepted", "UNION ALL goes by position"),
    ("Union", "order"): ("UNION ALL takes no ORDER BY", "order the results of the outermost SELECT"),
    ("Union", "offset"): ("UNION ALL takes no OFFSET", "limit the results of the outermost SELECT"),
    ("Union", "limit"): ("UNION ALL takes no LIMIT", "limit the results of the outermost SELECT"),
    ("Star", "replace"): ("* REPLACE is not accepted", "name the columns"),
    ("Star", "rename"): ("* RENAME is not accepted", "name the columns"),
    ("Star", "ilike"): ("* ILIKE is not accepted", "name the columns"),
    ("Between", "symmetric"): ("BETWEEN SYMMETRIC is not accepted", "write BETWEEN least(a, b) AND greatest(a, b)"),
    ("In", "unnest"): ("IN UNNEST is not accepted", "write array_contains(list, value)"),
    ("In", "field"): ("IN is not accepted in a query without parentheses", "write array_contains(list, value)"),
    ("Cast", "format"): ("CAST with FORMAT is not accepted", "use to_timestamp(x, format)"),
    ("Cast", "default"): ("CAST with DEFAULT is not accepted", "use coalesce(try_cast(x AS INT), 0)"),
    ("DataType", "collate"): ("COLLATE is not accepted in a query", "compare lower(a) with lower(b)"),
    ("ColumnDef", "constraints"): ("a field of a CAST has a name and a type", "leave out NOT NULL and COMMENT"),
    ("Trim", "collation"): ("COLLATE is not accepted in a query", "compare lower(a) with lower(b)"),
}  # fmt: skip

# Kinds of nodes that have no argument to blame -> the same.
_KINDS: dict[str, tuple[str, str]] = {
    "Fetch": ("FETCH FIRST is not accepted", "write LIMIT 10"),
    "Values": ("VALUES is not a stream", "FROM takes declared streams"),
    "Lateral": ("LATERAL is not supported", "FROM takes declared streams and subqueries over them"),
    "Unnest": ("LATERAL is not supported", "FROM takes declared streams and subqueries over them"),
}
# Types sqlglot writes for Spark under another name would change what the user wrote.
_TYPES = words("""
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL TEXT VARCHAR CHAR BINARY VARBINARY DATE TIMESTAMP
    TIMESTAMPTZ TIMESTAMPLTZ TIMESTAMPNTZ ARRAY MAP STRUCT INTERVAL VARIANT
""")
_JOIN_METHODS = "write JOIN ... ON a.key = b.key"


def check_tree(tree: exp.Expr) -> None:
    """Raise Fault for the first node, or argument of a node, that nobody would read.

    >>> from sqlglot import parse_one
    >>> check_tree(parse_one("SELECT a FROM t ORDER BY a", dialect="spark"))
    >>> check_tree(parse_one("SELECT a FROM t ORDER BY a WITH FILL", dialect="spark"))
    Traceback (most recent call last):
    ...
    headrace.language.sql.report.Fault: WITH FILL makes rows up
    """
    for node in tree.walk(bfs=False):
        read = ACCEPTED.get(type(node))
        if read is None:
            raise _unknown(node)
        for name, value in node.args.items():
            if name not in read and _is_set(value) and value not in DIALECT.get((type(node).__name__, name), ()):
                raise _unread(node, name)
        _check_values(node)


def _is_set(value: object) -> bool:
    return value is not None and value is not False and value != []


def _unknown(node: exp.Expr) -> Fault:
    sentence = _KINDS.get(type(node).__name__)
    if sentence is not None:
        return Fault(sentence[0], node, sentence[1])
    name = node.key.upper()
    return refusal(node) or Fault(f"{name} is not accepted in a query", node, "write it with functions of Spark SQL")


def _unread(node: exp.Expr, name: str) -> Fault:
    for kind in type(node).__mro__:
        if sentence := _SENTENCES.get((kind.__name__, name)):
            return Fault(sentence[0], _place(node, name), sentence[1])
    if isinstance(node, exp.Join) and name == "method":
        return Fault(f"{node.text(name).upper()} JOIN is not accepted", node, _JOIN_METHODS)
    if isinstance(node, (exp.Table, exp.Subquery)):
        what = "a table" if isinstance(node, exp.Table) else "a subquery in FROM"
        word = name.upper().rstrip("_").removesuffix("S")
        return Fault(f"{word} after {what} is not accepted", node, "FROM takes a stream, a window and an alias")
    if sentence := _SENTENCES.get(("*", name)):
        return Fault(sentence[0], _place(node, name), sentence[1])
    word = name.upper().strip("_").replace("_", " ")
    return Fault(f"{word} of {node.key.upper()} is not accepted in a query", node, _REMOVE)


def _place(node: exp.Expr, name: str) -> exp.Expr:
    value = node.args[name]
    first = value[0] if isinstance(value, list) else value
    return first if isinstance(first, exp.Expr) else node


def _check_values(node: exp.Expr) -> None:
    """Refuse arguments that are read, but whose value means something nobody reads."""
    match node:
        case exp.Group() if node.args.get("all") is False:
            raise Fault("GROUP BY DISTINCT is not accepted", node, "write GROUP BY")
        case exp.Group() if node.args.get("all") and node.expressions:
            raise Fault("GROUP BY ALL takes no columns", node, "write GROUP BY ALL, or GROUP BY and the columns")
        case exp.Ordered(this=exp.Var()):
            raise Fault("ORDER BY ALL is not accepted", node, "name the columns to order by")
        # IntervalSpan is one, too, and so is the type INTERVAL.
        case exp.DataType() if isinstance(node.this, exp.DType) and node.this.name not in _TYPES:
            raise Fault(f"the type {node.this.name} is not accepted", node, "write a type of Spark SQL")
