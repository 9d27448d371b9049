"""Edges that shed: what they keep nests, and every row is counted once whoever left it out."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from headrace.kernels.absorb import Absorbed, AbsorbTask, Bounds, EpochColumns, FeedColumns, RowColumns
from headrace.kernels.chunks import read_slices
from headrace.kernels.panes import Layout
from headrace.model import Shed, threshold

EVER = (Bounds(-(2**62), 2**62),)
HASH, KEY = "x9", "x8"
COUNTED = ("n", "count", "int")


# Hashes of the keys of a join, of which the first half is low.
KEYS = [*range(-(2**62), 0, 2**58), *range(1, 2**62, 2**58)]


def rows(count: int, seed: int = 3) -> pl.DataFrame:
    rng = random.Random(seed)
    return pl.DataFrame(
        {
            "_t": range(count),
            "x0": [rng.choice([True, False, None]) for _ in range(count)],
            "x1": list(range(count)),
            HASH: [rng.randrange(-(2**63), 2**63) for _ in range(count)],
            KEY: [KEYS[rng.randrange(len(KEYS))] for _ in range(count)],
        },
        schema={"_t": pl.Int64, "x0": pl.Boolean, "x1": pl.Int64, HASH: pl.Int64, KEY: pl.Int64},
    )


def absorbed(
    given: pl.DataFrame, keep: dict[str, float], folder: Path | None = None, keyed: dict[str, float] | None = None
) -> Absorbed:
    """A stream with three edges: into a store of all rows, one of filtered rows, and a synopsis."""
    stores = (
        ("all", (RowColumns(0, None, ("x1",), KEY),)),
        ("some", (RowColumns(0, "x0", ("x1",), KEY),)),
    )
    layout = Layout("panes", 1000, 0, False, (COUNTED,), None)
    feeds = ((layout, (FeedColumns(0, None, (), None, (None,), None),)),)
    shape = EpochColumns((), feeds, ("s",), False, stores, (HASH if keep else None,))
    task = AbsorbTask(
        None if folder is None else str(folder), 0, EVER, shape, {}, keep, {"s>some": 100}, keyed=keyed or {}
    )
    (made,) = list(task(iter(given.to_arrow().to_batches())))
    return made


def stored(
    given: pl.DataFrame, keep: dict[str, float], folder: Path, store: str, keyed: dict[str, float] | None = None
) -> set[int]:
    (chunk,) = absorbed(given, keep, folder, keyed).chunks
    return {value for _, part in read_slices(str(folder), chunk.name, store) for value in part["c0"].to_list()}


def test_edges_that_keep_everything_are_not_counted_and_need_no_hash():
    made = absorbed(rows(100), {})
    assert not made.shed
    assert made.counts["s"].entry.used == 100


@pytest.mark.parametrize("seed", range(20))
def test_a_row_that_any_edge_left_out_is_shed_once(seed: int):
    rng = random.Random(seed)
    given = rows(rng.randrange(0, 300), seed)
    keep = {f"s>{id_}": rng.choice([0.0, 0.2, 0.5, 0.9]) for id_ in ("all", "some", "panes") if rng.random() < 0.7}
    made, lost = absorbed(given, keep), set[int]()
    for edge, part in keep.items():
        carried = given if edge != "s>some" else given.filter(pl.col("x0"))
        gone = carried.filter(pl.col(HASH) >= int(part * 2**64) - 2**63)
        assert made.shed[edge] == Shed(carried.height, gone.height)
        lost |= set(gone["x1"])
    entry = made.counts["s"].entry
    assert (entry.shed, entry.used, entry.rows_in) == (len(lost), given.height - len(lost), given.height)
    rows_of_panes = given.height - (made.shed["s>panes"].shed if "s>panes" in keep else 0)
    assert (made.rows.get("panes", 0) > 0) == (rows_of_panes > 0)


def test_what_is_kept_at_a_smaller_fraction_is_kept_at_a_larger_one(tmp_path: Path):
    given, before = rows(2000), set[int]()
    for part in (0.1, 0.3, 0.5, 0.95):
        kept = stored(given, {"s>all": part}, tmp_path, "all")
        assert before <= kept
        assert len(kept) == pytest.approx(2000 * part, rel=0.15)
        before = kept


@pytest.mark.parametrize("also_by_row", [False, True])
def test_edges_into_a_join_keep_keys_whole_and_lose_others_whole(also_by_row: bool, tmp_path: Path):
    given, keep = rows(2000), {"s>all": 0.7} if also_by_row else {}
    made = absorbed(given, keep, keyed={"s>all": 0.5, "s>some": 0.5})
    by_row = pl.col(HASH) < threshold(0.7) if also_by_row else pl.lit(True)
    low = given.filter(pl.col(KEY) < 0)
    assert stored(given, keep, tmp_path, "all", {"s>all": 0.5}) == set(low.filter(by_row)["x1"])
    some = given.filter(pl.col("x0"))
    assert made.shed["s>some"] == Shed(some.height, some.filter(pl.col(KEY) > 0).height)
    assert made.shed["s>all"] == Shed(2000, 2000 - low.filter(by_row).height)
    assert made.counts["s"].entry.shed == made.shed["s>all"].shed, "rows that both left out are shed once"
    panes = made.panes["s>some"]
    assert sum(came for came, _ in panes.values()) == some.height
    assert sum(lost for _, lost in panes.values()) == made.shed["s>some"].shed
    assert set(panes) == set(range(0, 2000, 100))
