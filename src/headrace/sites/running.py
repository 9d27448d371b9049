"""Runs the parts of a pipeline: each site with an engine of its own, all of them in one Spark application or one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from headrace.engine.links.folder import LinkFolder
from headrace.engine.state.storage import Storage
from headrace.model import LinkEnds, streams_of
from headrace.sites.cut import SitePart

__all__ = ["SiteRun", "ends_of", "in_order", "is_sent_more", "run_to_the_end"]


class SiteRun(Protocol):
    """The run of one site, as far as others need to know of it."""

    def await_termination(self) -> object:
        """Waits for its end."""


# Where receivers run after their senders, these cannot wait for them.
NO_LIMIT = 2**62


def ends_of(part: SitePart, limited: bool = True) -> LinkEnds:
    """The links of a site, for its engine."""
    if not part.sends and not part.receives:
        return LinkEnds()
    assert part.pipeline.links.path is not None
    limit = part.pipeline.links.limit_bytes if limited else NO_LIMIT
    return LinkEnds(part.pipeline.links.path, part.sends, part.receives, limit, part.site, part.plan)


def in_order(parts: Mapping[str, SitePart]) -> tuple[str, ...] | None:
    """The sites, each after those that send to it; None where some send to each other, or one to itself."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(parts, ()))
    for part in parts.values():
        for link in part.receives:
            sorter.add(link.receiver, link.sender)
    try:
        return tuple(sorter.static_order())
    except CycleError:
        return None


def run_to_the_end(
    parts: Mapping[str, SitePart],
    start: Callable[[SitePart, bool | tuple[str, ...]], SiteRun],
    flush: bool,
    storage: Callable[[str], Storage],
) -> None:
    """Has all sites use all rows that are there now; `start` starts a site, and has it close its windows if it says so,
    or those over the streams that it names.

    A site runs after those that send to it. Where sites send to each other they take turns until nothing is on its way,
    and windows are closed then, those of the proxy last: it is sent answers that others give as they close theirs.
    """
    order = in_order(parts)
    if order is not None:
        for site in order:
            start(parts[site], flush).await_termination()
        return
    waiting = list(parts)
    while waiting:
        for site in waiting:
            start(parts[site], False).await_termination()
        waiting = [site for site, part in parts.items() if is_sent_more(part, storage)]
    if not flush:
        return
    # Panes that are open where rows are born are closed before anything is that they are merged into.
    panes = {site: streams for site, part in parts.items() if (streams := sent_as_panes(part))}
    waiting = list(panes)
    while waiting:
        for site in waiting:
            start(parts[site], panes.get(site, ())).await_termination()
        waiting = [site for site, part in parts.items() if is_sent_more(part, storage)]
    closing = [site for site, part in parts.items() if has_windows(part)]
    last = [site for site in closing if any(not link.dated for link in parts[site].receives)]
    for site in (*(site for site in closing if site not in last), *last):
        start(parts[site], True).await_termination()


def has_windows(part: SitePart) -> bool:
    """Whether a site has queries of the file, and not only rows to send."""
    senders = {link.query for link in part.sends if link.dated}
    return any(query.name not in senders for query in part.pipeline.queries)


def sent_as_panes(part: SitePart) -> tuple[str, ...]:
    """The streams of a site that are sent as panes."""
    asked = {link.query for link in part.sends if link.panes is not None}
    roots = (query.root for query in part.pipeline.queries if query.name in asked)
    return tuple(dict.fromkeys(stream for root in roots for stream in streams_of(root)))


def is_sent_more(part: SitePart, storage: Callable[[str], Storage]) -> bool:
    """Whether something is on its way to a site."""
    for link in part.receives:
        folder = LinkFolder(link, storage(f"{part.pipeline.links.path}/{link.id}"))
        sent, receipt = folder.sent(), folder.receipt()
        if sent and sent[-1] > (-1 if receipt is None else receipt.epoch):
            return True
    return False
