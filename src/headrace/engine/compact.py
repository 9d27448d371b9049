"""Housekeeping tasks: merge small chunks into larger ones without expired panes, and check chunks on start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from headrace.engine.chunks import Chunk, read_part, verify_chunk, write_chunk
from headrace.engine.panes import Layout, keep_heaviest, merge

__all__ = ["CompactTask", "VerifyTask"]


@dataclass(frozen=True)
class CompactTask:
    """Merges chunks, bin by bin; panes that begin before `expired_us` of their synopsis are left out."""

    folder: str
    epoch: int
    level: int
    chunks: tuple[str, ...]
    layouts: tuple[Layout, ...]
    expired_us: Mapping[str, int]

    def __call__(self, bins: Iterable[int]) -> Iterator[Chunk]:
        chunk = write_chunk(self.folder, self.epoch, self.level, self._parts(list(bins)))
        if chunk is not None:
            yield chunk

    def _parts(self, bins: list[int]) -> Iterator[tuple[str, int, int, pl.DataFrame]]:
        for layout in self.layouts:
            first = self.expired_us[layout.id]
            for bin_ in bins:
                frames = [
                    frame.filter(pl.col("p") >= first)
                    for name in self.chunks
                    for frame in read_part(self.folder, name, layout.id, bin_)
                ]
                frames = [frame for frame in frames if not frame.is_empty()]
                if frames:
                    merged = merge(frames, layout, ["p", *layout.groups])
                    merged = keep_heaviest(merged, layout, ["p", *layout.groups[: layout.keys]])
                    yield layout.id, layout.pane_us, bin_, merged


@dataclass(frozen=True)
class VerifyTask:
    """Reads the chunks at some positions whole, and says what is wrong with them."""

    folder: str
    chunks: tuple[Chunk, ...]

    def __call__(self, positions: Iterable[int]) -> Iterator[str]:
        found = (verify_chunk(self.folder, self.chunks[i]) for i in positions)
        yield from (fault for fault in found if fault is not None)
