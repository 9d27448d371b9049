"""Chunks come back as they were written, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.errors import CorruptStateError
from headrace.kernels import chunks, compact
from headrace.kernels.chunks import Chunk, open_filesystem, read_part, verify_chunk, write_chunk
from headrace.kernels.compact import CompactTask
from headrace.kernels.panes import Layout

FRAMES = {
    "every type": pl.DataFrame(
        {
            "p": [-3, 7],
            "k0": ["å", None],
            "d": [1.5, float("nan")],
            "n": [1, 2],
            "sum_ab": pl.Series([Decimal(2**70), None], dtype=pl.Decimal(38, 0)),
        }
    ),
    "large enough to be compressed": pl.DataFrame({"p": list(range(20_000)), "n": [1] * 20_000}),
    "one row": pl.DataFrame({"p": [0], "n": [0]}),
}


def forget() -> None:
    chunks._parts.clear()
    chunks._indexes.clear()


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Every test starts as a new worker does: with nothing in memory."""
    forget()
    yield
    forget()


@pytest.fixture
def written(tmp_path: Path) -> Chunk:
    frame = FRAMES["every type"]
    parts = [("a", 10, 0, frame), ("a", 10, 1, frame.with_columns(pl.col("p") + 5)), ("b", 4, 0, FRAMES["one row"])]
    chunk = write_chunk(str(tmp_path), 12, 3, parts)
    assert chunk is not None
    return chunk


def read_all(folder: Path, chunk: Chunk) -> list[pl.DataFrame]:
    return [
        frame
        for name, bin_ in (("a", 0), ("a", 1), ("b", 0))
        for frame in read_part(str(folder), chunk.name, name, bin_)
    ]


@pytest.mark.parametrize("content", FRAMES)
def test_what_is_written_is_read(tmp_path: Path, content: str):
    chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, 2, FRAMES[content])])
    assert chunk is not None
    (found,) = read_part(str(tmp_path), chunk.name, "s", 2)
    assert_frame_equal(found, FRAMES[content])
    assert verify_chunk(str(tmp_path), chunk) is None


def test_a_chunk_says_what_it_holds(tmp_path: Path, written: Chunk):
    # Panes of 10 us, of which the last begins at 12; one of 4 us that begins at 0.
    assert written.ends == (("a", 22), ("b", 4))
    assert (written.level, written.bytes) == (3, (tmp_path / written.name).stat().st_size)
    assert written.name.startswith("000000012-")
    assert Chunk.from_json(written.to_json()) == written


def test_parts_are_found_by_synopsis_and_bin(tmp_path: Path, written: Chunk):
    first, second, other = read_all(tmp_path, written)
    assert (first["p"].to_list(), second["p"].to_list(), other["p"].to_list()) == ([-3, 7], [2, 12], [0])
    assert list(read_part(str(tmp_path), written.name, "a", 2)) == []
    assert list(read_part(str(tmp_path), written.name, "c", 0)) == []


def test_nothing_to_write_writes_nothing(tmp_path: Path):
    assert write_chunk(str(tmp_path), 1, 0, []) is None
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_never_share_a_name(tmp_path: Path):
    one, other = (write_chunk(str(tmp_path), 1, 0, [("s", 10, 0, FRAMES["one row"])]) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.name != other.name


def test_memory_gives_what_the_file_gave(tmp_path: Path, written: Chunk):
    before = read_all(tmp_path, written)
    (tmp_path / written.name).unlink()
    for was, now in zip(before, read_all(tmp_path, written), strict=True):
        assert_frame_equal(was, now)


def test_memory_is_bounded_and_what_left_it_is_read_again(
    tmp_path: Path, written: Chunk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chunks._parts, "most", 1)
    before = read_all(tmp_path, written)
    assert len(chunks._parts) == 1
    for was, now in zip(before, read_all(tmp_path, written), strict=True):
        assert_frame_equal(was, now)


def test_an_absolute_file_uri_is_a_path(tmp_path: Path, written: Chunk):
    for uri in (f"file:{tmp_path}", f"file://{tmp_path}"):
        (found,) = read_part(uri, written.name, "b", 0)
        assert_frame_equal(found, FRAMES["one row"])
        assert open_filesystem(f"{uri}/x")[1] == f"{tmp_path}/x"


# Damage --------------------------------------------------------------------------------------------------------------


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def offsets(size: int) -> list[int]:
    return sorted({*range(0, size, 97), *range(min(16, size)), *range(size - 32, size)})


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, written: Chunk):
    path = tmp_path / written.name
    sound = path.read_bytes()
    wanted = read_all(tmp_path, written)
    for at in offsets(len(sound)):
        forget()
        path.write_bytes(flipped(at)(sound))
        assert verify_chunk(str(tmp_path), written) == (
            f"state file {path} is altered: it does not match the checksum in its manifest"
        )
        if at < len(chunks.MAGIC):
            # The head says what the file is, no part hangs on it.
            assert all(map(pl.DataFrame.equals, read_all(tmp_path, written), wanted))
        else:
            with pytest.raises(CorruptStateError, match=f"state file {path} is altered"):
                read_all(tmp_path, written)


