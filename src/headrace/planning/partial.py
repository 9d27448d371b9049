"""Partial aggregates that are made where rows are born: the query that makes panes there, and how they merge elsewhere.

    SELECT r.k, SUM(r.i) AS sum_1, COUNT(*) AS n FROM r WHERE r.i > 0 GROUP BY window(r.ts, '20 seconds'), r.k

is one feed of a synopsis, asked as a query: each group of each pane is one row of its results, given once, when the
pane is closed. A detail is one more key. Sums are asked with the digits that panes keep, so that nothing overflows
before it is merged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headrace.model import PANES, Column, DataType, Feed, Kind, Measure, Synopsis, sum_of

__all__ = ["PANE_TIMES", "Partial", "merged_columns", "panes_name", "partial_of"]

# What the results of a windowed query have besides what it selects.
PANE_TIMES = ("window_start", "window_end")
_BIGINT, _DOUBLE = DataType(Kind.BIGINT), DataType(Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Partial:
    """One feed of a synopsis as a query over its stream; `fields` are the columns of its results, their times apart."""

    name: str
    stream: str
    select: str
    rest: str
    fields: tuple[Column, ...]

    def sql(self, source: str) -> str:
        """The query over a stream, given as FROM names it."""
        return f"{self.select} FROM {source} {self.rest}"

    @property
    def column(self) -> Column:
        """The column that its results are where they are merged."""
        return Column(self.name, DataType(Kind.STRUCT, fields=self.fields))


def partial_of(synopsis: Synopsis, number: int, measures: Iterable[Measure], pane_us: int, time: str) -> Partial | None:
    """The query that makes panes of a feed, whose stream has its time in that column; None if rows have to travel."""
    feed = synopsis.feeds[number]
    own = _own(number, measures)
    asked = [_asked(measure) for measure in own]
    details = () if synopsis.detail is None else (synopsis.detail,)
    if synopsis.keep is not None or not all(asked) or not all(map(_is_kept, (*synopsis.keys, *details))):
        return None
    groups = [(f"k{i}", sql, type_) for i, (sql, type_) in enumerate(zip(feed.keys, synopsis.keys, strict=True))]
    if feed.detail is not None and synopsis.detail is not None:
        groups.append(("d", feed.detail, synopsis.detail))
    chosen = [*groups, *(column for columns in asked for column in columns or ())]
    where = f"WHERE {feed.where} " if feed.where is not None else ""
    window = f"window({feed.stream}.`{time}`, '{pane_us} microseconds')"
    return Partial(
        panes_name(synopsis, number, own, pane_us),
        feed.stream,
        f"SELECT {', '.join(f'{sql} AS {name}' for name, sql, _ in chosen)}",
        f"{where}GROUP BY {', '.join([window, *(sql for _, sql, _ in groups)])}",
        tuple(Column(name, type_) for name, _, type_ in chosen),
    )


def panes_name(synopsis: Synopsis, number: int, measures: Iterable[Measure], pane_us: int) -> str:
    """The name of what another site makes of a feed: of its content alone, so that both ends find it by themselves."""
    feed = synopsis.feeds[number]
    what = [feed.stream, feed.where, feed.keys, feed.detail, [str(key) for key in synopsis.keys], str(synopsis.detail)]
    kept = [[m.kind, m.arguments, str(m.type)] for m in _own(number, measures)]
    return PANES + hashlib.sha256(json.dumps([what, kept, pane_us]).encode()).hexdigest()[:12]


def merged_columns(measure: Measure, number: int, feed: Feed) -> Iterator[str]:
    """Spark SQL for each column of a measure in panes that came from elsewhere."""
    own = measure.of(number)
    at: Callable[[str], str] = lambda name: f"{feed.stream}.`{feed.panes}`.`{name}`"  # noqa: E731
    if own.kind != "moments":
        yield at(own.column)
        return
    n, mean, variance = (at(f"{own.column}_{part}") for part in ("n", "mean", "var"))
    yield from (n, mean, f"{variance} * {n}")


def _own(number: int, measures: Iterable[Measure]) -> list[Measure]:
    return sorted({measure.of(number) for measure in measures}, key=lambda measure: measure.column)


def _asked(measure: Measure) -> tuple[tuple[str, str, DataType], ...] | None:
    """Name, SQL and kept type of each column of a measure; None if no query gives what panes keep of it."""
    name, of = measure.column, "" if measure.arguments is None else measure.arguments[0]
    match measure.kind:
        case "rows":
            return ((name, "COUNT(*)", _BIGINT),)
        case "count":
            return ((name, f"COUNT({of})", _BIGINT),)
        case "sum" if (kept := _sum(of, measure.type)) is not None:
            return ((name, *kept),)
        case "min" | "max" | "bit_and" | "bit_or" | "bit_xor" if _is_kept(measure.type):
            return ((name, f"{measure.kind.upper()}({of})", measure.type),)
        case "moments":
            return (
                (f"{name}_n", f"COUNT({of})", _BIGINT),
                (f"{name}_mean", f"AVG(CAST({of} AS DOUBLE))", _DOUBLE),
                (f"{name}_var", f"VAR_POP(CAST({of} AS DOUBLE))", _DOUBLE),
            )
        case _:
            return None


def _sum(of: str, type_: DataType) -> tuple[str, DataType] | None:
    """A sum that no pane is too long for, and the type that panes keep it in."""
    match type_.kind:
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT:
            return f"SUM({of})", _BIGINT
        case Kind.BIGINT:
            return f"SUM(CAST({of} AS DECIMAL(19,0)))", DataType(Kind.DECIMAL, 38, 0)
        case Kind.FLOAT | Kind.DOUBLE:
            return f"SUM({of})", _DOUBLE
        case Kind.DECIMAL if sum_of(type_) == "sum":
            return f"SUM({of})", DataType(Kind.DECIMAL, 38, type_.scale)
        case _:
            return None


def _is_kept(type_: DataType) -> bool:
    """Whether values of a type come along a link as they are: of what only Spark can type nothing is known."""
    nested = (Kind.UNKNOWN, Kind.NULL, Kind.MAP, Kind.STRUCT, Kind.ARRAY, Kind.INTERVAL)
    return type_.kind not in nested
