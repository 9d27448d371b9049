"""State files: immutable containers of Arrow parts, one part per synopsis and bin.

    magic | Arrow IPC stream | Arrow IPC stream | ... | footer (JSON) | crc32 and length of the footer | magic

A chunk is written by one task attempt under a name nobody else uses. A manifest names the chunks that count; any
other is garbage. Parts are read by tasks, straight from the file system, and kept decoded in the Python worker: a name
never changes its content, so the cache needs no invalidation and state stays where it was used last.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyarrow import fs as arrow_fs

from headrace.errors import CorruptStateError

__all__ = ["Chunk", "Part", "open_filesystem", "read_part", "verify_chunk", "write_chunk"]

MAGIC = b"HRCHUNK1"
_TAIL = struct.Struct("<II8s")
# Small parts are mostly metadata; compressing them costs more than it saves.
_COMPRESS_ABOVE_BYTES = 1 << 16
# Decoded parts kept per Python worker; what does not fit is read again.
_CACHE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Where one synopsis's panes of one bin lie in a chunk."""

    synopsis: str
    bin: int
    offset: int
    length: int
    crc: int
    first_pane: int
    last_pane: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as manifests name it; `ends` gives, per synopsis, the greatest pane end it holds (microseconds)."""

    name: str
    bytes: int
    crc: int
    level: int
    ends: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Chunk:
        return cls(**{**value, "ends": tuple((name, end) for name, end in value["ends"])})


def open_filesystem(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """The Arrow file system of a path or URI, and the path within it."""
    if "://" not in uri and not uri.startswith("file:"):
        return arrow_fs.LocalFileSystem(), uri
    # Hadoop's names of object stores, as Arrow knows them.
    for theirs, ours in (("s3a://", "s3://"), ("s3n://", "s3://"), ("file:/", "file:///"), ("file:////", "file:///")):
        if uri.startswith(theirs):
            uri = ours + uri[len(theirs) :].lstrip("/") if ours == "file:///" else ours + uri[len(theirs) :]
            break
    filesystem, path = arrow_fs.FileSystem.from_uri(uri)
    return filesystem, path


def write_chunk(
    folder: str, epoch: int, level: int, parts: Iterable[tuple[str, int, int, pl.DataFrame]]
) -> Chunk | None:
    """Writes the parts `(synopsis, pane_us, bin, frame)` as one chunk; None if there is no part."""
    body = bytearray(MAGIC)
    index: list[Part] = []
    ends: dict[str, int] = {}
    for synopsis, pane_us, bin_, frame in parts:
        data = _encode(frame)
        first, last = frame["p"].min(), frame["p"].max()
        assert isinstance(first, int)
        assert isinstance(last, int)
        index.append(Part(synopsis, bin_, len(body), len(data), zlib.crc32(data), first, last))
        ends[synopsis] = max(ends.get(synopsis, -(2**63)), last + pane_us)
        body += data
    if not index:
        return None
    footer = json.dumps([[p.synopsis, p.bin, p.offset, p.length, p.crc, p.first_pane, p.last_pane] for p in index])
    body += footer.encode()
    body += _TAIL.pack(zlib.crc32(footer.encode()), len(footer), MAGIC)
    name = f"{epoch:09d}-{uuid.uuid4().hex}.chunk"
    filesystem, path = open_filesystem(folder)
    with filesystem.open_output_stream(f"{path}/{name}") as out:
        out.write(body)
    return Chunk(name, len(body), zlib.crc32(body), level, tuple(sorted(ends.items())))


def _encode(frame: pl.DataFrame) -> bytes:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    sink = pa.BufferOutputStream()
    compression = "lz4" if table.nbytes > _COMPRESS_ABOVE_BYTES else None
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_parts: OrderedDict[tuple[str, int], tuple[pl.DataFrame, int]] = OrderedDict()
_indexes: OrderedDict[str, tuple[Part, ...]] = OrderedDict()


def read_part(folder: str, name: str, synopsis: str, bin_: int) -> Iterator[pl.DataFrame]:
    """The panes of one synopsis and bin in a chunk, from this worker's memory when they are there."""
    uri = f"{folder}/{name}"
    for part in _index(uri):
        if part.synopsis == synopsis and part.bin == bin_:
            yield _part(uri, part)


def _index(uri: str) -> tuple[Part, ...]:
    if uri in _indexes:
        _indexes.move_to_end(uri)
        return _indexes[uri]
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            size = file.size()
            tail = file.read_at(_TAIL.size, size - _TAIL.size) if size >= _TAIL.size else b""
            if len(tail) < _TAIL.size:
                raise CorruptStateError(f"state file {uri} is truncated ({size} bytes)")
            crc, length, magic = _TAIL.unpack(tail)
            footer = file.read_at(length, size - _TAIL.size - length) if length <= size - _TAIL.size else b""
    except FileNotFoundError as exc:
        raise CorruptStateError(f"state file {uri} is missing") from exc
    if magic != MAGIC or zlib.crc32(footer) != crc:
        raise CorruptStateError(f"state file {uri} is altered: its footer does not match its checksum")
    _indexes[uri] = tuple(Part(*item) for item in json.loads(footer))
    while len(_indexes) > 4096:
        _indexes.popitem(last=False)
    return _indexes[uri]


def _part(uri: str, part: Part) -> pl.DataFrame:
    key = (uri, part.offset)
    if key in _parts:
        _parts.move_to_end(key)
        return _parts[key][0]
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            data = file.read_at(part.length, part.offset)
    except FileNotFoundError as exc:
        raise CorruptStateError(f"state file {uri} is missing") from exc
    if len(data) != part.length or zlib.crc32(data) != part.crc:
        raise CorruptStateError(f"state file {uri} is altered: a part does not match its checksum")
    frame = pl.from_arrow(pa.ipc.open_stream(data).read_all())
    assert isinstance(frame, pl.DataFrame)
    _parts[key] = (frame, int(frame.estimated_size()))
    while sum(size for _, size in _parts.values()) > _CACHE_BYTES and len(_parts) > 1:
        _parts.popitem(last=False)
    return frame


def verify_chunk(folder: str, chunk: Chunk) -> str | None:
    """What is wrong with a chunk's file, or None."""
    uri = f"{folder}/{chunk.name}"
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            data = file.read()
    except FileNotFoundError:
        return f"state file {uri} is missing"
    if len(data) < chunk.bytes:
        return f"state file {uri} is truncated: {len(data)} of {chunk.bytes} bytes"
    if len(data) > chunk.bytes or zlib.crc32(data) != chunk.crc:
        return f"state file {uri} is altered: it does not match the checksum in its manifest"
    return None
