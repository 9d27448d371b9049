"""What a site measures of its streams and links, in the words in which sites tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.engine.state.checkpoint import Manifest
from headrace.model import (
    Column,
    DataType,
    Entry,
    Kind,
    Link,
    LinkEnds,
    LinkEpoch,
    LinkMeasure,
    Pipeline,
    Query,
    SiteMeasures,
    StreamMeasure,
    WindowAggregate,
    streams_of,
)
from headrace.planning import PANE_TIMES, row_bytes

__all__ = ["Measuring", "measuring_of"]


@dataclass(frozen=True)
class Measuring:
    """A site, by name the streams that are born there as the file calls them, and by query the bytes of a row sent."""

    site: str = ""
    born: Mapping[str, str] = field(default_factory=dict)
    row_bytes: Mapping[str, float] = field(default_factory=dict)

    def of(self, manifest: Manifest, links: Mapping[Link, LinkEpoch]) -> dict[str, SiteMeasures]:
        """What a site has measured after an epoch, with what its links have carried; nothing of what is no site."""
        if not self.site or manifest.epoch < 0:
            return {}
        streams = {
            name: StreamMeasure(
                manifest.ledger.get(local, Entry()).used,
                manifest.clocks[local].first_us,
                manifest.clocks[local].last_us,
            )
            for local, name in self.born.items()
            if local in manifest.clocks
        }
        carried = {link.id: self._link(link, epoch) for link, epoch in links.items()}
        return {self.site: SiteMeasures(manifest.epoch, streams, carried)}

    def _link(self, link: Link, sent: LinkEpoch) -> LinkMeasure:
        used = sum(entry.used for entry in sent.ledger.values())
        width = self.row_bytes.get(link.query, 0.0)
        return LinkMeasure(
            link.receiver, link.stream, sent.total_bytes, sent.total_rows, used, width, sent.first_us, sent.last_us,
            link.panes,
        )  # fmt: skip


def measuring_of(ends: LinkEnds, pipeline: Pipeline) -> Measuring:
    """What there is to measure at a site."""
    received = {link.stream for link in ends.receives}
    reads = {query.name: streams_of(query.root) for query in pipeline.queries}
    called = {local: link.stream for link in ends.sends if link.dated for local in reads.get(link.query, ())}
    born = {
        stream.name: called.get(stream.name, stream.name) for stream in pipeline.streams if stream.name not in received
    }
    sent = {link.query for link in ends.sends}
    widths = {query.name: _width(query) for query in pipeline.queries if query.name in sent}
    return Measuring(ends.site, born, widths)


def _width(query: Query) -> float:
    """Bytes of a result by the types of its columns, as placement counts them."""
    times = PANE_TIMES if isinstance(query.root, WindowAggregate) else ()
    columns = [Column(output.name, output.type) for output in query.finish.outputs]
    return row_bytes((*columns, *(Column(name, DataType(Kind.TIMESTAMP)) for name in times)))
