"""FROM clauses to relations: streams, subqueries, CTEs, UNION ALL and joins, and the windows beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.language.sql.brackets import Clause, RowsClause
from headrace.language.sql.clauses import refuse_clauses
from headrace.language.sql.coercion import common_type
from headrace.language.sql.infer import infer
from headrace.language.sql.lookup import LookupRelation, TableRelation, is_table, timed_aliases
from headrace.language.sql.names import HIDDEN_TIME, Scope, bind_names
from headrace.language.sql.relation import (
    JoinRelation,
    Projection,
    Relation,
    ResultsRelation,
    StreamRelation,
    UnionRelation,
    time_of,
)
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.select_list import bind_items, select_items
from headrace.language.sql.spark_text import Key, all_of, conjuncts, leaf
from headrace.language.suggest import nearest
from headrace.model import HALF, CumulativeWindow, DataType, Kind, RangeWindow, SlidingWindow, Stream, Table

__all__ = ["FromBinder", "Source", "bind_condition", "united"]

TIMESTAMP = DataType(Kind.TIMESTAMP)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
# Subqueries inside subqueries; each level unfolds into the one below.
MOST_NESTED = 20
# A WITH name used twice is unfolded twice, so a dozen of them could double a dozen times.
MOST_SUBQUERIES = 100
_ON_TRUE = re.compile(r"\bON\s+TRUE\b", re.IGNORECASE)
_JOINS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True, slots=True)
class Source:
    """A bound FROM clause: its rows and the window over them, if one was written."""

    relation: Relation
    window: SlidingWindow | CumulativeWindow | RowsClause | None = None


@dataclass(frozen=True, slots=True)
class Cte:
    """What WITH defines, and what was defined before it, which is what it sees."""

    query: exp.Expr
    before: Mapping[str, Cte]


# Binds a subquery that aggregates, at each of its levels; () for one that does not.
BindResults = Callable[[exp.Select, Source, Report], tuple[ResultsRelation, ...]]


@dataclass(slots=True)
class FromBinder:
    """Binds the FROM clauses of one query; `clauses` that are claimed by a table are removed from `unclaimed`."""

    streams: Mapping[str, Stream]
    clauses: Mapping[int, list[Clause]]
    report: Report
    results: BindResults
    tables: Mapping[str, Table] = field(default_factory=dict)
    ctes: dict[str, Cte] = field(default_factory=dict)
    unclaimed: set[int] = field(default_factory=set)
    depth: int = 0
    subqueries: list[exp.Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unclaimed = set(self.clauses)

    def bind(self, select: exp.Select) -> Source:
        """The rows a SELECT reads; raises Fault."""
        self._add_ctes(select)
        clause = select.args.get("from_")
        if clause is None:
            raise Fault("FROM is missing", select, "a query reads at least one stream")
        relation, windows = self._factor(clause.this)
        joins = [(join, *self._factor(join.this)) for join in select.args.get("joins") or []]
        if is_table(relation):
            self._refuse_first(relation, clause.this, windows, bool(joins))
        if all(is_table(other) for _, other, _ in joins):
            for join, table, beside in joins:
                relation = self._looked_up(relation, table, beside, join)
            return self._single(relation, windows)
        return self._joined(relation, windows, clause.this, joins)

    def _refuse_first(self, table: Relation, at: exp.Expr, windows: list[Clause], joined: bool) -> None:
        """Raises Fault for a table where rows of a stream must stand; alone in a subquery it is fine."""
        name = _aliases(table)[0]
        if windows:
            raise Fault(f"{windows[0].text} is about time, and the rows of table '{name}' have none", windows[0].start,
                        f"write it after a stream: FROM s {windows[0].text} JOIN {name} ON ...")  # fmt: skip
        if joined:
            raise Fault(f"table '{name}' stands before JOIN, and rows of a stream are looked up in tables", at,
                        f"write FROM s JOIN {name} ON ..., or LEFT JOIN")  # fmt: skip
        if self.depth == 0:
            raise Fault(f"'{name}' is a table, and a query reads at least one stream", at,
                        f"look rows up in it: FROM s JOIN {name} ON ...")  # fmt: skip

    def _looked_up(self, left: Relation, table: Relation, windows: list[Clause], join: exp.Expr) -> LookupRelation:
        """The rows of streams with what a table has for them."""
        if windows:
            raise Fault(f"{windows[0].text} is about time, and the rows of a table have none", windows[0].start,
                        "leave it out: a table matches as it is when an epoch begins")  # fmt: skip
        how = _lookup_kind(join)
        on, shared = self._condition(join, left, table, "left" if how in ("semi", "anti") else how)
        assert isinstance(table, TableRelation | Projection)
        return LookupRelation(left, table, how, on, shared)

    def _condition(
        self, join: exp.Expr, left: Relation, right: Relation, how: str
    ) -> tuple[exp.Expr, tuple[tuple[Key, Key], ...]]:
        """What ON or USING of a join says, and the columns that USING names."""
        clash = {alias.lower() for alias in _aliases(left)} & {alias.lower() for alias in _aliases(right)}
        if clash:
            raise Fault(
                f"two tables are called '{min(clash)}'", join, "give each its own alias: FROM a AS x JOIN a AS y"
            )
        scope = Scope({**left.columns, **right.columns})
        shared = _shared(join, left, right, how)
        said = _equal(shared, scope) if shared else bind_condition(join.args.get("on"), scope, "ON")
        # sqlglot writes ON TRUE where the user wrote nothing.
        if said is None or (isinstance(said, exp.Boolean) and not _ON_TRUE.search(self.report.sql)):
            raise Fault(
                "a join without ON pairs everything with everything", join, "write ON with a condition, or ON TRUE"
            )
        return said, shared

    def _single(self, relation: Relation, windows: list[Clause]) -> Source:
        if not windows:
            return Source(relation)
        if isinstance(windows[0].window, RangeWindow):
            raise Fault(f"{windows[0].text} is one side of a join, and there is no JOIN of streams", windows[0].start,
                        "write [WINDOW 10 min SLIDE 2 min] for an aggregate")  # fmt: skip
        return Source(relation, windows[0].window)

    def _add_ctes(self, query: exp.Expr) -> None:
        """What WITH defines here; a name that is defined outside, too, means this one from here on."""
        own: set[str] = set()
        for cte in query.args["with_"].expressions if query.args.get("with_") else ():
            name = cte.alias.lower()
            if name in own:
                raise Fault(f"WITH defines '{cte.alias}' twice", cte)
            own.add(name)
            self.ctes[name] = Cte(cte.this, dict(self.ctes))

    def _factor(self, node: exp.Expr) -> tuple[Relation, list[Clause]]:
        """One table or subquery, under its alias."""
        if isinstance(node, exp.Table):
            return self._table(node)
        if isinstance(node, exp.Subquery):
            return self._subquery(node)
        raise Fault(
            f"{node.key.upper()} cannot stand in FROM", node, "FROM takes declared streams and subqueries over them"
        )

    def _windows(self, *names: exp.Expr | None) -> list[Clause]:
        found: list[Clause] = []
        for name in names:
            start = name.meta.get("start") if name is not None else None
            if start in self.clauses and start is not None:
                self.unclaimed.discard(start)
                found.extend(self.clauses[start])
        if len(found) > 1:
            raise Fault("two windows on one table", found[1].start, "keep one")
        return found

    def _table(self, node: exp.Table) -> tuple[Relation, list[Clause]]:
        if not isinstance(node.this, exp.Identifier):
            raise Fault("table functions are not accepted", node, "FROM takes declared streams")
        if node.args.get("db") is not None:
            raise Fault(f"'{node.sql('spark')[:60]}' is not a declared stream; paths and catalogs are never read", node,
                        nearest(node.name, [stream.name for stream in self.streams.values()]))  # fmt: skip
        alias = node.args.get("alias")
        windows = self._windows(node.this, alias.this if alias is not None else None)
        name = node.name.lower()
        if name in self.ctes:
            cte = self.ctes[name]
            return self._derived(cte.query, node.alias or node.name, cte.before, node), windows
        stream = next((item for key, item in self.streams.items() if key.lower() == name), None)
        table = next((item for key, item in self.tables.items() if key.lower() == name), None)
        if stream is None and table is not None:
            return TableRelation(table, node.alias or table.name), windows
        if stream is None:
            known = [each.name for each in self.streams.values()] + [each.name for each in self.tables.values()]
            known += [*self.ctes, *self.report.queries]
            hint = nearest(node.name, known) or "no stream is declared, or none could be read"
            raise Fault(f"unknown stream '{node.name}'", node, hint)
        return _renamed(StreamRelation(stream), stream.name, node.alias or stream.name), windows

    def _subquery(self, node: exp.Subquery) -> tuple[Relation, list[Clause]]:
        alias = node.args.get("alias")
        windows = self._windows(alias.this if alias is not None else None)
        inner = node.this
        while isinstance(inner, exp.Subquery) and not inner.args.get("alias"):
            inner = inner.this
        if not isinstance(inner, (exp.Select, exp.SetOperation)):
            raise Fault(
                "parentheses in FROM hold a SELECT", node, "write (SELECT ... FROM ...) AS x, or drop the parentheses"
            )
        return self._derived(inner, node.alias or "_subquery", self.ctes, node), windows

    def _derived(self, query: exp.Expr, alias: str, ctes: Mapping[str, Cte], at: exp.Expr) -> Relation:
        """A subquery as a projection under `alias`."""
        self.subqueries.append(query)
        if len(self.subqueries) > MOST_SUBQUERIES:
            raise Fault(
                f"the query unfolds into more than {MOST_SUBQUERIES} subqueries",
                at,
                "WITH names used twice are unfolded twice",
            )
        inner = FromBinder(
            self.streams, self.clauses, self.report, self.results, self.tables, dict(ctes), depth=self.depth + 1,
            subqueries=self.subqueries,
        )  # fmt: skip
        inner.unclaimed = self.unclaimed
        if inner.depth > MOST_NESTED:
            raise Fault(f"subqueries are nested deeper than {MOST_NESTED} levels", at, "write the query flatter")
        return inner.project(query, alias)

    def project(self, query: exp.Expr, alias: str) -> Relation:
        """The rows of a SELECT or UNION ALL, under an alias; raises Fault."""
        if isinstance(query, exp.Subquery):
            return self.project(query.this, alias)
        if isinstance(query, exp.SetOperation):
            return self._union(query, alias)
        if not isinstance(query, exp.Select):
            raise Fault(f"{query.key.upper()} cannot stand in FROM", query, "a subquery is a SELECT")
        source = self.bind(query)
        results = () if is_table(source.relation) else self.results(query, source, self.report)
        if results:
            return united(results, alias)
        refuse_clauses(
            query,
            ("group", "having", "order", "limit", "offset", "distinct"),
            "a subquery in FROM filters and projects, or groups by window(ts, '1 minute')",
        )
        scope = Scope(source.relation.columns)
        items: dict[str, tuple[exp.Expr, DataType]] = {}
        listed = select_items(query, scope)
        for item, bound in zip(listed, bind_items(listed, scope, self.report), strict=True):
            if item.name.lower() in (name.lower() for name in items):
                raise Fault(f"two columns of the subquery are called '{item.name}'", item.at, "give one an alias")
            if bound is None:
                self.report.stop_if_wrong()
            assert bound is not None
            items[item.name] = (bound, infer(bound, scope.columns))
        if not is_table(source.relation):
            items[HIDDEN_TIME] = (time_of(source.relation), TIMESTAMP)
        return Projection(source.relation, alias, items, bind_condition(query.args.get("where"), scope, "WHERE"))

    def _union(self, query: exp.SetOperation, alias: str) -> Relation:
        if not isinstance(query, exp.Union) or query.args.get("distinct", True):
            name = "UNION" if isinstance(query, exp.Union) else query.key.upper()
            raise Fault(
                f"{name} compares all rows of streams that never end",
                query.expression,
                "use UNION ALL, and DISTINCT in an aggregate",
            )
        self._add_ctes(query)
        branches: list[exp.Expr] = []
        current: exp.Expr = query
        while isinstance(current, exp.Union) and not current.args.get("distinct", True):
            branches.insert(0, current.expression)
            current = current.this
        branches.insert(0, current)
        inputs: list[Projection] = []
        for branch in branches:
            relation = self._derived(branch, alias, self.ctes, branch)
            if is_table(relation):
                raise Fault("UNION ALL of a table: its rows have no time", branch, "join rows of a stream with it")
            inputs.extend(relation.inputs if isinstance(relation, UnionRelation) else [_as_projection(relation)])
        return UnionRelation(tuple(_aligned(inputs, alias, query)))

    def _joined(
        self,
        left: Relation,
        windows: list[Clause],
        first: exp.Expr,
        joins: Sequence[tuple[exp.Expr, Relation, list[Clause]]],
    ) -> Source:
        left_us = self._range(windows, first)
        ranges = dict.fromkeys(timed_aliases(left), left_us)
        nullable: frozenset[str] = frozenset()
        for join, right, right_windows in joins:
            if is_table(right):
                left = self._looked_up(left, right, right_windows, join)
                continue
            how = _kind(join)
            right_us = self._range(right_windows, join.this)
            on, shared = self._condition(join, left, right, how)
            if len(ranges) > 1:
                on = all_of([*conjuncts(on), *_within_ranges(ranges, timed_aliases(right)[0], nullable)]) or on
            # A side that may be NULL bounds nothing by itself: where it is not, ON does.
            sure = [us for alias, us in ranges.items() if alias not in nullable]
            pairs = JoinRelation(left, right, min(sure, default=max(ranges.values())), right_us, how, on, shared)
            if how in HALF:
                return Source(_one_side(pairs, join, len(joins)))
            left = pairs
            nullable |= frozenset(timed_aliases(right)) if how in ("left", "full") else frozenset()
            nullable |= frozenset(ranges) if how in ("right", "full") else frozenset()
            ranges |= dict.fromkeys(timed_aliases(right), right_us)
        return Source(left)

    def _range(self, windows: list[Clause], at: exp.Expr) -> int:
        name = at.alias_or_name or "the subquery"
        if not windows:
            raise Fault(
                f"'{name}' is joined without a range", at, f"write {name} [RANGE 10 s]: how long its rows can match"
            )
        window = windows[0].window
        if not isinstance(window, RangeWindow):
            raise Fault(f"{windows[0].text} cannot stand in a join", windows[0].start,
                        "write [RANGE 10 s] here; to aggregate, put the join in a subquery: "
                        "FROM (SELECT ... JOIN ...) AS j [WINDOW 10 min]")  # fmt: skip
        return window.size_us


def bind_condition(clause: exp.Expr | None, scope: Scope, what: str) -> exp.Expr | None:
    """The condition of a WHERE or ON clause, bound; raises Fault when it is not a condition."""
    if clause is None:
        return None
    node = bind_names(clause.this if isinstance(clause, exp.Where) else clause, scope)
    found = infer(node, scope.columns)
    if found.kind not in (Kind.BOOLEAN, Kind.UNKNOWN):
        raise Fault(f"{what} needs a condition, not {found}", clause, "compare the value with something")
    return node


def _kind(join: exp.Expr) -> str:
    kind, side = (join.args.get("kind") or "").upper(), (join.args.get("side") or "").upper()
    if kind == "CROSS":
        raise Fault(
            "a comma or CROSS JOIN pairs everything with everything", join, "write JOIN ... ON with a condition"
        )
    if kind.lower() in HALF and side in ("", "LEFT"):
        return kind.lower()
    if kind not in ("", "INNER", "OUTER") or side not in _JOINS:
        raise Fault(f"{side} {kind} JOIN is not accepted".strip(), join, "known: INNER, LEFT, RIGHT, FULL, "
                    "LEFT SEMI, LEFT ANTI")  # fmt: skip
    return _JOINS[side]


def _lookup_kind(join: exp.Expr) -> str:
    kind, side = (join.args.get("kind") or "").upper(), (join.args.get("side") or "").upper()
    if kind == "CROSS":
        raise Fault("a comma or CROSS JOIN pairs every row with a whole table", join, "write JOIN ... ON")
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return kind.lower()
    if kind not in ("", "INNER", "OUTER") or side not in ("", "LEFT"):
        raise Fault(f"{side} {kind} JOIN with a table is not accepted".replace("  ", " ").strip(), join,
                    "rows come from streams alone; known: INNER, LEFT, LEFT SEMI, LEFT ANTI")  # fmt: skip
    return "left" if side == "LEFT" else "inner"


def _shared(join: exp.Expr, left: Relation, right: Relation, how: str) -> tuple[tuple[Key, Key], ...]:
    """The columns of both sides that USING names."""
    names = join.args.get("using") or ()
    if names and how not in ("inner", "left", *HALF):
        raise Fault(f"{how.upper()} JOIN ... USING is not accepted", join,
                    "write ON a.key = b.key, and coalesce(a.key, b.key) where both are wanted")  # fmt: skip
    found: list[tuple[Key, Key]] = []
    for name in names:
        sides = [[key for key in side.columns if key[1].lower() == name.name.lower()] for side in (left, right)]
        for side, keys in zip((left, right), sides, strict=True):
            if not keys:
                known = [column for _, column in side.columns if column != HIDDEN_TIME]
                raise Fault(f"USING needs '{name.name}' on both sides", name, nearest(name.name, known))
            if len(keys) > 1:
                owners = " or ".join(f"{table}.{column}" for table, column in keys)
                raise Fault(f"column '{name.name}' is ambiguous", name, f"write ON with {owners}")
        found.append((sides[0][0], sides[1][0]))
    return tuple(found)


def _equal(shared: Sequence[tuple[Key, Key]], scope: Scope) -> exp.Expr | None:
    equal = [exp.EQ(this=leaf(*one), expression=leaf(*other)) for one, other in shared]
    for each in equal:
        infer(each, scope.columns)
    return all_of(equal)


def _one_side(pairs: JoinRelation, at: exp.Expr, joins: int) -> Projection:
    """The rows of the left side that a semi or an anti join gives."""
    aliases = _aliases(pairs.left)
    if joins > 1 or len(aliases) > 1:
        raise Fault(f"LEFT {pairs.how.upper()} JOIN is between two tables", at, "put the other joins into a subquery")
    items = {name: (leaf(alias, name), type_) for (alias, name), type_ in pairs.left.columns.items()}
    return Projection(pairs, aliases[0], items)


def _renamed(base: StreamRelation, table: str, alias: str) -> Projection:
    return Projection(base, alias, {name: (leaf(table, name), type_) for (_, name), type_ in base.columns.items()})


def united(results: Sequence[ResultsRelation], alias: str) -> Relation:
    """The rows of all results, which have the same columns, under an alias."""
    named = [
        Projection(each, alias, {key[1]: (leaf(*key), type_) for key, type_ in each.columns.items()})
        for each in results
    ]
    return named[0] if len(named) == 1 else UnionRelation(tuple(named))


def _as_projection(relation: Relation) -> Projection:
    assert isinstance(relation, Projection)
    return relation


def _aliases(relation: Relation) -> list[str]:
    return list(dict.fromkeys(table for table, _ in relation.columns))


def _within_ranges(ranges: Mapping[str, int], newest: str, nullable: frozenset[str]) -> list[exp.Expr]:
    """A third stream's rows meet a pair only while each row of the pair is within its own range."""
    found: list[exp.Expr] = []
    for alias, size_us in ranges.items():
        later, earlier = (
            exp.Anonymous(this="unix_micros", expressions=[leaf(name, HIDDEN_TIME)]) for name in (newest, alias)
        )
        near: exp.Expr = exp.LTE(this=exp.Sub(this=later, expression=earlier), expression=exp.Literal.number(size_us))
        if alias in nullable:
            near = exp.Anonymous(this="coalesce", expressions=[near, exp.Boolean(this=True)])
        found.append(near)
    return found


