"""How joins are spread over hosts: every pair by one host whatever was decided when, and the way that costs least."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import EVERYWHERE, KEY, ONCE, Block, JoinWay, host_of
from headrace.policies import JoinStats, SideStats, choose_way, learn_speeds, load_of, spread_slices

LEFT, RIGHT = "left", "right"


def stats(
    left: float,
    right: float,
    k: int = 4,
    windows: float = 10,
    equality: bool = True,
    hot: float = 0.0,
    memory_bytes: float | None = None,
) -> JoinStats:
    heavy = {1: hot} if hot else {}
    sides = SideStats(left, windows * left, 50.0, heavy), SideStats(right, windows * right, 50.0)
    return JoinStats(*sides, equality, (1.0,) * k, memory_bytes)


# Exactness ---------------------------------------------------------------------------------------------------------

SLICES = 4


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, list[tuple[int, Block]]]]:
    """Epochs with a way each: rows of both sides, each with its key, and the block its way puts it into."""
    epochs = []
    for _ in range(draw(st.integers(1, 6))):
        way = draw(st.sampled_from(["hash", "split left", "split right", "biclique", "hybrid left", "hybrid right"]))
        hot = draw(st.frozensets(st.integers(0, 5), max_size=3))
        rows: dict[str, list[tuple[int, Block]]] = {}
        for side in (LEFT, RIGHT):
            kind = ONCE if way == "biclique" or way.endswith(side) else EVERYWHERE
            rows[side] = []
            for number, key in enumerate(draw(st.lists(st.integers(0, 5), max_size=6))):
                by_key = way == "hash" or (way.startswith("hybrid") and key not in hot)
                rows[side].append(
                    (key, Block(KEY, key % SLICES, True) if by_key else Block(kind, number % SLICES, True))
                )
        epochs.append(rows)
    return epochs


@given(histories(), st.lists(st.lists(st.integers(0, 2), min_size=SLICES, max_size=SLICES), min_size=6, max_size=6))
def test_every_pair_is_made_once_across_any_ways_roles_hot_keys_and_hosts(
    epochs: list[dict[str, list[tuple[int, Block]]]], hosts: list[list[int]]
) -> None:
    made: Counter[tuple[tuple[int, int], tuple[int, int]]] = Counter()
    held: dict[str, list[tuple[tuple[int, int], Block]]] = {LEFT: [], RIGHT: []}
    keys: dict[str, dict[tuple[int, int], int]] = {LEFT: {}, RIGHT: {}}
    for number, rows in enumerate(epochs):
        new = {side: [((number, i), block) for i, (_, block) in enumerate(rows[side])] for side in (LEFT, RIGHT)}
        for side in (LEFT, RIGHT):
            keys[side] |= {(number, i): key for i, (key, _) in enumerate(rows[side])}
        for a, left in (*held[LEFT], *new[LEFT]):
            for b, right in (*held[RIGHT], *new[RIGHT]):
                if host_of(left, right, hosts[number]) is not None and keys[LEFT][a] == keys[RIGHT][b]:
                    made[a, b] += 1
        for side in (LEFT, RIGHT):
            held[side] += [(id_, replace(block, fresh=False)) for id_, block in new[side]]
    wanted = Counter((a, b) for a, k in keys[LEFT].items() for b, j in keys[RIGHT].items() if k == j)
    assert made == wanted


@pytest.mark.parametrize(
    ("left", "right", "host"),
    [
        pytest.param(Block(KEY, 1, False), Block(KEY, 1, False), None, id="two old blocks have met already"),
        pytest.param(Block(KEY, 1, True), Block(KEY, 2, False), None, id="other slices of the keys never fit"),
        pytest.param(Block(KEY, 1, True), Block(KEY, 1, False), 1, id="a slice of the keys stays on its host"),
        pytest.param(Block(ONCE, 1, True), Block(EVERYWHERE, 2, False), 1, id="a split row meets the copied window"),
        pytest.param(Block(ONCE, 1, False), Block(EVERYWHERE, 2, True), 1, id="a copied row goes to the split window"),
        pytest.param(Block(ONCE, 1, True), Block(ONCE, 2, False), 2, id="what is held once has new rows sent to it"),
        pytest.param(Block(ONCE, 1, True), Block(ONCE, 2, True), 1, id="two new rows meet at the left one's home"),
        pytest.param(
            Block(EVERYWHERE, 1, False), Block(EVERYWHERE, 2, True), 2, id="after a switch: at the new row's home"
        ),
    ],
)
def test_who_makes_a_pair(left: Block, right: Block, host: int | None) -> None:
    assert host_of(left, right, (0, 1, 2, 3)) == host


def test_keys_that_were_always_hot_are_not_looked_for_among_cold_ones() -> None:
    assert host_of(Block(KEY, 1, True), Block(ONCE, 2, False), (0, 1, 2, 3), mixed=False) is None
    assert host_of(Block(ONCE, 1, True), Block(ONCE, 2, False), (0, 1, 2, 3), mixed=False) == 2


# Theorem 2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_splitting_saves_each_host_what_theorem_2_says(k: int) -> None:
    one, many = (load_of("split", LEFT, stats(800, 200, hosts)) for hosts in (1, k))
    # (k - 1) / k of the split stream's rate, and of its window, per host.
    assert one.received_rows - many.received_rows == pytest.approx((k - 1) / k * 800)
    assert one.held_rows - many.held_rows == pytest.approx((k - 1) / k * 8000)


# The choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "way", "split"),
    [
        pytest.param(stats(1e6, 1e6), "hash", None, id="balanced keys are hashed"),
        pytest.param(stats(1e6, 2e5, hot=0.3), "hybrid", LEFT, id="a hot key is split, the others are hashed"),
        pytest.param(stats(1e6, 1e4, equality=False), "split", LEFT, id="without an equality the faster side is split"),
        pytest.param(stats(1e4, 1e6, equality=False), "split", RIGHT, id="and that may be the right one"),
        pytest.param(
            stats(1e5, 1e5, 16, windows=1000, equality=False),
            "biclique",
            None,
            id="long windows are held once and both deltas sent everywhere",
        ),
        pytest.param(
            stats(1e5, 1e5, equality=False, memory_bytes=3e7),
            "biclique",
            None,
            id="a copied window must fit the memory",
        ),
    ],
)
def test_the_way_that_costs_least(given_: JoinStats, way: str, split: str | None) -> None:
    chosen = choose_way(given_)
    assert (chosen.way, chosen.split) == (way, split)
    assert chosen.keep == 1.0


@pytest.mark.parametrize("way", ["hash", "split", "biclique", "hybrid"])
def test_a_way_that_is_asked_for_is_taken(way: str) -> None:
    assert choose_way(stats(1000, 1000), way).way == way


def test_hash_without_an_equality_becomes_split() -> None:
    assert choose_way(stats(1000, 10, equality=False), "hash").way == "split"


def test_when_no_way_fits_the_leanest_is_taken_and_rows_are_shed() -> None:
    chosen = choose_way(stats(1e5, 1e5, memory_bytes=1e7))
    assert chosen.keep == pytest.approx(1e7 / (2e6 * 50 / 4))


def test_roles_switch_only_for_a_clear_gain() -> None:
    before = choose_way(stats(1.2e6, 1e6, windows=1, equality=False))
    assert (before.way, before.split) == ("split", LEFT)
    slightly = choose_way(stats(1e6, 1.1e6, windows=1, equality=False), before=before)
    assert (slightly.way, slightly.split) == ("split", LEFT)
    assert "stays" in slightly.reason
    clearly = choose_way(stats(1e5, 1.2e6, windows=1, equality=False), before=before)
    assert (clearly.way, clearly.split) == ("split", RIGHT)


def test_hot_keys_stay_hot_until_others_take_their_place() -> None:
    before = choose_way(stats(1e6, 2e5, hot=0.3))
    assert (before.way, before.hot) == ("hybrid", (1,))
    cooler = choose_way(stats(1e6, 2e5, hot=0.1), before=before)
    assert (cooler.way, cooler.hot) == ("hybrid", (1,))
    given_ = stats(1e6, 2e5)
    moved = choose_way(replace(given_, left=replace(given_.left, heavy={2: 0.3})), before=before)
    assert (moved.way, moved.hot) == ("hybrid", (2,))


def test_hosts_get_slices_by_their_speed_and_keep_them_while_that_is_even() -> None:
    assert Counter(spread_slices(9, (2.0, 1.0))) == {0: 6, 1: 3}
    before = spread_slices(8, (1.0, 1.0))
    assert spread_slices(8, (1.2, 0.9), before) == before
    assert Counter(spread_slices(8, (3.0, 1.0), before)) == {0: 6, 1: 2}
    assert set(spread_slices(8, (1.0,), before)) == {0}


@pytest.mark.parametrize(
    ("known", "rates", "idle", "learned"),
    [
        pytest.param((1.0, 1.0), {}, (), (1.0, 1.0), id="nothing was measured"),
        pytest.param((1.0, 1.0), {0: 500.0}, (), (1.0, 1.0), id="one alone is no faster than itself"),
        pytest.param((1.2, 0.8), {0: 120.0, 1: 80.0}, (), (1.2, 0.8), id="as was known"),
        pytest.param((1.0, 1.0), {0: 30.0, 1: 10.0}, (), (1.1, 0.9), id="a fifth of the way to what is measured"),
        pytest.param((1.3, 1.3, 0.4), {0: 9.0, 1: 9.0}, (2,), (1.2922, 1.2922, 0.4155), id="one without work"),
        pytest.param((1.0, 1.0), {0: 9.0, 1: 0.0}, (), (1.2, 0.8), id="a host that does nothing for its time"),
        pytest.param((1.99, 0.01), {0: 9.0, 1: 0.0}, (), (1.992, 0.01), id="but no speed is nothing"),
        pytest.param((1.0, 1.0), {0: 0.0, 1: 0.0}, (), (1.0, 1.0), id="nobody had rows"),
        pytest.param((1.0,), {}, (0,), (1.0,), id="nobody works"),
    ],
)
def test_speeds_are_learned(
    known: tuple[float, ...], rates: dict[int, float], idle: tuple[int, ...], learned: tuple[float, ...]
) -> None:
    assert learn_speeds(known, rates, idle) == pytest.approx(learned, abs=1e-4)


def test_a_host_that_was_slow_for_long_gets_work_again() -> None:
    real, speeds, hosts = [1.0, 0.05], (1.0, 1.0), spread_slices(8, (1.0, 1.0))
    counts = []
    for epoch in range(300):
        real[1] = 0.05 if epoch < 100 else 1.0
        busy = {host: 1000.0 * real[host] for host in set(hosts)}
        speeds = learn_speeds(speeds, busy, {0, 1} - set(hosts))
        hosts = spread_slices(8, speeds, hosts)
        counts.append(hosts.count(1))
    assert 0 in counts[:100], "hardly any speed, no slices"
    assert counts[-1] in (3, 4), "even, as far as it is worth dealing out anew"


def test_a_decision_says_why() -> None:
    chosen = choose_way(stats(1e6, 2e5, hot=0.3))
    assert chosen.reason == (
        "hybrid left is least: 1000000 and 200000 rows per epoch on 4 hosts, 1 hot keys; the busiest host gets 300000 "
        "rows and holds 3000000, 0.1200 s"
    )
    assert isinstance(chosen, JoinWay)
    assert set(chosen.costs_s) == {"hash", "hybrid left", "split left", "split right", "biclique"}
