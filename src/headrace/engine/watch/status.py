"""What a checkpoint says about its run, without touching it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headrace.engine.links.told import describe_links, ends_told, measures_told
from headrace.engine.sources.rejected import RejectedRows
from headrace.engine.spark.session import build_session
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.storage import Storage, is_remote, open_storage
from headrace.engine.state.workload import Description, description_of
from headrace.errors import CorruptStateError, SpecError
from headrace.hiding import hide
from headrace.model import Snapshot, plain
from headrace.planning import Kept, Shedding, Workload, crossings_of

__all__ = ["checkpoints_in", "describe", "describe_checkpoint", "open_checkpoint"]

# Decisions shown; the log keeps a few more.
SHOWN = 5


def checkpoints_in(root: str) -> list[str]:
    """The checkpoint at a path or URI, or those in the folders there, as a pipeline with sites has them; none if it has
    none."""
    storage = open_checkpoint(root)
    if _is_checkpoint(storage):
        return [root]
    try:
        inner = [f"{root.rstrip('/')}/{name}" for name in storage.names("") if not name.startswith(".")]
    except NotADirectoryError:
        return []
    return [each for each in inner if _is_checkpoint(open_checkpoint(each))]


def open_checkpoint(root: str) -> Storage:
    """The storage of a path or URI, as those who only look at it reach it."""
    return open_storage(root, build_session("status") if is_remote(root) else None)


def _is_checkpoint(storage: Storage) -> bool:
    try:
        return storage.read("headrace.json") is not None or bool(storage.names("manifests"))
    except NotADirectoryError:
        return False


def describe_checkpoint(root: str) -> dict[str, Any]:
    """Status of the checkpoint at a path or URI."""
    storage = open_checkpoint(root)
    if not _is_checkpoint(storage):
        raise SpecError(f"{root} is not a checkpoint; give the folder named by 'checkpoint' in the pipeline file")
    checkpoint = Checkpoint(storage)
    checkpoint.check_version()
    decisions: list[dict[str, Any]] = []
    for epoch in checkpoint.decisions()[-SHOWN:]:
        try:
            decision = checkpoint.decision(epoch)
        except CorruptStateError:
            continue
        if decision is not None:
            decisions.append(decision.to_json())
    manifest = checkpoint.latest()
    workload = None if manifest is None else description_of(checkpoint, manifest)
    rejected = RejectedRows(storage).account()
    described = describe(storage.root, manifest, workload)
    ends = ends_told(storage)
    links, measured = describe_links(ends, open_checkpoint), measures_told(ends, open_checkpoint)
    return {
        **described,
        "site": ends.site or None,
        "plan": plain(ends.plan) if ends.site else None,
        "measured": plain(measured),
        "crossings": plain(crossings_of(ends.plan, measured)),
        "links": links,
        "engine": asdict(checkpoint.holder()),
        "rejected": rejected,
        "decisions": decisions,
    }


def describe(root: str, manifest: Manifest | None, workload: Workload | Description | None = None) -> dict[str, Any]:
    """Progress, ledger, queries, and with a workload its synopses, as plain values.

    `epoch` counts from 0 and is -1 before the first; times are microseconds of event time; `streams` counts rows since
    the checkpoint began, and rows_in = used + late + shed + rejected holds for each; `edges` are those that have shed,
    `shedding` says what acts against overload and what queries lost, `expected` how expectations have fared.
    """
    root = hide(root)
    if manifest is None or manifest.epoch < 0:
        return {"checkpoint": root, "epoch": -1, "streams": {}, "queries": {}, "decisions": []}
    return {
        "checkpoint": root,
        "epoch": manifest.epoch,
        "batch": manifest.batch,
        "streams": {
            name: {
                "rows_in": entry.rows_in,
                **asdict(entry),
                "watermark_us": manifest.clocks[name].watermark_us,
                "last_us": manifest.clocks[name].last_us,
            }
            for name, entry in manifest.ledger.items()
        },
        "queries": {name: _query(query) for name, query in manifest.queries.items()},
        "synopses": {
            id_: {
                "since_us": coverage.since_us,
                "pane_us": coverage.panes[-1][0],
                "measures": list(coverage.columns),
                **(_keys(workload.kept[id_]) if workload is not None and id_ in workload.kept else {}),
            }
            for id_, coverage in manifest.coverage.items()
        },
        "tables": {name: _table(each) for name, each in manifest.tables.items()},
        "flows": plain(manifest.flows),
        "edges": plain(manifest.edges),
        "shedding": _shedding(manifest.shedding),
        "expected": plain(manifest.expected),
        "state": {"chunks": len(manifest.chunks), "bytes": sum(chunk.bytes for chunk in manifest.chunks)},
        "last_epoch": plain(manifest.observed),
        "decisions": [],
    }


def _query(query: QueryState) -> dict[str, Any]:
    return {
        "state": "failed" if query.failed else "ended" if query.ended else "running",
        "cause": query.failed,
        "answers": query.answers,
        "rows": query.rows,
        "answered_us": query.answered_us,
        "requested_period_us": query.slide_us,
        "achieved_period_us": None if query.gap_us is None else round(query.gap_us),
        "late_us": query.waiting_us,
        "ends_us": query.ends_us,
    }


def _table(snapshot: Snapshot) -> dict[str, Any]:
    """The version of a table in use: when and why it was read, and when a newer one was tried in vain."""
    return {
        "version": snapshot.folder,
        "read_us": snapshot.read_us,
        "rows": snapshot.rows,
        "bytes": snapshot.bytes,
        "reason": snapshot.reason,
        "tried_us": snapshot.tried_us,
    }


def _shedding(state: Shedding) -> dict[str, Any]:
    """What waits, which remedies act and why, and by query the rows that it was offered and lost."""
    return {
        "overloaded": state.overload.overloaded,
        "acting": list(state.remedies.acting),
        "reason": state.remedies.reason,
        "behind_s": state.overload.behind_s,
        "arriving_s": state.overload.arriving_s,
        "age_s": state.overload.age_s,
        "fixed_s": state.costs.fixed_s,
        "row_s": {edge: state.costs.keep_s(edge) for edge in state.costs.keep},
        "queries": plain(state.queries),
    }


def _keys(kept: Kept) -> dict[str, Any]:
    feed = kept.synopsis.feeds[0]
    return {"streams": [f.stream for f in kept.synopsis.feeds], "keys": list(feed.keys), "where": feed.where}
