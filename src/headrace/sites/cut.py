"""Cuts a pipeline by a placement: one pipeline per site, and the links that join them.

    rome   requests ──▶ SELECT columns FROM requests WHERE any of the filters ──▶ link ─┐
    paris  requests ──▶ SELECT columns FROM requests WHERE any of the filters ──▶ link ─┴▶ requests ──▶ query   hub

A query has its answers at one site, and its SQL is the same wherever that is: what changes is where its streams come
from, and whether rows come of them, or panes that were made where they are born.

    rome   requests ──▶ SELECT k, SUM(i) AS ... GROUP BY window(ts, pane), k ──▶ link ──▶ requests ──▶ query   hub
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import SpecError
from headrace.language import bind_query, given_of, with_expectations
from headrace.model import (
    PANES,
    Column,
    DataType,
    Join,
    Kind,
    Link,
    Lookup,
    Operator,
    Output,
    Pipeline,
    Query,
    Results,
    RowsAggregate,
    Scan,
    SinkSpec,
    SitePlan,
    Source,
    Step,
    StepFunction,
    Stream,
    Union,
    WindowAggregate,
    streams_of,
    tables_of,
)
from headrace.planning import (
    AnswerPlan,
    FlowPlan,
    Partial,
    columns_in_use,
    partial_of,
    plan_query,
)
from headrace.sites.where import Where, where_placed

__all__ = ["SitePart", "cut", "cut_as_placed", "parts_to_run", "source_at"]

# Rows of a link were judged where they were born: no clock of the receiver's finds one too far ahead.
NEVER_AHEAD_US = 2**61
# Letters of a stream's or query's name that stand in the name of its link.
MOST_SHOWN = 60
_TIMESTAMP = DataType(Kind.TIMESTAMP)


@dataclass(frozen=True)
class SitePart:
    """What one site runs, the links that begin and end there, and the plan behind the cut."""

    site: str
    pipeline: Pipeline
    sends: tuple[Link, ...] = ()
    receives: tuple[Link, ...] = ()
    plan: SitePlan = field(default_factory=SitePlan)


def cut_as_placed(pipeline: Pipeline) -> dict[str, SitePart]:
    """The parts of a pipeline that has sites, placed by its strategy; SpecError if there is no placement."""
    return cut(pipeline, where_placed(pipeline))


def parts_to_run(pipeline: Pipeline, site: str | None = None) -> dict[str, SitePart]:
    """By site what a run has to run: the whole pipeline, under no name, if it has no sites; else all its parts, or that
    of one site, which SpecError says if there is none."""
    if not pipeline.sites:
        if site is not None:
            raise SpecError(f"--site {site}: pipeline '{pipeline.name}' has no sites")
        return {"": SitePart("", pipeline)}
    parts = cut_as_placed(pipeline)
    if site is None:
        return parts
    if site not in parts:
        known = any(each.name == site for each in pipeline.sites)
        why = "nothing of the pipeline runs there" if known else "there is no such site"
        raise SpecError(f"--site {site}: {why}; sites that run something: {', '.join(parts)}")
    return {site: parts[site]}


def cut(pipeline: Pipeline, where: Where) -> dict[str, SitePart]:
    """By name the sites that have something to run; a pipeline of which only one has is what it was."""
    draft = _Draft(pipeline, where)
    for query in pipeline.queries:
        draft.add(query)
    draft.receive()
    draft.send()
    parts = {site: draft.part(site) for site in draft.sites}
    if len(parts) == 1 and not draft.links:
        (site,) = parts
        read = {name for query in pipeline.queries for name in streams_of(query.root)}
        whole = tuple(s for s in pipeline.streams if s.name in read or len(pipeline.birthplaces(s.name)) < 2)
        return {site: SitePart(site, replace(pipeline, streams=whole))}
    if pipeline.engine.shedding != "off":
        raise SpecError(
            "shedding across sites is not part of this version: leave out engine.shedding, or run at one site"
        )
    return parts


@dataclass
class _Draft:
    """A cut that is being made."""

    pipeline: Pipeline
    where: Where
    at: dict[str, list[Query]] = field(default_factory=dict)  # by site the queries of the file that run there
    streams: dict[str, dict[str, Stream]] = field(default_factory=dict)  # by site and name
    queries: dict[str, list[Query]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    @property
    def sites(self) -> list[str]:
        busy = {*self.queries, *self.streams}
        return [site.name for site in self.pipeline.sites if site.name in busy]

    @property
    def proxy(self) -> str:
        return next(site.name for site in self.pipeline.sites if site.proxy)

    def add(self, query: Query) -> None:
        # The columns of a link have types: what only Spark can type stays where answers are wanted.
        typed = all(_is_known(output.type) for output in query.finish.outputs)
        site = self.where.queries[query.name] if typed else self.proxy
        self.at.setdefault(site, []).append(query)

    # where streams come from ----------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Streams of the queries at each site: born there and nowhere else, or received from where they are born."""
        for site, queries in self.at.items():
            names = dict.fromkeys(name for query in queries for name in streams_of(query.root))
            received = [self.pipeline.stream(name) for name in names if self.pipeline.birthplaces(name) != (site,)]
            narrow = self._narrowed(queries, received)
            for name in names:
                if self.pipeline.birthplaces(name) == (site,):
                    self._declare(site, name)
            for stream in received:
                self._receive(site, stream, queries, narrow[stream.name])

    def _narrowed(self, queries: Sequence[Query], streams: Sequence[Stream]) -> dict[str, tuple[Column, ...]]:
        """By stream the columns that travel: those that queries read, unless whole rows do.

        All columns of all streams do where a query would be another one without the rest, as a UNION ALL of `*` is.
        """
        used = columns_in_use(queries, streams)
        known = {stream.name: stream for stream in self.pipeline.streams}
        few = {
            s.name: s.columns
            if self._travels_whole(s)
            else tuple(c for c in s.columns if c.name in used[s.name] or c.name == s.time)
            for s in streams
        }
        narrow = known | {name: replace(known[name], columns=columns) for name, columns in few.items()}
        same = all(_bound(query, narrow) == query.finish.outputs for query in queries)
        return few if same else {stream.name: stream.columns for stream in streams}

    def _travels_whole(self, stream: Stream) -> bool:
        return all((stream.name, birth) not in self.where.filtered for birth in self.pipeline.birthplaces(stream.name))

    def _receive(self, site: str, stream: Stream, queries: Sequence[Query], columns: tuple[Column, ...]) -> None:
        wheres = dict.fromkeys(scan.where.sql if scan.where else None for scan in _scans(queries, stream.name))
        births = self.pipeline.birthplaces(stream.name)
        if all((stream.name, birth) in self.where.partial for birth in births):
            asked = self._partials(stream, births, queries)
            if asked is not None:
                self._receive_panes(stream, births, site, columns, asked)
                return
        taken = Stream(stream.name, columns, stream.time, 0, NEVER_AHEAD_US, stream.idle_us)
        self.streams.setdefault(site, {})[stream.name] = taken
        for birth in births:
            plain = (stream.name, birth) not in self.where.filtered
            self._send_rows(stream, birth, site, columns, None if plain or None in wheres else tuple(map(str, wheres)))

    def _send_rows(
        self, stream: Stream, birth: str, site: str, columns: Sequence[Column], wheres: tuple[str, ...] | None
    ) -> None:
        local, source = self._born(stream, birth)
        self._declare(birth, stream.name, local)
        chosen = ", ".join(f"{stream.name}.`{column.name}` AS `{column.name}`" for column in columns)
        sql = f"SELECT {chosen} FROM {source}"
        known = {local: self.streams[birth][local]}
        filtered = sql if wheres is None else f"{sql} WHERE {' OR '.join(f'({text})' for text in wheres)}"
        id_ = _link_id(stream.name, birth, site, filtered, columns)
        sink = SinkSpec("parquet", f"{self._links}/{id_}")
        try:
            query = bind_query(id_, filtered, known, sink=sink)
        except SpecError:  # a text that no query may have, though part of one may: the receiver filters
            id_ = _link_id(stream.name, birth, site, sql, columns)
            query = bind_query(id_, sql, known, sink=replace(sink, path=f"{self._links}/{id_}"))
        self.queries.setdefault(birth, []).append(query)
        self.links.append(Link(id_, birth, site, id_, stream.name))

    def _born(self, stream: Stream, birth: str) -> tuple[str, str]:
        """The name of a stream at one of its birthplaces, and how FROM names it there.

        Where its queries read the stream as it is received, what is born there has another name.
        """
        read = any(stream.name in streams_of(query.root) for query in self.at.get(birth, []))
        several = len(self.pipeline.birthplaces(stream.name)) > 1
        local = f"{stream.name}_at_{birth}" if read and several else stream.name
        return local, stream.name if local == stream.name else f"{local} AS {stream.name}"

    # panes -----------------------------------------------------------------------------------------------------------

    def _partials(self, stream: Stream, births: Sequence[str], queries: Sequence[Query]) -> dict[str, Partial] | None:
        """By name the partial aggregates that queries of a site are merged from; None if one of them needs rows."""
        found: dict[str, Partial] = {}
        for node in dict.fromkeys(node for query in queries for node in plan_query(query).tree):
            if isinstance(node, FlowPlan):
                if any(feed.stream == stream.name for store in node.stores for feed in store.feeds):
                    return None
                continue
            assert isinstance(node, AnswerPlan)
            for demand in node.demands:
                numbers = [i for i, feed in enumerate(demand.synopsis.feeds) if feed.stream == stream.name]
                window = node.aggregate.window
                made = [partial_of(demand.synopsis, i, demand.measures, window.pane_us, stream.time) for i in numbers]
                if any(each is None for each in made):
                    return None
                found |= {each.name: each for each in made if each is not None}
        asks = (self._asks(stream, birth, partial) for birth in births for partial in found.values())
        return found if all(query is not None for query in asks) else None

    def _asks(self, stream: Stream, birth: str, partial: Partial) -> Query | None:
        """A partial aggregate as a query at a birthplace; None if its text is one that no query may have."""
        local, source = self._born(stream, birth)
        try:
            return bind_query("partial", partial.sql(source), {local: replace(stream, name=local)})
        except SpecError:
            return None

    def _receive_panes(
        self,
        stream: Stream,
        births: Sequence[str],
        site: str,
        columns: Sequence[Column],
        partials: Mapping[str, Partial],
    ) -> None:
        """A stream of which panes come: it is declared with the columns that its queries name, and those of panes."""
        merged = (*columns, *(partial.column for partial in partials.values()))
        taken = Stream(stream.name, merged, stream.time, 0, NEVER_AHEAD_US, stream.idle_us, as_panes=True)
        self.streams.setdefault(site, {})[stream.name] = taken
        for birth in births:
            local, source = self._born(stream, birth)
            self._declare(birth, stream.name, local)
            for name, partial in partials.items():
                id_ = _link_id(f"{stream.name}{PANES}", birth, site, partial.sql(source), partial.fields)
                query = self._asks(stream, birth, partial)
                assert query is not None
                sink = SinkSpec("parquet", f"{self._links}/{id_}")
                self.queries.setdefault(birth, []).append(replace(query, name=id_, sink=sink))
                self.links.append(Link(id_, birth, site, id_, stream.name, panes=name))

    def _declare(self, site: str, name: str, local: str | None = None) -> None:
        stream = self.pipeline.stream(name)
        source = None if stream.source is None else source_at(stream.source, site)
        made = replace(stream, name=local or name, source=source)
        self.streams.setdefault(site, {})[made.name] = made

    # where answers go ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Queries over the streams of their sites; answers that are wanted elsewhere go along links."""
        for site, queries in self.at.items():
            for query in queries:
                if site == self.proxy:
                    self._add(site, query, query.sink)
                else:
                    self._send_answers(site, query)

    def _send_answers(self, site: str, query: Query) -> None:
        columns = tuple(Column(output.name, output.type) for output in query.finish.outputs)
        id_ = _link_id(f"answers_{query.name}", site, self.proxy, query.sql, columns)
        self._add(site, query, SinkSpec("parquet", f"{self._links}/{id_}"))
        time = "sent"
        while time in {column.name.lower() for column in columns}:
            time += "_"
        stream = Stream(id_, (*columns, Column(time, _TIMESTAMP)), time, 0, NEVER_AHEAD_US)
        self.streams.setdefault(self.proxy, {})[id_] = stream
        chosen = ", ".join(f"`{column.name}`" for column in columns)
        received = bind_query(query.name, f"SELECT {chosen} FROM {id_}", {id_: stream}, sink=query.sink)
        self.queries.setdefault(self.proxy, []).append(replace(received, priority=query.priority, weight=query.weight))
        self.links.append(Link(id_, site, self.proxy, query.name, id_, dated=False))

    def _add(self, site: str, query: Query, sink: SinkSpec) -> None:
        bound = bind_query(
            query.name, query.sql, self.streams[site], sink=sink, priority=query.priority, weight=query.weight,
            step=_step(query), shedding=query.shedding,
            tables={table.name: table for table in self.pipeline.tables},
        )  # fmt: skip
        whole = with_expectations(replace(bound, lifetime_us=query.lifetime_us), given_of(query.expect))
        self.queries.setdefault(site, []).append(whole)

    # -----------------------------------------------------------------------------------------------------------------

    @property
    def _links(self) -> str:
        return self.pipeline.links.path or f"{self.pipeline.engine.checkpoint}/links"

    def part(self, site: str) -> SitePart:
        pipeline = self.pipeline
        engine = replace(pipeline.engine, checkpoint=f"{pipeline.engine.checkpoint}/{site}")
        queries = tuple(self.queries.get(site, ()))
        used = {name for query in queries for name in tables_of(query.root)}
        tables = (
            replace(table, source=None if table.source is None else source_at(table.source, site))
            for table in pipeline.tables
            if table.name in used
        )
        mine = replace(
            pipeline, name=f"{pipeline.name}-{site}", streams=tuple(self.streams.get(site, {}).values()),
            queries=queries, tables=tuple(tables), engine=engine, sites=(), network=None, notes=(),
            links=replace(pipeline.links, path=self._links),
        )  # fmt: skip
        links = [replace(link, back=link.sender in self._reached(link.receiver)) for link in self.links]
        sends = tuple(link for link in links if link.sender == site)
        receives = tuple(link for link in links if link.receiver == site)
        return SitePart(site, mine, sends, receives, self.where.plan)

    def _reached(self, site: str) -> set[str]:
        """The sites that something of a site can come to, itself included."""
        found: set[str] = set()
        ahead = [site]
        while ahead:
            here = ahead.pop()
            if here not in found:
                found.add(here)
                ahead += (link.receiver for link in self.links if link.sender == here)
        return found


