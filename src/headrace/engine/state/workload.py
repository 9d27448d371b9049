"""The workload of a checkpoint: who goes on from where, when queries come and go; and its description on disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.terms import query_terms, stream_of, stream_terms, type_of
from headrace.errors import CorruptStateError, StateError
from headrace.kernels.chunks import APART
from headrace.language import is_own_text
from headrace.model import (
    AnswersState,
    Feed,
    Measure,
    QueryTerms,
    SettingTerms,
    Stream,
    StreamTerms,
    Synopsis,
    plain,
    restored,
)
from headrace.planning import (
    AnswerPlan,
    Coverage,
    FlowPlan,
    Kept,
    Known,
    Source,
    Supply,
    Workload,
    assemble_workload,
    cover,
    nodes_of,
    share,
)
from headrace.policies import StreamClock, newest_end, watermark_of

__all__ = [
    "Description",
    "Terms",
    "adopt",
    "complete_since",
    "describe_workload",
    "description_of",
    "forgettable",
    "plan_workload",
    "read_description",
    "read_terms",
    "restored_workload",
]

# Queries that were added to a run and have ended or failed since are remembered for `status`, so many of them.
KEPT_OVER = 100

# What `normal` of the planner makes of a key that is a floating-point number.
_NORMAL = re.compile(r"CASE WHEN isnan\((.*)\) THEN (FLOAT|DOUBLE)\('NaN'\) ELSE \1 \+ \2\(0\) END", re.DOTALL)


@dataclass(frozen=True)
class Description:
    """A workload as its checkpoint describes it: enough to answer new queries from the panes that are there."""

    streams: tuple[Stream, ...]
    kept: Mapping[str, Kept]
    supplies: Mapping[str, Supply]


@dataclass(frozen=True)
class Terms:
    """What epochs are decided under: streams, queries and settings, and the state that the first of them began with."""

    streams: Mapping[str, StreamTerms]
    queries: Mapping[str, QueryTerms]
    settings: SettingTerms
    begun: Manifest
    description: Description


def describe_workload(
    workload: Workload, streams: Sequence[Stream], settings: SettingTerms | None = None, begun: Manifest | None = None
) -> dict[str, Any]:
    """Plain JSON values, the inverse of `read_description` and, with settings and a beginning, of `read_terms`."""
    return {
        "streams": {s.name: plain(stream_terms(s)) for s in streams},
        "queries": {name: plain(query_terms(plan.query)) for name, plan in workload.queries.items()},
        "settings": plain(settings or SettingTerms()),
        "kept": {
            id_: {
                "feeds": [asdict(feed) for feed in kept.synopsis.feeds],
                "keys": [str(type_) for type_ in kept.synopsis.keys],
                "detail": None if kept.synopsis.detail is None else str(kept.synopsis.detail),
                "keep": kept.synopsis.keep,
                "pane_us": kept.pane_us,
                "measures": [[m.kind, m.arguments, str(m.type)] for m in kept.measures],
            }
            for id_, kept in workload.kept.items()
        },
        "supplies": {
            id_: {"sources": [[s.synopsis, s.keys] for s in supply.sources], "why": supply.why, "whole": supply.whole}
            for id_, supply in workload.supplies.items()
        },
        "begun": None if begun is None else begun.to_json(),
    }


def read_terms(value: Mapping[str, Any]) -> Terms:
    """What epochs were decided under, out of a checkpoint's workload file; CorruptStateError if it does not say."""
    try:
        return Terms(
            _streams(value),
            {name: restored(QueryTerms, terms) for name, terms in value["queries"].items()},
            restored(SettingTerms, value["settings"]),
            Manifest.from_json(value["begun"]),
            read_description(value),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise CorruptStateError(f"the checkpoint does not say what its last epoch was decided under: {exc}") from exc


def description_of(checkpoint: Checkpoint, manifest: Manifest) -> Description:
    """The workload that a manifest was committed with, as far as its queries still run."""
    found = read_description(checkpoint.workload(manifest.workload))
    return replace(found, kept={id_: kept for id_, kept in found.kept.items() if id_ in manifest.coverage})


def _streams(value: Mapping[str, Any]) -> dict[str, StreamTerms]:
    return {name: restored(StreamTerms, terms) for name, terms in value["streams"].items()}


def read_description(value: Mapping[str, Any]) -> Description:
    """The description in a checkpoint's workload file; CorruptStateError if names in it could be taken for SQL."""
    streams = tuple(stream_of(name, terms) for name, terms in _streams(value).items())
    kept = {
        id_: Kept(
            Synopsis(
                tuple(Feed(f["stream"], f["where"], tuple(f["keys"]), f["detail"]) for f in item["feeds"]),
                tuple(type_of(type_) for type_ in item["keys"]),
                None if item["detail"] is None else type_of(item["detail"]),
                item["keep"],
            ),
            tuple(
                Measure(kind, None if arguments is None else tuple(arguments), type_of(type_))
                for kind, arguments, type_ in item["measures"]
            ),
            item["pane_us"],
        )
        for id_, item in value["kept"].items()
    }
    supplies = {
        id_: Supply(tuple(Source(s, tuple(keys)) for s, keys in item["sources"]), item["why"], item["whole"])
        for id_, item in value["supplies"].items()
    }
    return Description(streams, kept, supplies)


def restored_workload(
    plans: Mapping[str, AnswerPlan | FlowPlan], streams: Sequence[Stream], described: Description
) -> Workload:
    """The workload that a checkpoint describes, of the plans of all its queries; CorruptStateError if it is not theirs.

    Nothing is chosen anew: what is kept, and what supplies what, is as it was.
    """
    aggregates, flows = nodes_of(plans.values())
    demanded = {d.synopsis.id: d.synopsis for plan in aggregates.values() for d in plan.demands}
    details = {feed.detail for synopsis in demanded.values() for feed in synopsis.feeds}
    known = {id_: kept.synopsis for id_, kept in described.kept.items() if _is_own(kept, streams, details)}
    known = {id_: synopsis for id_, synopsis in known.items() if synopsis.id == id_} | demanded
    try:
        made = assemble_workload(aggregates, described.supplies, known)
    except KeyError as exc:
        raise CorruptStateError(f"the checkpoint does not describe the panes of its queries: {exc} is missing") from exc
    return replace(made, flows=flows)


def plan_workload(
    plans: Mapping[str, AnswerPlan | FlowPlan],
    streams: Sequence[Stream],
    before: Description | Workload | None,
    coverage: Mapping[str, Coverage],
) -> Workload:
    """How the plans share synopses, given what the checkpoint keeps already; each flow keeps rows of its own."""
    aggregates, flows = nodes_of(plans.values())
    if before is None:
        return replace(share(aggregates, streams), flows=flows)
    demanded = {d.synopsis.id for plan in aggregates.values() for d in plan.demands}
    details = {f.detail for plan in aggregates.values() for d in plan.demands for f in d.synopsis.feeds}
    known = {
        id_: Known(kept.synopsis, coverage[id_])
        for id_, kept in before.kept.items()
        if id_ in coverage and (id_ in demanded or isinstance(before, Workload) or _is_own(kept, streams, details))
    }
    return replace(share(aggregates, streams, known, before.supplies), flows=flows)


def _is_own(kept: Kept, streams: Sequence[Stream], details: Collection[str | None]) -> bool:
    """Whether panes that a checkpoint describes may be kept for other queries, which runs the SQL of their description.

    Only SQL that this Headrace could have written itself is run. What is not is left alone, like panes of queries that
    are gone.
    """
    own = {stream.name: stream for stream in streams}
    return all(
        feed.stream in own
        and feed.detail in details
        and all(
            _is_own_key(sql, own[feed.stream]) for sql in (*feed.keys, *(() if feed.where is None else (feed.where,)))
        )
        for feed in kept.synopsis.feeds
    )


def _is_own_key(sql: str, stream: Stream) -> bool:
    made = _NORMAL.fullmatch(sql)
    return is_own_text(sql if made is None else made.group(1), (stream,))


def adopt(
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
    seen = {id_: _seen_us(manifest, kept) for id_, kept in workload.kept.items()}
    # Panes of a derived stream that begins anew begin with it.
    old = {id_: c for id_, c in manifest.coverage.items() if id_ in seen and not _reads(workload.kept[id_], anew)}
    coverage = {id_: cover(old.get(id_), kept, seen[id_]) for id_, kept in workload.kept.items()}
    queries: dict[str, QueryState] = {}
    for name, plan in workload.queries.items():
        known = manifest.queries.get(name)
        if known is not None and _goes_on(manifest, plan, anew):
            queries[name] = replace(_with_lifetime(known, plan.query.lifetime_us), failed=None)
            if known.failed is not None:
                note(f"query '{name}' had failed ({known.failed}) and goes on with its state of then")
            continue
        if isinstance(plan, FlowPlan):
            queries[name] = _fresh(plan, None)
            begins = "is new" if known is None else "starts anew"
            if known is not None and known.failed is not None:
                begins = f"had failed ({known.failed}) and {begins}"
            note(f"query '{name}' {begins}: its results are about rows from now on")
            continue
        since = complete_since(workload, name, coverage)
        new = since is not None and since == _latest(seen[id_] for id_ in workload.sources_of(name))
        since = _begun_us(manifest, plan) if since is None else since
        now = watermark_of({s: manifest.clocks.get(s, StreamClock()) for s in plan.reads}, plan.reads)
        if since is not None and now is not None:
            # Of the windows that closed before it came, the newest is answered.
            window = plan.aggregate.window
            since = max(since, newest_end(window, now) - window.size_us)
        queries[name] = _fresh(plan, since)
        answers = (
            "its windows begin after what was seen so far" if new else "it answers at once, from panes that are there"
        )
        if known is not None and known.sql != plan.query.sql:
            note(f"query '{name}' has changed and starts anew: {answers}")
        elif known is not None and known.failed is not None:
            note(f"query '{name}' had failed ({known.failed}) and starts anew: {answers}")
        elif known is not None:
            note(f"query '{name}' had ended and starts anew: {answers}")
        else:
            note(f"query '{name}' is new: {answers}")
    for name in manifest.queries:
        if name not in workload.queries and name not in refused:
            note(f"query '{name}' is gone: what only it needed goes with the next epoch")
    # What operators remember of a node that starts anew is about other rows.
    going = {name for name, plan in workload.queries.items() if _goes_on(manifest, plan, anew)}
    going |= {plan.name for stream, plan in workload.derived.items() if stream not in anew}
    flows = {name: state for name, state in manifest.flows.items() if name in going}
    flows |= _first_answers(manifest, workload, anew)
    # Of one that cannot run now, a function's state waits for it.
    flows |= {
        n: s
        for n, s in manifest.flows.items()
        if n in refused and n in manifest.queries and refused[n].sql == manifest.queries[n].sql and s.outlives_failure
    }
    # Nor do chunks tell of rows of its earlier life.
    live = {*coverage, *(store.id for name in going & workload.flows.keys() for store in workload.flows[name].stores)}
    chunks = tuple(
        chunk if chunk.level == APART else replace(chunk, ends=tuple(end for end in chunk.ends if end[0] in live))
        for chunk in manifest.chunks
    )
    nodes = {**flows, **{node: state for node, state in manifest.nodes.items() if state.outlives_queries}}
    return replace(manifest, queries={**queries, **refused}, coverage=coverage, nodes=nodes, chunks=chunks)


def forgettable(states: Mapping[str, QueryState], added: Sequence[str]) -> list[str]:
    """Which of the queries that were `added` to a run, in this order, may go: of those that are over, all but the last.

    Queries of a pipeline's own stay until they leave it: one that was forgotten would start anew.
    """
    over = [name for name in added if name in states and not states[name].runs]
    return over[:-KEPT_OVER]


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
        for source in workload.supplies[demand.synopsis.id].sources
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
