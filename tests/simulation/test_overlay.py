"""Names find one keeper from everywhere, by short ways; letters arrive whatever happens to them."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from random_trees import plane

from headrace.model import Network
from headrace.simulation.overlay import Arrival, Faults, Letter, Overlay, Wire, identifier

NAMES = [f"operator {number}" for number in range(60)]


@pytest.fixture(scope="module")
def overlay() -> Overlay:
    return Overlay(plane(random.Random(1), 120))


# --- routes ---


def test_all_routes_of_a_name_end_at_its_root(overlay: Overlay):
    for name in NAMES:
        assert {overlay.route(site, name)[-1] for site in overlay.sites} == {overlay.root(name)}


def test_a_site_is_the_root_of_its_own_name(overlay: Overlay):
    assert all(overlay.root(site) == site for site in overlay.sites)


def test_names_are_spread_over_the_sites(overlay: Overlay):
    kept = Counter(overlay.root(f"zone {number}") for number in range(1200))
    assert len(kept) > 0.8 * len(overlay.sites)
    assert max(kept.values()) < 120


def test_every_hop_shares_more_digits_with_the_root(overlay: Overlay):
    def shared(site: str, root: str) -> int:
        return next(n for n, (a, b) in enumerate(zip(identifier(site), identifier(root), strict=True)) if a != b)

    for name in NAMES:
        *passed, root = overlay.route("s7", name)
        digits = [shared(site, root) for site in passed]
        assert all(before < after for before, after in pairwise(digits))


def test_hops_grow_with_the_logarithm_of_the_sites():
    rng = random.Random(2)
    means = []
    for sites in (16, 256):
        overlay = Overlay(plane(rng, sites))
        means.append(statistics.mean(len(overlay.route(rng.choice(overlay.sites), name)) - 1 for name in NAMES))
    assert means[0] < 2.0
    assert means[1] < 3.0


def test_a_routing_table_has_the_nearest_site_of_every_beginning(overlay: Overlay):
    for site in overlay.sites[:20]:
        for (level, digit), known in overlay.table(site).items():
            beginning = identifier(site)[:level] + digit
            others = [other for other in overlay.sites if identifier(other).startswith(beginning)]
            assert overlay.distance_ms(site, known) == min(overlay.distance_ms(site, other) for other in others)


def test_first_hops_are_those_of_the_table(overlay: Overlay):
    for name in NAMES:
        route = overlay.route("s3", name)
        if len(route) > 1:
            assert route[1] in overlay.table("s3").values()


def test_near_sites_first_makes_routes_short():
    network = plane(random.Random(4), 200)
    overlay, rng = Overlay(network), random.Random(5)
    by_overlay = by_chance = 0.0
    for name in NAMES:
        start = rng.choice(network.sites)
        route = overlay.route(start, name)
        by_overlay += overlay.length_ms(route)
        between = rng.sample(network.sites, max(0, len(route) - 2))
        by_chance += overlay.length_ms([start, *between, route[-1]])
    assert by_overlay < 0.9 * by_chance


def test_when_a_root_leaves_the_next_one_is_found_from_everywhere_and_other_names_stay(overlay: Overlay):
    gone: set[str] = set()
    for name in NAMES[:8]:
        roots = {other: overlay.root(other, gone) for other in NAMES}
        gone.add(roots[name])
        for other in NAMES:
            root = overlay.root(other, gone)
            assert root not in gone
            assert root == roots[other] or roots[other] in gone
        for start in overlay.sites[::7]:
            assert overlay.route(start, name, gone)[-1] == overlay.root(name, gone)
            assert not gone.intersection(overlay.route(start, name, gone)[1:])


def test_one_site_keeps_everything():
    alone = Overlay(Network(("hub",), ((0.0,),)))
    assert alone.route("hub", "anything") == ("hub",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Overlay(Network((), ())), "needs at least one site", id="no site"),
        pytest.param(
            lambda: Overlay(plane(random.Random(0), 2)).root("x", {"s0", "s1"}), "all 2 have left", id="all have left"
        ),
        pytest.param(
            lambda: Overlay(plane(random.Random(0), 2)).route("s0", "x", ["s0", "s1"]), "all 2 have left", id="no way"
        ),
        pytest.param(lambda: Faults(loss=1.5), "loss is a share between 0 and 1, not 1.5", id="a share above 1"),
        pytest.param(lambda: Faults(crash_share=-0.1), "crash_share is a share", id="a share below 0"),
        pytest.param(lambda: Faults(jitter_ms=-1.0), "jitter_ms is 0 or more, not -1.0", id="early letters"),
        pytest.param(lambda: Faults(crashes=-1), "crashes is 0 or more, not -1", id="fewer than no crashes"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        make()


# --- letters ---


def wire_of(overlay: Overlay, faults: Faults | None = None, seed: int = 0, lasting: tuple[str, ...] = ()) -> Wire[int]:
    return Wire(overlay, random.Random(seed), faults or Faults(), lasting)


def play(wire: Wire[int]) -> list[Arrival[int]]:
    found = []
    while (arrival := wire.next_arrival()) is not None:
        found.append(arrival)
        if arrival.letter.to_keeper:
            wire.may_crash(arrival.site)
    return found


def test_letters_arrive_after_the_milliseconds_of_their_way(overlay: Overlay):
    wire = wire_of(overlay)
    wire.post(Letter("s0", "s1", 1))
    (arrival,) = play(wire)
    assert (arrival.route, wire.hops) == (("s0", "s1"), 1)
    assert wire.now_ms == overlay.distance_ms("s0", "s1")


def test_letters_to_keepers_pass_the_overlay(overlay: Overlay):
    wire = wire_of(overlay)
    wire.post(Letter("s0", NAMES[0], 1, to_keeper=True))
    (arrival,) = play(wire)
    assert arrival.route == overlay.route("s0", NAMES[0])
    assert wire.hops == len(arrival.route) - 1
    assert wire.now_ms == overlay.length_ms(arrival.route)


def test_routed_letters_to_a_server_pass_the_overlay_too(overlay: Overlay):
    wire = wire_of(overlay)
    wire.post(Letter("s0", "s9", 1, routed=True))
    (arrival,) = play(wire)
    assert arrival.route == overlay.route("s0", "s9")
    assert arrival.site == "s9"


def test_a_letter_to_ones_own_site_takes_no_hop_and_no_time(overlay: Overlay):
    wire = wire_of(overlay)
    wire.post(Letter("s0", "s0", 1))
    assert [arrival.route for arrival in play(wire)] == [("s0",)]
    assert (wire.hops, wire.now_ms) == (0, 0.0)


def test_letters_of_one_instant_keep_their_order(overlay: Overlay):
    wire = wire_of(overlay)
    for number in range(20):
        wire.post(Letter("s0", "s1", number))
    assert [arrival.letter.content for arrival in play(wire)] == list(range(20))


def test_late_letters_are_overtaken(overlay: Overlay):
    wire = wire_of(overlay, Faults(jitter_ms=50.0))
    for number in range(20):
        wire.post(Letter("s0", "s1", number))
    order = [arrival.letter.content for arrival in play(wire)]
    assert order != sorted(order)
    assert sorted(order) == list(range(20))


@pytest.mark.parametrize("loss", [0.1, 0.5, 0.9, 1.0])
def test_every_letter_arrives_however_many_are_lost(overlay: Overlay, loss: float):
    wire = wire_of(overlay, Faults(loss=loss, losses=6))
    for number in range(50):
        wire.post(Letter(f"s{number}", "s60", number))
    assert {arrival.letter.content for arrival in play(wire)} == set(range(50))
    assert wire.lost > 0
    assert wire.repeated >= wire.lost / 2


def test_when_a_keeper_crashes_all_its_letters_go_to_the_next_root(overlay: Overlay):
    """The first keeper crashes before it has read the letter; the next root reads it."""
    wire = wire_of(overlay, Faults(crashes=1, crash_share=1.0))
    name = NAMES[0]
    first = overlay.root(name)
    wire.post(Letter("s0", name, 1, to_keeper=True))
    (arrival,) = play(wire)
    assert wire.crashed == {first}
    assert arrival.site == overlay.root(name, {first})


def test_letters_that_were_read_long_before_a_crash_are_sent_again(overlay: Overlay):
    wire = wire_of(overlay, Faults(crashes=1, crash_share=0.0))
    name = NAMES[0]
    for number in range(3):
        wire.post(Letter(f"s{number}", name, number, to_keeper=True))
    assert {arrival.site for arrival in play(wire)} == {overlay.root(name)}
    wire.faults = Faults(crashes=1, crash_share=1.0)
    wire.may_crash(overlay.root(name))
    again = play(wire)
    assert sorted(arrival.letter.content for arrival in again) == [0, 1, 2]
    assert {arrival.site for arrival in again} == {overlay.root(name, wire.crashed)}


def test_what_a_crashed_keeper_was_saying_is_not_said_again_by_it(overlay: Overlay):
    wire = wire_of(overlay, Faults(loss=1.0, losses=3, crashes=1, crash_share=1.0))
    wire.post(Letter("s4", "s5", 1, by_keeper=True))
    wire.post(Letter("s4", "s5", 2))
    wire.may_crash("s4")
    assert {arrival.letter.content for arrival in play(wire)} == {2}


def test_what_a_keeper_would_know_later_is_lost_with_it(overlay: Overlay):
    wire = wire_of(overlay, Faults(crashes=1, crash_share=1.0))
    wire.note("s4", 1, after_ms=10.0)
    wire.may_crash("s4")
    assert play(wire) == []


def test_servers_run_on_where_a_keeper_has_crashed(overlay: Overlay):
    wire = wire_of(overlay, Faults(crashes=1, crash_share=1.0))
    wire.may_crash("s4")
    wire.post(Letter("s0", "s4", 1, routed=True))
    assert [arrival.site for arrival in play(wire)] == ["s4"]


def test_lasting_keepers_never_crash(overlay: Overlay):
    wire = wire_of(overlay, Faults(crashes=5, crash_share=1.0), lasting=("s4",))
    wire.may_crash("s4")
    assert wire.crashed == set()


def test_no_more_keepers_crash_than_may(overlay: Overlay):
    wire = wire_of(overlay, Faults(crashes=4, crash_share=0.5, loss=0.2))
    for number, name in enumerate(NAMES):
        wire.post(Letter("s0", name, number, to_keeper=True))
    assert {arrival.letter.content for arrival in play(wire)} == set(range(len(NAMES)))
    assert len(wire.crashed) == 4


def test_everything_follows_from_the_seed(overlay: Overlay):
    def run(seed: int) -> tuple[list[int], int, float]:
        wire = wire_of(overlay, Faults(loss=0.3, jitter_ms=40.0, crashes=3), seed)
        for number, name in enumerate(NAMES):
            wire.post(Letter("s0", name, number, to_keeper=True))
        return [arrival.letter.content for arrival in play(wire)], wire.hops, wire.now_ms

    assert run(1) == run(1)
    assert run(1) != run(2)
