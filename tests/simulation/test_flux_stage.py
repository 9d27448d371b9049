"""The paper's stage: what flows where, before any policy moves anything."""

from __future__ import annotations

import random

import pytest

from headrace.policies import FluxSettings
from headrace.simulation import Burden, FluxStage, Played, Pressure, paper_settings, play_stage

STAGE = FluxStage(nodes=8)
STATIC = paper_settings(moves=False)


def play(stage: FluxStage, policy: FluxSettings, seconds: int, **others: object) -> Played:
    return play_stage(stage, policy, seconds, random.Random(1), **others)  # type: ignore[arg-type]


def test_an_unloaded_stage_is_as_fast_as_its_nodes_and_nothing_moves() -> None:
    calm = play(STAGE, paper_settings(), 2)
    assert calm.mean() == pytest.approx(STAGE.unloaded_per_s, rel=0.01)
    assert not calm.moves


def test_a_slow_node_slows_all_once_the_buffers_are_full() -> None:
    played = play(STAGE, STATIC, 7, burden=Burden((3,), begins_s=0.0))
    assert played.seconds[0].tuples > 0.9 * STAGE.unloaded_per_s
    assert played.seconds[-1].tuples == pytest.approx(0.43 * STAGE.unloaded_per_s, rel=0.05)


def test_the_same_seed_plays_the_same_and_another_another() -> None:
    burden = Burden((0,), begins_s=0.0)
    one, two = (play(STAGE, paper_settings(0.05), 3, burden=burden) for _ in range(2))
    other = play_stage(STAGE, paper_settings(0.05), 3, random.Random(2), burden)
    assert one == two != other


def test_a_node_without_memory_stands_still_while_it_writes_and_then_takes_turns() -> None:
    stage = FluxStage(nodes=4, partitions_per_node=16, partition_bytes=6_000_000, memory_bytes=1e9)
    played = play(stage, STATIC, 12, pressure=Pressure((0,), memory_bytes=60e6))
    rates = [second.tuples / stage.unloaded_per_s for second in played.seconds]
    assert rates[0] > 0.99, "before the pressure"
    assert min(rates[1:4]) < 0.3, "seven partitions are written in 2 s"
    assert 6 <= played.seconds[-1].spilled <= 7, "60 MB hold ten partitions, of which one has its turn"
    assert played.seconds[-1].latency_s > 1000 * 45e-6


def test_moves_let_every_partition_fit_again() -> None:
    stage = FluxStage(nodes=4, partitions_per_node=16, partition_bytes=6_000_000, memory_bytes=200e6)
    played = play(stage, paper_settings(), 25, pressure=Pressure((0,), memory_bytes=60e6))
    assert played.seconds[-1].spilled == 0
    assert sum(source == 0 for _, source, _ in played.moves) >= 6
    assert played.seconds[-1].latency_s == pytest.approx(45e-6)
