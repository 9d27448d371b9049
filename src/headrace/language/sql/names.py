"""Binds the names in an expression: every column becomes `alias.column` as declared, or a Fault says why not."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.denied import DENIED
from headrace.language.sql.refusals import refusal
from headrace.language.sql.report import Fault
from headrace.language.sql.spark_text import Key, key_of, leaf, quoted, spark_text, wrapped
from headrace.language.suggest import nearest
from headrace.language.words import words
from headrace.model import DataType

__all__ = ["HIDDEN_TIME", "Scope", "bind_names"]

# Every relation carries its rows' time under this name, whether or not the user selects it.
HIDDEN_TIME = "row_time__"

_UNIT_FUNCTIONS = frozenset({"timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff"})
_UNITS = words("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND")
_WRITTEN = re.compile(r"[ac]\d+\Z|window_start\Z|window_end\Z|joined_*\Z")
_BINDS_TIGHTER = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Is)


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place.

    `columns` are those of the FROM clause; `specials` exist only beside a window (window, window_start); `aliases` are
    the SELECT list's, which come first in HAVING and ORDER BY and last in GROUP BY and the SELECT list. In HAVING,
    `grouped` comes before them: an expression that is a group key, by its text over the FROM clause, is that key
    whatever aliases say.
    """

    columns: Mapping[Key, DataType]
    specials: Mapping[str, exp.Expr] = field(default_factory=dict)
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    aliases_first: bool = False
    grouped: Collection[str] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(table for table, _ in self.columns))

    def visible(self) -> list[Key]:
        """The columns that SELECT * means."""
        return [key for key in self.columns if key[1] != HIDDEN_TIME]

    def find(self, parts: list[str], at: exp.Expr) -> tuple[exp.Expr, list[str]]:
        """What a dotted name starts with, and the struct fields that remain; raises Fault."""
        first = parts[0].lower()
        if self.aliases_first and len(parts) == 1 and first in self.aliases:
            return wrapped(self.aliases[first]), []
        if len(parts) > 1 and first in (table.lower() for table in self.tables):
            inside = [key for key in self.visible() if key[0].lower() == first and key[1].lower() == parts[1].lower()]
            if inside:
                return leaf(*inside[0]), parts[2:]
            named = [key for key in self.visible() if key[1].lower() == first]
            if not named:
                known = [column for table, column in self.visible() if table.lower() == first]
                raise Fault(f"unknown column '{parts[1]}' in '{parts[0]}'", at, nearest(parts[1], known))
        found = [key for key in self.visible() if key[1].lower() == first]
        if len(found) > 1:
            owners = " or ".join(f"{table}.{column}" for table, column in found)
            raise Fault(f"column '{parts[0]}' is ambiguous", at, f"write {owners}")
        if found:
            return leaf(*found[0]), parts[1:]
        if first in self.specials:
            return self._special(parts, at)
        if first in self.aliases:
            return wrapped(self.aliases[first]), parts[1:]
        raise self._unknown(parts, at)

    def _special(self, parts: list[str], at: exp.Expr) -> tuple[exp.Expr, list[str]]:
        dotted = ".".join(parts).lower()
        if dotted in self.specials:
            return self.specials[dotted].copy(), []
        if len(parts) > 1:
            raise Fault(f"a window has no '{parts[1]}'", at, "known: window.start, window.end")
        return self.specials[parts[0].lower()].copy(), []

    def _unknown(self, parts: list[str], at: exp.Expr) -> Fault:
        name = parts[0]
        if name.lower() in DENIED:
            reason, hint = DENIED[name.lower()]
            return Fault(f"{name} {reason}", at, hint)
        if name.lower() in ("window", "window_start", "window_end"):
            return Fault(
                f"'{name}' needs a window", at, "write FROM s [WINDOW 10 min] or GROUP BY window(ts, '10 minutes')"
            )
        columns = [column for _, column in self.visible()]
        if len(parts) > 1:
            dotted = [column for column in columns if column.lower() in _prefixes(parts)]
            if dotted:
                return Fault(
                    f"'{name}' has no field '{parts[1]}'", at, f"the dot is part of a name: write `{dotted[0]}`"
                )
            return Fault(f"unknown table or column '{name}'", at, nearest(name, [*self.tables, *columns]))
        return Fault(f"unknown column '{name}' in {self._where()}", at, nearest(name, [*columns, *self.aliases]))

    def _where(self) -> str:
        return " and ".join(
            "the subquery" if table.startswith("_subquery") else f"'{table}'" for table in self.tables if table
        )


