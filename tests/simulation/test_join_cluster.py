"""A cluster of joins: rows and pairs are counted right, and what hosts cannot do waits or is dropped."""

from __future__ import annotations

import random

import pytest

from headrace.simulation import JoinCluster, Spread, demand_of, draw_cluster, drawn_hosts, play_joins, single_hosts

# One join of 10 rows per second a side (8 come: times between rows are 1.25/r) on hosts that bear anything.
FAST = JoinCluster((1e9,) * 4, (10**6,) * 4, (((10.0, 10.0),),), 1000)
ALL = ((0, 1, 2, 3),)


def test_hosts_that_keep_up_make_every_pair_once_however_many_they_are() -> None:
    one, four = (play_joins(FAST, Spread(hosts), 200, random.Random(1)) for hosts in (((0,),), ALL))
    assert four.throughput == pytest.approx(one.throughput, rel=1e-9)
    assert four.throughput == pytest.approx(2 * 8 * 8 * 10 * 200, rel=0.1)
    assert four.dropped == 0


def test_copied_rows_are_received_by_every_host_and_split_rows_by_one() -> None:
    one, four = (play_joins(FAST, Spread(hosts, adapts=False), 200, random.Random(1)) for hosts in (((0,),), ALL))
    copied = (four.received - one.received) / 3
    assert copied == pytest.approx(8 * 200, rel=0.05), "three more hosts, (k - 1) r more rows"


def test_rows_beyond_a_hosts_memory_are_dropped() -> None:
    slow = JoinCluster((100.0,), (50,), (((10.0, 10.0),),), 1000)
    found = play_joins(slow, single_hosts(slow), 100, random.Random(1))
    assert found.dropped > 0.5 * found.received
    assert found.utilisation[0] <= 1


def test_even_draws_leave_no_host_without_a_join_while_there_are_enough() -> None:
    hosts = drawn_hosts(random.Random(1), 20, 4, 5, even=True)
    assert sorted(host for own in hosts for host in own) == list(range(20))


def test_the_demand_of_a_join_is_its_pairs_and_rows() -> None:
    (demand,) = demand_of(FAST)
    assert demand.work == pytest.approx(2 * 50 * 8 * 8 * 10 + 80)
    assert demand.copied == pytest.approx(80)


def test_the_same_seed_plays_the_same() -> None:
    cluster = draw_cluster(random.Random(1), 10, 2)
    spread = Spread(drawn_hosts(random.Random(2), 10, 2, 5, even=True))
    assert play_joins(cluster, spread, 100, random.Random(3)) == play_joins(cluster, spread, 100, random.Random(3))
