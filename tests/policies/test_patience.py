"""How long an epoch may take."""

from __future__ import annotations

import pytest

from headrace.errors import SpecError
from headrace.policies import Patience, tuning_of


@pytest.mark.parametrize(("multiple", "trigger_s"), [(0, 1.0), (10, -1.0)])
def test_a_limit_leaves_time(multiple: int, trigger_s: float):
    with pytest.raises(ValueError, match="leaves no time"):
        Patience(multiple, trigger_s)


def test_epochs_without_a_pause_have_time():
    patience = Patience(10, 0.0)
    assert (patience.limit_s, patience.allowed_s(0.2), patience.allowed_s(3.0)) == (10.0, 10.0, 30.0)
    assert "the limit is 10 times a second (" in patience.cause(10.4, 0.2, "9 rows")


def test_the_multiple_is_a_setting():
    assert (tuning_of({}).patience, tuning_of({"spark.headrace.patience": "7"}).patience) == (60, 7)
    with pytest.raises(SpecError, match="whole number of at least 1"):
        tuning_of({"spark.headrace.patience": "0"})