def _prefixes(parts: list[str]) -> set[str]:
    """What a dotted name may be if dots are part of it.

    >>> sorted(_prefixes(["id", "orig", "H"]))
    ['id.orig', 'id.orig.h']
    """
    return {".".join(parts[:end]).lower() for end in range(2, len(parts) + 1)}


def bind_names(node: exp.Expr, scope: Scope) -> exp.Expr:
    """A copy of `node` with every column bound; raises Fault at the first that cannot be.

    >>> from headrace.model import Kind
    >>> scope = Scope({("p", "Length"): DataType(Kind.INT)})
    >>> bind_names(exp.condition("LENGTH + 1"), scope).sql("spark")
    'p.Length + 1'
    """
    return _bind(node.copy(), scope)


def _bind(node: exp.Expr, scope: Scope) -> exp.Expr:
    key = _group_key(node, scope) if scope.grouped else None
    if key is not None:
        return key
    if isinstance(node, exp.Column):
        return _bind_column(node, scope)
    refused = refusal(node)
    if refused is not None:
        raise refused
    if isinstance(node, exp.Lambda):
        _check_variables(node, scope)
    inner = scope
    if is_aggregate(node) and scope.aliases:
        inner = Scope(scope.columns, scope.specials)
    if isinstance(node, exp.Anonymous):
        _unit_argument(node)
    for name, value in list(node.args.items()):
        if isinstance(value, exp.Expr):
            node.set(name, _bind(value, inner))
        elif isinstance(value, list):
            node.set(name, [_bind(item, inner) if isinstance(item, exp.Expr) else item for item in value])
    return _in_parentheses(node)


def _group_key(node: exp.Expr, scope: Scope) -> exp.Expr | None:
    """The expression bound over the FROM clause, if it is a group key there."""
    try:
        bound = _bind(node.copy(), Scope(scope.columns, scope.specials))
    except Fault:
        return None
    return bound if spark_text(bound.unnest()) in scope.grouped else None


def _check_variables(node: exp.Lambda, scope: Scope) -> None:
    """A variable that hides a table, or a column this module will write, would change what the text means to Spark."""
    for variable in node.expressions:
        name = variable.name.lower()
        if _WRITTEN.match(name) or name in (table.lower() for table in scope.tables):
            raise Fault(f"the variable '{variable.name}' hides a table or column", node, "give it another name")


def _unit_argument(call: exp.Anonymous) -> None:
    """The unit in timestampadd(MINUTE, 5, ts) is a word, not a column."""
    arguments = call.expressions
    if call.name.lower() not in _UNIT_FUNCTIONS or len(arguments) != 3:
        return
    unit = arguments[0]
    if isinstance(unit, exp.Column) and not unit.table and unit.name.upper() in _UNITS:
        call.set("expressions", [exp.Var(this=unit.name.upper()), *arguments[1:]])


def _bind_column(column: exp.Column, scope: Scope) -> exp.Expr:
    if isinstance(column.this, exp.Star):
        raise Fault("* cannot stand inside an expression", column, "name the columns")
    found, fields = scope.find([part.name for part in column.parts], column)
    for position in (part.meta for part in column.parts if "start" in part.meta):
        found.meta.update(position)
        break
    type_ = scope.columns.get(key_of(found)) if isinstance(found, exp.Column) else None
    for name in fields:
        inner = next((f for f in type_.fields if f.name.lower() == name.lower()), None) if type_ is not None else None
        spelling, type_ = (inner.name, inner.type) if inner is not None else (name, None)
        found = exp.Dot(this=found, expression=exp.Identifier(this=spelling, quoted=quoted(spelling) != spelling))
    return found


def _in_parentheses(node: exp.Expr) -> exp.Expr:
    """NOT and `INTERVAL 1 HOUR 2 MINUTES` (a sum to sqlglot) under an operator would be written without parentheses."""
    if isinstance(node, _BINDS_TIGHTER) and not isinstance(node, (exp.Connector, exp.Not, exp.Paren, exp.Dot)):
        for name in ("this", "expression", "low", "high"):
            child = node.args.get(name)
            summed = name == "expression" and isinstance(child, (exp.Add, exp.Sub))
            if isinstance(child, exp.Not) or summed:
                node.set(name, exp.Paren(this=child))
    return node
