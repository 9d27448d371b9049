"""State files: immutable containers of Arrow parts, one part per synopsis and bin, or per row store and slice.

    magic | Arrow IPC stream | Arrow IPC stream | ... | footer (JSON) | crc32 and length of the footer | magic

A chunk is written by one task attempt under a name nobody else uses. A manifest names the chunks that count; any
other is garbage. Parts are read by tasks, straight from the file system or from what Spark carries for them
(`carried`), and kept decoded in the Python worker for a while: a name never changes its content, so the cache needs no
invalidation and state stays where it was used last.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyarrow import fs as arrow_fs

from headrace.errors import CorruptStateError
from headrace.kernels.carried import Made, Want, current_box
from headrace.kernels.recent import Recent
from headrace.kernels.sound import to_arrow

__all__ = [
    "APART",
    "MAGIC",
    "Chunk",
    "Part",
    "fault_of",
    "holding",
    "open_filesystem",
    "open_output",
    "parts_of",
    "read_numbers",
    "read_part",
    "read_slices",
    "slice_parts",
    "verify_chunk",
    "write_chunk",
]

MAGIC = b"HRCHUNK1"
# The level of chunks that are not merged with others: those of one store, or of rows that pass through an epoch.
APART = -1
_TAIL = struct.Struct("<II8s")
# Small parts are mostly metadata; compressing them costs more than it saves.
_COMPRESS_ABOVE_BYTES = 1 << 16
# Decoded parts kept per Python worker; what does not fit, or was not used of late, is read again.
_CACHE_BYTES = 512 << 20
# Footers kept likewise.
_CACHE_INDEXES = 4096
# What a part takes in memory beside its values.
_PART_BYTES = 8 << 10


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


def holding(chunks: Iterable[Chunk], after_us: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Per synopsis or store the names of the chunks that tell of something of it after a time."""
    found: dict[str, list[str]] = {id_: [] for id_ in after_us}
    for chunk in chunks:
        for id_, end in chunk.ends:
            if id_ in after_us and end > after_us[id_]:
                found[id_].append(chunk.name)
    return {id_: tuple(names) for id_, names in found.items()}


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


@contextmanager
def open_output(folder: str, name: str, make_folder: bool = False) -> Iterator[pa.NativeFile]:
    """A new file to write, in a folder or in what Spark carries for this task."""
    box = current_box()
    if box is not None:
        out = pa.BufferOutputStream()
        yield out
        box.made.append(Made(folder, name, out.getvalue()))
        return
    filesystem, path = open_filesystem(folder)
    if make_folder and filesystem.type_name == "local":
        filesystem.create_dir(path, recursive=True)
    with filesystem.open_output_stream(f"{path}/{name}") as out:
        yield out


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
    with open_output(folder, name) as out:
        out.write(body)
    return Chunk(name, len(body), zlib.crc32(body), level, tuple(sorted(ends.items())))


def _encode(frame: pl.DataFrame) -> bytes:
    table = to_arrow(frame).combine_chunks()
    sink = pa.BufferOutputStream()
    compression = "lz4" if table.nbytes > _COMPRESS_ABOVE_BYTES else None
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_parts: Recent[tuple[str, int], pl.DataFrame] = Recent(_CACHE_BYTES)
_indexes: Recent[str, tuple[Part, ...]] = Recent(_CACHE_INDEXES)


def read_part(folder: str, name: str, synopsis: str, bin_: int) -> Iterator[pl.DataFrame]:
    """The panes of one synopsis and bin in a chunk, from this worker's memory when they are there."""
    uri = f"{folder}/{name}"
    box = current_box()
    if box is not None:
        for part, data in box.parts.get(name, ()):
            if part.synopsis == synopsis and part.bin == bin_:
                yield _part(uri, part, data)
        return
    for part in _index(uri):
        if part.synopsis == synopsis and part.bin == bin_:
            yield _part(uri, part)


def read_slices(folder: str, name: str, store: str) -> Iterator[tuple[int, pl.DataFrame]]:
    """All slices of a row store in a chunk, with their numbers."""
    uri = f"{folder}/{name}"
    box = current_box()
    if box is not None:
        yield from (
            (part.bin, _part(uri, part, data)) for part, data in box.parts.get(name, ()) if part.synopsis == store
        )
        return
    yield from ((part.bin, _part(uri, part)) for part in _index(uri) if part.synopsis == store)