def _aligned(inputs: list[Projection], alias: str, at: exp.SetOperation) -> list[Projection]:
    """Branches of a union under the first one's names and common types."""
    names = list(inputs[0].items)
    for branch in inputs:
        if len(branch.items) != len(names):
            raise Fault(
                f"UNION ALL of {len(names) - 1} and {len(branch.items) - 1} columns",
                at.expression,
                "select as many columns in each",
            )
    types = [inputs[0].items[name][1] for name in names]
    for branch in inputs[1:]:
        for position, (_, type_) in enumerate(branch.items.values()):
            found = common_type(types[position], type_)
            both = (types[position], type_)
            plain = (
                both[0].kind is both[1].kind or all(t.is_numeric for t in both) or all(t.kind in _TIMES for t in both)
            )
            if found is None or not (plain or Kind.NULL in (types[position].kind, type_.kind) or not found.is_known):
                here = f"UNION ALL: column '{names[position]}' is {types[position]} here and {type_} there"
                raise Fault(here, at.expression, "CAST one to the other's type")
            types[position] = found
    aligned: list[Projection] = []
    for branch in inputs:
        items = {
            name: (node if type_ == wanted or not wanted.is_known else _cast(node, wanted), wanted)
            for name, wanted, (node, type_) in zip(names, types, branch.items.values(), strict=True)
        }
        aligned.append(Projection(branch.base, alias, items, branch.where))
    return aligned


def _cast(node: exp.Expr, wanted: DataType) -> exp.Expr:
    return exp.Cast(this=node.copy(), to=exp.DataType.build(str(wanted), dialect="spark"))