def test_a_truncated_file_is_found(tmp_path: Path, written: Chunk):
    path = tmp_path / written.name
    sound = path.read_bytes()
    for size in offsets(len(sound)):
        forget()
        path.write_bytes(sound[:size])
        assert verify_chunk(str(tmp_path), written) == f"state file {path} is truncated: {size} of {len(sound)} bytes"
        with pytest.raises(CorruptStateError, match=f"state file {path} is (altered|truncated)"):
            read_all(tmp_path, written)


def test_bytes_behind_the_end_are_found(tmp_path: Path, written: Chunk):
    path = tmp_path / written.name
    path.write_bytes(path.read_bytes() + b"x")
    assert verify_chunk(str(tmp_path), written) == (
        f"state file {path} is altered: it does not match the checksum in its manifest"
    )
    with pytest.raises(CorruptStateError, match=f"state file {path} is altered"):
        read_all(tmp_path, written)


def test_a_missing_file_is_found(tmp_path: Path, written: Chunk):
    path = tmp_path / written.name
    path.unlink()
    assert verify_chunk(str(tmp_path), written) == f"state file {path} is missing"
    with pytest.raises(CorruptStateError, match=f"state file {path} is missing"):
        read_all(tmp_path, written)


def test_a_file_that_goes_missing_between_two_parts_is_found(tmp_path: Path, written: Chunk):
    next(read_part(str(tmp_path), written.name, "a", 0))
    path = tmp_path / written.name
    path.unlink()
    with pytest.raises(CorruptStateError, match=f"state file {path} is missing"):
        next(read_part(str(tmp_path), written.name, "a", 1))


def test_a_sound_file_in_the_place_of_another_is_found(tmp_path: Path, written: Chunk):
    other = write_chunk(str(tmp_path), 12, 3, [("a", 10, 0, FRAMES["one row"])])
    assert other is not None
    (tmp_path / other.name).rename(tmp_path / written.name)
    assert verify_chunk(str(tmp_path), written) is not None


# Compaction ----------------------------------------------------------------------------------------------------------


def test_compaction_merges_panes_and_leaves_expired_ones_out(tmp_path: Path):
    form = Layout("s", 10, 1, False, (("n", "rows", "wide"),), None)
    names = []
    for bin_, keys in ((0, ["a", "b", "a"]), (0, ["a", "a", "b"]), (1, ["c", "c", "c"])):
        frame = pl.DataFrame({"p": [0, 10, 20], "k0": keys, "n": [1, 2, 4]})
        chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, bin_, frame), ("gone", 10, bin_, frame)])
        assert chunk is not None
        names.append(chunk.name)
    #   panes   [0, 10) [10, 20) [20, 30)      all before 10 is expired
    task = CompactTask(str(tmp_path), 2, 1, {"s": tuple(names)}, (form,), {"s": 10})
    (made,) = task([0, 1])
    assert (made.level, made.ends) == (1, (("s", 30),))
    (first,) = read_part(str(tmp_path), made.name, "s", 0)
    (second,) = read_part(str(tmp_path), made.name, "s", 1)
    assert sorted(first.rows()) == [(10, "a", 2), (10, "b", 2), (20, "a", 4), (20, "b", 4)]
    assert sorted(second.rows()) == [(10, "c", 2), (20, "c", 4)]
    assert list(read_part(str(tmp_path), made.name, "gone", 0)) == [], "nobody needs this synopsis any more"