def slice_parts(folder: str, name: str, store: str) -> list[Part]:
    """Which slices of a row store a chunk holds, without reading them."""
    box = current_box()
    found = _index(f"{folder}/{name}") if box is None else [part for part, _ in box.parts.get(name, ())]
    return [part for part in found if part.synopsis == store]


def read_numbers(
    folder: str, name: str, store: str, numbers: frozenset[int], known: frozenset[int] = frozenset()
) -> Iterator[tuple[str, Part, pl.DataFrame]]:
    """Some slices of a row store in a chunk: the end of the part's name, the part, its rows; none at a `known` offset.

    They are not remembered: the caller decodes a part once and keeps what it makes of it.
    """
    uri, box, want = f"{folder}/{name}", current_box(), Want(name, store, numbers)
    if box is not None:
        for part, data in sorted(box.parts.get(name, ()), key=lambda item: item[0].offset):
            if want.covers(part.synopsis, part.bin) and part.offset not in known:
                yield part.synopsis[len(store) :], part, _decoded(uri, part, data)
        return
    wanted = [part for part in _index(uri) if want.covers(part.synopsis, part.bin) and part.offset not in known]
    if not wanted:
        return
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            for part in sorted(wanted, key=lambda part: part.offset):
                data = bytes(file.read_at(part.length, part.offset))
                yield part.synopsis[len(store) :], part, _decoded(uri, part, data)
    except FileNotFoundError as exc:
        raise CorruptStateError(f"state file {uri} is missing") from exc


def parts_of(uri: str, data: bytes) -> Iterator[tuple[Part, bytes]]:
    """The parts in a whole chunk, as they lie in it: their content is checked when it is read."""
    tail = data[-_TAIL.size :]
    if len(tail) < _TAIL.size:
        raise CorruptStateError(f"state file {uri} is truncated ({len(data)} bytes)")
    crc, length, magic = _TAIL.unpack(tail)
    footer = data[max(0, len(data) - _TAIL.size - length) : len(data) - _TAIL.size]
    for part in _parsed(uri, crc, magic, footer):
        yield part, data[part.offset : part.offset + part.length]


def _index(uri: str) -> tuple[Part, ...]:
    known = _indexes.get(uri)
    if known is not None:
        return known
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
    found = _parsed(uri, crc, magic, footer)
    _indexes.put(uri, found, 1)
    return found


def _parsed(uri: str, crc: int, magic: bytes, footer: bytes) -> tuple[Part, ...]:
    if magic != MAGIC or zlib.crc32(footer) != crc:
        raise CorruptStateError(f"state file {uri} is altered: its footer does not match its checksum")
    return tuple(Part(*item) for item in json.loads(footer))


def _part(uri: str, part: Part, data: bytes | None = None) -> pl.DataFrame:
    key = (uri, part.offset)
    known = _parts.get(key)
    if known is not None:
        return known
    frame = _decoded(uri, part, _content(uri, part) if data is None else data)
    _parts.put(key, frame, int(frame.estimated_size()) + _PART_BYTES)
    return frame


def _decoded(uri: str, part: Part, data: bytes) -> pl.DataFrame:
    if len(data) != part.length or zlib.crc32(data) != part.crc:
        raise CorruptStateError(f"state file {uri} is altered: a part does not match its checksum")
    frame = pl.from_arrow(pa.ipc.open_stream(data).read_all())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _content(uri: str, part: Part) -> bytes:
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read_at(part.length, part.offset))
    except FileNotFoundError as exc:
        raise CorruptStateError(f"state file {uri} is missing") from exc


def verify_chunk(folder: str, chunk: Chunk) -> str | None:
    """What is wrong with a chunk's file, or None."""
    uri = f"{folder}/{chunk.name}"
    filesystem, path = open_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as file:
            data = file.read()
    except FileNotFoundError:
        return f"state file {uri} is missing"
    return fault_of(uri, chunk, data)


def fault_of(uri: str, chunk: Chunk, data: bytes) -> str | None:
    """What is wrong with the bytes found where a chunk should be, or None."""
    if len(data) < chunk.bytes:
        return f"state file {uri} is truncated: {len(data)} of {chunk.bytes} bytes"
    if len(data) > chunk.bytes or zlib.crc32(data) != chunk.crc:
        return f"state file {uri} is altered: it does not match the checksum in its manifest"
    return None
