"""What a FROM clause makes rows of, and how it becomes operators.

A relation is a tree of streams, joins, unions and results of subqueries with projections between them. Expressions
over it name its columns by (alias, column); `lower` unfolds projections until those expressions stand where they are
computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.language.sql.emit import emit
from headrace.language.sql.infer import infer
from headrace.language.sql.lookup import LookupRelation, TableRelation, draft, looked_up, timed_aliases
from headrace.language.sql.lookup import named as _named
from headrace.language.sql.names import HIDDEN_TIME
from headrace.language.sql.report import Fault
from headrace.language.sql.separable import separable
from headrace.language.sql.spark_text import Key, all_of, conjuncts, key_of, leaf, leaves, substitute
from headrace.model import (
    HALF,
    Comparison,
    DataType,
    Join,
    JoinSide,
    Kind,
    Operator,
    RangeWindow,
    Results,
    Scan,
    Stream,
    Union,
    streams_of,
)

__all__ = [
    "JoinRelation",
    "Projection",
    "Relation",
    "ResultsRelation",
    "StreamRelation",
    "Take",
    "UnionRelation",
    "answers_in",
    "has_pairs",
    "is_time",
    "is_window",
    "lower",
    "streams_in",
    "time_of",
]

BOOLEAN = DataType(Kind.BOOLEAN)
TIMESTAMP = DataType(Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class StreamRelation:
    """The rows of a stream as they come."""

    stream: Stream

    @property
    def columns(self) -> Mapping[Key, DataType]:
        name = self.stream.name
        return {**{(name, c.name): c.type for c in self.stream.row_columns}, (name, HIDDEN_TIME): TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns computed from `base`, known by one alias, for the rows where `where` holds."""

    base: Relation
    alias: str
    items: Mapping[str, tuple[exp.Expr, DataType]]
    where: exp.Expr | None = None

    @property
    def columns(self) -> Mapping[Key, DataType]:
        return {(self.alias, name): type_ for name, (_, type_) in self.items.items()}

    def unfold(self, node: exp.Expr) -> exp.Expr:
        """An expression over this projection as one over its base."""
        return substitute(node, {(self.alias, name): item for name, (item, _) in self.items.items()})


@dataclass(frozen=True, slots=True)
class UnionRelation:
    """All rows of all inputs, which are projections with the same alias, names and types."""

    inputs: tuple[Projection, ...]

    @property
    def columns(self) -> Mapping[Key, DataType]:
        return self.inputs[0].columns


@dataclass(frozen=True, slots=True)
class JoinRelation:
    """Pairs of rows of two relations; `left_us` and `right_us` say how long a row of each can match.

    Of the columns that USING names, `shared`, there is only the left one, and it comes first.
    """

    left: Relation
    right: Relation
    left_us: int
    right_us: int
    how: str
    on: exp.Expr
    shared: tuple[tuple[Key, Key], ...] = ()  # (left column, right column)

    @property
    def columns(self) -> Mapping[Key, DataType]:
        both, hidden = self.all_columns, {right for _, right in self.shared}
        order = dict.fromkeys([*(left for left, _ in self.shared), *both])
        return {key: both[key] for key in order if key not in hidden}

    @property
    def all_columns(self) -> Mapping[Key, DataType]:
        """The columns of both sides."""
        return {**self.left.columns, **self.right.columns}


@dataclass(frozen=True, slots=True)
class ResultsRelation:
    """The results of a subquery that aggregates, as rows of a stream; `times` are columns that tell the rows' time.

    Of the answers of aligned windows `edges` are the columns, and fields of these, that tell their window; others have
    none. The stream is named by the subquery's content: two that say the same are one.
    """

    results: Results
    times: frozenset[str]
    edges: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return "results_" + hashlib.sha256(repr(self.results).encode()).hexdigest()[:12]

    @property
    def columns(self) -> Mapping[Key, DataType]:
        name = self.name
        return {(name, output.name): output.type for output in self.results.finish.outputs}


Relation = StreamRelation | Projection | UnionRelation | JoinRelation | ResultsRelation | TableRelation | LookupRelation


@dataclass(frozen=True, slots=True)
class Take:
    """A column wanted from a relation: its name, its expression and the expression's type."""

    name: str
    node: exp.Expr
    type: DataType


def streams_in(relation: Relation) -> tuple[str, ...]:
    """Names of the streams below, in order of appearance, with repetition."""
    match relation:
        case StreamRelation(stream=stream):
            return (stream.name,)
        case Projection(base=base) | LookupRelation(base=base):
            return streams_in(base)
        case TableRelation():
            return ()
        case UnionRelation(inputs=inputs):
            return tuple(name for item in inputs for name in streams_in(item))
        case JoinRelation(left=left, right=right):
            return streams_in(left) + streams_in(right)
        case ResultsRelation(results=results):
            return streams_of(results.root)


