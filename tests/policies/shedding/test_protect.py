"""Rare groups stay whole as long as frequent ones can pay for them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.policies.shedding.protect import protect_rare


@pytest.mark.parametrize(
    ("counts", "keep", "wanted"),
    [
        pytest.param([1000.0, 10.0, 10.0], 0.5, (0.49, 1.0, 1.0), id="the frequent pay for the rare"),
        pytest.param([100.0, 100.0], 0.3, (0.3, 0.3), id="equals lose alike"),
        pytest.param([0.0, 100.0], 0.3, (1.0, 0.3), id="what never came is kept whole"),
        pytest.param([0.0, 0.0], 0.3, (0.3, 0.3), id="without counts all are alike"),
        pytest.param([50.0, 7.0], 1.0, (1.0, 1.0), id="all is kept"),
        pytest.param([50.0, 7.0], 0.0, (0.0, 0.0), id="nothing is kept"),
    ],
)
def test_fractions_by_bucket(counts: list[float], keep: float, wanted: tuple[float, ...]):
    assert protect_rare(counts, keep) == pytest.approx(wanted)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 10_000).map(float), min_size=1, max_size=64), st.floats(0, 1))
def test_as_many_rows_are_kept_as_without_protection_and_rarer_buckets_keep_more(counts: list[float], keep: float):
    found = protect_rare(counts, keep)
    assert all(0 <= part <= 1 for part in found)
    kept = sum(count * part for count, part in zip(counts, found, strict=True))
    assert kept == pytest.approx(keep * sum(counts), rel=1e-3, abs=1.0 + 1e-4 * sum(counts))
    by_size = [part for _, part in sorted(zip(counts, found, strict=True))]
    assert by_size == sorted(by_size, reverse=True) or not sum(counts)
