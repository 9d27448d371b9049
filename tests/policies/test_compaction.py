"""Merging keeps chunks few and rewrites rows seldom, whatever the number of tasks and bins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from headrace.policies import ChunkSize, Merge, NoMerge, plan_merge


def chunks(*levels: int) -> list[ChunkSize]:
    return [ChunkSize(str(i), level, i) for i, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("before", "pieces", "wanted"),
    [
        pytest.param([], 1, NoMerge("0 chunks, fewer than 3 of any level"), id="nothing from nothing"),
        pytest.param(chunks(0, 0), 1, NoMerge("2 chunks, fewer than 3 of any level"), id="a level that is not full"),
        pytest.param(chunks(0, 1, 0, 1), 1, NoMerge("4 chunks, fewer than 3 of any level"), id="levels do not mix"),
        pytest.param(chunks(0, 0, 0), 1, Merge(("0", "1", "2"), 1, "3 chunks of level 0"), id="a full level"),
        pytest.param(
            chunks(1, 0, 0, 0, 0), 1, Merge(("1", "2", "3", "4"), 1, "4 chunks of level 0"), id="all of a full level"
        ),
        pytest.param(
            chunks(0, 1, 1, 0, 1, 0),
            1,
            Merge(("1", "2", "4"), 2, "3 chunks of level 1"),
            id="the highest full level first, or tasks that fill level 0 every time would starve it",
        ),
        pytest.param(
            chunks(1, 1, 1, 1, 1), 2, NoMerge("5 chunks, fewer than 3 of any level"), id="a merge may be of pieces"
        ),
        pytest.param(
            chunks(1, 1, 1, 1, 1, 1),
            2,
            Merge(("0", "1", "2", "3", "4", "5"), 2, "6 chunks of level 1"),
            id="three merges of two pieces are full",
        ),
        pytest.param(chunks(0, 0, 0), 2, Merge(("0", "1", "2"), 1, "3 chunks of level 0"), id="tasks write no pieces"),
    ],
)
def test_plan(before: list[ChunkSize], pieces: int, wanted: Merge | NoMerge):
    assert plan_merge(before, fan_in=3, pieces=pieces) == wanted


@dataclass
class Simulated:
    """Chunks after many epochs: each holds panes of some epochs, and expires when the last of them does."""

    most: int = 0
    most_rewrites: int = 0
    merges: int = 0


def simulate(tasks: int, bins: int, window: int, fan_in: int, epochs: int = 1000) -> Simulated:
    seen = Simulated()
    kept: dict[str, ChunkSize] = {}
    rewrites: dict[str, int] = {}
    for epoch in range(epochs):
        for task in range(tasks):
            name = f"{epoch}-{task}"
            kept[name], rewrites[name] = ChunkSize(name, 0, epoch), 0
        kept = {name: chunk for name, chunk in kept.items() if chunk.last_end_us > epoch - window}
        plan = plan_merge(list(kept.values()), fan_in, bins)
        if isinstance(plan, Merge):
            gone = [kept.pop(name) for name in plan.chunks]
            for bin_ in range(bins):
                name = f"{epoch}-merge-{bin_}"
                kept[name] = ChunkSize(name, plan.level, max(chunk.last_end_us for chunk in gone))
                rewrites[name] = 1 + max(rewrites[chunk.name] for chunk in gone)
            seen.merges += 1
        seen.most = max(seen.most, len(kept))
        seen.most_rewrites = max(seen.most_rewrites, *(rewrites[name] for name in kept))
    return seen


@pytest.mark.parametrize("window", [5, 60, 600])
@pytest.mark.parametrize("bins", [1, 4, 8, 16])
@pytest.mark.parametrize("tasks", [1, 4, 8, 32])
def test_chunks_stay_few_and_rows_are_rewritten_seldom(tasks: int, bins: int, window: int):
    fan_in = 8
    seen = simulate(tasks, bins, window, fan_in)
    # A level gathers at most `fan_in` merges; with many tasks each epoch is a merge.
    levels = 1 + math.ceil(math.log(max(2, window * max(1, tasks / fan_in)), fan_in))
    # Two epochs may pile up at the bottom while a higher level is merged.
    assert seen.most <= fan_in + 2 * tasks + levels * fan_in * bins
    assert seen.most_rewrites <= levels + 1
    assert seen.merges or tasks * window < fan_in


def test_without_expiry_rows_are_rewritten_log_times():
    seen = simulate(tasks=1, bins=1, window=10**9, fan_in=4, epochs=1024)
    assert 3 < seen.most_rewrites <= math.log(1024, 4)
    assert seen.most <= 4 * (1 + math.log(1024, 4))


def test_large_chunks_are_merged_only_when_there_are_very_many() -> None:
    def large(count: int) -> list[ChunkSize]:
        return [ChunkSize(str(i), 0, i, 10 << 20) for i in range(count)]

    assert isinstance(plan_merge(large(40)), NoMerge)
    assert isinstance(plan_merge(large(200)), Merge)
    small = [ChunkSize(f"s{i}", 0, i, 1000) for i in range(16)]
    merge = plan_merge([*large(40), *small])
    assert isinstance(merge, Merge)
    assert set(merge.chunks) == {chunk.name for chunk in small}
