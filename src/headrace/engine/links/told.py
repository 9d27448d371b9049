"""What a checkpoint says of its site's links, for `status`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.engine.links.folder import LinkFolder
from headrace.engine.state.sealed import seal, unseal
from headrace.engine.state.storage import Storage
from headrace.errors import CorruptStateError
from headrace.model import Link, LinkEnds, LinkEpoch, SiteMeasures, newest_measures, plain, restored

__all__ = ["describe_links", "ends_told", "measures_told", "note_ends"]

_ENDS = "links.json"


def note_ends(storage: Storage, ends: LinkEnds) -> None:
    """Writes down which links begin and end here; nothing is read of it but by people."""
    told = plain(ends)
    assert isinstance(told, dict)
    storage.replace(_ENDS, seal(told))


def ends_told(checkpoint: Storage) -> LinkEnds:
    """Which site a checkpoint is of, and its links; none if it is of a pipeline that runs at one site."""
    data = checkpoint.read(_ENDS)
    if data is None:
        return LinkEnds()
    try:
        return restored(LinkEnds, unseal(data, f"{checkpoint.root}/{_ENDS}"))
    except ValueError as exc:
        raise CorruptStateError(f"{checkpoint.root}/{_ENDS} tells of no links: {exc}") from exc


def describe_links(ends: LinkEnds, open_: Callable[[str], Storage]) -> list[dict[str, Any]]:
    """The links of a site: both ends, how far each is, what it has carried, and what is on its way."""
    links = dict.fromkeys((*ends.sends, *ends.receives))
    return [_described(link, open_(f"{ends.path}/{link.id}")) for link in links]


def measures_told(ends: LinkEnds, open_: Callable[[str], Storage]) -> dict[str, SiteMeasures]:
    """By site what was measured there, as the newest epochs of a site's links tell it."""
    found = []
    for link in dict.fromkeys((*ends.sends, *ends.receives)):
        folder = LinkFolder(link, open_(f"{ends.path}/{link.id}"))
        newest = _epoch(folder, sent[-1]) if (sent := folder.sent()) else None
        found.append({} if newest is None else newest.measured)
    return newest_measures(found)


def _epoch(folder: LinkFolder, number: int) -> LinkEpoch | None:
    """What was sent in an epoch; None if it is gone by now, as it goes when it was received."""
    try:
        return folder.epoch(number)
    except CorruptStateError:
        return None


def _described(link: Link, storage: Storage) -> dict[str, Any]:
    """`waiting` counts epochs that the receiver has not committed, and their bytes; times are those of events."""
    folder = LinkFolder(link, storage)
    receipt, sent = folder.receipt(), folder.sent()
    received = -1 if receipt is None else receipt.epoch
    epochs = {number: epoch for number in sent if (epoch := _epoch(folder, number)) is not None}
    waiting = [epoch for number, epoch in epochs.items() if number > received]
    marks = [epochs[number].watermark_us if number in epochs else None for number in (*sent[-1:], received)]
    last, there = marks[0], marks[-1]
    newest = epochs.get(sent[-1]) if sent else None
    return {
        "link": link.id,
        "from": link.sender,
        "to": link.receiver,
        "stream": link.stream,
        "query": link.query,
        "sent_epoch": sent[-1] if sent else -1,
        "received_epoch": received,
        "carries": "rows" if link.panes is None else "panes",
        "sent_bytes": 0 if newest is None else newest.total_bytes,
        "sent_rows": 0 if newest is None else newest.total_rows,
        "waiting_epochs": len(waiting),
        "waiting_bytes": sum(epoch.bytes for epoch in waiting),
        "lag_us": None if last is None or there is None else last - there,
    }
