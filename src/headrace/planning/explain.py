"""What would run, and why, in text and in plain values."""

from __future__ import annotations

from typing import Any

from headrace.errors import SpecError
from headrace.model import (
    GroupSchedule,
    Join,
    Operator,
    Pipeline,
    Query,
    RowsAggregate,
    Scan,
    Union,
    WindowAggregate,
    streams_of,
)
from headrace.planning.scheduling import Schedule, groups_of, subgroup_of
from headrace.planning.sharing import Kept, Workload, share
from headrace.planning.synopsis import AnswerPlan, plan_answer
from headrace.units import format_duration

__all__ = ["explain", "explain_text"]


def explain(pipeline: Pipeline) -> dict[str, Any]:
    """Streams, synopses with the queries they serve, and how each query is answered."""
    plans: dict[str, AnswerPlan] = {}
    refused: dict[str, str] = {}
    for query in pipeline.queries:
        try:
            plans[query.name] = plan_answer(query)
        except SpecError as problem:
            refused[query.name] = problem.problems[0].message
    workload = share(plans, pipeline.streams)
    empty = Schedule()
    decision = empty.decide(pipeline.engine.schedule, groups_of(workload, plans, empty), None, None)
    chosen = {group.group: group for group in decision.groups}
    queries = {
        query.name: _answered(workload, query.name)
        if query.name in plans
        else {**_shape(query), "runs": False, "why": refused[query.name]}
        for query in pipeline.queries
    }
    synopses = {
        id_: {**_synopsis(kept), "serves": [name for name in plans if id_ in workload.sources_of(name)]}
        for id_, kept in workload.kept.items()
    }
    return {
        "pipeline": pipeline.name,
        "streams": {
            s.name: {
                "time": s.time,
                "lateness": format_duration(s.lateness_us),
                "ahead": format_duration(s.ahead_us),
                "idle": format_duration(s.idle_us),
                "source": None if s.source is None else s.source.format,
            }
            for s in pipeline.streams
        },
        "synopses": synopses,
        "schedule": pipeline.engine.schedule,
        "groups": [_group(workload, main, chosen[main]) for main in workload.groups],
        "queries": queries,
        "jobs_per_epoch": JOBS,
    }


def _shape(query: Query) -> dict[str, Any]:
    return {"streams": list(streams_of(query.root)), "plan": _tree(query.root), "sink": query.sink.format}


def _tree(operator: Operator) -> Any:
    match operator:
        case Scan(stream=stream, where=where):
            return f"scan {stream}" + (f" where {where.sql}" if where else "")
        case Union(inputs=inputs):
            return {"union": [_tree(child) for child in inputs]}
        case Join(left=left, right=right, how=how, on=on, equalities=equalities):
            return {
                "join": how,
                "on": on.sql,
                "equalities": [f"{a} = {b}" for a, b in equalities],
                "left": {left.alias: _tree(left.input), "window": str(left.window)},
                "right": {right.alias: _tree(right.input), "window": str(right.window)},
            }
        case WindowAggregate(input=child, window=window, keys=keys, aggregates=aggregates):
            return {
                "aggregate": [f"{a.function}({a.argument or '*'})" for a in aggregates],
                "by": list(keys),
                "window": str(window),
                "input": _tree(child),
            }
        case RowsAggregate(input=child, window=window, aggregates=aggregates):
            return {
                "rows": str(window),
                "aggregate": [f"{a.function}({a.argument or '*'})" for a in aggregates],
                "input": _tree(child),
            }


def _answered(workload: Workload, name: str) -> dict[str, Any]:
    plan = workload.plans[name]
    window = plan.aggregate.window
    return {
        **_shape(plan.query),
        "runs": True,
        "window": str(window),
        "pane": format_duration(window.pane_us),
        "panes_per_answer": window.size_us // window.pane_us,
        "synopses": list(workload.sources_of(name)),
        "why": "; ".join(dict.fromkeys(workload.supplies[demand.synopsis.id].why for demand in plan.demands)),
    }


