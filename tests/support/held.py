"""Panes for the answering code, as an epoch would find them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from headrace.kernels.answer import Panes
from headrace.kernels.chunks import write_chunk

_FOLDER = tempfile.TemporaryDirectory()

# Synopsis, bin and panes of one part of a chunk.
Held = tuple[str, int, pl.DataFrame]


def hold(chunks: Iterable[Iterable[Held]], bins: int = 1, folder: Path | None = None) -> Panes:
    """Chunks of these parts, written where the answering code reads them."""
    place = str(folder or _FOLDER.name)
    names: dict[str, list[str]] = {}
    for parts in chunks:
        full = [(synopsis, bin_, frame) for synopsis, bin_, frame in parts if not frame.is_empty()]
        chunk = write_chunk(place, 1, 0, [(synopsis, 1, bin_, frame) for synopsis, bin_, frame in full])
        if chunk is not None:
            for synopsis in {synopsis for synopsis, _, _ in full}:
                names.setdefault(synopsis, []).append(chunk.name)
    return Panes(place, {synopsis: tuple(found) for synopsis, found in names.items()}, bins)