@pytest.mark.parametrize(
    ("expired", "panes"),
    [
        pytest.param(10, [10, 20], id="a pane that begins just there is kept"),
        pytest.param(11, [20], id="one that begins before is not"),
        pytest.param(-(2**62), [0, 10, 20], id="nothing has expired yet"),
    ],
)
def test_panes_expire_when_no_window_to_come_begins_with_them(tmp_path: Path, expired: int, panes: list[int]):
    form = Layout("s", 10, 0, False, (("n", "rows", "wide"),), None)
    chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, 0, pl.DataFrame({"p": [0, 10, 20], "n": [1, 1, 1]}))])
    assert chunk is not None
    (made,) = CompactTask(str(tmp_path), 2, 1, {"s": (chunk.name,)}, (form,), {"s": expired})([0])
    (found,) = read_part(str(tmp_path), made.name, "s", 0)
    assert sorted(found["p"].to_list()) == panes


def test_compaction_of_expired_panes_only_leaves_no_chunk(tmp_path: Path):
    form = Layout("s", 10, 0, False, (("n", "rows", "wide"),), None)
    chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, 0, pl.DataFrame({"p": [0], "n": [1]}))])
    assert chunk is not None
    assert list(CompactTask(str(tmp_path), 2, 1, {"s": (chunk.name,)}, (form,), {"s": 100})([0])) == []


def test_compaction_takes_panes_of_every_length_and_drops_measures_that_nobody_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compact, "MERGE_ABOVE", 0)
    form = Layout("s", 10, 0, False, (("n", "rows", "wide"), ("max_x", "max", "int")), None)
    #   panes of 20, then of 10      [0, 20) [20, 40) | [40, 50) [50, 60)
    old = pl.DataFrame({"p": [0, 20, 40], "n": [1, 2, 4], "sum_y": [5, 5, 5]})
    new = pl.DataFrame({"p": [40, 50], "n": [8, 16], "max_x": pl.Series([7, None], dtype=pl.Int32)})
    names = []
    for pane, frame in ((20, old), (10, new)):
        chunk = write_chunk(str(tmp_path), 1, 0, [("s", pane, 0, frame)])
        assert chunk is not None
        names.append(chunk.name)
    (made,) = CompactTask(str(tmp_path), 2, 1, {"s": tuple(names)}, (form,), {"s": 20})([0])
    (found,) = read_part(str(tmp_path), made.name, "s", 0)
    assert sorted(found.select("p", "n", "max_x").rows()) == [(20, 2, None), (40, 12, 7), (50, 16, None)]
    assert "sum_y" not in found.columns


def test_compaction_of_panes_from_before_a_measure_was_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compact, "MERGE_ABOVE", 0)
    form = Layout("s", 10, 0, False, (("n", "rows", "wide"), ("max_x", "max", "int")), None)
    chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, 0, pl.DataFrame({"p": [0, 0], "n": [1, 2]}))])
    assert chunk is not None
    (made,) = CompactTask(str(tmp_path), 2, 1, {"s": (chunk.name,)}, (form,), {"s": 0})([0])
    (found,) = read_part(str(tmp_path), made.name, "s", 0)
    assert found.select("p", "n").rows() == [(0, 3)]


@pytest.mark.parametrize(
    ("panes", "rows"),
    [
        pytest.param([[0, 10], [20, 30], [30, 40]], 6, id="hardly a pane in common: side by side"),
        pytest.param([[0, 10], [0, 10], [10, 20]], 3, id="panes in common: merged"),
    ],
)
def test_compaction_merges_where_panes_are_in_several_chunks(tmp_path: Path, panes: list[list[int]], rows: int):
    form = Layout("s", 10, 0, False, (("n", "rows", "wide"),), None)
    names = []
    for each in panes:
        chunk = write_chunk(str(tmp_path), 1, 0, [("s", 10, 0, pl.DataFrame({"p": each, "n": [1] * len(each)}))])
        assert chunk is not None
        names.append(chunk.name)
    (made,) = CompactTask(str(tmp_path), 2, 1, {"s": tuple(names)}, (form,), {"s": 0})([0])
    (found,) = read_part(str(tmp_path), made.name, "s", 0)
    assert (found.height, found["n"].sum()) == (rows, 6)
