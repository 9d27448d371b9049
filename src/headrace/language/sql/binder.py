"""SQL to a bound query: read, bind FROM, then bind the rest by the kind of window."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headrace.errors import Problem, SpecError
from headrace.language.sql.aggregates import is_aggregate
from headrace.language.sql.brackets import RowsClause
from headrace.language.sql.from_clause import FromBinder, Source, united
from headrace.language.sql.levels import has_levels
from headrace.language.sql.over import has_over
from headrace.language.sql.over_rows import is_over_rows, over_rows
from headrace.language.sql.reading import read_query
from headrace.language.sql.refusals import refusal
from headrace.language.sql.relation import JoinRelation, Projection, streams_in
from headrace.language.sql.report import Fault, Place, Report
from headrace.language.sql.results import bind_all_levels, bind_over_answers, bind_results
from headrace.language.sql.rows import bind_rows
from headrace.language.sql.selected import bind_selected, selected_all
from headrace.language.sql.unfold import unfold
from headrace.language.sql.window_calls import window_call
from headrace.language.sql.windowed import bind_windowed
from headrace.model import Finish, Operator, Query, QueryShedding, SinkSpec, StepFunction, Stream, Table
from headrace.units import parse_duration

__all__ = ["bind_query"]


def bind_query(
    name: str,
    sql: str,
    streams: Mapping[str, Stream],
    *,
    sink: SinkSpec | None = None,
    priority: int = 0,
    weight: float = 1.0,
    lifetime: str | None = None,
    step: StepFunction | None = None,
    shedding: QueryShedding | None = None,
    file: str | None = None,
    line: int | None = None,
    place: Place | None = None,
    queries: Mapping[str, Query] | None = None,
    tables: Mapping[str, Table] | None = None,
) -> Query:
    """A query bound to its streams; raises SpecError with every problem found and where it stands.

    `queries` are those whose results it may read by name; what they say is then part of its own SQL. `tables` are those
    that rows may be looked up in.

    >>> from headrace.language.ddl import parse_schema
    >>> packets = Stream("packets", parse_schema("ts TIMESTAMP, src STRING, length INT"), time="ts")
    >>> sql = "SELECT src, SUM(length) AS n FROM packets [WINDOW 1 min] GROUP BY src"
    >>> query = bind_query("q", sql, {"packets": packets})
    >>> [output.name for output in query.finish.outputs]
    ['window_start', 'window_end', 'src', 'n']
    """
    known = tuple(queries or ())
    report = Report(sql, name, file=file, line=line, place=place, queries=known)
    try:
        if queries:
            read = unfold(sql, queries, (*streams, *(tables or {})))
            sql = read.sql
            report = Report(sql, name, file=file, line=line, place=place, at=read.at, length=read.length,
                            read=read.names, queries=known)  # fmt: skip
        root, finish = _bind(report, streams, step, tables or {})
        report.stop_if_wrong()
        lifetime_us = None if lifetime is None else parse_duration(lifetime)
        allowed = shedding or QueryShedding()
        return Query(name, sql, root, finish, sink or SinkSpec(), priority, weight, lifetime_us, allowed)
    except Fault as fault:
        report.add(fault.message, fault.at, fault.hint)
        raise SpecError(report.problems) from fault
    except RecursionError as exc:
        raise SpecError(
            Problem("the query is nested too deeply", file, line, query=name, hint="write it flatter")
        ) from exc
    except (ValueError, OverflowError) as exc:
        text = str(exc).removeprefix(f"query '{name}': ")
        raise SpecError([*report.problems, Problem(text, file, line, query=name)]) from exc


def _bind(
    report: Report, streams: Mapping[str, Stream], step: StepFunction | None, tables: Mapping[str, Table]
) -> tuple[Operator, Finish]:
    read = read_query(report)
    tree = read.tree
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        raise Fault(
            "a query is one SELECT, not a UNION",
            tree.expression,
            "write SELECT ... FROM (... UNION ALL ...) AS x",
        )
    if not isinstance(tree, exp.Select):
        raise Fault(
            f"a query is one SELECT, not {tree.key.upper()}", tree, "write SELECT ... FROM stream [WINDOW 10 min]"
        )
    binder = FromBinder(streams, read.clauses, report, bind_results, tables)
    source = binder.bind(tree)
    for start in sorted(binder.unclaimed):
        report.add(
            f"{read.clauses[start][0].text} does not follow a table",
            read.clauses[start][0].start,
            "write it after a stream in FROM",
        )
    report.stop_if_wrong()
    return _bind_select(tree, source, report, step)


def _bind_select(
    select: exp.Select, source: Source, report: Report, step: StepFunction | None
) -> tuple[Operator, Finish]:
    if is_over_rows(select, source):
        select, source = over_rows(select, source)
    if isinstance(source.window, RowsClause):
        return bind_rows(select, source, report, step)
    if step is not None:
        raise Fault("a function needs keys", select.args["from_"], "write FROM s [PARTITION BY k]")
    if has_levels(select):
        return selected_all(united(bind_all_levels(select, source, report), "levels"))
    if source.window is not None or window_call(select) is not None:
        return bind_windowed(select, source, report)
    if has_over(select) and select.args.get("group") is None:
        return selected_all(bind_over_answers(select, source, report))
    if select.args.get("group") is None and not any(
        is_aggregate(part) for item in select.expressions for part in item.walk()
    ):
        return bind_selected(select, source, report)
    raise _no_window(select, source)


def _no_window(select: exp.Select, source: Source) -> Fault:
    """Why an aggregate needs a window, or what else is wrong with its SELECT list."""
    refused = (refusal(part) for item in select.expressions for part in item.walk())
    first = next((fault for fault in refused if fault is not None), None)
    if first is not None:
        return first
    at, base = select.args["from_"], source.relation
    while isinstance(base, Projection):
        base = base.base
    if isinstance(base, JoinRelation):
        return Fault("an aggregate over a join needs a window", at,
                     "write FROM (SELECT ... JOIN ...) AS j [WINDOW 10 min SLIDE 2 min], "
                     "or GROUP BY window(a.ts, '10 minutes')")  # fmt: skip
    name = select.args["from_"].this.alias_or_name or streams_in(source.relation)[0]
    return Fault(f"an aggregate over '{name}', which never ends, needs a window", at,
                 f"write FROM {name} [WINDOW 10 min SLIDE 2 min], "
                 "or GROUP BY window(ts, '10 minutes')")  # fmt: skip
