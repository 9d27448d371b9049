"""What placement is asked: the graph of a pipeline with several sites, its streams at their birthplaces.

    packets@paris ──▶ filter ──▶ partial ──▶ merge ──▶ answer ──▶ answers of q, at the proxy
    packets@rome  ──▶ filter ──▶ partial ──▶   ┘

Filters drop rows and columns that nobody above reads. A partial aggregate makes panes of the rows of one birthplace;
panes merge in any order. Where panes would be no fewer bytes than the rows they are made of (percentiles over very
many values), there is no partial aggregate, and rows travel instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.model import Column, DataType, Kind, Pipeline, columns_of
from headrace.planning.flow import FlowPlan, NodePlan, RowFeed
from headrace.planning.graph import flow_id
from headrace.planning.join import JoinPlan
from headrace.planning.lookup import LookupPlan
from headrace.planning.partial import panes_name
from headrace.planning.rates import GUESSED_VALUES, Flowing, KnownRates, row_bytes, selectivity, stream_flow, width_of
from headrace.planning.select import SelectPlan
from headrace.planning.sharing import Kept, Workload
from headrace.planning.synopsis import AnswerPlan
from headrace.policies.placement import Flow, Part, Problem
from headrace.units import SECOND_US

__all__ = ["ask_placement", "placement_problem"]

_TIME = Column("p", DataType(Kind.TIMESTAMP))
# Letters of an expression that stands in a name.
MOST_SHOWN = 40


def placement_problem(pipeline: Pipeline, workload: Workload, known: KnownRates | None = None) -> Problem:
    """The problem of placing a workload at the pipeline's sites; ValueError if it has no sites."""
    return ask_placement(pipeline, workload, known)[0]


def ask_placement(
    pipeline: Pipeline, workload: Workload, known: KnownRates | None = None
) -> tuple[Problem, tuple[str, ...]]:
    """The same, and what was guessed for it, in sentences."""
    if pipeline.network is None:
        raise ValueError(f"pipeline '{pipeline.name}' has no sites; declare them under sites:")
    draft = _Draft(pipeline, workload, known or KnownRates())
    for name, plan in workload.queries.items():
        draft.deliver(name, *draft.add_node(plan))
    return draft.problem(), tuple(draft.guesses)


