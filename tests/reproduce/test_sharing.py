"""The worked numbers and the orders of the paper on synchronised schedules, whatever the seed."""

from __future__ import annotations

import pytest

from headrace.reproduce import Figure, Made, Settings
from headrace.reproduce.sharing import SHARING

# What does not come out as in the paper, with the reason in the report: a slip of the paper's, factors of a workload
# that it does not give, aggressive scheduling where scans are what costs, and orders that one scan per epoch levels.
KNOWN_TO_DIFFER = {
    "cost per minute, none merged, as printed",
    "HS about doubles the throughput of CS",
    "HS reduces the latency of CS by an order of magnitude",
    "AS has poor latency",
    "H-LP wins over AS, too",
    "the improvement of HS over CS is more modest than at 1500/s",
    "CS has more throughput than No-S",
    "HS doubles the throughput of CS",
    "AS is later than H-LP",
}


@pytest.mark.parametrize("figure", SHARING.figures, ids=lambda figure: figure.name)
def test_the_papers_claims_hold(figure: Figure, made_quickly: Made) -> None:
    differing = {claim.text: claim.ours for claim in made_quickly.claims if not claim.holds}
    assert differing.keys() <= KNOWN_TO_DIFFER, differing
    assert all(claim.reason for claim in made_quickly.claims if not claim.holds)


@pytest.mark.parametrize("figure", SHARING.only(("5-6", "engine")), ids=lambda figure: figure.name)
def test_a_seed_is_a_trace_and_another_seed_comes_to_the_same(figure: Figure, made_quickly: Made) -> None:
    same, other = (figure.make(Settings(quick=True, seed=seed)) for seed in (1, 2))
    assert made_quickly.rows == same.rows != other.rows
    assert {claim.text for claim in other.claims if not claim.holds} <= KNOWN_TO_DIFFER
