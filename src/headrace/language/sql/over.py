"""OVER: ranks, neighbours, shares and running sums among the rows of one window's answer.

Each call is replaced by a name that stands for its value, so that the rest of a SELECT list is bound as if the value
were a column. Where SQL leaves the order of equal rows open, the content of the rows decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.language.sql.emit import emit
from headrace.language.sql.infer import infer
from headrace.language.sql.report import Fault
from headrace.language.sql.select_list import default_name
from headrace.language.sql.spark_text import Key, leaf
from headrace.model import DataType, Kind, Over, result_type

__all__ = ["OverBinder", "Overs", "has_over"]

_PREFIX = "over__"
_INT, _DOUBLE, _BIGINT = DataType(Kind.INT), DataType(Kind.DOUBLE), DataType(Kind.BIGINT)


@dataclass(frozen=True, slots=True)
class _Function:
    """What may stand before OVER: its arguments, and whether it needs an order, tells equal rows apart, has a frame."""

    least: int = 0
    most: int = 0
    type: DataType | None = None  # None: that of its argument
    ordered: bool = True
    by_content: bool = True
    framed: bool = False


_RANK = _Function(type=_INT, by_content=False)
_SHARE = _Function(type=_DOUBLE, by_content=False)
_NEIGHBOUR = _Function(1, 3)
_END = _Function(1, 2, framed=True)
_AGGREGATE = _Function(1, 1, ordered=False, by_content=False, framed=True)
_FUNCTIONS = {
    "row_number": _Function(type=_INT), "ntile": _Function(1, 1, _INT),
    "rank": _RANK, "dense_rank": _RANK, "percent_rank": _SHARE, "cume_dist": _SHARE,
    "lag": _NEIGHBOUR, "lead": _NEIGHBOUR,
    "first": _END, "first_value": _END, "last": _END, "last_value": _END,
    "sum": _AGGREGATE, "avg": _AGGREGATE, "count": _AGGREGATE, "min": _AGGREGATE, "max": _AGGREGATE,
}  # fmt: skip
_ALL = ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING")
_ROWS_FRAME = "write ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def has_over(select: exp.Select) -> bool:
    """Whether the SELECT list has OVER."""
    return any(item.find(exp.Window) is not None for item in select.expressions)


class Overs:
    """The OVER calls of a SELECT list; `select` has a name in the place of each."""

    def __init__(self, select: exp.Select) -> None:
        self.calls: dict[str, exp.Window] = {}
        if not has_over(select):
            self.select = select
            return
        self.select = select.copy()
        items = [self._named(item) for item in self.select.expressions]
        self.select.set("expressions", items)

    def _named(self, item: exp.Expr) -> exp.Expr:
        if item.find(exp.Window) is None:
            return item
        aliased = item if isinstance(item, exp.Alias) else exp.alias_(item, default_name(item), quoted=True)
        return aliased.transform(self._replaced)

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window):
            return node
        inner = next((part for part in node.walk() if part is not node and isinstance(part, exp.Window)), None)
        if inner is not None:
            raise Fault("OVER inside OVER", node, "compute the inner one in a subquery")
        name = f"{_PREFIX}{len(self.calls)}"
        self.calls[name] = node
        return exp.column(name)

    @property
    def specials(self) -> dict[str, exp.Expr]:
        """What the names stand for while a SELECT list is bound."""
        return {name: leaf("", name) for name in self.calls}

    def within(self, node: exp.Expr) -> bool:
        """Whether a bound expression has the value of such a call."""
        return bool(self.calls) and any(not c.table and c.name in self.calls for c in node.find_all(exp.Column))


@dataclass(frozen=True, slots=True)
class _Value:
    """A bound call: what stands before OVER, and what is in its parentheses."""

    call: str
    type: DataType
    partition: tuple[str, ...]
    order: tuple[str, ...]
    frame: str | None
    by_content: bool

    def sql(self, content: Sequence[str]) -> str:
        order = (*self.order, *(content if self.by_content else ()))
        by = [f"PARTITION BY {', '.join(self.partition)}"]
        by += [f"ORDER BY {', '.join(order)}"] if order else []
        by += [self.frame] if self.frame and order else []
        return f"{self.call} OVER ({' '.join(by)})"


Made = Callable[[Iterable[Key]], list[Over]]


@dataclass(frozen=True, slots=True)
class OverBinder:
    """Binds OVER calls over columns of an answer whose window is told by the column `window`.

    `bound` binds an expression by names, `column` makes of it one over the answer's columns; `is_window` says whether a
    bound one tells windows apart. `named` says that PARTITION BY must name the window.
    """

    bound: Callable[[exp.Expr], exp.Expr]
    column: Callable[[exp.Expr], exp.Expr]
    types: Mapping[Key, DataType]
    is_window: Callable[[exp.Expr], bool]
    window: str
    named: bool = True

    def bind(self, calls: Mapping[str, exp.Window]) -> tuple[dict[str, DataType], Made]:
        """The types of the calls, and what makes them of the columns that are the content of a row; raises Fault."""
        values = {name: self._value(call) for name, call in calls.items()}

        def made(content: Iterable[Key]) -> list[Over]:
            columns = list(content)
            if any(value.by_content for value in values.values()):
                for key in columns:
                    _refuse_unordered(self.types[key], next(iter(calls.values())))
            names = [leaf(*key).sql("spark") for key in columns]
            return [Over(name, value.sql(names)) for name, value in values.items()]

        return {name: value.type for name, value in values.items()}, made

    def _value(self, over: exp.Window) -> _Value:
        name, function, arguments = _called(over)
        partition, named = [self.window], not self.named
        for node in over.args.get("partition_by") or ():
            found = self.bound(node)
            if self.is_window(found.unnest()):
                named = True
            else:
                partition.append(self._text(found))
        if not named:
            raise Fault("OVER is about the rows of one window, and windows never end", over,
                        "write PARTITION BY window, and the columns you want")  # fmt: skip
        order = tuple(self._order(term) for term in _terms(over))
        if function.ordered and not order:
            raise Fault(f"{name} OVER needs ORDER BY", over, f"write {name}(...) OVER (PARTITION BY window ORDER BY x)")
        kind, sides = _frame(over)
        if kind is not None and not function.framed:
            raise Fault(f"{name} takes no frame", over, f"leave {kind} BETWEEN out")
        texts, type_ = self._arguments(name, function, arguments, over)
        by_content = function.by_content or kind == "ROWS"
        if name in ("sum", "avg") and not _is_exact(name, type_):
            if sides == _ALL or not (order or kind):
                # In another order the last digits are others: all rows are added up in that of their content.
                order, by_content, kind, sides = (), True, "ROWS", _ALL
            elif kind != "ROWS":
                raise Fault(f"{name} OVER (... ORDER BY) of floating-point numbers depends on the order of equal rows",
                            over, f"{_ROWS_FRAME}, or CAST them to DECIMAL")  # fmt: skip
        if function is _END:
            _refuse_open_end(name, len(texts) > 1, kind, sides, over)
        if kind == "ROWS" and not order and sides != _ALL:
            raise Fault("ROWS counts rows in an order", over, "add ORDER BY")
        frame = None if kind is None else f"{kind} BETWEEN {sides[0]} AND {sides[1]}"
        call = f"{name}({', '.join(texts)})"
        return _Value(call, _result(name, function, type_), tuple(partition), order, frame, by_content)

    def _text(self, bound: exp.Expr) -> str:
        return emit(self.column(bound), self.types)

    def _order(self, term: exp.Expr) -> str:
        descending = bool(term.args.get("desc"))
        nulls = "FIRST" if bool(term.args.get("nulls_first", not descending)) else "LAST"
        column = self.column(self.bound(term.this))
        _refuse_unordered(infer(column, self.types), term)
        return f"{emit(column, self.types)} {'DESC' if descending else 'ASC'} NULLS {nulls}"

    def _arguments(
        self, name: str, function: _Function, arguments: Sequence[exp.Expr], at: exp.Expr
    ) -> tuple[list[str], DataType]:
        if not function.least <= len(arguments) <= function.most:
            takes = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
            raise Fault(f"{name} takes {takes} argument{'s' * (function.most != 1)}, not {len(arguments)}", at)
        if name == "count" and isinstance(arguments[0], exp.Star):
            return ["1"], _BIGINT
        if name == "ntile":
            return [_whole(arguments[0], "ntile", 1)], _INT
        if not arguments:
            return [], _INT
        first = self.column(self.bound(arguments[0]))
        texts, type_ = [emit(first, self.types)], infer(first, self.types)
        if function is _END and len(arguments) > 1:
            if not isinstance(arguments[1], exp.Boolean):
                raise Fault("whether NULLs are ignored is true or false", at, f"write {name}(x) IGNORE NULLS")
            texts += ["true"] if arguments[1].this else []
        if function is _NEIGHBOUR and len(arguments) > 1:
            texts.append(_whole(arguments[1], name, 0))
            texts += [self._text(self.bound(default)) for default in arguments[2:]]
        return texts, type_


def _called(over: exp.Window) -> tuple[str, _Function, list[exp.Expr]]:
    call = over.this
    if isinstance(call, exp.Filter):
        raise Fault("FILTER does not go with OVER", over, "write SUM(CASE WHEN ... THEN x END) OVER (...)")
    if over.args.get("alias") is not None:
        raise Fault("a WINDOW clause is not accepted", over, "write PARTITION BY and ORDER BY inside OVER (...)")
    name = call.name.lower() if isinstance(call, exp.Anonymous) else call.key
    function = _FUNCTIONS.get(name)
    if function is None:
        raise Fault(f"{name} does not go with OVER", over, f"known: {', '.join(_FUNCTIONS)}")
    arguments = list(call.expressions)
    if any(isinstance(argument, exp.Distinct) for argument in arguments):
        raise Fault("DISTINCT does not go with OVER", over, "aggregate in a subquery")
    return name, function, arguments


def _terms(over: exp.Window) -> Sequence[exp.Expr]:
    clause = over.args.get("order")
    return clause.expressions if clause is not None else ()


def _frame(over: exp.Window) -> tuple[str | None, tuple[str, str]]:
    """ROWS or RANGE, and where the frame begins and ends; without a frame what SQL takes for granted."""
    spec = over.args.get("spec")
    if spec is None:
        return None, ("UNBOUNDED PRECEDING", "CURRENT ROW")
    kind = str(spec.args.get("kind")).upper()
    if kind not in ("ROWS", "RANGE"):
        raise Fault(f"a frame of {kind} is not accepted", over, _ROWS_FRAME)
    start = _side(spec.args.get("start"), spec.args.get("start_side"), kind, over)
    end = _side(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), kind, over)
    return kind, (start, end)


def _side(value: object, side: object, kind: str, at: exp.Expr) -> str:
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if value == "UNBOUNDED":
        return f"UNBOUNDED {side}"
    if kind == "RANGE" or not isinstance(value, exp.Expr):
        raise Fault("a frame of RANGE has no numbers", at, "write ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")
    return f"{_whole(value, 'ROWS', 0)} {side}"


def _whole(node: exp.Expr, what: str, least: int) -> str:
    good = isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal() and len(node.this) <= 9
    if not good or int(node.this) < least:
        raise Fault(f"{what} takes a whole number from {least} on, written in the query", node)
    return str(node.this)


def _is_exact(name: str, type_: DataType) -> bool:
    """Whether a sum of such values is the same in every order."""
    return type_.kind is Kind.DECIMAL or (name == "sum" and type_.is_integer)


def _refuse_open_end(name: str, ignores: bool, kind: str | None, sides: tuple[str, str], at: exp.Expr) -> None:
    """Raises Fault where rows that are equal in the order share a frame, whose first or last is any of them."""
    end = 0 if name.startswith("first") else 1
    if kind == "ROWS" or sides == _ALL or (sides[end] == _ALL[end] and not ignores):
        return
    raise Fault(f"{name} in this frame is any of the rows that are equal in its order", at,
                "write ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")  # fmt: skip


def _refuse_unordered(type_: DataType, at: exp.Expr) -> None:
    if type_.kind is Kind.INTERVAL or _has_map(type_):
        raise Fault(f"rows with {type_} have no order", at, "make it text with to_json(...), or leave it out")


def _has_map(type_: DataType) -> bool:
    return type_.kind is Kind.MAP or any(_has_map(field.type) for field in type_.fields)


def _result(name: str, function: _Function, argument: DataType) -> DataType:
    if function.type is not None:
        return function.type
    return result_type(name, argument) if function is _AGGREGATE else argument