@dataclass
class _Draft:
    """A problem that is being put together; parts that are there already are shared."""

    pipeline: Pipeline
    workload: Workload
    known: KnownRates
    parts: dict[str, Part] = field(default_factory=dict)
    flows: dict[tuple[str, str], float] = field(default_factory=dict)
    loads: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    makes: dict[str, Flowing] = field(default_factory=dict)
    guesses: dict[str, None] = field(default_factory=dict)  # in order, each once

    def problem(self) -> Problem:
        assert self.pipeline.network is not None
        bound = self.pipeline.placement.max_latency_us
        capacity = {s.name: s.capacity_bytes_per_s for s in self.pipeline.sites if s.capacity_bytes_per_s is not None}
        parts = (Part(p.name, p.home, 0.0 if p.home else self.loads.get(p.name, 0.0)) for p in self.parts.values())
        flows = tuple(Flow(source, target, rate) for (source, target), rate in self.flows.items())
        return Problem(tuple(parts), flows, self.pipeline.network, None if bound is None else bound / 1000, capacity)

    def part(self, name: str, home: str | None = None) -> str:
        self.parts.setdefault(name, Part(name, home))
        return name

    def send(self, source: str, target: str, flowing: Flowing) -> None:
        if (source, target) not in self.flows:
            self.flows[source, target] = flowing.bytes_per_s
            self.loads[target] = self.loads.get(target, 0.0) + flowing.bytes_per_s

    def named(self, plan: NodePlan) -> str:
        """A short name of a node for people: its query's, or those it is below; queries share the name of a flow."""
        id_ = flow_id(plan) if isinstance(plan, FlowPlan) else plan.name
        if id_ not in self.names:
            over = ", ".join(self.workload.queries_over(plan.name))
            text = plan.name if plan.feeds is None else f"below {over}"
            self.names[id_] = text if text not in self.names.values() else f"{text} ({plan.name})"
        return self.names[id_]

    def deliver(self, query: str, source: str, flowing: Flowing) -> None:
        proxy = next(site.name for site in self.pipeline.sites if site.proxy)
        self.send(source, self.part(f"answers of {query}", proxy), flowing)

    # rows ------------------------------------------------------------------------------------------------------------

    def filtered(self, feed: RowFeed, width: float) -> list[tuple[str, Flowing]]:
        """The filter of a feed at each birthplace of its stream, and what it lets through."""
        stream = self.pipeline.stream(feed.stream)
        places = self.pipeline.birthplaces(feed.stream)
        found = []
        for site in places:
            raw = stream_flow(stream, self.known, len(places), site)
            source = self.part(f"{stream.name}@{site}", site)
            if stream.rate is None and not self.known.knows(stream.name, site):
                self.guesses[f"{stream.name} brings {raw.rows_per_s:g} rows/s at each site, as it declares no rate"] = (
                    None
                )
            share = self._share(feed, site)
            if feed.where is not None and share is None:
                guess = f"{_without(feed.where, feed)} holds for {selectivity(feed.where):.3g} of the rows"
                self.guesses[f"{guess} of {stream.name}"] = None
            # A row that is declared to be longer than its types say has longer columns.
            packing = self.known.row_packing.get((stream.name, site), 1.0)
            scaled = width * raw.row_bytes / row_bytes(stream.columns) * packing
            passed = Flowing(raw.rows_per_s * (selectivity(feed.where) if share is None else share), scaled)
            text = (
                f"[{_without(', '.join(feed.columns), feed) or 'time'}] of {stream.name} takes {scaled:.3g} bytes a row"
            )
            self.guesses[text] = None
            node = self.part(f"{stream.name}@{site} {_shown(feed)}")
            self.send(source, node, replace(raw, row_bytes=raw.row_bytes * packing))
            found.append((node, passed))
        return found

    def _share(self, feed: RowFeed, site: str) -> float | None:
        """The measured share of rows that a filter lets through, if rows of the stream travel by that filter alone."""
        wheres = self.filters.get(feed.stream, frozenset())
        return self.known.travelled.get((feed.stream, site)) if wheres == {feed.where} else None

    @cached_property
    def filters(self) -> dict[str, frozenset[str | None]]:
        """By stream the filters that queries read it by."""
        found: dict[str, set[str | None]] = {}
        feeds = [(feed.stream, feed.where) for kept in self.workload.kept.values() for feed in kept.synopsis.feeds]
        feeds += [(feed.stream, feed.where) for store in self.workload.stores for feed in store.feeds]
        for stream, where in feeds:
            found.setdefault(stream, set()).add(where)
        return {stream: frozenset(wheres) for stream, wheres in found.items()}

    @cached_property
    def sent_panes(self) -> dict[str, tuple[float, float]]:
        """By kept synopsis the panes that a row makes, and bytes of files per byte of their types, as links that bring
        such panes have told."""
        found: dict[str, tuple[float, float]] = {}
        for plan in self.workload.plans.values():
            for demand in plan.demands:
                window, suppliers = plan.aggregate.window, self.workload.supplies[demand.synopsis.id].suppliers
                for number in range(len(demand.synopsis.feeds)):
                    name = panes_name(demand.synopsis, number, demand.measures, window.pane_us)
                    if name in self.known.sent_panes and len(suppliers) == 1:
                        told = self.known.sent_panes[name], self.known.pane_packing.get(name, 1.0)
                        id_ = suppliers[0].synopsis
                        found[id_] = max(found.get(id_, told), told)
        return found

    def add_node(self, plan: NodePlan) -> tuple[str, Flowing]:
        """The part of a node, with all that is below it, and what it makes."""
        if isinstance(plan, AnswerPlan):
            return self.add_answer(plan)
        assert isinstance(plan, FlowPlan)
        return self.add_flow(plan)

    def add_flow(self, plan: FlowPlan) -> tuple[str, Flowing]:
        """A join, a row window or a function with all that is below it, and what it makes."""
        node = f"{_word(plan)} {self.named(plan)}"
        if node in self.makes:
            return node, self.makes[node]
        self.part(node)
        below = {inner.feeds.name: inner for inner in plan.below if inner.feeds is not None}
        read: dict[str, float] = {}
        for store in plan.stores:
            width = row_bytes((*store.columns, _TIME))
            for feed in store.feeds:
                if feed.stream in below:
                    source, made = self.add_node(below[feed.stream])
                    self.send(source, node, made)
                    read[store.role] = read.get(store.role, 0.0) + made.rows_per_s
                    continue
                for source, flowing in self.filtered(feed, width):
                    self.send(source, node, flowing)
                    read[store.role] = read.get(store.role, 0.0) + flowing.rows_per_s
        self.makes[node] = Flowing(self._made(plan, read), row_bytes((*columns_of(plan.query.root), _TIME)))
        return node, self.makes[node]

    def _made(self, plan: FlowPlan, read: Mapping[str, float]) -> float:
        """Rows per second that a flow makes: of a join, each row meets those of its window with the same key."""
        if not isinstance(plan, JoinPlan):
            return sum(read.values())
        join, rates = plan.join, [read.get(store.role, 0.0) for store in plan.stores]
        span_s = (join.left.window.size_us + join.right.window.size_us) / SECOND_US
        matches = 1 / GUESSED_VALUES if plan.equal else selectivity(join.on.sql)
        pairs = rates[0] * rates[1] * span_s * matches
        return max(pairs, *(rates[i] for i, store in enumerate(plan.stores) if plan.preserves(store.role)), 0.0)

    # panes -----------------------------------------------------------------------------------------------------------

    def add_answer(self, plan: AnswerPlan) -> tuple[str, Flowing]:
        """The answers of windows with all that is below them, and what they make."""
        answer = self.part(f"answer {self.named(plan)}")
        workload, groups = self.workload, 0.0
        for id_ in workload.sources_of(plan.name):
            panes = self._merged(id_)
            self.send(f"merge {self.synopsis(id_)}", answer, panes)
            groups = groups or panes.rows_per_s * workload.kept[id_].pane_us / SECOND_US
        window, limit = plan.aggregate.window, plan.query.finish.limit
        rows = min(max(groups, 1.0), limit if limit is not None else groups or 1.0)
        width = sum(width_of(output.type) for output in plan.query.finish.outputs) + 2 * width_of(_TIME.type)
        return answer, Flowing(rows * SECOND_US / window.slide_us, width)

    def synopsis(self, id_: str) -> str:
        """A synopsis in the words of the queries it serves: their groups, or the values of something by group."""
        workload = self.workload
        if id_ not in self.names:
            served = (name for name in workload.plans if id_ in workload.sources_of(name))
            owners = ", ".join(dict.fromkeys(query for name in served for query in workload.queries_over(name)))
            feed = workload.kept[id_].synopsis.feeds[0]
            detail = None if feed.detail is None else _without(feed.detail, RowFeed(feed.stream, None, ()))
            # A sketch is an expression of many lines: its first words tell nothing.
            what = "groups" if detail is None else f"values of {detail}" if len(detail) <= MOST_SHOWN else "sketches"
            text = f"{what} for {owners}"
            self.names[id_] = text if text not in self.names.values() else f"{text} ({id_})"
        return self.names[id_]

    def _merged(self, id_: str) -> Flowing:
        """A synopsis: partial aggregates where they save bytes, and their merge; the panes that come of it."""
        kept, named = self.workload.kept[id_], self.synopsis(id_)
        merge = f"merge {named}"
        if merge in self.makes:
            return self.makes[merge]
        self.part(merge)
        pane = _pane_bytes(kept) * self.sent_panes.get(id_, (1.0, 1.0))[1]
        total = 0.0
        read = 0.0
        for source, flowing, share in self._rows_of(kept):
            born = flowing.rows_per_s / share if share else 0.0
            made = Flowing(self._pane_rows(id_, kept, flowing.rows_per_s, born), pane)
            total += flowing.rows_per_s
            read += born
            if made.bytes_per_s < flowing.bytes_per_s:
                partial = f"partial {named} at {source.partition(' [')[0]}"
                # A union may read one stream twice, by different filters.
                partial = self.part(partial if (partial, merge) not in self.flows else f"{partial}, again")
                self.send(source, partial, flowing)
                self.send(partial, merge, made)
            else:
                self.send(source, merge, flowing)
        self.makes[merge] = Flowing(self._pane_rows(id_, kept, total, read), pane)
        return self.makes[merge]

    def _rows_of(self, kept: Kept) -> list[tuple[str, Flowing, float]]:
        """What feeds a synopsis, what comes of it, and which share of the rows before the filter that is."""
        found: list[tuple[str, Flowing, float]] = []
        for number, feed in enumerate(kept.synopsis.feeds):
            share = selectivity(feed.where)
            below = self.workload.derived.get(feed.stream)
            if below is not None:
                source, made = self.add_node(below)
                found.append((source, made.passed(share), share))
                continue
            arguments = [m.arguments[number] for m in kept.measures if m.arguments is not None]
            detail = [] if feed.detail is None else [feed.detail]
            columns = tuple(dict.fromkeys((*feed.keys, *detail, *arguments)))
            # Expressions are evaluated before rows are sent: each is a column of about a number's width.
            width = sum(width_of(key) for key in kept.synopsis.keys) + 8.0 * (len(columns) - len(feed.keys) + 1)
            rows = self.filtered(RowFeed(feed.stream, feed.where, columns), width)
            found += [(source, flowing, share) for source, flowing in rows]
        return found

    def _pane_rows(self, id_: str, kept: Kept, passed: float, born: float) -> float:
        """Pane rows per second, where so many rows are born and so many pass the filter.

        As measured, else one for each group that a pane is guessed to have.
        """
        if id_ in self.known.panes:
            return born * self.known.panes[id_]
        if id_ in self.sent_panes:
            return born * self.sent_panes[id_][0]
        pane_s, detail = kept.pane_us / SECOND_US, kept.synopsis.detail
        # Measurements seldom repeat: of numbers with a fraction every row is guessed to have another.
        if detail is not None and (detail.is_float or detail.kind is Kind.DECIMAL):
            self.guesses[f"rows differ in their {self.names.get(id_, id_).partition(' for ')[0]}"] = None
            return passed
        keys = len(kept.synopsis.keys) + (detail is not None)
        if keys:
            self.guesses[f"a key has {GUESSED_VALUES:g} different values"] = None
        groups = GUESSED_VALUES**keys if keys else 1.0
        # Of g groups, r rows that fall on them by chance hit g (1 - (1 - 1/g)^r).
        rows = passed * pane_s
        hit = groups * (1 - (1 - 1 / groups) ** rows) if groups > 1 else 1.0
        return min(rows, hit) / pane_s


