"""A bound query: a tree of operators over streams and what becomes of its rows.

SQL text inside the tree is Spark SQL. A `Scan` evaluates its expressions over one struct column per stream
(`packets.length`); every operator above refers to its child's columns by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.model.expectation import Expectation, ResultTest
from headrace.model.layout import why_no_layout
from headrace.model.shedding import QueryShedding
from headrace.model.sink import Output, SinkSpec
from headrace.model.types import Column, DataType
from headrace.model.window import HoppingWindow, RangeWindow, RowsWindow, SlidingWindow

__all__ = [
    "HALF",
    "LEAST_WEIGHT",
    "MOST_PRIORITY",
    "MOST_WEIGHT",
    "WITHOUT_PAIRS",
    "WITHOUT_RESULTS",
    "Aggregate",
    "Comparison",
    "Finish",
    "Join",
    "JoinSide",
    "Lookup",
    "LookupSide",
    "NamedExpression",
    "Operator",
    "OrderKey",
    "Output",
    "Over",
    "Query",
    "Results",
    "RowsAggregate",
    "Scan",
    "SinkSpec",
    "Step",
    "StepFunction",
    "Union",
    "WindowAggregate",
    "columns_of",
    "streams_of",
    "tables_of",
]

# Priorities are ranks and weights are shares: what is beyond these is a typing mistake.
MOST_PRIORITY = 1_000_000_000
WITHOUT_PAIRS = "without a row, a join lacks all its pairs"
WITHOUT_RESULTS = "without a row, the results that it reads are others"
# Joins whose results are rows of their left side.
HALF = ("semi", "anti")
LEAST_WEIGHT, MOST_WEIGHT = 1e-9, 1e9


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """A Spark SQL expression, the column it makes, and the input columns it reads (`packets.length`)."""

    name: str
    sql: str
    type: DataType
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of one stream for which `where` holds, as the columns named here.

    With `of` the stream is not a declared one: its rows are the results of a subquery. Where rows of a stream are
    elsewhere it is scanned `as_panes`.
    """

    stream: str
    columns: tuple[NamedExpression, ...]
    where: NamedExpression | None = None
    of: Results | None = None
    # Nodes are named by how they are written: the same wherever the rows are.
    as_panes: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs; the inputs have the same column names and types."""

    inputs: tuple[Operator, ...]

    def __post_init__(self) -> None:
        shapes = {tuple((c.name, c.type.kind) for c in columns_of(i)) for i in self.inputs}
        if len(self.inputs) < 2 or len(shapes) != 1:
            raise ValueError("UNION ALL needs two or more inputs with the same columns")


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One input of a join, the name its columns go by (`alias.column`), and how long a row can match."""

    alias: str
    input: Operator
    window: RangeWindow


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column of the left input compared with one of the right: `left operator right`, both as `type`."""

    left: str
    operator: str  # = < <= > >=
    right: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows within each other's ranges for which `on` holds; `columns` and `where` see both sides by alias.

    Results of a semi or anti join are rows of the left side, those with such a pair or those without.

    `comparisons` and `rest` together say the same as `on`, and for an inner join `on` and `where`: what can be looked
    up by columns of each side, and what needs an expression over both.
    """

    left: JoinSide
    right: JoinSide
    how: str  # inner | left | right | full | semi | anti
    on: NamedExpression
    equalities: tuple[tuple[str, str], ...]  # SQL pairs (left side, right side) that `on` requires to be equal
    columns: tuple[NamedExpression, ...]
    where: NamedExpression | None = None
    comparisons: tuple[Comparison, ...] = field(default=(), compare=False)
    rest: NamedExpression | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.how not in ("inner", "left", "right", "full", *HALF):
            raise ValueError(f"unknown join kind '{self.how}'; known: inner, left, right, full, semi, anti")


