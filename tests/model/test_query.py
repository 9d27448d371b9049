"""What a bound query may say."""

from __future__ import annotations

import pytest

from headrace.model import DataType, Finish, Kind, OrderKey, Output

OUTPUTS = (Output("n", "a0", DataType(Kind.BIGINT)),)
BY_N = (OrderKey("a0", True, False),)


def test_ties_of_a_limit_are_kept_in_an_order() -> None:
    assert Finish(OUTPUTS, order_by=BY_N, limit=1, ties=True).ties


@pytest.mark.parametrize(
    ("order_by", "limit"),
    [
        pytest.param(BY_N, None, id="ties of no limit"),
        pytest.param((), 1, id="ties in no order"),
    ],
)
def test_ties_need_an_order_and_a_limit(order_by: tuple[OrderKey, ...], limit: int | None) -> None:
    with pytest.raises(ValueError, match="WITH TIES goes with ORDER BY and LIMIT"):
        Finish(OUTPUTS, order_by=order_by, limit=limit, ties=True)
