"""What a run has measured of its streams and synopses, for `explain --from`."""

from __future__ import annotations

from headrace.engine.spark.session import build_session
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import is_remote, open_storage
from headrace.engine.state.workload import description_of
from headrace.errors import SpecError
from headrace.planning import KnownRates
from headrace.units import SECOND_US

__all__ = ["known_rates"]


def known_rates(root: str) -> KnownRates:
    """Rows per second of event time by stream, and pane rows per row by synopsis, as a checkpoint has them."""
    checkpoint = Checkpoint(open_storage(root, build_session("explain") if is_remote(root) else None))
    found = checkpoint.read()
    manifest = None if found is None else checkpoint.latest()
    if manifest is None:
        raise SpecError(f"{root} has no epoch to take rates from; give the folder named by 'checkpoint', after a run")
    streams: dict[str, float] = {}
    per_epoch: dict[str, float] = {}
    for name, entry in manifest.ledger.items():
        clock = manifest.clocks.get(name)
        if clock is None or clock.first_us is None or clock.last_us is None or clock.last_us <= clock.first_us:
            continue
        streams[name] = entry.rows_in * SECOND_US / (clock.last_us - clock.first_us)
        per_epoch[name] = entry.used / (manifest.epoch + 1)
    panes: dict[str, float] = {}
    for id_, kept in description_of(checkpoint, manifest).kept.items():
        rows = manifest.coverage[id_].rows if id_ in manifest.coverage else None
        read = sum(per_epoch.get(stream, 0.0) for stream in {feed.stream for feed in kept.synopsis.feeds})
        if rows is not None and read > 0:
            panes[id_] = min(1.0, rows / read)
    return KnownRates(streams, panes)
