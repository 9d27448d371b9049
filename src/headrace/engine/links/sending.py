"""The sender's end of links: what an epoch put there is said after its manifest, and removed once it was received."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.links.folder import LinkFolder
from headrace.engine.links.measuring import Measuring
from headrace.engine.spark.jobs import Jobs
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.errors import StateError
from headrace.kernels.link_files import SealLinkFiles
from headrace.model import Entry, Link, LinkEpoch, LinkFile, LinkMeter, SiteMeasures, TimeWindow, newest_measures
from headrace.policies import settled_until, watermark_of
from headrace.units import format_bytes

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Sending"]

# How often a sender that waits for room looks whether there is some.
_LOOK_S = 0.2


class Sending:
    """Sends what each epoch's queries wrote to links; `reads` and `windows` are their streams and windows, by query."""

    def __init__(
        self,
        folders: Sequence[LinkFolder],
        reads: Mapping[str, tuple[str, ...]],
        checkpoint: Checkpoint,
        limit_bytes: int,
        context: SparkContext,
        note: Callable[[str], None],
        probe: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
        windows: Mapping[str, TimeWindow] | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self._folders, self._reads, self._checkpoint = tuple(folders), reads, checkpoint
        self._limit, self._jobs, self._note, self._probe, self._pause = limit_bytes, Jobs(context), note, probe, pause
        self._windows, self._measuring = windows or {}, measuring or Measuring()
        self._last: dict[str, LinkEpoch] = {}  # by link what was sent last
        self._ahead: dict[str, dict[int, int]] = {}  # by link the bytes of epochs that were not received

    def begin(self) -> None:
        """Finds out what was sent, and what of it was not received."""
        for folder in self._folders:
            epochs = [folder.epoch(number) for number in folder.sent()]
            self._ahead[folder.link.id] = {epoch.epoch: epoch.bytes for epoch in epochs}
            if epochs:
                self._last[folder.link.id] = epochs[-1]

    def committed(self, manifest: Manifest, told: Mapping[str, SiteMeasures] | None = None) -> None:
        """Sends what the last epoch left, unless that has happened; StateError if links know more than the manifest.

        `told` is what other sites have measured; it goes along.
        """
        if not self._folders:
            return
        coming = [folder for folder in self._folders if self._is_to_send(folder, manifest)]
        files = [(folder, name) for folder in coming for name in folder.files_of(manifest.epoch)]
        sealed = self._sealed([(folder.storage.root, name) for folder, name in files])
        self._probe("before-sent")
        mine = {
            folder.link.id: [f for (of, _), f in zip(files, sealed, strict=True) if of is folder] for folder in coming
        }
        epochs = (self._epoch(folder, manifest, tuple(mine[folder.link.id])) for folder in coming)
        next_ = {epoch.link: epoch for epoch in epochs if epoch is not None}
        measured = self._measured(manifest, next_, told or {})
        for folder in coming:
            if folder.link.id in next_:
                self._send(folder, replace(next_[folder.link.id], measured=measured))
        self._probe("after-sent")
        self.trim()

    def trim(self) -> None:
        """Removes what receivers have."""
        for folder in self._folders:
            receipt, ahead = folder.receipt(), self._ahead[folder.link.id]
            if receipt is None or not any(epoch <= receipt.epoch for epoch in ahead):
                continue
            last = self._last.get(folder.link.id)
            if last is None or receipt.epoch > last.epoch or receipt.sender != self._checkpoint.id:
                raise StateError(
                    f"the receiver of link {folder.storage.root} has epoch {receipt.epoch} of checkpoint "
                    f"{receipt.sender[:12]}, which this one ({self._checkpoint.id[:12]}) never sent"
                )
            folder.remove(receipt.epoch)
            self._ahead[folder.link.id] = {epoch: size for epoch, size in ahead.items() if epoch > receipt.epoch}

    def make_room(self, leaving: Callable[[], bool], receives: bool) -> None:
        """Waits until no receiver is further behind than the limit, or the run leaves.

        What is received must not wait for a receiver that waits for it in turn.
        """
        said = False
        while (full := self._full(receives)) is not None and not leaving():
            if not said:
                behind = format_bytes(sum(self._ahead[full].values()))
                self._note(
                    f"link {full} has {behind} that its receiver has not taken, and its limit is "
                    f"{format_bytes(self._limit)}: this site waits for it"
                )
                said = True
            self._pause(_LOOK_S)
            self.trim()

    def meters(self) -> list[LinkMeter]:
        """By link what it has carried, and what of it its receiver has not taken."""
        found = []
        for folder in self._folders:
            last, ahead = self._last.get(folder.link.id), dict(self._ahead.get(folder.link.id, {}))
            carried = (-1, 0, 0) if last is None else (last.epoch, last.total_bytes, last.total_rows)
            found.append(LinkMeter(folder.link, *carried, len(ahead), sum(ahead.values())))
        return found

    def _full(self, receives: bool) -> str | None:
        links = [folder.link for folder in self._folders if not (receives and folder.link.back)]
        return next((link.id for link in links if sum(self._ahead[link.id].values()) > self._limit), None)

    def _is_to_send(self, folder: LinkFolder, manifest: Manifest) -> bool:
        last, state = self._last.get(folder.link.id), manifest.queries.get(folder.link.query)
        if last is not None and last.epoch > manifest.epoch:
            raise StateError(
                f"link {folder.storage.root} was sent epoch {last.epoch}, and the checkpoint ends with epoch "
                f"{manifest.epoch}: it was set back; restore the newer one, or start with a new one and new links"
            )
        # Of a query that failed nothing more is known: time must not go on where rows are missing.
        return manifest.epoch >= 0 and state is not None and state.failed is None and (
            last is None or last.epoch < manifest.epoch
        )  # fmt: skip

    def _send(self, folder: LinkFolder, epoch: LinkEpoch) -> None:
        folder.send(epoch)
        self._last[epoch.link] = epoch
        self._ahead[epoch.link][epoch.epoch] = epoch.bytes

    def _measured(
        self, manifest: Manifest, coming: Mapping[str, LinkEpoch], told: Mapping[str, SiteMeasures]
    ) -> dict[str, SiteMeasures]:
        """What this site has measured with what is about to be sent, and what others have told it."""
        last = {**self._last, **coming}
        links = {folder.link: last[folder.link.id] for folder in self._folders if folder.link.id in last}
        mine = self._measuring.of(manifest, links)
        return newest_measures([told, mine])

    def _epoch(self, folder: LinkFolder, manifest: Manifest, files: tuple[LinkFile, ...]) -> LinkEpoch | None:
        """What an epoch sends along a link; None if it tells nothing."""
        link, streams = folder.link, self._reads[folder.link.query]
        watermark, last = self._watermark(manifest, link), self._last.get(folder.link.id)
        if last is not None and not files and last.watermark_us == watermark:
            return None
        ledger = {stream: manifest.ledger.get(stream, Entry()) for stream in streams}
        before = -1 if last is None else last.epoch
        since = manifest.queries[link.query].since_us if link.panes is not None else None
        sent = LinkEpoch(link.id, self._checkpoint.id, manifest.epoch, before, files, watermark, ledger)
        clocks = [manifest.clocks[stream] for stream in streams if stream in manifest.clocks]
        return replace(
            sent,
            total_bytes=sent.bytes + (0 if last is None else last.total_bytes),
            total_rows=sent.rows + (0 if last is None else last.total_rows),
            since_us=since,
            first_us=min((clock.first_us for clock in clocks if clock.first_us is not None), default=None),
            last_us=max((clock.last_us for clock in clocks if clock.last_us is not None), default=None),
        )

    def _watermark(self, manifest: Manifest, link: Link) -> int | None:
        """The time that nothing to be sent is older than."""
        streams, window = self._reads[link.query], self._windows.get(link.query)
        now = watermark_of(manifest.clocks, streams)
        if link.panes is None or window is None:
            return now
        state = manifest.queries[link.query]
        first = min((us for s in streams if (us := manifest.clocks[s].first_us) is not None), default=None)
        fresh = first if state.since_us is None else window.whole_us(state.since_us)
        return settled_until(window, fresh if state.answered_us is None else state.answered_us, now)

    def _sealed(self, files: Sequence[tuple[str, str]]) -> list[LinkFile]:
        if not files:
            return []
        return [file for _, file in sorted(self._jobs.run(SealLinkFiles(tuple(files)), len(files)))]
