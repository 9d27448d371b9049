"""Types of bound expressions, bottom-up, by Spark's ANSI rules. What is not listed here is not accepted in a query.

UNKNOWN spreads and is never a mistake: it stands for what only Spark judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from headrace.language.ddl import parse_schema, parse_type
from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.coercion import arithmetic_type, common_type, comparable
from headrace.language.sql.functions import FUNCTIONS, result_type
from headrace.language.sql.refusals import refusal
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, key_of
from headrace.language.suggest import nearest
from headrace.language.words import words
from headrace.model import SPELLINGS, Column, DataType, Kind

__all__ = ["infer"]

BOOLEAN = DataType(Kind.BOOLEAN)
STRING = DataType(Kind.STRING)
UNKNOWN = DataType(Kind.UNKNOWN)
INTERVAL = DataType(Kind.INTERVAL)

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_TAKE_LAMBDAS = words(
    "aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys "
    "transform_values zip_with"
)
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})

Env = Mapping[Key, DataType]


def infer(node: exp.Expr, env: Env) -> DataType:
    """Type of a bound expression; raises Fault.

    >>> env = {("p", "n"): DataType(Kind.INT)}
    >>> from headrace.language.sql.spark_text import leaf
    >>> str(infer(exp.Div(this=leaf("p", "n"), expression=exp.Literal.number(2)), env))
    'DOUBLE'
    """
    if is_aggregate(node):
        raise Fault(
            f"aggregate {_call_name(node)} cannot stand here", node, "aggregates belong in SELECT, HAVING and ORDER BY"
        )
    rule = _RULES.get(type(node))
    if rule is None:
        raise _refused(node)
    return rule(node, env)


def _call_name(node: exp.Expr) -> str:
    call = node.find(exp.Anonymous)
    return call.name.upper() if call is not None else node.key.upper()


def _refused(node: exp.Expr) -> Fault:
    name = node.key.upper()
    if isinstance(node, exp.Star):
        return Fault("* cannot stand inside an expression", node, "name the columns")
    if isinstance(node, exp.Lambda):
        return Fault("x -> ... cannot stand here", node, "it goes with transform, filter, exists, forall and the like")
    if isinstance(node, (exp.WithinGroup, exp.Filter, exp.Distinct)):
        return Fault(f"{name} belongs to an aggregate", node, "it goes with COUNT, SUM, AVG, MIN, MAX and the like")
    return refusal(node) or Fault(f"{name} is not accepted in a query", node, "write it with functions of Spark SQL")


def _column(node: exp.Expr, env: Env) -> DataType:
    assert isinstance(node, exp.Column)
    return env.get(key_of(node), UNKNOWN)


def _literal(node: exp.Expr, env: Env) -> DataType:
    assert isinstance(node, exp.Literal)
    if node.is_string:
        return STRING
    text = node.this.lower()
    if "e" in text:
        return DataType(Kind.DOUBLE)
    whole, point, fraction = text.partition(".")
    digits = whole.lstrip("0")
    if not (digits + fraction).isdecimal() and digits + fraction:
        raise Fault(f"'{node.this}' is not a number", node)
    if point or len(digits) > 19 or int(digits or "0") >= 2**63:
        if len(digits) + len(fraction) > 38:
            raise Fault(
                f"the number {node.this[:50]} has more than 38 digits", node, "write it with an exponent, such as 1e40"
            )
        return DataType(Kind.DECIMAL, max(len(digits) + len(fraction), 1), len(fraction))
    return DataType(Kind.INT if int(digits or "0") < 2**31 else Kind.BIGINT)


def _same(node: exp.Expr, env: Env) -> DataType:
    return infer(node.this, env)


def _negative(node: exp.Expr, env: Env) -> DataType:
    found = infer(node.this, env)
    if found.is_known and not found.is_numeric and found.kind not in (Kind.INTERVAL, Kind.NULL, Kind.STRING):
        raise Fault(f"cannot negate {found}", node)
    return DataType(Kind.DOUBLE) if found.kind is Kind.STRING else found


def _arithmetic(node: exp.Expr, env: Env) -> DataType:
    assert isinstance(node, exp.Binary)
    operator = _ARITHMETIC[type(node)]
    a, b = infer(node.this, env), infer(node.expression, env)
    a, b = _tight(node.this, a, b), _tight(node.expression, b, a)
    timed = _time_arithmetic(operator, a, b)
    found = timed if timed is not None else arithmetic_type(operator, a, b)
    if found is None:
        raise Fault(f"cannot compute {a} {operator} {b}", node, "CAST one side to the other's type")
    return found


def _tight(node: exp.Expr, own: DataType, other: DataType) -> DataType:
    """Beside a decimal, Spark takes a whole number written in the query for a decimal of just its digits."""
    if other.kind is Kind.DECIMAL and own.is_integer and isinstance(node, exp.Literal):
        return DataType(Kind.DECIMAL, max(len(node.this.lstrip("0")), 1), 0)
    return own


def _time_arithmetic(operator: str, a: DataType, b: DataType) -> DataType | None:
    """Dates, timestamps and intervals; None when neither side is one, or they do not go together."""
    kinds = (a.kind, b.kind)
    if not (a.is_known and b.is_known) or not ({*kinds} & (_TIMES | {Kind.INTERVAL})):
        return None
    if Kind.INTERVAL in kinds:
        other = b if a.kind is Kind.INTERVAL else a
        if operator in "+-" and (other.kind in _TIMES or other.kind in (Kind.INTERVAL, Kind.NULL)):
            # DATE plus hours is a TIMESTAMP, plus days a DATE: which one only Spark knows.
            return UNKNOWN if other.kind is Kind.DATE else other
        if operator in "+-" and other.kind is Kind.STRING:
            return UNKNOWN
        return INTERVAL if operator in "*/" and other.is_numeric else None
    if operator == "-" and a.kind in _TIMES and b.kind in (*_TIMES, Kind.STRING):
        return INTERVAL
    if a.kind is Kind.DATE and b.is_integer and operator in "+-":
        return a
    return None


def _comparison(node: exp.Expr, env: Env) -> DataType:
    a, b = infer(node.this, env), infer(node.expression, env)
    _compare(a, b, node)
    return BOOLEAN


def _compare(a: DataType, b: DataType, at: exp.Expr) -> None:
    if not comparable(a, b):
        raise Fault(f"cannot compare {a} with {b}", at, "CAST one side to the other's type")
    if Kind.MAP in (a.kind, b.kind):
        raise Fault("maps cannot be compared", at, "compare their keys or values")


def _boolean_operand(node: exp.Expr, env: Env, what: str, null: bool = True) -> None:
    found = infer(node, env)
    if found.kind not in (Kind.BOOLEAN, Kind.UNKNOWN) and not (null and found.kind is Kind.NULL):
        raise Fault(f"{what} needs a condition, not {found}", node, "compare the value with something")


def _connector(node: exp.Expr, env: Env) -> DataType:
    # Long chains lean to the left: walk them without recursion.
    current = node
    while type(current) is type(node):
        _boolean_operand(current.expression, env, node.key.upper())
        current = current.this
    _boolean_operand(current, env, node.key.upper())
    return BOOLEAN


def _not(node: exp.Expr, env: Env) -> DataType:
    _boolean_operand(node.this, env, "NOT")
    return BOOLEAN


def _is(node: exp.Expr, env: Env) -> DataType:
    infer(node.this, env)
    if not isinstance(node.expression, (exp.Null, exp.Boolean)):
        raise Fault(f"IS {node.expression.sql('spark')} is not accepted", node, "known: IS NULL, IS TRUE, IS FALSE")
    if isinstance(node.expression, exp.Boolean):
        _boolean_operand(node.this, env, "IS TRUE")
    return BOOLEAN


def _in(node: exp.Expr, env: Env) -> DataType:
    if node.args.get("query") is not None:
        raise Fault("IN (SELECT ...) is not accepted", node, "join the stream with [RANGE ..] instead")
    found = infer(node.this, env)
    for item in node.expressions:
        _compare(found, infer(item, env), item)
    return BOOLEAN


def _between(node: exp.Expr, env: Env) -> DataType:
    found = infer(node.this, env)
    for bound in (node.args["low"], node.args["high"]):
        _compare(found, infer(bound, env), bound)
    return BOOLEAN


def _like(node: exp.Expr, env: Env) -> DataType:
    for side in (node.this, node.expression):
        found = infer(side, env)
        if found.is_nested or found.kind is Kind.BOOLEAN:
            raise Fault(f"{node.key.upper()} compares text, not {found}", side, "CAST it to STRING")
    return BOOLEAN


def _escape(node: exp.Expr, env: Env) -> DataType:
    infer(node.expression, env)
    return infer(node.this, env)


def _case(node: exp.Expr, env: Env) -> DataType:
    subject = infer(node.this, env) if node.this is not None else None
    result = DataType(Kind.NULL)
    for branch in node.args["ifs"]:
        if subject is None:
            _boolean_operand(branch.this, env, "WHEN", null=False)
        else:
            _compare(subject, infer(branch.this, env), branch.this)
        result = _join_types(result, infer(branch.args["true"], env), branch)
    default = node.args.get("default")
    return result if default is None else _join_types(result, infer(default, env), node)


def _join_types(a: DataType, b: DataType, at: exp.Expr) -> DataType:
    found = common_type(a, b)
    if found is None:
        raise Fault(f"branches of type {a} and {b} have no common type", at, "CAST one to the other's type")
    return found


def _cast(node: exp.Expr, env: Env) -> DataType:
    infer(node.this, env)
    try:
        return parse_type(node.args["to"].sql("spark"))
    except ValueError as exc:
        raise Fault(f"CAST: {exc}", node) from exc


def _interval(node: exp.Expr, env: Env) -> DataType:
    if node.this is not None and not isinstance(node.this, exp.Literal):
        raise Fault("INTERVAL takes a literal", node, "multiply instead: n * INTERVAL '1' SECOND")
    return INTERVAL


def _subscript(node: exp.Expr, env: Env) -> DataType:
    outer = infer(node.this, env)
    if len(node.expressions) != 1:
        raise Fault("a subscript takes one value", node, "write tags[0]")
    index = infer(node.expressions[0], env)
    if outer.is_known and outer.kind not in (Kind.ARRAY, Kind.MAP, Kind.STRUCT):
        raise Fault(f"{outer} has no elements", node, "subscripts go with arrays and maps")
    if outer.kind is Kind.ARRAY and index.is_known and not index.is_integer:
        raise Fault(f"an array is indexed by a whole number, not {index}", node)
    return outer.fields[-1].type if outer.kind in (Kind.ARRAY, Kind.MAP) else UNKNOWN


def _field(node: exp.Expr, env: Env) -> DataType:
    if not isinstance(node.expression, exp.Identifier):
        raise Fault("a function cannot be called by a qualified name", node, "call Spark's own functions")
    outer, name = infer(node.this, env), node.expression.name
    if outer.kind is Kind.ARRAY:
        # Spark reads a field of an array of structs as the array of that field.
        return UNKNOWN
    if outer.is_known and outer.kind not in (Kind.STRUCT, Kind.MAP):
        raise Fault(f"{outer} has no field '{name}'", node, "only structs have fields")
    if outer.kind is Kind.MAP:
        return outer.fields[-1].type
    if outer.kind is Kind.STRUCT:
        found = next((field for field in outer.fields if field.name.lower() == name.lower()), None)
        if found is None:
            raise Fault(f"unknown field '{name}'", node, nearest(name, [field.name for field in outer.fields]))
        return found.type
    return UNKNOWN


def _concat(node: exp.Expr, env: Env) -> DataType:
    sides = (infer(node.this, env), infer(node.expression, env))
    texts = not any(side.kind in (Kind.ARRAY, Kind.BINARY, Kind.UNKNOWN) for side in sides)
    return STRING if texts else UNKNOWN


def _bits(node: exp.Expr, env: Env) -> DataType:
    sides = [infer(side, env) for side in (node.this, node.expression)]
    for side in sides:
        if side.is_known and not side.is_integer and side.kind is not Kind.NULL:
            raise Fault(f"bits of {side} cannot be combined", node, "bit operators take whole numbers")
    return common_type(*sides) or UNKNOWN


def _call(node: exp.Expr, env: Env) -> DataType:
    assert isinstance(node, exp.Anonymous)
    name = node.name.lower()
    denied = refusal(node)
    if denied is not None:
        raise denied
    if name == "window":
        raise Fault("window(...) belongs in GROUP BY", node, "write GROUP BY window(ts, '10 minutes')")
    if name in ("grouping", "grouping_id"):
        raise Fault(f"{name} goes with ROLLUP, CUBE and GROUPING SETS", node, "write GROUP BY ROLLUP (a, b)")
    function = FUNCTIONS.get(name)
    if function is None:
        raise Fault(f"unknown function '{node.name}'", node, _nearest_function(name))
    arguments = [_argument(argument, env, name in _TAKE_LAMBDAS) for argument in node.expressions]
    if name == "unix_timestamp" and not arguments:
        raise Fault(
            "unix_timestamp() reads the wall clock, which a replay cannot repeat", node, "write unix_timestamp(ts)"
        )
    if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
        raise Fault(f"{name} takes {_count(function.least, function.most)}, not {len(arguments)}", node)
    if name in ("struct", "named_struct"):
        return _struct(node, arguments)
    if name in ("from_json", "from_csv", "from_xml") and len(node.expressions) > 1:
        return _read(node.expressions[1])
    try:
        return result_type(function, arguments)
    except ValueError as exc:
        raise Fault(f"{name}: {exc}", node, "CAST one to the other's type") from exc


def _read(schema: exp.Expr) -> DataType:
    """What a text is read as, if the schema that the query writes is one that this package knows."""
    text = schema.this if isinstance(schema, exp.Literal) and schema.is_string else ""
    try:
        return DataType(Kind.STRUCT, fields=parse_schema(text))
    except ValueError:
        pass
    try:
        return parse_type(text)
    except ValueError:
        return UNKNOWN


def _struct(node: exp.Anonymous, arguments: list[DataType]) -> DataType:
    """struct(a AS x, b) and named_struct('x', a): a STRUCT when every field has a plain name."""
    parts = node.expressions
    if node.name.lower() == "named_struct":
        if len(parts) % 2:
            raise Fault("named_struct takes names and values in turn", node, "write named_struct('a', a, 'b', b)")
        names = [part.this if isinstance(part, exp.Literal) and part.is_string else "" for part in parts[::2]]
        types = arguments[1::2]
    else:
        names = [part.alias_or_name if isinstance(part, (exp.Alias, exp.Column)) else "" for part in parts]
        types = arguments
    if not all(names) or not all(type_.is_known for type_ in types):
        return UNKNOWN
    return DataType(Kind.STRUCT, fields=tuple(Column(name, type_) for name, type_ in zip(names, types, strict=True)))


def _nearest_function(name: str) -> str | None:
    hint = nearest(name, (*FUNCTIONS, *SPELLINGS))
    return (
        hint.split(" (")[0]
        if hint and hint.startswith("did")
        else "a function must be deterministic and built into Spark"
    )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more arguments"
    if least == most:
        return f"{least} argument{'s' * (least != 1)}"
    return f"{least} to {most} arguments"


def _extract(node: exp.Expr, env: Env) -> DataType:
    infer(node.expression, env)
    return DataType(Kind.INT) if node.name.upper() not in ("SECOND", "SECONDS", "S", "SEC") else UNKNOWN


def _trim(node: exp.Expr, env: Env) -> DataType:
    infer(node.this, env)
    if node.expression is not None:
        infer(node.expression, env)
    return STRING


def _alias(node: exp.Expr, env: Env) -> DataType:
    """struct(a AS b): a name inside a call."""
    return infer(node.this, env)


def _argument(node: exp.Expr, env: Env, takes_lambda: bool) -> DataType:
    """Type of a call's argument; x -> ... stands only where a function of functions takes it."""
    if not isinstance(node, exp.Lambda):
        return infer(node, env)
    if not takes_lambda:
        raise _refused(node)
    infer(node.this, env)
    return UNKNOWN


def _fixed(type_: DataType) -> Callable[[exp.Expr, Env], DataType]:
    return lambda node, env: type_


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Env], DataType]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _fixed(BOOLEAN),
    exp.Null: _fixed(DataType(Kind.NULL)),
    exp.HexString: _fixed(DataType(Kind.BINARY)),
    exp.Paren: _same,
    exp.Neg: _negative,
    exp.BitwiseNot: _same,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _comparison),
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.RegexpLike: _like,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Interval: _interval,
    exp.Bracket: _subscript,
    exp.Dot: _field,
    exp.DPipe: _concat,
    exp.BitwiseAnd: _bits,
    exp.BitwiseOr: _bits,
    exp.BitwiseXor: _bits,
    exp.BitwiseLeftShift: _bits,
    exp.BitwiseRightShift: _bits,
    exp.Anonymous: _call,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Alias: _alias,
    exp.Identifier: _fixed(UNKNOWN),
    exp.Var: _fixed(UNKNOWN),
}