def _pane_bytes(kept: Kept) -> float:
    detail = 0.0 if kept.synopsis.detail is None else width_of(kept.synopsis.detail)
    # A sum has 16 bytes, moments have three numbers; other measures are about a number each.
    measures = sum(
        {"sum": 16.0, "limbs": 32.0, "moments": 24.0, "shape": 40.0, "comoments": 48.0}.get(m.kind, 8.0)
        for m in kept.measures
    )
    return 8.0 + sum(width_of(key) for key in kept.synopsis.keys) + detail + measures


def _shown(feed: RowFeed) -> str:
    """Which columns of which rows a filter lets through, without the name of their stream.

    >>> _shown(RowFeed("p", "p.amount > 5", ("p.key", "p.amount")))
    '[key, amount] where amount > 5'
    """
    columns = ", ".join(feed.columns) or "time"
    return _without(f"[{columns}]" + (f" where {feed.where}" if feed.where else ""), feed)


def _without(sql: str, feed: RowFeed) -> str:
    """SQL without the name of its stream before each column."""
    return sql.replace(f"{feed.stream}.", "")


def _word(plan: FlowPlan) -> str:
    words = {JoinPlan: "join", SelectPlan: "select", LookupPlan: "lookup"}
    return next((word for kind, word in words.items() if isinstance(plan, kind)), "rows")
