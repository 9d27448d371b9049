"""A workload as one graph: every query's nodes, shared where their content is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from headrace.model import Edge, Feed, Graph, Join, Node, Query, SinkSpec, Stream
from headrace.planning.flow import FlowPlan, NodePlan, RowFeed
from headrace.planning.join import JoinPlan
from headrace.planning.lookup import LookupPlan
from headrace.planning.row_window import RowsPlan, StepPlan
from headrace.planning.select import SelectPlan
from headrace.planning.sharing import Kept, Workload, streams_read
from headrace.planning.synopsis import AnswerPlan
from headrace.units import format_duration

__all__ = ["build_graph", "flow_id"]

# Letters of a description: as many as a reader takes in at once.
MOST_SHOWN = 80


def build_graph(workload: Workload, streams: Sequence[Stream]) -> Graph:
    """The graph of a workload over these streams; streams that nobody reads have no node."""
    draft = _Draft()
    known = {stream.name for stream in streams}
    for name, plan in workload.queries.items():
        for stream in streams_read(plan):
            if stream in known:
                draft.node(_source(stream), "source", f"stream {stream}", name)
        draft.edge(_add_node(draft, workload, name, plan), draft.sink(plan.query), "rows")
    return draft.graph()


class _Draft:
    """A graph that is being put together; a node that is there already gets one owner more."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, str, dict[str, None]]] = {}
        self._edges: dict[str, Edge] = {}

    def node(self, id_: str, kind: str, what: str, owner: str) -> str:
        self._nodes.setdefault(id_, (kind, what, {}))[2][owner] = None
        return id_

    def edge(self, source: str, target: str, carries: str, **rest: object) -> None:
        edge = Edge(source, target, carries, **rest)  # type: ignore[arg-type]
        self._edges.setdefault(edge.id, edge)

    def sink(self, query: Query) -> str:
        where = f" {query.sink.path}" if query.sink.path else ""
        return self.node(_sink(query.name, query.sink), "sink", f"{query.sink.format}{where}", query.name)

    def graph(self) -> Graph:
        nodes = tuple(Node(id_, kind, what, tuple(owners)) for id_, (kind, what, owners) in self._nodes.items())
        return Graph(nodes, tuple(self._edges.values()))


def _add_node(draft: _Draft, workload: Workload, owner: str, plan: NodePlan) -> str:
    """The node of a plan with all that is below it; its id."""
    if isinstance(plan, AnswerPlan):
        return _add_answer(draft, workload, owner, plan)
    assert isinstance(plan, FlowPlan)
    return _add_flow(draft, workload, owner, plan)


def _below(draft: _Draft, workload: Workload, owner: str, stream: str) -> str:
    """The node that a stream comes from: its source, or what derives it."""
    made = workload.derived.get(stream)
    return _source(stream) if made is None else _add_node(draft, workload, owner, made)


def _add_answer(draft: _Draft, workload: Workload, name: str, plan: AnswerPlan) -> str:
    sources = []
    for id_ in workload.sources_of(plan.name):
        kept = workload.kept[id_]
        node = draft.node(f"synopsis-{id_}", "synopsis", _described(kept), name)
        sources.append(node)
        for number, feed in enumerate(kept.synopsis.feeds):
            below = _below(draft, workload, name, feed.stream)
            draft.edge(below, node, "rows", where=feed.where, columns=_columns(kept, number, feed), keys=feed.keys,
                       role=_role(kept.synopsis.feeds, number))  # fmt: skip
    window, keys = plan.aggregate.window, ", ".join(plan.demands[0].synopsis.feeds[0].keys)
    what = f"{window} by {keys}" if keys else str(window)
    supplied = [[s.synopsis, s.keys] for d in plan.demands for s in workload.supplies[d.synopsis.id].suppliers]
    wanted = [[str(s.aggregate), s.columns, s.parameters] for s in plan.columns]
    steps = [repr(step) for step in plan.feeds.steps] if plan.feeds is not None else []
    content = [sources, [keys for _, keys in supplied], repr(window), wanted, repr(plan.query.finish), *steps]
    answer = draft.node(f"answer-{_digest(content)}", "answer", what, name)
    for source in sources:
        draft.edge(source, answer, "panes")
    return answer


