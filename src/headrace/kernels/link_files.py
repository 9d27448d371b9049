"""What tasks do with the files of links: read them, each against its checksum, and say what checksums files have."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import CorruptStateError
from headrace.kernels.chunks import open_filesystem
from headrace.model import LinkFile

__all__ = ["ReadLinkFiles", "SealLinkFiles", "Sent"]

# Rows of a batch that a task hands to Spark.
_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A file of a link, the folder it is in, and the time of its rows, if they have none of their own."""

    folder: str
    file: LinkFile
    dated_us: int | None = None


@dataclass(frozen=True)
class ReadLinkFiles:
    """The rows of some files of links, one task per file; CorruptStateError if one is not as it was sent."""

    files: tuple[Sent, ...]
    schema: pa.Schema
    time: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            sent = self.files[number]
            uri = f"{sent.folder}/{sent.file.name}"
            data = _content(uri)
            if len(data) != sent.file.bytes or zlib.crc32(data) != sent.file.crc:
                raise CorruptStateError(f"link file {uri} is altered or truncated: it does not match what was sent")
            table = self._typed(uri, pq.read_table(pa.BufferReader(data)), sent.dated_us)
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def _typed(self, uri: str, table: pa.Table, dated_us: int | None) -> pa.Table:
        if dated_us is not None:
            time = pa.scalar(dated_us, pa.int64()).cast(self.schema.field(self.time).type)
            table = table.append_column(self.time, pa.repeat(time, table.num_rows))
        if table.column_names != self.schema.names and set(table.column_names) != set(self.schema.names):
            raise CorruptStateError(
                f"link file {uri} has the columns {', '.join(table.column_names)}, not {', '.join(self.schema.names)}"
            )
        return table.select(self.schema.names).cast(self.schema)


@dataclass(frozen=True)
class SealLinkFiles:
    """Says what files are: their position, and name, size, checksum and rows."""

    files: tuple[tuple[str, str], ...]  # folder and name

    def __call__(self, numbers: Iterable[int]) -> Iterator[tuple[int, LinkFile]]:
        for number in numbers:
            folder, name = self.files[number]
            data = _content(f"{folder}/{name}")
            rows = pq.read_metadata(pa.BufferReader(data)).num_rows
            yield number, LinkFile(name, len(data), zlib.crc32(data), rows)


def _content(uri: str) -> pa.Buffer:
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            return file.read_buffer()
    except FileNotFoundError as exc:
        raise CorruptStateError(f"link file {uri} is missing") from exc
