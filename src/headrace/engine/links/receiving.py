"""The receiver's end of links: which epochs a batch has, their rows and watermarks, and what is received."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.engine.links.folder import SENT, LinkFolder
from headrace.engine.links.source import FORMAT, links_source
from headrace.engine.sources.read import LINKS
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.errors import CorruptStateError, StateError
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.border import Bordered
from headrace.kernels.link_files import ReadLinkFiles, Sent
from headrace.model import Column, DataType, Kind, LinkEpoch, LinkReceipt, SiteMeasures, Stream, newest_measures
from headrace.planning import PANE_TIMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Receiving"]


@dataclass(frozen=True)
class Receiving:
    """Reads what was sent along links, whose rows are those of `streams`."""

    folders: tuple[LinkFolder, ...]
    streams: tuple[Stream, ...]
    checkpoint: Checkpoint
    probe: Callable[[str], None]

    def refuse_others(self) -> None:
        """StateError if a link has another receiver."""
        for folder in self.folders:
            receipt = folder.receipt()
            if receipt is not None and receipt.receiver != self.checkpoint.id:
                raise StateError(
                    f"link {folder.storage.root} is received by checkpoint {receipt.receiver[:12]}, not by "
                    f"{self.checkpoint.id[:12]}: to start anew, begin with new links and new checkpoints at both ends"
                )

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """By stream its columns, without rows, and the source that says which epochs there are."""
        if not self.folders:
            return {}
        spark.dataSource.register(links_source())
        folders = {folder.link.id: f"{folder.storage.root}/{SENT}" for folder in self.folders}
        source = spark.readStream.format(FORMAT).option("folders", json.dumps(folders)).load()
        return {s.name: spark.createDataFrame([], _ddl(s.columns)) for s in self.streams} | {LINKS: source}

    def marks(self, batch: int) -> dict[str, int | None]:
        """By stream the watermark that a batch brings it to: the least of its links', None while one has not begun."""
        end, marks = self._offset(batch), dict[str, int | None]()
        for stream in self.streams:
            mine = [folder for folder in self.folders if folder.link.stream == stream.name]
            told = [folder.epoch(end[f]).watermark_us if (f := folder.link.id) in end else None for folder in mine]
            known = [mark for mark in told if mark is not None]
            marks[stream.name] = min(known) if len(known) == len(told) else None
        return marks

    def since(self, batch: int) -> dict[str, int]:
        """By column of panes the time from which all links have them, of those that not all have from the beginning."""
        end, found = self._offset(batch), dict[str, int]()
        for folder in self.folders:
            panes, link = folder.link.panes, folder.link.id
            since = None if panes is None or link not in end else folder.epoch(end[link]).since_us
            if panes is not None and since is not None:
                found[panes] = max(since, found.get(panes, since))
        return found

    def told(self, manifest: Manifest) -> dict[str, SiteMeasures]:
        """By site what was measured there, as far as links have told it up to the last batch of a manifest."""
        end = self._offset(manifest.batch)
        return newest_measures(
            folder.epoch(end[folder.link.id]).measured for folder in self.folders if folder.link.id in end
        )

    def rows(self, spark: SparkSession, batch: int) -> dict[str, DataFrame]:
        """By stream the rows that a batch brings it; streams that it brings none are missing."""
        start, end = self._offset(batch - 1), self._offset(batch)
        found: dict[str, DataFrame] = {}
        for stream in self.streams:
            files: dict[str | None, list[Sent]] = {}
            for folder in self.folders:
                if folder.link.stream == stream.name:
                    mine = _files(folder, self._epochs(folder, start, end))
                    files.setdefault(folder.link.panes, []).extend(mine)
            frames = [_frame(spark, stream, panes, tuple(mine)) for panes, mine in files.items() if mine]
            if frames:
                found[stream.name] = reduce(lambda a, b: a.unionAll(b), frames)
        return found

    def committed(self, manifest: Manifest) -> None:
        """Says what was received, up to the last batch of the manifest."""
        if manifest.batch < 0 or not self.folders:
            return
        end = self._offset(manifest.batch)
        self.probe("before-received")
        for folder in self.folders:
            number, known = end.get(folder.link.id, -1), folder.receipt()
            if number > (-1 if known is None else known.epoch):
                sender = folder.epoch(number).sender
                folder.acknowledge(LinkReceipt(folder.link.id, self.checkpoint.id, sender, number))
        self.probe("after-received")

    def _epochs(self, folder: LinkFolder, start: Mapping[str, int], end: Mapping[str, int]) -> list[LinkEpoch]:
        """What was sent between two offsets; CorruptStateError if some of it is missing, or somebody else's."""
        link = folder.link.id
        last, until = start.get(link, -1), end.get(link, -1)
        found = [folder.epoch(number) for number in folder.sent() if last < number <= until]
        receipt = folder.receipt()
        for epoch in found:
            if epoch.before != last:
                raise CorruptStateError(
                    f"{folder.storage.root}/{SENT} has epoch {epoch.epoch}, which was sent after epoch {epoch.before}: "
                    f"that is missing, and the last received is {last}"
                )
            if receipt is not None and epoch.sender != receipt.sender:
                raise CorruptStateError(
                    f"{folder.storage.root}/{SENT}/{epoch.epoch}.json is of checkpoint {epoch.sender[:12]}, and what "
                    f"was received before is of {receipt.sender[:12]}: somebody put it there"
                )
            last = epoch.epoch
        if last != until:
            raise CorruptStateError(f"{folder.storage.root}/{SENT}/{until}.json is missing")
        return found

    def _offset(self, batch: int) -> dict[str, int]:
        """By link the epoch up to which Spark's batches have it; the source of links is the last of all."""
        if batch < 0 or not self.folders:
            return {}
        path = f"spark/offsets/{batch}"
        data = self.checkpoint.storage.read(path)
        lines = [] if data is None else data.decode().splitlines()[2:]
        if not lines:
            raise CorruptStateError(f"{self.checkpoint.storage.root}/{path} is missing or empty")
        found = {} if lines[-1] == "-" else json.loads(lines[-1])
        known = {folder.link.id for folder in self.folders}
        return {link: int(epoch) for link, epoch in found.items() if link in known}


