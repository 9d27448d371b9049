"""The workload of a checkpoint: how queries share what is kept when they come and go, and its description on disk."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.terms import query_terms, stream_of, stream_terms, table_terms, type_of
from headrace.errors import CorruptStateError
from headrace.language import is_own_text
from headrace.model import (
    Feed,
    Measure,
    QueryShedding,
    QueryTerms,
    SettingTerms,
    Stream,
    StreamTerms,
    Synopsis,
    Table,
    TableTerms,
    plain,
    restored,
)
from headrace.planning import (
    AnswerPlan,
    Coverage,
    FlowPlan,
    Kept,
    Known,
    LookupPlan,
    Supplier,
    Supply,
    Workload,
    assemble_workload,
    nodes_of,
    share,
)

__all__ = [
    "Description",
    "Terms",
    "describe_workload",
    "description_of",
    "forgettable",
    "plan_workload",
    "read_description",
    "read_terms",
    "restored_workload",
    "shedding_of",
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
    """What epochs are decided under: streams, tables, queries, settings, and the state that the first of them began
    with."""

    streams: Mapping[str, StreamTerms]
    queries: Mapping[str, QueryTerms]
    settings: SettingTerms
    begun: Manifest
    description: Description
    tables: Mapping[str, TableTerms] = field(default_factory=dict)


def describe_workload(
    workload: Workload,
    streams: Sequence[Stream],
    settings: SettingTerms | None = None,
    begun: Manifest | None = None,
    tables: Sequence[Table] = (),
) -> dict[str, Any]:
    """Plain JSON values, the inverse of `read_description` and, with settings and a beginning, of `read_terms`."""
    used = {name for plan in workload.flows.values() if isinstance(plan, LookupPlan) for name in plan.tables}
    return {
        "streams": {s.name: plain(stream_terms(s)) for s in streams},
        "tables": {table.name: plain(table_terms(table)) for table in tables if table.name in used},
        "queries": {name: plain(query_terms(plan.query)) for name, plan in workload.queries.items()},
        "settings": plain(settings or SettingTerms()),
        "kept": {
            id_: {
                "feeds": [asdict(feed) for feed in kept.synopsis.feeds],
                "keys": [str(type_) for type_ in kept.synopsis.keys],
                "detail": None if kept.synopsis.detail is None else str(kept.synopsis.detail),
                "keep": kept.synopsis.keep,
                "apart": kept.synopsis.apart,
                "pane_us": kept.pane_us,
                "measures": [[m.kind, m.arguments, str(m.type)] for m in kept.measures],
            }
            for id_, kept in workload.kept.items()
        },
        "supplies": {
            id_: {"sources": [[s.synopsis, s.keys] for s in supply.suppliers], "why": supply.why, "whole": supply.whole}
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
            {name: restored(TableTerms, terms) for name, terms in value.get("tables", {}).items()},
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise CorruptStateError(f"the checkpoint does not say what its last epoch was decided under: {exc}") from exc


def shedding_of(checkpoint: Checkpoint, manifest: Manifest) -> dict[str, tuple[str, QueryShedding]]:
    """By query that a manifest was committed with its SQL, and how it is shed."""
    terms = {n: restored(QueryTerms, each) for n, each in checkpoint.workload(manifest.workload)["queries"].items()}
    return {name: (each.sql, each.shedding) for name, each in terms.items() if name in manifest.queries}


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
                tuple(Feed(f["stream"], f["where"], tuple(f["keys"]), f["detail"], f["panes"]) for f in item["feeds"]),
                tuple(type_of(type_) for type_ in item["keys"]),
                None if item["detail"] is None else type_of(item["detail"]),
                item["keep"],
                item.get("apart", False) is True,
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
        id_: Supply(tuple(Supplier(s, tuple(keys)) for s, keys in item["sources"]), item["why"], item["whole"])
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
        # What comes along a link is for the queries that it was cut for.
        and feed.panes is None
        and feed.detail in details
        and all(
            _is_own_key(sql, own[feed.stream]) for sql in (*feed.keys, *(() if feed.where is None else (feed.where,)))
        )
        for feed in kept.synopsis.feeds
    )


def _is_own_key(sql: str, stream: Stream) -> bool:
    made = _NORMAL.fullmatch(sql)
    return is_own_text(sql if made is None else made.group(1), (stream,))


def forgettable(states: Mapping[str, QueryState], added: Sequence[str]) -> list[str]:
    """Which of the queries that were `added` to a run, in this order, may go: of those that are over, all but the last.

    Queries of a pipeline's own stay until they leave it: one that was forgotten would start anew.
    """
    over = [name for name in added if name in states and not states[name].runs]
    return over[:-KEPT_OVER]
