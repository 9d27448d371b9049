"""How many hosts a join gets: as many as bear its work, and none that only receives copies."""

from __future__ import annotations

import pytest

from headrace.policies import JoinDemand, choose_hosts, spread_slices


@pytest.mark.parametrize(
    ("joins", "speeds", "hosts"),
    [
        pytest.param([(9.0, 1.0)], [10.0] * 4, [1], id="one host is enough"),
        pytest.param([(19.0, 1.0)], [10.0] * 4, [3], id="copies count: two hosts bear 18"),
        pytest.param([(99.0, 10.0)], [10.0] * 4, [1], id="a host that only receives copies is not given"),
        pytest.param([(90.0, 1.0), (9.0, 1.0)], [10.0] * 6, [5, 1], id="the join that lacks most gets the next"),
        pytest.param([(90.0, 1.0)] * 2, [10.0] * 6, [3, 3], id="where hosts are too few, each lacks alike"),
        pytest.param([(1.0, 1.0)] * 5, [10.0] * 2, [1] * 5, id="more joins than hosts have one each"),
    ],
)
def test_as_many_hosts_as_bear_the_work(
    joins: list[tuple[float, float]], speeds: list[float], hosts: list[int]
) -> None:
    chosen = choose_hosts([JoinDemand(*join) for join in joins], speeds)
    assert [len(own) for own in chosen] == hosts
    if len(joins) <= len(speeds):
        given = [host for own in chosen for host in own]
        assert len(given) == len(set(given))


def test_what_waits_at_a_host_counts_as_load() -> None:
    assert spread_slices(4, (1.0, 1.0), queued=(3.0, 0.0)) == (1, 1, 1, 0)
    assert spread_slices(3, (4.0, 1.0), queued=(3.0, 0.0)) == (0, 1, 0)