def _files(folder: LinkFolder, epochs: Sequence[LinkEpoch]) -> list[Sent]:
    """The files of some epochs; rows without a time have the watermark that they were sent at."""
    dated = [None if folder.link.dated else (epoch.watermark_us or 0) for epoch in epochs]
    return [Sent(folder.storage.root, f, time) for e, time in zip(epochs, dated, strict=True) for f in e.files]


def _frame(spark: SparkSession, stream: Stream, panes: str | None, files: tuple[Sent, ...]) -> DataFrame:
    """The rows of some files as rows of a stream: as they are, or as panes in a column of it."""
    if panes is None:
        return _read(spark, stream.columns, stream.time, files)
    column = stream.column(panes)
    assert column is not None
    times = tuple(Column(name, DataType(Kind.TIMESTAMP)) for name in PANE_TIMES)
    rows = _read(spark, (*times, *column.type.fields), stream.time, files)
    packed = ", ".join(f"'{field.name}', `{field.name}`" for field in column.type.fields)
    made = {stream.time: f"timestamp_micros(unix_micros({PANE_TIMES[1]}) - 1)", panes: f"named_struct({packed})"}
    return rows.selectExpr(*(f"{made.get(c.name, f'CAST(NULL AS {c.type})')} AS `{c.name}`" for c in stream.columns))


def _read(spark: SparkSession, columns: tuple[Column, ...], time: str, files: tuple[Sent, ...]) -> DataFrame:
    import pyarrow as pa

    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    order = ReadLinkFiles(files, schema, time)
    return spark.range(0, len(files), 1, len(files)).mapInArrow(Bordered(order), _ddl(columns))


def _ddl(columns: Iterable[Column]) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)