def _group(workload: Workload, main: str, schedule: GroupSchedule) -> dict[str, Any]:
    """Queries with the same groups of rows: answered together, from one scan."""
    names = workload.groups[main]
    plans = [workload.plans[name] for name in names]
    runs = {
        name: schedule.periods_us[subgroup_of(plan.aggregate.window)] for name, plan in zip(names, plans, strict=True)
    }
    same: dict[Any, list[str]] = {}
    for name, plan in zip(names, plans, strict=True):
        same.setdefault((plan.query.root, plan.query.finish), []).append(name)
    return {
        "queries": list(names),
        "by": list(plans[0].demands[0].synopsis.feeds[0].keys),
        "where": plans[0].demands[0].synopsis.feeds[0].where,
        "computed_once": [members for members in same.values() if len(members) > 1],
        "why": workload.supplies[main].why,
        "periods": {name: format_duration(period) for name, period in runs.items()},
        "schedule": schedule.reason,
        "sooner": [
            name for name, plan in zip(names, plans, strict=True) if runs[name] < plan.aggregate.window.slide_us
        ],
    }


def _synopsis(kept: Kept) -> dict[str, Any]:
    feed = kept.synopsis.feeds[0]
    return {
        "streams": [f.stream for f in kept.synopsis.feeds],
        "pane": format_duration(kept.pane_us),
        "keys": list(feed.keys),
        "detail": feed.detail,
        "where": feed.where,
        "measures": [m.kind if m.arguments is None else f"{m.kind}({m.arguments[0]})" for m in kept.measures],
        "keeps": kept.synopsis.keep,
    }


# How many Spark jobs an epoch takes, whatever its rows.
JOBS = "1 to absorb all streams, 1 to answer all due queries that write plain columns to Parquet, 1 per other due query"


def explain_text(pipeline: Pipeline) -> str:
    """The same for people."""
    value = explain(pipeline)
    lines = [f"pipeline {value['pipeline']}", "", "streams"]
    for name, stream in value["streams"].items():
        source = stream["source"] or "a DataFrame"
        lines.append(f"  {name}: from {source}, time {stream['time']}, rows up to {stream['lateness']} late are used")
    lines += ["", "synopses (partial aggregates by pane, kept once however many queries they serve)"]
    for id_, synopsis in value["synopses"].items():
        keys = ", ".join(synopsis["keys"]) or "no key"
        detail = f", detail {synopsis['detail']}" if synopsis["detail"] else ""
        where = f" where {synopsis['where']}" if synopsis["where"] else ""
        lines.append(
            f"  {id_}: panes of {synopsis['pane']} of {', '.join(synopsis['streams'])}{where} by {keys}{detail}"
        )
        lines.append(f"      keeps {', '.join(synopsis['measures'])}; serves {', '.join(synopsis['serves'])}")
    lines += ["", f"groups (queries answered together, from one scan of their panes; schedule {value['schedule']})"]
    for group in value["groups"]:
        where = f" where {group['where']}" if group["where"] else ""
        lines.append(f"  by {', '.join(group['by']) or 'no key'}{where}: {', '.join(group['queries'])}")
        lines.append(f"      {group['why']}")
        lines.append(f"      {group['schedule']}, before costs are measured")
        for name in group["sooner"]:
            lines.append(f"      {name} is answered every {group['periods'][name]}, sooner than asked: that is cheaper")
        for same in group["computed_once"]:
            lines.append(f"      {', '.join(same)} ask for the same and are computed once")
    lines += ["", "queries"]
    for name, query in value["queries"].items():
        if query["runs"]:
            lines.append(f"  {name}: {query['window']} over {', '.join(query['streams'])}, to {query['sink']}")
            lines.append(f"      {query['panes_per_answer']} panes per answer; {query['why']}")
        else:
            lines.append(f"  {name}: not run: {query['why']}")
            lines.append(f"      {query['plan']}")
    lines += ["", f"Spark jobs per epoch: {value['jobs_per_epoch']}"]
    return "\n".join(lines)