@dataclass(frozen=True, slots=True)
class LookupSide:
    """A table that rows are looked up in: the name its columns go by, those of them that are read, and the condition.

    `on` sees the input and all tables up to this one by their aliases.
    """

    alias: str
    table: str
    how: str  # inner | left | semi | anti
    columns: tuple[Column, ...]
    on: NamedExpression

    def __post_init__(self) -> None:
        if self.how not in ("inner", "left", "semi", "anti"):
            raise ValueError(f"unknown kind of lookup '{self.how}'; known: inner, left, semi, anti")


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows of an input with what tables have for them, one table after the other; nothing is kept between epochs.

    `columns` see the input as `alias` and each table by its own; the last of them is the time of the row.
    """

    alias: str
    input: Operator
    sides: tuple[LookupSide, ...]
    columns: tuple[NamedExpression, ...]

    def __post_init__(self) -> None:
        if not self.sides:
            raise ValueError("a lookup needs a table")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a query over its input's columns.

    `function` is one of `AGGREGATES`. `argument` is None for COUNT(*); of two values it is a struct (`PAIR`). `filter`
    names a boolean column; `parameters` are the literal arguments (a fraction, a k, an accuracy).
    """

    name: str
    function: str
    argument: str | None
    type: DataType
    distinct: bool = False
    filter: str | None = None
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates by key over a sliding or hopping window of event time.

    `time` names the input column that dates a row where the input has joins; None is the row's own time.
    """

    input: Operator
    window: SlidingWindow | HoppingWindow
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    time: str | None = None


@dataclass(frozen=True, slots=True)
class RowsAggregate:
    """Aggregates over the last rows of each key, for every row."""

    input: Operator
    window: RowsWindow
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class StepFunction:
    """User-defined state: `step(state, rows) -> (state, results)` over Arrow tables, and what its tables look like.

    `function` and `migration` are `module:name`. A state of another version is changed by the migration, or refused.
    """

    function: str
    state: tuple[Column, ...]
    results: tuple[Column, ...]
    version: int = 1
    migration: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.version <= MOST_PRIORITY:
            raise ValueError(f"versions of state count from 1 to {MOST_PRIORITY}, not {self.version}")
        if not self.state or not self.results:
            raise ValueError(f"function '{self.function}' needs columns of its state and of its results")


@dataclass(frozen=True, slots=True)
class Step:
    """Calls a function with the state of some keys and their rows, which it gets as the columns named here."""

    input: Operator
    partition_by: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]  # (name the function knows it by, input column)
    step: StepFunction

    def __post_init__(self) -> None:
        if not self.partition_by:
            raise ValueError("user-defined state needs a PARTITION BY column")


Operator = Scan | Union | Join | Lookup | WindowAggregate | RowsAggregate | Step


@dataclass(frozen=True, slots=True)
class Over:
    """A value that each row of a window's answer has from the others: a whole `... OVER (...)` of Spark SQL."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One ORDER BY term over the output columns."""

    sql: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """What turns the root operator's rows into results: HAVING, OVER, the SELECT list, ORDER BY and LIMIT per window.

    With `ties`, LIMIT keeps as well every row whose ORDER BY keys equal those of the last row within the limit. With an
    `offset` the first rows are left out; `limit` counts them, too.
    """

    outputs: tuple[Output, ...]
    having: str | None = None
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    distinct: bool = False
    ties: bool = False
    offset: int = 0
    over: tuple[Over, ...] = ()

    def __post_init__(self) -> None:
        if self.offset and (self.limit is None or self.ties):
            raise ValueError("OFFSET goes with LIMIT, and without TIES")
        if self.ties and (self.limit is None or not self.order_by):
            raise ValueError("WITH TIES goes with ORDER BY and LIMIT")


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a subquery or of a lookup in tables, which the column `time` dates.

    A root that is a scan reads the answers of other results, window by window: `finish` has what OVER makes of them.
    Results that are `coarse` are a level of GROUP BY beside a finer one.
    """

    root: WindowAggregate | RowsAggregate | Lookup | Scan
    finish: Finish
    time: str
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A continuous query, bound to its streams; with a lifetime it ends after so much event time.

    A root that is a scan or a union has no state: each of its rows is a result.
    """

    name: str
    sql: str
    root: Operator
    finish: Finish
    sink: SinkSpec = field(default_factory=SinkSpec)
    priority: int = 0
    weight: float = 1.0
    lifetime_us: int | None = None
    shedding: QueryShedding = field(default_factory=QueryShedding)
    expect: tuple[Expectation, ...] = ()

    def __post_init__(self) -> None:
        if self.lifetime_us is not None and self.lifetime_us <= 0:
            raise ValueError(f"query '{self.name}': a lifetime must be positive, not {self.lifetime_us} us")
        if not LEAST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise ValueError(
                f"query '{self.name}': weight must be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, not {self.weight}"
            )
        if abs(self.priority) > MOST_PRIORITY:
            raise ValueError(f"query '{self.name}': priority must be within {MOST_PRIORITY} of 0, not {self.priority}")
        if (why := why_no_layout(self.sink, self.finish.outputs)) is not None:
            raise ValueError(f"query '{self.name}': {why}")
        if self.shedding.scale and (why := self.why_never_shed) is not None:
            raise ValueError(f"query '{self.name}': shedding: scale has nothing to scale; {why}")
        if self.shedding.scale and self.shed_by_key:
            raise ValueError(f"query '{self.name}': shedding: scale has nothing to scale; a join has no sums")
        if self.shedding.protect is not None and self.protected_key is None:
            raise ValueError(
                f"query '{self.name}': shedding: protect names a column of GROUP BY among the results of an aggregate "
                f"over one stream, not '{self.shedding.protect}'"
            )

    @property
    def tests_results(self) -> bool:
        """Whether each result is tested by an expression."""
        return any(isinstance(each.test, ResultTest) for each in self.expect)

    @property
    def protected_key(self) -> int | None:
        """Which of the group keys has rare values that are kept before frequent ones, if one has."""
        root, wanted = self.root, self.shedding.protect
        if wanted is None or not isinstance(root, WindowAggregate) or not isinstance(root.input, Scan):
            return None
        named = {output.name.lower(): output.sql.strip("`") for output in self.finish.outputs}
        key = named.get(wanted.lower())
        return root.keys.index(key) if key in root.keys else None

    @property
    def why_never_shed(self) -> str | None:
        """Why no row of the query is ever shed; None if rows may be."""
        if self.shedding.never:
            return "its file says never"
        match self.root:
            case Scan() | Union() | Lookup():
                return "without a row, its result is missing, and no other result tells of it"
            case RowsAggregate():
                return "without a row, others would be the last of their key"
            case Step():
                return "a function's state has seen every row"
            case WindowAggregate(input=child):
                return _why_never_below(child)
            case Join():
                return _why_no_key(self.root)

    @property
    def shed_by_key(self) -> bool:
        """Whether rows may be shed by the key of a join, so that both rows of a pair are kept or none."""
        return isinstance(self.root, Join) and self.why_never_shed is None