def source_at(source: Source, site: str) -> Source:
    """A source as a site reads it."""
    path = None if source.path is None else source.path.replace("{site}", site)
    return replace(
        source, path=path, options=tuple((key, text.replace("{site}", site)) for key, text in source.options)
    )


def _link_id(what: str, sender: str, receiver: str, sql: str, columns: Sequence[Column]) -> str:
    content = [what, sender, receiver, sql, [[column.name, str(column.type)] for column in columns]]
    return f"{what[:MOST_SHOWN]}_{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}"


def _step(query: Query) -> StepFunction | None:
    return query.root.step if isinstance(query.root, Step) else None


def _bound(query: Query, streams: Mapping[str, Stream]) -> tuple[Output, ...] | None:
    """The result columns of a query over some streams; None if it cannot be asked of them."""
    try:
        return bind_query(query.name, query.sql, streams, step=_step(query)).finish.outputs
    except SpecError:
        return None


def _is_known(type_: DataType) -> bool:
    return type_.kind is not Kind.UNKNOWN and all(_is_known(inner.type) for inner in type_.fields)


def _scans(queries: Sequence[Query], stream: str) -> Iterator[Scan]:
    for query in queries:
        yield from (scan for scan in _scans_of(query.root) if scan.stream == stream)


def _scans_of(operator: Operator) -> Iterator[Scan]:
    """The scans of declared streams below an operator."""
    match operator:
        case Scan(of=Results(root=root)):
            yield from _scans_of(root)
        case Scan():
            yield operator
        case Union(inputs=inputs):
            for child in inputs:
                yield from _scans_of(child)
        case Join(left=left, right=right):
            yield from _scans_of(left.input)
            yield from _scans_of(right.input)
        case WindowAggregate(input=child) | RowsAggregate(input=child) | Step(input=child) | Lookup(input=child):
            yield from _scans_of(child)
