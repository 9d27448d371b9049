"""The last epochs of a checkpoint, for whoever wants to know what its pipeline would do elsewhere."""

from __future__ import annotations

from headrace.engine.spark.session import build_session
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.storage import is_remote, open_storage
from headrace.errors import SpecError
from headrace.model import EpochDecision
from headrace.planning import Recorded, RecordedEpoch

__all__ = ["read_recorded", "recorded_epoch"]

# A run that goes on removes older ones while these are read.
NEWEST = 16


def read_recorded(root: str) -> Recorded:
    """The epochs of which a checkpoint still has decision and manifest; SpecError if there is none."""
    checkpoint = Checkpoint(open_storage(root, build_session("simulate") if is_remote(root) else None))
    numbers = [] if checkpoint.read() is None else checkpoint.manifests()
    found = []
    for number in numbers[-NEWEST:]:
        decision = checkpoint.decision(number)
        if decision is not None:
            found.append(recorded_epoch(checkpoint.manifest(number), decision))
    if not found:
        raise SpecError(f"{root} has no epoch to learn from; give the folder named by 'checkpoint', after a run")
    return Recorded(tuple(found), checkpoint.bins)


def recorded_epoch(manifest: Manifest, decision: EpochDecision) -> RecordedEpoch:
    """What a manifest says of an epoch, with what was decided for it."""
    return RecordedEpoch(
        decision,
        manifest.clocks,
        manifest.ledger,
        manifest.nodes,
        manifest.observed,
        {name: state.answered_us for name, state in manifest.queries.items()},
        {name: state.waiting_us for name, state in manifest.queries.items()},
    )
