"""What stays after an epoch: chunks that some query still needs, few of them, and what they cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.engine.failures import blamed
from headrace.engine.state.checkpoint import NodeState
from headrace.engine.state.state_io import StateIo
from headrace.kernels.absorb import Absorbed
from headrace.kernels.chunks import APART, Chunk, holding
from headrace.kernels.compact import CompactTask
from headrace.kernels.panes import layout_of
from headrace.planning import Coverage, Workload, cover, forget
from headrace.policies import ChunkSize, Merge, plan_merge

__all__ = ["EVER", "Retained", "retain"]

# Before any watermark and without any limit: every time fits.
EVER = (-(2**62), 2**62)


@dataclass(frozen=True)
class Retained:
    """The chunks that stay, the names of those that go, and what the synopses cover then."""

    chunks: tuple[Chunk, ...]
    dropped: frozenset[str]
    coverage: dict[str, Coverage]


def retain(
    workload: Workload,
    chunks: tuple[Chunk, ...],
    nodes: Mapping[str, NodeState],
    expired: Mapping[str, int],
    before: Mapping[str, Coverage],
    absorbed: Absorbed,
    io: StateIo,
    folder: str,
    bins: int,
    epoch: int,
) -> Retained:
    """Drops chunks that hold nothing newer than what has `expired`, by synopsis and store, and merges small ones.

    Of chunks that are kept apart those stay that `nodes`, what operators remember, names.
    """
    needed = (*workload.kept, *(store.id for store in workload.stores))
    expired = {id_: expired.get(id_, EVER[0]) for id_ in needed}
    named = frozenset(name for state in nodes.values() for name in state.chunks)
    kept = tuple(
        c
        for c in chunks
        if (c.name in named if c.level == APART else any(id_ in expired and end > expired[id_] for id_, end in c.ends))
    )
    sizes = [ChunkSize(c.name, c.level, max(end for _, end in c.ends), c.bytes) for c in kept if c.level != APART]
    merge = plan_merge(sizes, pieces=bins)
    if isinstance(merge, Merge):
        layouts = tuple(layout_of(k.synopsis, k.measures, k.pane_us) for k in workload.kept.values())
        stores = tuple(store.id for store in workload.stores)
        merged = set(merge.chunks)
        told = holding((chunk for chunk in kept if chunk.name in merged), expired)
        task = CompactTask(folder, epoch, merge.level, told, layouts, dict(expired), stores, bins)
        kept = (*(chunk for chunk in kept if chunk.name not in merged), *blamed(lambda: io.run(task, bins)))
    coverage: dict[str, Coverage] = {}
    for id_, wanted in workload.kept.items():
        known = cover(before.get(id_), wanted, None)
        made = absorbed.rows.get(id_, 0) if absorbed.counts else known.rows
        if made is not None and known.rows is not None:
            made = known.rows + (made - known.rows) * 0.3
        coverage[id_] = replace(known, rows=made)
        if expired[id_] > EVER[0]:
            coverage[id_] = forget(coverage[id_], expired[id_], made)
    names = {chunk.name for chunk in kept}
    return Retained(kept, frozenset(chunk.name for chunk in chunks if chunk.name not in names), coverage)
