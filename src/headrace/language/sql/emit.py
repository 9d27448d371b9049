"""The last gate before Spark: a text is written only from nodes and functions that are known to be safe."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from headrace.language.sql.call_options import check_options
from headrace.language.sql.clock_texts import check_clock_texts
from headrace.language.sql.costs import check_costs
from headrace.language.sql.dated import with_dates
from headrace.language.sql.functions import FUNCTIONS
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, spark_text
from headrace.model import DataType

__all__ = ["emit"]

_NODES: frozenset[type[exp.Expr]] = frozenset(
    {
        exp.Add, exp.Alias, exp.And, exp.Anonymous, exp.Between, exp.BitwiseAnd, exp.BitwiseLeftShift, exp.BitwiseNot,
        exp.BitwiseOr, exp.BitwiseRightShift, exp.BitwiseXor, exp.Boolean, exp.Bracket, exp.Case, exp.Cast, exp.Column,
        exp.ColumnDef, exp.DPipe, exp.DataType, exp.DataTypeParam, exp.Div, exp.Dot, exp.EQ, exp.Escape, exp.Extract,
        exp.GT, exp.GTE, exp.HexString, exp.ILike, exp.Identifier, exp.If, exp.In, exp.IntDiv, exp.Interval,
        exp.IntervalSpan, exp.Is, exp.LT, exp.LTE, exp.Lambda, exp.Like, exp.Literal, exp.Mod, exp.Mul, exp.NEQ,
        exp.Neg, exp.Not, exp.Null, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Or, exp.Paren, exp.RegexpLike, exp.Sub,
        exp.Trim, exp.TryCast, exp.Var,
    }
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEX = re.compile(r"[0-9A-Fa-f]*\Z")
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?\Z")


def emit(node: exp.Expr, env: Mapping[Key, DataType]) -> str:
    """Spark SQL of a finished expression over columns of known types; raises Fault for what Spark must not get.

    >>> from headrace.model import Kind
    >>> emit(exp.Anonymous(this="upper", expressions=[exp.column("c0")]), {("", "c0"): DataType(Kind.STRING)})
    'UPPER(c0)'
    """
    for part in node.walk():
        if type(part) not in _NODES or not _is_harmless(part):
            raise Fault(f"{part.key.upper()} is not accepted in a query", part, "write it with functions of Spark SQL")
    check_options(node)
    check_clock_texts(node, env)
    check_costs(node, env)
    text = spark_text(with_dates(node, env))
    # An escape can hide it from whoever reads the query.
    if "${" in text:
        raise Fault("${ in a query could read settings and the environment", node, "write the value itself")
    return text


def _is_harmless(part: exp.Expr) -> bool:
    """Whether a node whose text is copied verbatim holds only what its kind may hold."""
    match part:
        case exp.Anonymous():
            return isinstance(part.this, str) and part.this.lower() in FUNCTIONS
        case exp.Var():
            return bool(_WORD.match(str(part.this)))
        case exp.HexString():
            return bool(_HEX.match(str(part.this)))
        case exp.Literal():
            return part.is_string or bool(_NUMBER.match(str(part.this)))
        case exp.Extract():
            return isinstance(part.this, exp.Var)
        case exp.Interval():
            return part.args.get("unit") is None or isinstance(part.args["unit"], (exp.Var, exp.IntervalSpan))
    return True
