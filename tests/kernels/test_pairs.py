"""The join kernel, and hosts that make the pairs of their blocks, against all pairs looked at one by one."""

from __future__ import annotations

import math
import operator
import tempfile
from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels import pairs as pairs_module
from headrace.kernels.absorb import Slicing, _sliced
from headrace.kernels.chunks import write_chunk
from headrace.kernels.deliver import Delivery
from headrace.kernels.join import Counted, JoinTask, JoinWork
from headrace.kernels.pairs import Matching, pairs
from headrace.model import EVERYWHERE, ONCE

OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
VALUES = st.one_of(st.none(), st.integers(-3, 3))
FLOATS = st.one_of(st.none(), st.sampled_from([float("nan"), -0.0, 0.0, 1.0, -1.5, float("inf"), 2.0]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä"]))
ROW = st.tuples(st.integers(0, 40), VALUES, FLOATS, TEXTS)
SCHEMA = {"p": pl.Int64, "c0": pl.Int32, "c1": pl.Float64, "c2": pl.String}
COLUMN_TYPES = {0: "INT", 1: "DOUBLE", 2: "STRING"}


def frame(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def key(value: Any) -> Any:
    """Values in Spark's order: NaN is equal to itself and greater than all others."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def fits(left: tuple[Any, ...], right: tuple[Any, ...], matching: Matching) -> bool:
    if not -matching.right_us <= right[0] - left[0] <= matching.left_us:
        return False
    for a, sign, b, _ in matching.comparisons:
        x, y = left[1 + a], right[1 + b]
        if x is None or y is None or not OPERATORS[sign](key(x), key(y)):
            return False
    return True


@st.composite
def matchings(draw: st.DrawFn) -> Matching:
    comparisons = []
    for _ in range(draw(st.integers(0, 3))):
        column = draw(st.sampled_from([0, 1, 2]))
        comparisons.append((column, draw(st.sampled_from(list(OPERATORS))), column, COLUMN_TYPES[column]))
    return Matching(draw(st.integers(0, 15)), draw(st.integers(0, 15)), tuple(comparisons))


@pytest.mark.parametrize("most", [5, 2_000_000], ids=["in many goes", "in one go"])
def test_all_pairs_that_fit_and_no_others(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(pairs_module, "MOST_PAIRS", most)

    @given(st.lists(ROW, max_size=25), st.lists(ROW, max_size=25), matchings())
    def check(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], matching: Matching) -> None:
        found: Counter[tuple[int, int]] = Counter()
        for i, j in pairs(frame(left), frame(right), matching):
            found.update(zip(i.to_list(), j.to_list(), strict=True))
        wanted = {(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if fits(a, b, matching)}
        assert found == Counter(dict.fromkeys(wanted, 1))

    check()


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "among others"])
def test_nan_is_equal_to_nan(others: int) -> None:
    rows = [(0, None, float("nan"), None), *((0, None, float(n), None) for n in range(others))]
    found = [
        (i, j)
        for a, b in pairs(frame(rows), frame(rows), Matching(0, 0, ((1, "=", 1, "DOUBLE"),)))
        for i, j in zip(a, b, strict=True)
    ]
    assert sorted(found) == [(n, n) for n in range(1 + others)]


# Hosts -------------------------------------------------------------------------------------------------------------

SLICES = 4


@st.composite
def epochs(draw: st.DrawFn) -> list[tuple[list[Any], list[Any], str, tuple[int, ...], tuple[int, ...]]]:
    """Rows of both sides, the way they are cut by, the hot keys and the host of each slice, for some epochs."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        way = draw(st.sampled_from(["hash", "split left", "split right", "biclique", "hybrid left", "hybrid right"]))
        hot = tuple(draw(st.sets(st.integers(-3, 3), max_size=3))) if way.startswith("hybrid") else ()
        hosts = tuple(draw(st.lists(st.integers(0, 2), min_size=SLICES, max_size=SLICES)))
        found.append((draw(st.lists(ROW, max_size=12)), draw(st.lists(ROW, max_size=12)), way, hot, hosts))
    return found


def cut_of(way: str, side: str, hot: tuple[int, ...]) -> Slicing:
    name, _, split = way.partition(" ")
    kind = ONCE if name == "biclique" or split == side else EVERYWHERE
    return Slicing(SLICES, kind, rows=name in ("split", "biclique"), hot=hot)


@settings(max_examples=60)
@given(epochs())
def test_hosts_make_every_pair_once_however_rows_were_cut(played: Any) -> None:
    matching = Matching(12, 7, ((0, "=", 0, "INT"),))
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with tempfile.TemporaryDirectory() as folder:
        held: list[str] = []
        made: Counter[tuple[int, int]] = Counter()
        lefts: list[tuple[Any, ...]] = []
        rights: list[tuple[Any, ...]] = []
        for number, (left, right, way, hot, hosts) in enumerate(played):
            parts = []
            for store, rows, before in (("left", left, lefts), ("right", right, rights)):
                serial = pl.Series("c3", range(len(before), len(before) + len(rows)), dtype=pl.Int64)
                # The key itself stands for its hash.
                whole = frame(rows).with_columns(serial, h=pl.col("c0").cast(pl.Int64).fill_null(42))
                if not whole.is_empty():
                    parts += [(store, 1, bin_, part) for bin_, part in _sliced(whole, cut_of(way, store, hot))]
                before += rows
            chunk = write_chunk(folder, number, 0, parts)
            fresh = (chunk.name,) if chunk else ()
            work = JoinWork(("left", "right"), (tuple(held), tuple(held)), fresh, matching, hosts, True, (4, 4),
                            ((0, 3), (1, 3)), schema, folder)  # fmt: skip
            for item in JoinTask(folder, (work,))(range(3)):
                assert isinstance(item, Counted) or item.error is None
                if isinstance(item, Delivery) and item.file:
                    table = pq.read_table(f"{folder}/{item.file}").to_pydict()
                    made.update(zip(table["a"], table["b"], strict=True))
            held += fresh
        wanted = {(i, j) for i, a in enumerate(lefts) for j, b in enumerate(rights) if fits(a, b, matching)}
        assert made == Counter(dict.fromkeys(wanted, 1))