def _why_never_below(operator: Operator) -> str | None:
    """Why no row below an aggregate is ever shed: there is more than streams."""
    match operator:
        case Join():
            return WITHOUT_PAIRS
        case Scan(of=Results()):
            return WITHOUT_RESULTS
        case Union(inputs=inputs):
            return next((why for child in inputs if (why := _why_never_below(child)) is not None), None)
    return None


def _why_no_key(join: Join) -> str | None:
    """Why the rows of a join are never shed by its key."""
    if join.how != "inner":
        return "without a row, others would look as if they had met nobody"
    if not any(each.operator == "=" for each in join.comparisons):
        return "without an equality in ON, no key says which rows go together"
    for side in (join.left.input, join.right.input):
        if (why := _why_never_below(side)) is not None:
            return why
        scans = side.inputs if isinstance(side, Union) else (side,)
        if len({scan.stream for scan in scans if isinstance(scan, Scan)}) < len(scans):
            return "a side that reads a stream twice has more than one key for each of its rows"
    return None


def columns_of(operator: Operator) -> tuple[Column, ...]:
    """The columns an operator gives to the one above it."""
    match operator:
        case Scan(columns=columns) | Join(columns=columns) | Lookup(columns=columns):
            return tuple(Column(c.name, c.type) for c in columns)
        case Union(inputs=inputs):
            return columns_of(inputs[0])
        case WindowAggregate(input=child, keys=keys, aggregates=aggregates):
            below = {column.name: column for column in columns_of(child)}
            return tuple(below[key] for key in keys) + tuple(Column(a.name, a.type) for a in aggregates)
        case RowsAggregate(input=child, aggregates=aggregates):
            return columns_of(child) + tuple(Column(a.name, a.type) for a in aggregates)
        case Step(step=step):
            return step.results


def streams_of(operator: Operator) -> tuple[str, ...]:
    """Names of the streams an operator reads, each once, in order of appearance."""
    match operator:
        case Scan(of=Results(root=root)):
            return streams_of(root)
        case Scan(stream=stream):
            return (stream,)
        case Union(inputs=inputs):
            found = [name for child in inputs for name in streams_of(child)]
        case Join(left=left, right=right):
            found = [*streams_of(left.input), *streams_of(right.input)]
        case WindowAggregate(input=child) | RowsAggregate(input=child) | Step(input=child) | Lookup(input=child):
            found = list(streams_of(child))
    return tuple(dict.fromkeys(found))


def tables_of(operator: Operator) -> tuple[str, ...]:
    """Names of the tables that rows below an operator are looked up in, each once, in order of appearance."""
    found: list[str] = []
    match operator:
        case Scan(of=Results(root=root)):
            found = [*tables_of(root)]
        case Union(inputs=inputs):
            found = [name for child in inputs for name in tables_of(child)]
        case Join(left=left, right=right):
            found = [*tables_of(left.input), *tables_of(right.input)]
        case Lookup(input=child, sides=sides):
            found = [*tables_of(child), *(side.table for side in sides)]
        case WindowAggregate(input=child) | RowsAggregate(input=child) | Step(input=child):
            found = [*tables_of(child)]
    return tuple(dict.fromkeys(found))
