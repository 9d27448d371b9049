"""How far a flush has to bring time through several levels of nodes: past the end of all that any of them holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.planning.sharing import Workload
from headrace.policies import StreamClock

__all__ = ["ends_below", "latest"]


def latest(workload: Workload, clocks: Mapping[str, StreamClock]) -> dict[str, StreamClock]:
    """Clocks in which the last row of a derived stream is as late as results that are still to come can be."""
    known = dict(clocks)
    for stream, plan in workload.derived.items():
        lasts = [last for name in plan.reads if (last := known[name].last_us) is not None]
        if not lasts or plan.feeds is None:
            continue
        clock, last = known[stream], plan.feeds.latest_us(max(lasts))
        last = last if clock.last_us is None else max(last, clock.last_us)
        now = last if clock.watermark_us is None else clock.watermark_us
        known[stream] = replace(clock, last_us=last, watermark_us=now)
    return known


def ends_below(workload: Workload, ends: Mapping[str, int]) -> dict[str, int]:
    """Ends of streams, each as late as those of the streams that are derived from it require."""
    found = dict(ends)
    for stream, plan in reversed(workload.derived.items()):
        if stream in found and plan.feeds is not None:
            end = found[stream] + plan.feeds.delay_us
            found |= {name: max(end, found.get(name, end)) for name in plan.reads}
    return found
