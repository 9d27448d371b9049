"""Rows of stores that are kept apart: a chunk for each of them, cut by the hash of their keys, every row once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.kernels.absorb import AbsorbTask, Bounds, EpochColumns, RowColumns, Slicing
from headrace.kernels.chunks import APART, read_numbers

ROWS = pa.table({"_t": [1, 2, 3, 4, 99], "x0": ["a", "b", "c", "d", "e"], "x1": [7, -3, 0, 5, 1]})


def test_each_store_has_a_chunk_of_its_own_with_a_part_per_slice(tmp_path: Path) -> None:
    stores = tuple((id_, (RowColumns(0, None, ("x0",), "x1"),)) for id_ in ("one", "other", "merged"))
    projection = EpochColumns((), (), ("r",), False, stores=stores)
    slicings = {"one": Slicing(slices=2, apart=True), "other": Slicing(slices=4, apart=True)}
    task = AbsorbTask(str(tmp_path), 3, (Bounds(0, 50),), projection, slicings)
    (absorbed,) = task(iter(ROWS.to_batches()))
    apart = {chunk.ends[0][0]: chunk for chunk in absorbed.chunks if chunk.level == APART}
    assert set(apart) == {"one", "other"}
    assert [[id_ for id_, _ in chunk.ends] for chunk in absorbed.chunks if chunk.level == 0] == [["merged"]]
    for id_, cut in (("one", 2), ("other", 4)):
        parts = list(read_numbers(str(tmp_path), apart[id_].name, id_, frozenset(range(cut))))
        found = {part.bin: sorted(frame["c0"].to_list()) for _, part, frame in parts}
        assert sorted(value for some in found.values() for value in some) == ["a", "b", "c", "d"], "99 is too far ahead"
        assert {number: len(some) for number, some in found.items()} == {
            number: count for (store, number), count in absorbed.slices.items() if store == id_
        }
        (only,) = {number for number, some in found.items() if "a" in some}
        again = list(read_numbers(str(tmp_path), apart[id_].name, id_, frozenset([only])))
        assert [part.bin for _, part, _ in again] == [only], "only what is asked for is read"
        known = frozenset(part.offset for _, part, _ in again)
        assert list(read_numbers(str(tmp_path), apart[id_].name, id_, frozenset([only]), known)) == []
