"""Housekeeping tasks: merge small chunks into larger ones without expired panes, and check chunks on start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from headrace.engine.chunks import Chunk, read_part, read_slices, verify_chunk, write_chunk
from headrace.engine.panes import Layout, concat, keep_heaviest, merge

__all__ = ["CompactTask", "VerifyTask"]

# Merging pays when a pane is in more than so many chunks on average; answers add up rows of the same pane anyway.
MERGE_ABOVE = 1.5


@dataclass(frozen=True)
class CompactTask:
    """Merges chunks, given per synopsis and store, bin by bin; what is from before its `expired_us` is left out."""

    folder: str
    epoch: int
    level: int
    chunks: Mapping[str, tuple[str, ...]]
    layouts: tuple[Layout, ...]
    expired_us: Mapping[str, int]
    stores: tuple[str, ...] = ()
    bins: int = 1

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
                    for name in self.chunks[layout.id]
                    for frame in read_part(self.folder, name, layout.id, bin_)
                ]
                frames = [frame for frame in frames if not frame.is_empty()]
                if frames:
                    yield layout.id, layout.pane_us, bin_, _together(frames, layout)
        for store in self.stores:
            # Rows of a store are put side by side, slice by slice, as many slices as there are.
            slices: dict[int, list[pl.DataFrame]] = {}
            for name in self.chunks[store]:
                for number, frame in read_slices(self.folder, name, store):
                    if number % self.bins in bins:
                        slices.setdefault(number, []).append(frame.filter(pl.col("p") >= self.expired_us[store]))
            for number, found in sorted(slices.items()):
                rows = pl.concat(found)
                if not rows.is_empty():
                    yield store, 1, number, rows


def _together(frames: list[pl.DataFrame], layout: Layout) -> pl.DataFrame:
    """One frame of many: their rows side by side where they hardly have panes in common, else merged."""
    panes = [frame["p"].unique() for frame in frames]
    if sum(map(len, panes)) <= MERGE_ABOVE * len(pl.concat(panes).unique()):
        return concat(frames, layout)
    merged = merge(frames, layout, ["p", *layout.groups])
    return keep_heaviest(merged, layout, ["p", *layout.groups[: layout.keys]])


@dataclass(frozen=True)
class VerifyTask:
    """Reads the chunks at some positions whole, and says what is wrong with them."""

    folder: str
    chunks: tuple[Chunk, ...]

    def __call__(self, positions: Iterable[int]) -> Iterator[str]:
        found = (verify_chunk(self.folder, self.chunks[i]) for i in positions)
        yield from (fault for fault in found if fault is not None)
