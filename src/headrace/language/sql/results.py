"""Subqueries that aggregate: their results are the rows of a stream to the query around them.

An answer of a window is dated as Spark's `window_time` dates it, one microsecond before its end, so that the answers of
all minutes of an hour are in that hour; the result of a row window is dated as its row.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.language.sql.brackets import RowsClause
from headrace.language.sql.from_clause import Source
from headrace.language.sql.names import HIDDEN_TIME
from headrace.language.sql.relation import ResultsRelation
from headrace.language.sql.report import Fault, Report
from headrace.language.sql.rows import bind_rows
from headrace.language.sql.windowed import WINDOW_SQL, bind_windowed, window_call
from headrace.model import DataType, Finish, Kind, Output, Results, RowsAggregate, SlidingWindow, WindowAggregate

__all__ = ["bind_results"]

_WINDOW_TIME = Output(HIDDEN_TIME, "timestamp_micros(unix_micros(window_end) - 1)", DataType(Kind.TIMESTAMP))


def bind_results(select: exp.Select, source: Source, report: Report) -> ResultsRelation | None:
    """The results of a subquery, None if it neither has windows nor is over rows; notes problems, raises Fault."""
    root: WindowAggregate | RowsAggregate
    if isinstance(source.window, SlidingWindow):
        raise Fault("when [WINDOW ..] answers depends on the schedule, so that nothing can be said about its answers",
                    select, "group by window(ts, '10 minutes', '2 minutes') in the subquery, or write [WINDOW ..] "
                    "after its alias")  # fmt: skip
    if isinstance(source.window, RowsClause):
        found, finish = bind_rows(select, source, report, None, dated=True)
        assert isinstance(found, RowsAggregate)
        root, time = found, finish.outputs[-1].sql
    elif window_call(select) is not None:
        root, finish = bind_windowed(select, source, report)
        # The edges of the window are columns of a query's results; those of a subquery are what it selects.
        selected = finish.outputs[-len(select.expressions) :]
        finish, time = replace(finish, outputs=(*selected, _WINDOW_TIME)), WINDOW_SQL
    else:
        return None
    return ResultsRelation(Results(root, finish, HIDDEN_TIME), _named(finish, time))


def _named(finish: Finish, sql: str) -> frozenset[str]:
    return frozenset(output.name for output in finish.outputs if output.sql == sql)