def _add_flow(draft: _Draft, workload: Workload, owner: str, plan: FlowPlan) -> str:
    """The node of a SELECT, a join, a lookup, a row window or a function, with what is below it; its id."""
    node = draft.node(flow_id(plan), _kind(plan), _says(plan), owner)
    for store in plan.stores:
        for number, feed in enumerate(store.feeds):
            source = _below(draft, workload, owner, feed.stream)
            role = store.role + (_role(store.feeds, number) and f"-{_role(store.feeds, number)}")
            draft.edge(source, node, "rows", where=feed.where, columns=feed.columns, keys=feed.keys, role=role)
    for side in plan.lookup.sides if isinstance(plan, LookupPlan) else ():
        table = draft.node(f"table-{side.table}", "table", f"table {side.table}", owner)
        draft.edge(table, node, "rows", columns=tuple(c.name for c in side.columns), role=side.alias)
    return node


def _role(feeds: Sequence[Feed | RowFeed], number: int) -> str:
    """Tells apart the feeds of a union that come from one stream."""
    alike = [i for i, feed in enumerate(feeds) if feed.stream == feeds[number].stream]
    return str(alike.index(number)) if len(alike) > 1 else ""


def _columns(kept: Kept, number: int, feed: Feed) -> tuple[str, ...]:
    """What a synopsis reads of a row besides its time: keys, detail and arguments, each once."""
    arguments = (m.arguments[number] for m in kept.measures if m.arguments is not None)
    detail = () if feed.detail is None else (feed.detail,)
    return tuple(dict.fromkeys((*feed.keys, *detail, *arguments)))


def _described(kept: Kept) -> str:
    feed = kept.synopsis.feeds[0]
    keys = f" by {', '.join(feed.keys)}" if feed.keys else ""
    text = f"panes of {format_duration(kept.pane_us)}{keys}" + (f", {feed.detail}" if feed.detail else "")
    # How a sketch is kept is an expression of many lines.
    return _cut_short(text)


def _cut_short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _kind(plan: FlowPlan) -> str:
    match plan:
        case SelectPlan():
            return "select"
        case JoinPlan():
            return "join"
        case LookupPlan():
            return "lookup"
        case RowsPlan():
            return "rows"
        case _:
            return "function"


def _says(plan: FlowPlan) -> str:
    match plan:
        case SelectPlan():
            return _cut_short(f"each row as {', '.join(output.name for output in plan.query.finish.outputs)}")
        case JoinPlan():
            join = plan.join
            return f"{join.how} join of {join.left.alias} {join.left.window} and {join.right.alias} {join.right.window}"
        case LookupPlan():
            sides = ", ".join(f"{side.table} ({side.how})" for side in plan.lookup.sides)
            return _cut_short(f"rows looked up in {sides}")
        case RowsPlan():
            return f"the last {plan.root.window.rows} rows by {', '.join(plan.stores[0].feeds[0].keys)}"
        case StepPlan():
            return f"{plan.root.step.function} by {', '.join(plan.stores[0].feeds[0].keys)}"
        case _:
            raise TypeError(type(plan).__name__)


# Names made of content -----------------------------------------------------------------------------------------------


def _source(stream: str) -> str:
    return f"source-{stream}"


def flow_id(plan: FlowPlan) -> str:
    """The name of a node that makes results of rows, made of its content; derived streams are named so, too."""
    feeds = [[store.role, f.stream, f.where, f.columns, f.keys] for store in plan.stores for f in store.feeds]
    return f"{_kind(plan)}-{_digest([feeds, _rest(plan)])}"


def _rest(plan: FlowPlan) -> list[object]:
    """What a flow does with the rows of its stores; what is made of its results above it is no part of that."""
    root = plan.query.root
    if isinstance(root, Join):
        where = None if root.where is None else root.where.sql
        columns = [[column.name, column.sql] for column in root.columns]
        return [root.how, root.on.sql, where, repr(root.left.window), repr(root.right.window), columns]
    if isinstance(plan, LookupPlan):
        sides = [[side.alias, side.table, side.how, side.on.sql] for side in plan.lookup.sides]
        return [plan.lookup.alias, sides, [[column.name, column.sql] for column in plan.lookup.columns]]
    if isinstance(plan, SelectPlan):
        return [[output.name, output.sql] for output in plan.query.finish.outputs]
    if isinstance(plan, RowsPlan):
        return [plan.root.window.rows, [[repr(a), column] for a, column, _ in plan.arguments], repr(plan.query.finish)]
    assert isinstance(plan, StepPlan)
    return [repr(plan.root.step), plan.columns]


def _sink(query: str, sink: SinkSpec) -> str:
    """Two queries never write to one place, so that a place names its sink; without one the query does."""
    return f"sink-{_digest([sink.format, sink.path or query, sink.options])}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]
