"""Ways to run a join: exact however they are switched, and with the loads that the formulas give."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from joins import ARROW, PREDICATES, RANGES, by_chance, judged, make_side, play, sql
from world import SECOND, START, assert_same, results

from headrace.engine import Hooks, Manifest
from headrace.engine.state.state_io import ArrowIo
from headrace.planning import joining
from headrace.policies import JoinStats, SideStats, load_of

# Seeds of the test that switches by chance; more with HEADRACE_SWITCHES=20.
SEEDS = int(os.environ.get("HEADRACE_SWITCHES", "2"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_results_are_exact_when_ways_roles_and_hosts_switch_in_every_epoch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chance = random.Random(seed)
    monkeypatch.setattr(joining, "choose_way", by_chance(chance))
    monkeypatch.setattr(joining, "PERIOD", 1)
    monkeypatch.setattr(ArrowIo, "slots", property(lambda self: chance.choice([1, 2, 3, 5])))
    left, right = make_side(rng, 10, 50, 3, 6, hot=0.4), make_side(rng, 10, 50, 3, 6, hot=0.2)
    cases = [
        (name, how, RANGES[int(rng.integers(0, 3))])
        for name, how in (
            ("equal", ""),
            ("equal", "FULL"),
            ("two keys", "LEFT"),
            ("equal and less", "RIGHT"),
            ("band", ""),
            ("band", "FULL"),
            ("equal and expression", ""),
        )
    ]
    queries = {
        f"q{i}": sql(PREDICATES[n][0], PREDICATES[n][2], ranges, how) for i, (n, how, ranges) in enumerate(cases)
    }
    ways: set[str] = set()

    def watch(manifest: Manifest) -> None:
        ways.update(flow.way.way for flow in manifest.flows.values())

    found = play(spark, tmp_path, left, right, queries, restart=4, flush=True, hooks=Hooks(on_epoch=watch))
    assert ways == {"hash", "split", "biclique", "hybrid"}, "all ways were taken"
    for i, (name, how, ranges) in enumerate(cases):
        assert_same(found[f"q{i}"], judged(left, right, PREDICATES[name][1], PREDICATES[name][3], ranges, how))


def steady(rates: list[tuple[int, int]], keys: int = 1000) -> tuple[list[pa.Table], list[pa.Table]]:
    """Epochs of one second with so many rows of each side."""
    sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    rng = np.random.default_rng(3)
    for epoch, rows in enumerate(rates):
        for side, n in zip(sides, rows, strict=True):
            columns = {
                "ts": pa.array(START + epoch * SECOND + np.sort(rng.integers(0, SECOND, n)), pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, keys, n), pa.int32()),
                "s": ["w"] * n,
                "x": pa.array(rng.random(n) * 100),
                "n": pa.array(np.arange(n), pa.int64()),
            }
            side.append(pa.table(columns, schema=ARROW))
    return sides


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_rows_held_and_sent_are_those_of_theorem_2(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    monkeypatch.setattr(ArrowIo, "slots", property(lambda self: k))
    left, right = steady([(800, 200)] * 8)
    seen: list[Manifest] = []
    query = sql("l.n, r.n AS m", "l.k = r.k", (3, 3))
    play(spark, tmp_path, left, right, {"q": query}, hooks=Hooks(on_epoch=seen.append), join="split")
    last = seen[-1].observed.flows["q"]
    # Rows stay while the watermark, some seconds behind, lets others meet them: what there is, is the window.
    held = [sum(t.num_rows for t in side) - side[-1].num_rows for side in (left, right)]
    stored = [max(h[side] for h in last.held) for side in (0, 1)]
    assert stored[1] <= held[1]
    window = {"left": sum(h[0] for h in last.held), "right": stored[1]}
    wanted = load_of("split", "left", JoinStats(
        SideStats(800, window["left"]), SideStats(200, window["right"]), True, (1.0,) * k))  # fmt: skip
    for received, kept in zip(last.received, last.held, strict=True):
        # A split row goes to one host and is held there, a copied one goes to all and is held by all.
        assert received[1] == 200
        assert kept[1] == window["right"]
        assert sum(received) == pytest.approx(wanted.received_rows, abs=8)
        assert sum(kept) == pytest.approx(wanted.held_rows, abs=8 * len(left))
    # (k - 1) / k of the split stream's rate and window saved by each host.
    assert 1000 - np.mean([sum(r) for r in last.received]) == pytest.approx((k - 1) / k * 800, abs=1)


def test_roles_switch_within_two_periods_when_the_rates_swap(spark: Any, tmp_path: Path) -> None:
    fast, slow, period = 400, 50, joining.PERIOD
    left, right = steady([(fast, slow)] * (2 * period) + [(slow, fast)] * (4 * period))
    seen: list[Manifest] = []
    query = sql("l.n, r.n AS m", "l.x BETWEEN r.x - 0.1 AND r.x + 0.1", (1, 1))
    play(spark, tmp_path, left, right, {"q": query}, hooks=Hooks(on_epoch=seen.append), join="split")
    splits = [manifest.flows["q"].way.split for manifest in seen]
    swapped = 2 * period
    assert splits[swapped - 1] == "left"
    switched = splits.index("right")
    assert swapped < switched <= swapped + 2 * period
    assert set(splits[switched:]) == {"right"}
    shipped = [sum(map(sum, manifest.observed.flows["q"].received)) for manifest in seen]
    hosts = len(seen[-1].observed.flows["q"].received)
    # The split stream once and the copied one to all hosts: before the swap, and a window after the switch.
    assert shipped[swapped - 1] == shipped[-1] == fast + hosts * slow
    assert max(shipped[swapped:switched]) == slow + hosts * fast
    assert_same(
        results(tmp_path / "q"),
        judged(left, right, "l.n, r.n", "l.x BETWEEN r.x - 0.1 AND r.x + 0.1", (1, 1), ""),
    )


def test_what_does_not_fit_the_memory_is_shed_and_counted(spark: Any, tmp_path: Path) -> None:
    epochs, rows, most = 24, 1000, 150
    left, right = steady([(rows, rows)] * epochs)
    seen: list[Manifest] = []
    spark.conf.set("spark.headrace.join.memory", f"{most}k")
    try:
        query = sql("l.n, r.n AS m", "l.x < r.x AND l.k = r.k", (2, 2))
        play(spark, tmp_path, left, right, {"q": query}, hooks=Hooks(on_epoch=seen.append))
    finally:
        spark.conf.unset("spark.headrace.join.memory")
    flow = seen[-1].flows["q"]
    assert flow.way.keep < 1
    ledger = seen[-1].ledger
    assert all(entry.shed > 0 and entry.rows_in == epochs * rows for entry in ledger.values())
    assert flow.shed == sum(entry.shed for entry in ledger.values())
    # What hosts hold in the end is near what they may: shares are estimated from the epochs before.
    held = max(sum(kept) for kept in seen[-1].observed.flows["q"].held)
    size = seen[-1].flows["q"].sample.left.row_bytes
    assert 0.3 * most * 1024 <= held * size <= 1.2 * most * 1024
    # Nothing that is left is wrong.
    wanted = set(judged(left, right, "l.n, r.n", "l.x < r.x AND l.k = r.k", (2, 2), ""))
    assert set(results(tmp_path / "q")) <= wanted