def has_pairs(relation: Relation) -> bool:
    """Whether some rows are pairs of a join, which have two times."""
    match relation:
        case Projection(base=base):
            return has_pairs(base)
        case UnionRelation(inputs=inputs):
            return any(has_pairs(item) for item in inputs)
        case _:
            return isinstance(relation, JoinRelation)


def answers_in(relation: Relation) -> ResultsRelation | None:
    """The answers of aligned windows that a relation is made of, one row of each; None if it is made of others."""
    while isinstance(relation, Projection):
        relation = relation.base
    return relation if isinstance(relation, ResultsRelation) and relation.edges else None


def is_window(relation: Relation, node: exp.Expr) -> bool:
    """Whether an expression over answers tells their windows apart."""
    bare = node.unnest()
    if isinstance(relation, Projection):
        return is_window(relation.base, relation.unfold(bare))
    assert isinstance(relation, ResultsRelation)
    if isinstance(bare, exp.Dot) and isinstance(bare.this, exp.Column):
        return f"{bare.this.name}.{bare.expression.name}" in relation.edges
    return isinstance(bare, exp.Column) and bare.name in {HIDDEN_TIME, *relation.edges}


def is_time(relation: Relation, node: exp.Expr) -> bool:
    """Whether an expression is the event time of the relation's rows, or of one side of a join."""
    bare = node.unnest()
    match relation:
        case StreamRelation(stream=stream):
            return isinstance(bare, exp.Column) and bare.name in (stream.time, HIDDEN_TIME)
        case Projection():
            return is_time(relation.base, relation.unfold(bare))
        case UnionRelation(inputs=inputs):
            return all(is_time(item, bare) for item in inputs)
        case JoinRelation(left=left, right=right):
            if not isinstance(bare, exp.Column):
                return False
            return is_time(left if key_of(bare) in left.columns else right, bare)
        case LookupRelation(base=base):
            # A pair below has two times, and its lookup the later of them, which is no column.
            return not has_pairs(base) and is_time(base, bare)
        case TableRelation():
            return False
        case ResultsRelation(times=times):
            return isinstance(bare, exp.Column) and (bare.name in times or bare.name == HIDDEN_TIME)


def time_of(relation: Relation) -> exp.Expr:
    """The time of a row: its own, or the later of a joined pair's."""
    times = [leaf(alias, HIDDEN_TIME) for alias in timed_aliases(relation)]
    return times[0] if len(times) == 1 else exp.Anonymous(this="greatest", expressions=times)


def lower(relation: Relation, takes: Sequence[Take], where: exp.Expr | None = None) -> Operator:
    """The operator whose columns are `takes`, over the rows where `where` holds."""
    match relation:
        case StreamRelation(stream=stream):
            return _scan(stream, takes, where)
        case Projection():
            unfolded = [Take(take.name, relation.unfold(take.node), take.type) for take in takes]
            outer = relation.unfold(where) if where is not None else None
            return lower(relation.base, unfolded, all_of([*conjuncts(relation.where), *conjuncts(outer)]))
        case UnionRelation(inputs=inputs):
            return Union(tuple(lower(item, takes, where) for item in inputs))
        case JoinRelation():
            return _join(relation, takes, where)
        case LookupRelation():
            plan = draft(relation, [take.node for take in takes], where, time_of(relation))
            child = lower(plan.base, [Take(*take) for take in plan.takes], plan.where)
            return looked_up(plan, child, [(take.name, take.node, take.type) for take in takes])
        case TableRelation(alias=alias):
            raise Fault(f"table '{alias}' stands alone", hint="join a stream with it: FROM s JOIN t ON ...")
        case ResultsRelation():
            env = relation.columns
            columns = tuple(_named(take.name, take.node, take.type, env) for take in takes)
            condition = None if where is None else _named("where", where, BOOLEAN, env)
            return Scan(relation.name, columns, condition, relation.results)


def _scan(stream: Stream, takes: Sequence[Take], where: exp.Expr | None) -> Scan:
    time = {(stream.name, HIDDEN_TIME): leaf(stream.name, stream.time)}
    env = StreamRelation(stream).columns
    columns = tuple(_named(take.name, substitute(take.node, time), take.type, env) for take in takes)
    condition = None if where is None else _named("where", substitute(where, time), BOOLEAN, env)
    return Scan(stream.name, columns, condition, as_panes=stream.as_panes)


