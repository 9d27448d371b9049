"""Both ends of a site's links, as a run sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.epochs import Epochs
from headrace.engine.links.folder import LinkFolder
from headrace.engine.links.measuring import measuring_of
from headrace.engine.links.receiving import Receiving
from headrace.engine.links.sending import Sending
from headrace.engine.links.told import ends_told, note_ends
from headrace.engine.sources.read import United
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.storage import Storage, open_storage
from headrace.engine.watch.hooks import Hooks
from headrace.errors import StateError
from headrace.model import LinkEnds, Pipeline, WindowAggregate, streams_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Links", "open_links"]


@dataclass(frozen=True)
class Links:
    """What a site sends and receives."""

    sending: Sending
    receiving: Receiving
    ends: LinkEnds
    checkpoint: Checkpoint
    open: Callable[[str], Storage]
    note: Callable[[str], None] = lambda text: None

    def begin(self, manifest: Manifest | None) -> None:
        """Looks whose links these are, and does what a crash after the last commit left undone; StateError if an edit
        would leave rows behind on links of before."""
        self.receiving.refuse_others()
        self._leave_nothing_behind(ends_told(self.checkpoint.storage))
        self.sending.begin()
        if self.ends.sends or self.ends.receives:
            note_ends(self.checkpoint.storage, self.ends)
        if manifest is not None:
            self.committed(manifest)

    def _leave_nothing_behind(self, before: LinkEnds) -> None:
        """Queries that go on read on where links of before end: so none of these may have rows on its way."""
        going_on = {link.stream for link in self.ends.receives}
        for link in before.receives:
            if link.id in {each.id for each in self.ends.receives}:
                continue
            folder = LinkFolder(link, self.open(f"{before.path}/{link.id}"))
            receipt = folder.receipt()
            waiting = [epoch for epoch in folder.sent() if epoch > (-1 if receipt is None else receipt.epoch)]
            if waiting and link.panes is None and link.stream in going_on:
                raise StateError(
                    f"link {folder.storage.root} was cut by the pipeline as it was before, and epochs {waiting[0]} to "
                    f"{waiting[-1]} of {link.sender} are still on their way: run it as it was until `headrace status` "
                    "shows none, then edit it"
                )
            if waiting:
                self.note(
                    f"nothing here asks for link {link.id} from {link.sender} any more: what it sent in epochs "
                    f"{waiting[0]} to {waiting[-1]} is left behind"
                )

    def committed(self, manifest: Manifest) -> None:
        """To be called after each commit, and at a start with what the last one left."""
        self.sending.committed(manifest, self.receiving.told(manifest) if self.ends.sends else None)
        self.receiving.committed(manifest)

    def joined(self, batch: DataFrame, number: int, united: United, epochs: Epochs) -> DataFrame:
        """A batch with what came along links; a sender that is too far ahead waits here before its epoch begins."""
        if number <= epochs.manifest.batch:  # it is committed, and what was received may be gone
            return batch
        received = self.receiving.rows(batch.sparkSession, number)
        self.sending.make_room(lambda: epochs.leaves, bool(received))
        for stream, rows in received.items():
            batch = batch.unionAll(united.flat(stream, rows))
        return batch


def open_links(ends: LinkEnds, pipeline: Pipeline, spark: SparkSession, checkpoint: Checkpoint, hooks: Hooks) -> Links:
    """The links of a site, opened at this end."""
    sends, receives = (
        tuple(LinkFolder(link, open_storage(f"{ends.path}/{link.id}", spark)) for link in links)
        for links in (ends.sends, ends.receives)
    )
    reads = {query.name: streams_of(query.root) for query in pipeline.queries}
    windows = {q.name: q.root.window for q in pipeline.queries if isinstance(q.root, WindowAggregate)}
    received = {link.stream for link in ends.receives}
    streams = tuple(stream for stream in pipeline.streams if stream.name in received)
    receiving = Receiving(receives, streams, checkpoint, hooks.probe)
    sending = Sending(
        sends, reads, checkpoint, ends.limit_bytes, spark.sparkContext, hooks.on_note, hooks.probe, windows=windows,
        measuring=measuring_of(ends, pipeline),
    )  # fmt: skip
    return Links(sending, receiving, ends, checkpoint, lambda root: open_storage(root, spark), hooks.on_note)
