"""What would run, and why, in text and in plain values."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from headrace.errors import SpecError
from headrace.model import (
    Finish,
    GroupSchedule,
    Join,
    Lookup,
    Operator,
    Pipeline,
    Query,
    Results,
    RowsAggregate,
    Scan,
    Step,
    Table,
    Union,
    WindowAggregate,
    streams_of,
    tables_of,
)
from headrace.planning.flow import FlowPlan, NodePlan
from headrace.planning.graph import build_graph
from headrace.planning.graph_drawing import graph_json
from headrace.planning.join import JoinPlan
from headrace.planning.lookup import LookupPlan
from headrace.planning.parting import part_queries
from headrace.planning.placed import place
from headrace.planning.plan import plan_query
from headrace.planning.rates import KnownRates
from headrace.planning.row_window import RowsPlan, StepPlan
from headrace.planning.scheduling import Schedule, groups_of, subgroup_of
from headrace.planning.select import SelectPlan
from headrace.planning.sharing import Kept, Workload, nodes_of, share
from headrace.planning.shedding import Part, parts_of
from headrace.planning.synopsis import AnswerPlan
from headrace.policies import FluxSettings, JoinStats, SideStats, choose_way, tuning_of
from headrace.units import format_bytes, format_duration

__all__ = ["explain", "explain_text", "plan_pipeline"]


def plan_pipeline(pipeline: Pipeline) -> tuple[Workload, dict[str, str]]:
    """The workload of a pipeline as it would start, and why queries that cannot be run are not part of it."""
    plans: list[AnswerPlan | FlowPlan] = []
    refused: dict[str, str] = {}
    for query in part_queries(pipeline.queries, pipeline.engine, {}):
        try:
            plans.append(plan_query(query))
        except SpecError as problem:
            refused[query.name] = problem.problems[0].message
    answers, flows = nodes_of(plans)
    return replace(share(answers, pipeline.streams), flows=flows), refused


def explain(pipeline: Pipeline, known: KnownRates | None = None) -> dict[str, Any]:
    """Streams, synopses with the queries they serve, how each query is answered, the graph, and where it would run."""
    flux = tuning_of(dict(pipeline.engine.conf)).flux
    workload, refused = plan_pipeline(pipeline)
    roots = workload.queries
    empty = Schedule()
    decision = empty.decide(pipeline.engine.schedule, groups_of(workload, roots, empty), None, None)
    chosen = {group.group: group for group in decision.groups}
    queries = {
        query.name: {**_shape(query), "runs": True, **_run(workload, roots[query.name], pipeline.engine.join, flux)}
        if query.name in roots
        else {**_shape(query), "runs": False, "why": refused[query.name]}
        for query in pipeline.queries
    }
    synopses = {id_: {**_synopsis(kept), "serves": _served(workload, id_)} for id_, kept in workload.kept.items()}
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
        **({"tables": {t.name: _table(t, pipeline) for t in pipeline.tables}} if pipeline.tables else {}),
        "synopses": synopses,
        "schedule": pipeline.engine.schedule,
        "groups": [_group(workload, main, chosen[main]) for main in workload.groups if main in chosen],
        "queries": queries,
        "graph": graph_json(build_graph(workload, pipeline.streams)),
        **({} if pipeline.engine.shedding == "off" else {"shedding": _shedding(workload, pipeline)}),
        **({} if pipeline.network is None else {"placement": place(pipeline, workload, known).to_json()}),
        "jobs_per_epoch": JOBS,
    }


def _table(table: Table, pipeline: Pipeline) -> dict[str, Any]:
    """What a table is read from, how often, and for which queries."""
    return {
        "source": None if table.source is None else table.source.format,
        "columns": {column.name: str(column.type) for column in table.columns},
        "refresh": None if table.refresh_us is None else format_duration(table.refresh_us),
        "limit": format_bytes(table.limit_bytes),
        "on_error": table.on_error,
        "serves": [query.name for query in pipeline.queries if table.name in tables_of(query.root)],
    }


def _shape(query: Query) -> dict[str, Any]:
    return {
        "streams": list(streams_of(query.root)),
        "plan": _tree(query.root),
        **_over(query.finish),
        "sink": query.sink.format,
    }


def _shedding(workload: Workload, pipeline: Pipeline) -> dict[str, Any]:
    """What a pipeline that may shed does to which queries, and why it spares the others."""
    parts = parts_of(workload, workload.queries, [stream.name for stream in pipeline.streams])
    told = [{"queries": list(p.queries), "by": _shed_by(p), "why_never": p.why_never} for p in parts]
    return {"strategy": pipeline.engine.shedding, "objective": pipeline.engine.objective, "parts": told}


def _shed_by(part: Part) -> str | None:
    return None if part.why_never is not None else "key of the join" if part.by_key else "row"


def _served(workload: Workload, synopsis: str) -> list[str]:
    nodes = (name for name in workload.plans if synopsis in workload.sources_of(name))
    return list(dict.fromkeys(query for name in nodes for query in workload.queries_over(name)))


def _over(finish: Finish) -> dict[str, Any]:
    """What OVER makes of the answers of a window."""
    return {"over": [over.sql for over in finish.over]} if finish.over else {}


def _tree(operator: Operator) -> Any:
    match operator:
        case Scan(where=where, of=Results(root=root, finish=finish)):
            return {"results": _tree(root), **_over(finish), **({"where": where.sql} if where else {})}
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
        case Lookup(alias=alias, input=child, sides=sides):
            tables = [{"table": s.table, "as": s.alias, "lookup": s.how, "on": s.on.sql} for s in sides]
            return {"tables": tables, alias: _tree(child)}
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
        case Step(input=child, partition_by=keys, step=step):
            return {"step": step.function, "version": step.version, "by": list(keys), "input": _tree(child)}


def _run(workload: Workload, plan: NodePlan, wanted: str, flux: FluxSettings) -> dict[str, Any]:
    """How a node is run, and by name those whose results it reads."""
    if isinstance(plan, AnswerPlan):
        value = _answered(workload, plan)
    else:
        assert isinstance(plan, FlowPlan)
        value = _flow(plan, wanted, flux)
    below = {each.name: _below(workload, each, wanted, flux) for each in plan.below}
    return {**value, **({"below": below} if below else {})}


def _below(workload: Workload, plan: NodePlan, wanted: str, flux: FluxSettings) -> dict[str, Any]:
    shared = workload.queries_over(plan.name)
    shape = {"streams": list(plan.reads), "plan": _tree(plan.query.root), "serves": list(shared)}
    return {**shape, **_run(workload, plan, wanted, flux)}


def _answered(workload: Workload, plan: AnswerPlan) -> dict[str, Any]:
    window = plan.aggregate.window
    return {
        "window": str(window),
        "pane": format_duration(window.pane_us),
        "panes_per_answer": window.size_us // window.pane_us,
        "synopses": list(workload.sources_of(plan.name)),
        "why": "; ".join(dict.fromkeys(workload.supplies[demand.synopsis.id].why for demand in plan.demands)),
    }


# Hosts that `explain` takes for granted; how many there are is known when a run starts.
HOSTS = 4
# Rows per epoch of each side that it takes for granted, and how many epochs windows are long.
RATE, EPOCHS = 100_000.0, 5


def _flow(plan: FlowPlan, wanted: str, flux: FluxSettings) -> dict[str, Any]:
    """How a query whose results come with its rows is run, as far as that is known before any row is."""
    if isinstance(plan, SelectPlan):
        return {
            "select": {output.name: plan.sql_of(output) for output in plan.query.finish.outputs},
            "why": "each row is a result by itself: nothing is kept between epochs",
        }
    if isinstance(plan, LookupPlan):
        return {
            "lookup": [f"{side.table} ({side.how}) ON {side.on.sql}" for side in plan.lookup.sides],
            "why": "each row meets the tables as they were read last: nothing is kept of it between epochs",
        }
    if not isinstance(plan, JoinPlan):
        return _keyed(plan, flux)
    side = SideStats(RATE, EPOCHS * RATE)
    chosen = choose_way(JoinStats(side, side, bool(plan.equal), (1.0,) * HOSTS), wanted)
    join = plan.join
    direct = plan.picked is not None and join.rest is None and (join.where is None or join.how == "inner")
    direct &= plan.feeds is None
    return {
        "windows": {side.alias: str(side.window) for side in (join.left, join.right)},
        "looked_up_by": [f"{c.left} {c.operator} {c.right}" for c in join.comparisons],
        "by_spark": None if join.rest is None else join.rest.sql,
        "way": chosen.way,
        "wanted": wanted,
        "costs_s": dict(chosen.costs_s),
        "finished_by": "the tasks that join" if direct else "Spark SQL",
        "why": f"{chosen.reason}; chosen anew from what is measured"
        if wanted == "auto"
        else f"join: {wanted} is set; {chosen.reason}",
    }


def _keyed(plan: FlowPlan, settings: FluxSettings) -> dict[str, Any]:
    """How a row window or a function keeps its state."""
    assert isinstance(plan, RowsPlan | StepPlan)
    store = plan.stores[0]
    shares = isinstance(plan, RowsPlan)
    rows = f" ROWS {plan.root.window.rows}" if isinstance(plan, RowsPlan) else ""
    moves = (
        f"they move, {format_bytes(settings.budget_bytes)} per epoch at most, where one bin has "
        f"{settings.limits.imbalance} times the load of another or more state than memory"
        if settings.moves
        else "they do not move (spark.headrace.flux.moves is off)"
    )
    hot = "bins share the work of one that is hot" if shares else "one that is hot gets a bin to itself"
    return {
        "window": f"[PARTITION BY {', '.join(store.feeds[0].keys)}{rows}]",
        "function": None if isinstance(plan, RowsPlan) else plan.root.step.function,
        "version": None if isinstance(plan, RowsPlan) else plan.root.step.version,
        "keys": list(store.feeds[0].keys),
        "keeps": [column.name for column in store.columns],
        "mini_partitions_per_bin": settings.minis_per_bin,
        "moved_bytes_per_epoch": settings.budget_bytes,
        "why": f"{settings.minis_per_bin} mini-partitions per bin stay in the bin's process; {moves}; {hot}",
    }


def _group(workload: Workload, main: str, schedule: GroupSchedule) -> dict[str, Any]:
    """Queries with the same groups of rows: answered together, from one scan."""
    names = [name for name in workload.groups[main] if name in workload.queries]
    plans = [workload.plans[name] for name in names]
    runs = {
        name: schedule.periods_us[subgroup_of(plan.aggregate.window)] for name, plan in zip(names, plans, strict=True)
    }
    same: dict[Any, list[str]] = {}
    for name, plan in zip(names, plans, strict=True):
        same.setdefault((plan.query.root, plan.query.finish), []).append(name)
    return {
        "queries": names,
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


def _measure(kind: str, arguments: tuple[str, ...] | None) -> str:
    """A measure as a reader knows it: how a sum is kept is no concern of theirs."""
    return kind if arguments is None else f"{'sum' if kind == 'limbs' else kind}({arguments[0]})"


def _synopsis(kept: Kept) -> dict[str, Any]:
    feed = kept.synopsis.feeds[0]
    return {
        "streams": [f.stream for f in kept.synopsis.feeds],
        "pane": format_duration(kept.pane_us),
        "keys": list(feed.keys),
        "detail": feed.detail,
        "where": feed.where,
        "measures": [_measure(m.kind, m.arguments) for m in kept.measures],
        "keeps": kept.synopsis.keep,
    }


# A longer expression says less to a reader than the columns in it.
SHOWN = 60


def _shown(detail: str) -> str:
    """What groups are told apart by besides their keys, for people; the expression of a sketch by its columns.

    >>> _shown("logs.host"), _shown("CASE WHEN logs.ms > 0 THEN CAST(CEIL(LN(logs.ms) / 0.02) AS INT) + 1000000 END")
    ('logs.host', 'buckets of logs.ms')
    """
    columns = dict.fromkeys(re.findall(r"\b[a-zA-Z_]\w*\.[a-zA-Z_]\w*", detail))
    return detail if len(detail) <= SHOWN or not columns else f"buckets of {', '.join(columns)}"


# How many Spark jobs an epoch takes, whatever its rows.
JOBS = (
    "1 to absorb all streams, 1 to answer all due queries that write plain columns to Parquet, 1 for all joins that "
    "do, 1 for all SELECTs without a window to Parquet, 1 for all row windows and functions, 1 or more per other due "
    "query or join, and per row window or function that computes columns or has another sink; 1 per node whose results "
    "another reads, lookups in tables included"
)


def explain_text(pipeline: Pipeline, known: KnownRates | None = None) -> str:
    """The same for people."""
    value = explain(pipeline, known)
    lines = [f"pipeline {value['pipeline']}", "", "streams"]
    for name, stream in value["streams"].items():
        source = stream["source"] or "a DataFrame"
        lines.append(f"  {name}: from {source}, time {stream['time']}, rows up to {stream['lateness']} late are used")
    if "tables" in value:
        lines += ["", "tables (read whole, and looked up in as they were read last)"]
    for name, table in value.get("tables", {}).items():
        often = "at every start" if table["refresh"] is None else f"every {table['refresh']}"
        lines.append(f"  {name}: from {table['source'] or 'a DataFrame'}, read {often}, at most {table['limit']}")
        lines.append(f"      serves {', '.join(table['serves']) or 'no query'}")
    if value["synopses"]:
        lines += ["", "synopses (partial aggregates by pane, kept once however many queries they serve)"]
    for id_, synopsis in value["synopses"].items():
        keys = ", ".join(synopsis["keys"]) or "no key"
        detail = f", detail {_shown(synopsis['detail'])}" if synopsis["detail"] else ""
        where = f" where {synopsis['where']}" if synopsis["where"] else ""
        lines.append(
            f"  {id_}: panes of {synopsis['pane']} of {', '.join(synopsis['streams'])}{where} by {keys}{detail}"
        )
        lines.append(f"      keeps {', '.join(synopsis['measures'])}; serves {', '.join(synopsis['serves'])}")
    if value["groups"]:
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
            lines += _lines(f"  {name}: ", query, f", to {query['sink']}")
        else:
            lines.append(f"  {name}: not run: {query['why']}")
            lines.append(f"      {query['plan']}")
    if "shedding" in value:
        lines += ["", f"shedding ({value['shedding']['strategy']}, for {value['shedding']['objective']})"]
    for part in value.get("shedding", {}).get("parts", ()):
        what = f"never: {part['why_never']}" if part["by"] is None else f"by {part['by']}"
        together = ", which lose the same rows" if len(part["queries"]) > 1 and part["by"] else ""
        lines.append(f"  {', '.join(part['queries'])}: {what}{together}")
    if pipeline.network is not None:
        lines += ["", place(pipeline, plan_pipeline(pipeline)[0], known).text()]
    lines += ["", f"Spark jobs per epoch: {value['jobs_per_epoch']}"]
    return "\n".join(lines)


def _lines(head: str, node: dict[str, Any], tail: str) -> list[str]:
    """A node and, farther right, those whose results it reads."""
    streams, indent = ", ".join(node["streams"]), " " * (len(head) - len(head.lstrip()) + 4)
    if "way" in node:
        lines = _join_lines(head, node, tail, indent)
    elif "select" in node:
        lines = [f"{head}each row of {streams} as {', '.join(node['select'])}{tail}", f"{indent}{node['why']}"]
    elif "lookup" in node:
        lines = [f"{head}{streams} looked up in {', '.join(node['lookup'])}{tail}", f"{indent}{node['why']}"]
    elif "mini_partitions_per_bin" in node:
        what = f"{node['function']} (state of version {node['version']}) over " if node["function"] else ""
        lines = [f"{head}{what}{node['window']} over {streams}{tail}", f"{indent}{node['why']}"]
    else:
        lines = [f"{head}{node['window']} over {streams}{tail}"]
        lines.append(f"{indent}{node['panes_per_answer']} panes per answer; {node['why']}")
    for name, below in node.get("below", {}).items():
        serves = f", for {', '.join(below['serves'])}" if len(below["serves"]) > 1 else ""
        lines += _lines(f"{indent}reads {name}: ", below, serves)
    return lines


def _join_lines(head: str, node: dict[str, Any], tail: str, indent: str) -> list[str]:
    windows = ", ".join(f"{alias} {window}" for alias, window in node["windows"].items())
    by = ", ".join(node["looked_up_by"]) or "time alone"
    costs = ", ".join(f"{way} {seconds:.4f} s" for way, seconds in node["costs_s"].items())
    lines = [
        f"{head}{node['plan']['join']} join of {windows}{tail}",
        f"{indent}pairs are looked up by {by}, and finished by {node['finished_by']}",
        f"{indent}{node['why']}",
        f"{indent}busiest host per epoch, before anything is measured: {costs}",
    ]
    if node["by_spark"]:
        lines.insert(2, f"{indent}Spark judges: {node['by_spark']}")
    return lines
