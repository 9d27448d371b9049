"""What a run has measured of its streams and synopses, for `explain --from`."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.links.measuring import Measuring
from headrace.engine.links.told import ends_told, measures_told
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.workload import description_of
from headrace.engine.watch.status import checkpoints_in, open_checkpoint
from headrace.errors import SpecError
from headrace.model import SiteMeasures, newest_measures
from headrace.planning import KnownRates, learned
from headrace.units import SECOND_US

__all__ = ["known_rates"]


def known_rates(root: str) -> KnownRates:
    """Rows per second of event time by stream, and pane rows per row by synopsis, as a checkpoint has them; of sites,
    what they have told each other, and what their own checkpoints have where `root` holds several."""
    whole = KnownRates()
    told: list[dict[str, SiteMeasures]] = []
    epochs, running = 0, None
    for place in checkpoints_in(root):
        storage = open_checkpoint(place)
        checkpoint = Checkpoint(storage)
        manifest = None if checkpoint.read() is None else checkpoint.latest()
        if manifest is None:
            continue
        epochs += 1
        ends = ends_told(storage)
        if ends.site:
            received = {link.stream for link in ends.receives}
            told.append(measures_told(ends, open_checkpoint))
            running = ends.plan
            if not ends.sends:  # what is born at others they tell themselves
                born = {name: name for name in manifest.ledger if name not in received}
                told.append(Measuring(ends.site, born).of(manifest, {}))
        else:
            whole = _of_one(checkpoint, manifest)
    if not epochs:
        raise SpecError(f"{root} has no epoch to take rates from; give the folder named by 'checkpoint', after a run")
    return replace(learned(newest_measures(told)), streams=whole.streams, panes=whole.panes, running=running)


def _of_one(checkpoint: Checkpoint, manifest: Manifest) -> KnownRates:
    """Of a pipeline that runs at one site."""
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
