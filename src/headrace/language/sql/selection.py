"""The `select` of a stream: a SELECT list, and a condition, over its source's columns, under the guard of queries.

Each item is a term of its own over the source's columns and earlier items, so that what several items read is evaluated
once, and so that a row that cannot be made says by which column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headrace.errors import Problem, SpecError
from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.columns import refuse_void
from headrace.language.sql.emit import emit
from headrace.language.sql.from_clause import bind_condition
from headrace.language.sql.infer import infer
from headrace.language.sql.names import Scope, bind_names
from headrace.language.sql.outputs import check_names
from headrace.language.sql.reading import read_list
from headrace.language.sql.report import Fault, Place, Report
from headrace.language.sql.select_list import SelectItem, select_items
from headrace.language.sql.spark_text import Key, leaf, leaves
from headrace.model import PLACE, Column, DataType, Kind, Selection, Term, Unfolding

__all__ = ["bind_selection"]

_WORD = "SELECT "
_EXPLODE = ("explode", "explode_outer")
_MANY = "a row of a stream is made of one row of its source"
_BOOLEAN = DataType(Kind.BOOLEAN)


def bind_selection(
    text: str, reads: Sequence[Column], stream: str, *, file: str | None = None, place: Place | None = None
) -> Selection:
    """A `select` over a source's columns; SpecError with every problem found.

    `place` gives the line and column in `file` of a character of the text.

    >>> from headrace.language.ddl import parse_schema
    >>> columns = parse_schema("at BIGINT, v INT")
    >>> made = bind_selection("timestamp_seconds(at) AS ts, v * 2 AS w WHERE v > 0", columns, "s")
    >>> [f"{column.name} {column.type}" for column, _ in made.columns], made.where.sql
    (['ts TIMESTAMP', 'w INT'], 's.v > 0')
    """
    # The word that is put before the text is in no file.
    shifted = None if place is None else (lambda offset: place(max(offset - len(_WORD), 0)))
    report = Report(_WORD + text, stream, file=file, line=None if place is None else place(0)[0], place=shifted)
    try:
        try:
            made = _Binding(report, tuple(reads), stream).bind(read_list(report.sql), text)
            report.stop_if_wrong()
            return made
        except Fault as fault:
            report.add(fault.message, fault.at, fault.hint)
        except RecursionError:
            report.add("the select is nested too deeply", None, "write it flatter")
        except (ValueError, OverflowError) as exc:
            report.add(str(exc))
        report.stop_if_wrong()
    except SpecError as error:
        raise SpecError([_told(problem, stream, place is None) for problem in error.problems]) from error
    raise AssertionError("a binding ends with a selection or with problems")


class _Binding:
    """Binds one `select`, item by item."""

    def __init__(self, report: Report, reads: tuple[Column, ...], stream: str) -> None:
        self._report, self._reads, self._stream = report, reads, stream
        self._scope = Scope({(stream, column.name): column.type for column in reads})
        # Columns of terms stand beside the struct of the source's, which is named as the stream is.
        self._prefix = "a" if re.fullmatch(r"c\d+", stream, re.IGNORECASE) else "c"
        self._types: dict[Key, DataType] = dict(self._scope.columns)
        self._layers: dict[Key, int] = {}
        self._known: dict[Key, str] = {}  # what users call a term's column
        self._aliases: dict[str, exp.Expr] = {}
        self._terms: list[Term] = []
        self._unfolding: Unfolding | None = None

    def bind(self, select: exp.Select, text: str) -> Selection:
        """What the tree of a SELECT without FROM says; notes problems, raises Fault."""
        if select.args.get("from_") is not None or select.args.get("joins") or select.args.get("with_"):
            raise Fault("a select has no FROM", select.args.get("from_"), "it reads the columns of the stream's source")
        refuse_clauses(
            select, ("group", "having", "order", "limit", "offset", "distinct"), _MANY, "write it in a query"
        )
        if not select.expressions:
            raise Fault("the select is empty", hint="write the columns that queries are to see: a, b + 1 AS c")
        where = None
        with self._report.catching():
            where = self._where(select)
        columns, seen = list[tuple[Column, str]](), list[SelectItem]()
        for written in select.expressions:
            items: list[SelectItem] = []
            with self._report.catching():
                items = self._items(written)
            for item in items:
                with self._report.catching():
                    columns.append(self._column(item))
            seen += items
        check_names(seen, self._report)
        terms, unfolding = _around(self._terms, self._unfolding)
        return Selection(text, self._reads, tuple(columns), terms, where, unfolding)

    def _where(self, select: exp.Select) -> Term | None:
        bound = bind_condition(select.args.get("where"), self._scope, "WHERE")
        return None if bound is None else Term("w", emit(bound, self._types), _BOOLEAN, 0, "WHERE", self._named(bound))

    def _items(self, written: exp.Expr) -> list[SelectItem]:
        """One item, or those that a * stands for, which may be of a struct."""
        if isinstance(written, exp.Column) and isinstance(written.this, exp.Star) and not written.args.get("db"):
            table = written.table.lower()
            base = self._aliases.get(table)
            if base is None and table != self._stream.lower():
                base = next((leaf(*key) for key in self._scope.columns if key[1].lower() == table), None)
            if base is not None:
                type_ = infer(base, self._types)
                if type_.kind is not Kind.STRUCT:
                    raise Fault(f"'{written.table}' is {type_}, and .* names the fields of a STRUCT", written)
                names = [field.name for field in type_.fields]
                return [
                    SelectItem(name, False, exp.column(name, written.table, quoted=True), written) for name in names
                ]
        return select_items(exp.Select(expressions=[written]), self._scope)

    def _column(self, item: SelectItem) -> tuple[Column, str]:
        """The stream's column that an item is, and the term that it is read from; raises Fault."""
        node = item.node
        many = next((part for part in node.walk() if is_aggregate(part)), None)
        if many is not None:
            raise Fault("an aggregate is about many rows", many, "write it in a query")
        unfolds = isinstance(node, exp.Anonymous) and node.name.lower() in _EXPLODE
        name = self._unfolded(item) if unfolds else self._evaluated(item, node)
        type_ = self._types["", name]
        if item.name.lower() in (place.lower() for place in PLACE) and not self._is_own(item):
            raise Fault(f"'{item.name}' says where a message was found", item.at, "give the column another name")
        if item.aliased:
            self._aliases[item.name.lower()] = leaf("", name)
        return Column(item.name, type_), name

    def _is_own(self, item: SelectItem) -> bool:
        return isinstance(item.node, exp.Column) and item.node.name.lower() == item.name.lower()

    def _evaluated(self, item: SelectItem, node: exp.Expr) -> str:
        bound = bind_names(node, replace(self._scope, aliases=self._aliases))
        type_ = infer(bound, self._types)
        refuse_void(type_, node)
        if not _is_known(type_):
            raise Fault(f"only Spark knows the type of column '{item.name}'", item.at,
                        f"say it: CAST(... AS STRING) AS {item.name}")  # fmt: skip
        return self._term(item.name, bound, type_)

    def _unfolded(self, item: SelectItem) -> str:
        """Notes the array that becomes rows; the name of its element's column."""
        node = item.node
        assert isinstance(node, exp.Anonymous)
        if self._unfolding is not None:
            raise Fault("a select unfolds one array", item.at, "unfold flatten(...), or arrays_zip(a, b)")
        if not item.aliased or len(node.expressions) != 1:
            raise Fault(f"{node.name} takes an array and has a name", item.at, f"write {node.name}(items) AS item")
        bound = bind_names(node.expressions[0], replace(self._scope, aliases=self._aliases))
        type_ = infer(bound, self._types)
        if type_.kind is Kind.MAP:
            raise Fault(f"{node.name} takes an array, not {type_}", item.at, "write explode(map_entries(m)) AS e")
        if type_.kind is not Kind.ARRAY or not _is_known(type_):
            raise Fault(f"{node.name} takes an array of a known type, not {type_}", item.at,
                        "CAST it, such as CAST(x AS ARRAY<STRING>)")  # fmt: skip
        array = self._term(item.name, bound, type_)
        name = f"{self._prefix}{len(self._layers)}"
        self._note(name, item.name, type_.fields[0].type, self._layers["", array])
        self._unfolding = Unfolding(self._terms[-1], name, node.name.lower() == "explode_outer", 0)
        return name

    def _term(self, name: str, bound: exp.Expr, type_: DataType) -> str:
        """Notes an expression as a term, and gives the name of its column."""
        column = f"{self._prefix}{len(self._layers)}"
        layer = max([0, *(self._layers[key] for key in leaves(bound) if key in self._layers)]) + 1
        self._terms.append(Term(column, emit(bound, self._types), type_, layer, f"column '{name}'", self._named(bound)))
        self._note(column, name, type_, layer)
        return column

    def _note(self, column: str, name: str, type_: DataType, layer: int) -> None:
        self._types["", column], self._layers["", column], self._known["", column] = type_, layer, name

    def _named(self, bound: exp.Expr) -> tuple[tuple[str, str], ...]:
        """What a term reads, as users call it, and its SQL."""
        return tuple((self._known.get(key, key[1]), leaf(*key).sql("spark")) for key in leaves(bound))


def _around(terms: Sequence[Term], unfolding: Unfolding | None) -> tuple[tuple[Term, ...], Unfolding | None]:
    """The terms in their layers around what unfolds: those that read its elements come after all others."""
    if unfolding is None:
        return tuple(terms), None
    after = {unfolding.name}
    for term in terms:
        if any(sql in after for _, sql in term.reads):
            after.add(term.name)
    last = max((term.layer for term in terms if term.name not in after), default=0)
    moved = tuple(replace(term, layer=last + term.layer) if term.name in after else term for term in terms)
    return moved, replace(unfolding, layer=last)


def _is_known(type_: DataType) -> bool:
    return type_.is_known and all(_is_known(field.type) for field in type_.fields)


def _told(problem: Problem, stream: str, by_text: bool) -> Problem:
    """A problem as it is told of a stream; a place in the text alone is one without the word that was put before it."""
    column = problem.column
    if by_text and column is not None and problem.line == 1:
        column = max(column - len(_WORD), 1)
    return replace(problem, message=f"select of stream '{stream}': {problem.message}", query=None, column=column)