def _join(relation: JoinRelation, takes: Sequence[Take], where: exp.Expr | None) -> Join:
    on, after = conjuncts(relation.on), conjuncts(where)
    pushed: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
    # Conditions on one side hold before the join as well as after it, and keep rows out of its windows.
    if relation.how in ("inner", "semi"):
        on = _push(on, relation, pushed)
    if relation.how in ("inner", *HALF):
        after = _push(after, relation, pushed)
    condition = all_of(on) or exp.Boolean(this=True)
    rest = all_of(after)
    used = leaves(*(take.node for take in takes), condition, rest)
    found, others = separable(
        [*on, *after] if relation.how == "inner" else on, relation.left.columns, relation.right.columns
    )
    left, left_names, compared_left = _side(
        relation.left, relation.left_us, used, all_of(pushed[0]), relation.right, [c.left for c in found]
    )
    right, right_names, compared_right = _side(
        relation.right, relation.right_us, used, all_of(pushed[1]), relation.left, [c.right for c in found]
    )
    names = {**left_names, **right_names}
    types = relation.all_columns
    env = {key_of(name): types[key] for key, name in names.items() if isinstance(name, exp.Column)}
    remaining = all_of(others)
    return Join(
        left=left,
        right=right,
        how=relation.how,
        on=_named("on", substitute(condition, names), BOOLEAN, env),
        equalities=tuple(_equalities(on, relation, names, env)),
        columns=tuple(_named(take.name, substitute(take.node, names), take.type, env) for take in takes),
        where=None if rest is None else _named("where", substitute(rest, names), BOOLEAN, env),
        comparisons=tuple(
            Comparison(a, c.operator, b, c.type) for a, b, c in zip(compared_left, compared_right, found, strict=True)
        ),
        rest=None if remaining is None else _named("rest", substitute(remaining, names), BOOLEAN, env),
    )


def _push(
    parts: list[exp.Expr], relation: JoinRelation, pushed: tuple[list[exp.Expr], list[exp.Expr]]
) -> list[exp.Expr]:
    """The conditions that need both sides; the others are added to the side they belong to."""
    kept: list[exp.Expr] = []
    for part in parts:
        keys = set(leaves(part))
        if keys and keys <= set(relation.left.columns):
            pushed[0].append(part)
        elif keys and keys <= set(relation.right.columns):
            pushed[1].append(part)
        else:
            kept.append(part)
    return kept


def _side(
    relation: Relation,
    range_us: int,
    used: Sequence[Key],
    where: exp.Expr | None,
    other: Relation,
    compared: Sequence[exp.Expr],
) -> tuple[JoinSide, dict[Key, exp.Expr], list[str]]:
    """One input of a join, with the columns used above, what each is called there, and the columns to compare by."""
    types = relation.columns
    wanted = [key for key in used if key in types]
    aliases = list(dict.fromkeys(table for table, _ in types))
    alias = aliases[0] if len(aliases) == 1 else _fresh("joined", [table for table, _ in other.columns])
    called = {key: key[1] if len(aliases) == 1 else f"c{number}" for number, key in enumerate(wanted)}
    takes = [Take(called[key], leaf(*key), types[key]) for key in wanted]
    names: list[str] = []
    for node in compared:
        bare = node.unnest()
        if isinstance(bare, exp.Column) and key_of(bare) in called:
            names.append(called[key_of(bare)])
            continue
        known = next((take.name for take in takes if take.node == bare), None)
        name = known or _fresh(f"compared{len(takes)}", list(called.values()))
        if known is None:
            takes.append(Take(name, bare, infer(bare, types)))
        names.append(name)
    side = JoinSide(alias, lower(relation, takes, where), RangeWindow(range_us))
    return side, {key: leaf(alias, name) for key, name in called.items()}, names


def _fresh(name: str, taken: Sequence[str]) -> str:
    while name.lower() in (other.lower() for other in taken):
        name += "_"
    return name


def _equalities(
    parts: Sequence[exp.Expr], relation: JoinRelation, names: Mapping[Key, exp.Expr], env: Mapping[Key, DataType]
) -> list[tuple[str, str]]:
    """Conditions `left expression = right expression`."""
    left, right = set(relation.left.columns), set(relation.right.columns)
    found: list[tuple[str, str]] = []
    for part in (part.unnest() for part in parts):
        if not isinstance(part, exp.EQ):
            continue
        a, b = set(leaves(part.this)), set(leaves(part.expression))
        sides = [emit(substitute(side, names), env) for side in (part.this, part.expression)]
        if a and b and a <= left and b <= right:
            found.append((sides[0], sides[1]))
        elif a and b and a <= right and b <= left:
            found.append((sides[1], sides[0]))
    return found
