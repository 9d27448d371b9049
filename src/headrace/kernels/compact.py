"""Housekeeping tasks: merge small chunks into larger ones without expired panes, and check chunks on start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from headrace.kernels.border import kernels, own
from headrace.kernels.carried import Want
from headrace.kernels.chunks import Chunk, read_part, read_slices, verify_chunk, write_chunk
from headrace.kernels.panes import Layout, concat, keep_heaviest, merge

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

    def wants(self, bin_: int) -> Iterator[Want]:
        """What one bin reads; a store has as many slices as it has, so it is looked through whole."""
        for id_, names in self.chunks.items():
            numbers = None if id_ in self.stores else frozenset([bin_])
            yield from (Want(name, id_, numbers) for name in names)

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
                yield from ((layout.id, layout.pane_us, bin_, frame) for frame in _together(frames, layout))
        for store in self.stores:
            # Rows of a store are put side by side, slice by slice, as many slices as there are.
            slices: dict[int, list[pl.DataFrame]] = {}
            for name in self.chunks[store]:
                for number, frame in read_slices(self.folder, name, store):
                    if number % self.bins in bins:
                        slices.setdefault(number, []).append(frame.filter(pl.col("p") >= self.expired_us[store]))
            for number, found in sorted(slices.items()):
                yield from ((store, 1, number, rows) for rows in _merged(found, pl.concat))


def _together(frames: list[pl.DataFrame], layout: Layout) -> list[pl.DataFrame]:
    """One frame of many: their rows side by side where they hardly have panes in common, else merged."""

    def merged(found: list[pl.DataFrame]) -> pl.DataFrame:
        panes = [frame["p"].unique() for frame in found]
        if sum(map(len, panes)) <= MERGE_ABOVE * len(pl.concat(panes).unique()):
            return concat(found, layout)
        whole = merge(found, layout, ["p", *layout.groups])
        return keep_heaviest(whole, layout, ["p", *layout.groups[: layout.keys]])

    return _merged(frames, merged)


def _merged(frames: list[pl.DataFrame], how: Callable[[list[pl.DataFrame]], pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames made one; as they are where that fails, so that who reads them fails, and nobody else."""
    there = [frame for frame in frames if not frame.is_empty()]
    try:
        with kernels():
            return [how(there)] if there else []
    except Exception as error:
        own(error)
        return there


@dataclass(frozen=True)
class VerifyTask:
    """Reads the chunks at some positions whole, and says what is wrong with them."""

    folder: str
    chunks: tuple[Chunk, ...]

    def __call__(self, positions: Iterable[int]) -> Iterator[str]:
        found = (verify_chunk(self.folder, self.chunks[i]) for i in positions)
        yield from (fault for fault in found if fault is not None)
