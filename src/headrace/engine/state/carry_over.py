"""Where queries go on from when they come and go: those that are known with what they have, new ones from now on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.engine.state.checkpoint import Manifest, NodeState, QueryState
from headrace.errors import StateError
from headrace.kernels.chunks import APART, Chunk
from headrace.model import AnswersState, Stream
from headrace.planning import AnswerPlan, Coverage, FlowPlan, Kept, Workload, cover
from headrace.policies import StreamClock, newest_end, watermark_of

__all__ = ["carry_over", "complete_since", "refuse_other_forms"]


def refuse_other_forms(before: Sequence[Stream], now: Sequence[Stream], known: Mapping[str, QueryState]) -> None:
    """StateError if a stream came as rows and would come as panes, or the other way: some of it would never come."""
    was = {stream.name: stream.as_panes for stream in before}
    for stream in now:
        if known and was.get(stream.name, stream.as_panes) != stream.as_panes:
            then, anew = ("panes", "rows") if was[stream.name] else ("rows", "panes")
            raise StateError(
                f"stream '{stream.name}' came here as {then}, and by the placement of now would come as {anew}, in "
                f"which windows that are open would have gaps: leave queries and placement as they were, or begin with "
                f"new checkpoints and new links"
            )


def carry_over(
    manifest: Manifest | None,
    workload: Workload,
    refused: Mapping[str, QueryState],
    note: Callable[[str], None],
) -> Manifest:
    """The state to go on from: queries that are known go on, new ones start now, others leave."""
    if manifest is None:
        states = {name: _fresh(plan, None) for name, plan in workload.queries.items()}
        fresh = {id_: cover(None, kept, None) for id_, kept in workload.kept.items()}
        return Manifest(-1, -1, queries={**states, **refused}, coverage=fresh)
    anew = _anew(manifest, workload)
    manifest = _begun(manifest, workload, anew)
    going = {name for name, plan in workload.queries.items() if _goes_on(manifest, plan, anew)}
    seen = {id_: _seen_us(manifest, kept) for id_, kept in workload.kept.items()}
    coverage = _coverage(manifest, workload, seen, anew)
    queries: dict[str, QueryState] = {}
    for name, plan in workload.queries.items():
        if name in going:
            queries[name] = _resumed(manifest.queries[name], plan, note)
        else:
            queries[name] = _started(manifest, workload, plan, coverage, seen, note)
    for name in manifest.queries:
        if name not in workload.queries and name not in refused:
            note(f"query '{name}' is gone: what only it needed goes with the next epoch")
    # What operators remember of a node that starts anew is about other rows, and so is what chunks hold of it.
    going |= {plan.name for stream, plan in workload.derived.items() if stream not in anew}
    nodes = _remembered(manifest, going, refused) | _first_answers(manifest, workload, anew)
    live = {*coverage, *(store.id for name in going & workload.flows.keys() for store in workload.flows[name].stores)}
    chunks = tuple(_only(chunk, live) for chunk in manifest.chunks)
    return replace(manifest, queries={**queries, **refused}, coverage=coverage, nodes=nodes, chunks=chunks)


def _coverage(
    manifest: Manifest, workload: Workload, seen: Mapping[str, int | None], anew: Collection[str]
) -> dict[str, Coverage]:
    """From when on each measure is complete; panes of a derived stream that begins anew begin with it."""
    known = {id_: c for id_, c in manifest.coverage.items() if id_ in seen and not _reads(workload.kept[id_], anew)}
    return {id_: cover(known.get(id_), kept, seen[id_]) for id_, kept in workload.kept.items()}


def _resumed(known: QueryState, plan: AnswerPlan | FlowPlan, note: Callable[[str], None]) -> QueryState:
    if known.failed is not None:
        note(f"query '{plan.query.name}' had failed ({known.failed}) and goes on with its state of then")
    return replace(_with_lifetime(known, plan.query.lifetime_us), failed=None)


def _started(
    manifest: Manifest,
    workload: Workload,
    plan: AnswerPlan | FlowPlan,
    coverage: Mapping[str, Coverage],
    seen: Mapping[str, int | None],
    note: Callable[[str], None],
) -> QueryState:
    """The state of a query that is new or starts anew: panes that are there may answer it at once."""
    name = plan.query.name
    begins = f"query '{name}' {_how_it_begins(manifest.queries.get(name), plan)}"
    if isinstance(plan, FlowPlan):
        note(f"{begins}: its results are about rows from now on")
        return _fresh(plan, None)
    since = complete_since(workload, name, coverage)
    if since is not None and since == _latest(seen[id_] for id_ in workload.sources_of(name)):
        note(f"{begins}: its windows begin after what was seen so far")
    else:
        note(f"{begins}: it answers at once, from panes that are there")
    since = _begun_us(manifest, plan) if since is None else since
    now = watermark_of({s: manifest.clocks.get(s, StreamClock()) for s in plan.reads}, plan.reads)
    if since is not None and now is not None:
        # Of the windows that closed before it came, the newest is answered.
        window = plan.aggregate.window
        since = max(since, window.begin_us(newest_end(window, now)))
    return _fresh(plan, since)


def _how_it_begins(known: QueryState | None, plan: AnswerPlan | FlowPlan) -> str:
    if known is None:
        return "is new"
    answers = isinstance(plan, AnswerPlan)
    if answers and known.sql != plan.query.sql:
        return "has changed and starts anew"
    if known.failed is not None:
        return f"had failed ({known.failed}) and starts anew"
    return "had ended and starts anew" if answers else "starts anew"


def _remembered(manifest: Manifest, going: Collection[str], refused: Mapping[str, QueryState]) -> dict[str, NodeState]:
    """What operators still remember: of nodes that go on, and of no query; a function's state waits while its query
    cannot run."""
    wait = {n for n, state in refused.items() if n in manifest.queries and state.sql == manifest.queries[n].sql}
    return {
        node: state
        for node, state in manifest.nodes.items()
        if state.outlives_queries or node in going or (node in wait and state.outlives_failure)
    }


def _only(chunk: Chunk, live: Collection[str]) -> Chunk:
    """A chunk without the parts of what does not live any more."""
    return chunk if chunk.level == APART else replace(chunk, ends=tuple(end for end in chunk.ends if end[0] in live))


def _anew(manifest: Manifest, workload: Workload) -> frozenset[str]:
    """The derived streams that begin now: of nodes that are new, or keep other rows, and of those above such nodes."""
    anew: set[str] = set()
    for stream, plan in workload.derived.items():
        state = manifest.flows.get(plan.name)
        if state is None or state.forms != plan.forms or anew & set(plan.reads):
            anew.add(stream)
    return frozenset(anew)


def _begun(manifest: Manifest, workload: Workload, anew: Collection[str]) -> Manifest:
    """The manifest with clocks of the derived streams that begin now: what could lack rows is taken for seen."""
    clocks = dict(manifest.clocks)
    for stream, plan in workload.derived.items():
        if stream in anew:
            last = _latest(clocks[name].last_us for name in plan.reads if name in clocks)
            clocks[stream] = StreamClock(last_us=None if last is None else last + plan.span_us)
    return replace(manifest, clocks=clocks)


def _first_answers(manifest: Manifest, workload: Workload, anew: Collection[str]) -> dict[str, AnswersState]:
    """Where answers that others read begin: with the first window all of whose rows are to come."""
    found: dict[str, AnswersState] = {}
    for stream, plan in workload.derived.items():
        if stream in anew and isinstance(plan, AnswerPlan):
            last = _latest(manifest.clocks[name].last_us for name in plan.reads if name in manifest.clocks)
            found[plan.name] = AnswersState(since_us=None if last is None else last + 1)
    return found


def _reads(kept: Kept, streams: Collection[str]) -> bool:
    return any(feed.stream in streams for feed in kept.synopsis.feeds)


def _goes_on(manifest: Manifest, plan: AnswerPlan | FlowPlan, anew: frozenset[str]) -> bool:
    """Whether a query is the one that was known, and what is remembered of it is about the rows it has now."""
    name = plan.query.name
    known, state = manifest.queries.get(name), manifest.flows.get(name)
    if known is None or known.sql != plan.query.sql:
        return False
    lasts = state is not None and state.outlives_failure
    if not known.runs and not (known.failed is not None and lasts):
        return False
    if state is None or state.forms == plan.forms:
        # What a function has made of its rows stays, though those below it begin anew.
        return lasts or not anew.intersection(plan.reads)
    if lasts:
        raise StateError(
            f"query '{name}' keeps state about rows with other columns: its stream has changed; go back to the columns "
            "it had, select them by name, or give the query another name to start anew"
        )
    return False


def _fresh(plan: AnswerPlan | FlowPlan, since_us: int | None) -> QueryState:
    query = plan.query
    slide_us = plan.aggregate.window.slide_us if isinstance(plan, AnswerPlan) else 0
    return QueryState(query.sql, since_us, slide_us=slide_us, lifetime_us=query.lifetime_us)


def _with_lifetime(state: QueryState, lifetime_us: int | None) -> QueryState:
    """The state of a query that goes on with a lifetime that may be another, counted from where it began."""
    ends = None
    if state.ends_us is not None and state.lifetime_us is not None and lifetime_us is not None:
        ends = state.ends_us - state.lifetime_us + lifetime_us
    return replace(state, lifetime_us=lifetime_us, ends_us=ends)


def complete_since(workload: Workload, query: str, coverage: Mapping[str, Coverage]) -> int | None:
    """From when on a query's windows are complete; None is from the beginning."""
    plan = workload.plans[query]
    times = [
        coverage[source.synopsis].complete_since((m.column for m in demand.measures), plan.aggregate.window.pane_us)
        for demand in plan.demands
        for source in workload.supplies[demand.synopsis.id].suppliers
    ]
    return _latest(times)


def _begun_us(manifest: Manifest, plan: AnswerPlan) -> int | None:
    """The first row of a query's streams."""
    clocks = (manifest.clocks.get(stream) for stream in plan.reads)
    return min((c.first_us for c in clocks if c is not None and c.first_us is not None), default=None)


def _seen_us(manifest: Manifest, kept: Kept) -> int | None:
    """Just after the last row that the streams of a synopsis have brought so far."""
    clocks = (manifest.clocks.get(feed.stream) for feed in kept.synopsis.feeds)
    return _latest(None if clock is None or clock.last_us is None else clock.last_us + 1 for clock in clocks)


def _latest(times: Iterable[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)
